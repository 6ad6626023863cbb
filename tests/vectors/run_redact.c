/* run_redact.c — redact: what of an answer reaches the client, by the matcher, the fields and the
 * filter.  What the gate decides is run_answer.c's. */
#include "policies/redact.h"

#include "base/text.h"
#include "egress/vault/scrub.h"
#include "vectors/run_redact.h"

enum { BODY_MIN = 6, ROOM = 65536, AUTHS = 16 };

/* ---- the vault of a row */

static struct str value_of(struct row *r, const struct json *use)
{
    const struct json *all = row_member(row_member(r->v, "vault"), "credentials");
    struct str name = row_text(use, "credential");
    return row_text(all, arena_printf(r->a, "%.*s", STR_ARG(name)).p);
}

struct parts {
    struct redact_use uses[AUTHS];
    struct str placeholders[AUTHS];
    struct redact_list list;
};

static void add_auth(struct row *r, const struct json *auth, struct parts *p)
{
    struct redact_use *use = &p->uses[p->list.nuses];
    *use = (struct redact_use){value_of(r, auth), row_is(auth, "type", "bearer"),
                               row_is(auth, "type", "basic")};
    p->list.nuses += use->value.n > 0;
    const struct json *subs = row_member(auth, "substitutions");
    for (const struct json *v = subs ? json_first(subs) : NULL; v; v = json_next(v)) {
        p->uses[p->list.nuses++].value = value_of(r, v);
        p->placeholders[p->list.nplaceholders++] = row_text(v, "placeholder");
    }
}

static struct redaction *redaction_of_row(struct row *r)
{
    struct parts p = {.list = {.uses = p.uses, .placeholders = p.placeholders}};
    const struct json *vault = row_member(r->v, "vault"), *auths = row_member(vault, "auth"),
                      *flow = row_member(vault, "flow");
    p.list.body_min = BODY_MIN;
    for (const struct json *v = json_first(auths); v; v = json_next(v))
        add_auth(r, v, &p);
    struct redaction *base = redaction_new(&p.list);
    struct str more[AUTHS];
    unsigned n = 0;
    for (const struct json *v = flow ? json_first(flow) : NULL; v; v = json_next(v))
        more[n++] = json_string(v);
    struct redaction *all = redaction_with(base, more, n, BODY_MIN);
    redaction_unref(base);
    return all;
}

/* ---- fields */

/* As UTF-8: values here are any text. */
struct field *redact_fields_of(struct row *r, const struct json *list, unsigned *ret_n)
{
    struct field *fields = arena_get(r->a, (list ? json_count(list) : 0) * sizeof *fields);
    unsigned n = 0;
    for (const struct json *pair = list ? json_first(list) : NULL; pair; pair = json_next(pair))
        fields[n++] =
            (struct field){json_string(json_first(pair)), json_string(json_next(json_first(pair)))};
    *ret_n = n;
    return fields;
}

static bool is_sum(struct str name)
{
    static const char *const sums[] = {"content-length", "content-md5", "digest", "content-digest",
                                       "repr-digest"};
    for (size_t i = 0; i < sizeof sums / sizeof *sums; i++)
        if (str_ieq(name, str_of(sums[i])))
            return true;
    return false;
}

struct str redact_joined(struct row *r, const struct field *fields, unsigned n, bool coded)
{
    struct str text = STR("");
    for (unsigned i = 0; i < n; i++)
        if (!coded || !is_sum(fields[i].name))
            text = arena_printf(r->a, "%.*s%.*s: %.*s\n", STR_ARG(text), STR_ARG(fields[i].name),
                                STR_ARG(fields[i].value));
    return text;
}

static bool same_fields(struct row *r, const struct redaction *red, const char *name,
                        const struct json *given, const struct json *expected, bool coded)
{
    unsigned n, nwant;
    const struct json *list = row_member(given, name), *want_list = row_member(expected, name);
    if (!list || !want_list)
        return true;
    struct field *fields = redact_fields_of(r, list, &n),
                 *want = redact_fields_of(r, want_list, &nwant);
    redact_fields(red, fields, n, r->a);
    return row_same(r, name, redact_joined(r, fields, n, coded),
                    redact_joined(r, want, nwant, false));
}

static bool same_heads(struct row *r, const struct redaction *red, bool coded)
{
    const struct json *given = row_member(r->v, "response"), *expected = row_member(r->v, "expect"),
                      *interim = row_member(given, "interim"),
                      *want = row_member(expected, "interim");
    struct str reason = redact_value(red, row_text(given, "reason"), r->a);
    return same_fields(r, red, "headers", given, expected, coded) &&
           same_fields(r, red, "trailers", given, expected, false) &&
           (!interim ||
            same_fields(r, red, "headers", json_first(interim), json_first(want), false)) &&
           row_same(r, "reason", reason, row_text(expected, "reason"));
}

/* ---- bodies */

struct str redact_from_base64(struct row *r, struct str text)
{
    uint8_t *bytes = arena_get(r->a, text.n + 1);
    size_t n = 0;
    if (!text_base64(text, bytes, &n))
        row_fail(r, "a row is no base64");
    return (struct str){(const char *)bytes, n};
}

static struct str all_of(struct row *r, const struct buf *b)
{
    char *text = arena_get(r->a, b->len + 1);
    buf_peek(b, text, b->len);
    return (struct str){text, b->len};
}

struct run {
    struct filter *f;
    struct buf in, out;
    enum why why;
    bool done;
};

static bool push(struct row *r, struct run *run, struct str bytes, bool end,
                 const struct json **ask)
{
    buf_str(&run->in, bytes);
    run->why = run->f->ops->push(run->f, &run->in, end, ROOM, &run->out, &run->done);
    if (!*ask || end)
        return true;
    int64_t released = 0;
    json_int(r->doc, *ask, &released);
    *ask = json_next(*ask);
    return row_same_int(r, "released", (int64_t)run->out.len, released);
}

static bool push_all(struct row *r, struct run *run)
{
    const struct json *given = row_member(r->v, "response"), *b64 = row_member(given, "chunks_b64"),
                      *list = b64 ? b64 : row_member(given, "chunks"),
                      *released = row_member(row_member(r->v, "expect"), "released"),
                      *ask = released ? json_first(released) : NULL;
    bool good = true;
    for (const struct json *v = list ? json_first(list) : NULL; v && good && run->why == WHY_OK;
         v = json_next(v))
        good =
            push(r, run, b64 ? redact_from_base64(r, json_string(v)) : json_string(v), false, &ask);
    return good && (run->why != WHY_OK || push(r, run, STR(""), true, &ask));
}

/* What the client reads of it; whole: to its end. */
static struct str decoded(struct row *r, enum coding c, struct buf *coded, bool whole)
{
    struct buf plain;
    bool more;
    if (c == CODING_NONE)
        return all_of(r, coded);
    struct decoder *d = decoder_new(c);
    buf_init(&plain, coded->pool);
    if (decoder_push(d, coded, whole, SIZE_MAX, &plain, &more) != WHY_OK)
        row_fail(r, "our coding cannot be read");
    struct str text = all_of(r, &plain);
    decoder_free(d);
    buf_clear(&plain);
    return text;
}

static bool same_body(struct row *r, struct redaction *red, enum coding c, struct chunk_pool *pool)
{
    const struct json *expected = row_member(r->v, "expect");
    struct run run = {.f = scrub_new(red, c, pool, NULL)};
    bool aborted = row_bool(expected, "aborted");
    buf_init(&run.in, pool);
    buf_init(&run.out, pool);
    bool good = push_all(r, &run);
    good = good && row_same_int(r, "aborted", run.why != WHY_OK, aborted) &&
           row_same_int(r, "done", run.done, !aborted);
    struct str want = row_member(expected, "body_b64")
                          ? redact_from_base64(r, row_text(expected, "body_b64"))
                          : row_text(expected, "body");
    good =
        good && row_same(r, "body", decoded(r, c, &run.out, !aborted), want) && r->trouble.n == 0;
    run.f->ops->free(run.f);
    buf_clear(&run.in);
    buf_clear(&run.out);
    return good;
}

static bool check(struct row *r, struct redaction *red)
{
    const struct json *given = row_member(r->v, "response"), *expected = row_member(r->v, "expect");
    int64_t status = row_int(r, given, "status", 0);
    unsigned n;
    struct field *fields = redact_fields_of(r, row_member(given, "headers"), &n);
    bool empty = row_bool(given, "head") || status == 204 || status == 304;
    enum coding c = empty ? CODING_NONE : coding_read(fields, n);
    if (row_int(r, expected, "status", 0) == 502 || c == CODING_UNKNOWN)
        return row_same_int(r, "502", c == CODING_UNKNOWN,
                            row_int(r, expected, "status", 0) == 502);
    if (!same_heads(r, red, c != CODING_NONE))
        return false;
    if (empty || !redaction_body(red))
        return true;
    struct chunk_pool *pool = chunk_pool_new();
    bool good = same_body(r, red, c, pool);
    chunk_pool_free(pool);
    return good;
}

bool run_redact(struct row *r)
{
    const struct json *bound = row_member(r->v, "bound");
    if (bound || row_member(r->v, "settings") || row_is(r->v, "kind", "alt-svc"))
        return run_answer(r);
    struct redaction *red = redaction_of_row(r);
    bool good = check(r, red);
    redaction_unref(red);
    return good;
}
