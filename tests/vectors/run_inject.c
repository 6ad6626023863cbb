/* run_inject.c — inject.jsonl: a request that comes in → what goes on with the binding's
 * credential. The head is read as the codec of its version reads it and, for HTTP/2, written as
 * one; typed members of a head of HTTP/1 are put back into lines before comparing. */
#include "vectors/run_inject.h"

#include "http/h2head.h"

/* ---- the binding ---- */

static struct str value_of(void *user, struct str credential)
{
    const struct json *values = row_member(user, "credentials");
    const struct json *v = values ? json_member(values, credential) : NULL;
    return v ? json_string(v) : STR("");
}

static struct str_list texts(struct row *r, const struct json *list)
{
    struct str *at = arena_get(r->a, (list ? json_count(list) : 0) * sizeof *at);
    unsigned n = 0;
    for (const struct json *v = list ? json_first(list) : NULL; v; v = json_next(v))
        at[n++] = json_string(v);
    return (struct str_list){at, n};
}

static const struct auth_header *headers(struct row *r, const struct json *list, unsigned *ret_n)
{
    struct auth_header *at = arena_get(r->a, (list ? json_count(list) : 0) * sizeof *at);
    *ret_n = 0;
    for (const struct json *v = list ? json_first(list) : NULL; v; v = json_next(v))
        at[(*ret_n)++] = (struct auth_header){row_text(v, "name"), row_text(v, "credential")};
    return at;
}

static const struct substitution_draft *substitutions(struct row *r, const struct json *list,
                                                      unsigned *ret_n)
{
    struct substitution_draft *at = arena_get(r->a, (list ? json_count(list) : 0) * sizeof *at);
    *ret_n = 0;
    for (const struct json *v = list ? json_first(list) : NULL; v; v = json_next(v))
        at[(*ret_n)++] = (struct substitution_draft){
            row_text(v, "credential"), row_text(v, "placeholder"), texts(r, row_member(v, "in"))};
    return at;
}

bool row_arm(struct row *r, struct secret_bag *bag, struct armed *ret)
{
    static const struct str hosts[] = {STR("api.example.com")};
    const struct json *auth = row_member(r->v, "auth");
    struct binding_draft d = {
        .name = STR("b"), .hosts = {hosts, 1}, .type = row_text(auth, "type")};
    struct binding *b = arena_get(r->a, sizeof *b);
    struct str error;
    d.credential = row_text(auth, "credential");
    d.header_name = row_text(auth, "name");
    d.headers = headers(r, row_member(auth, "headers"), &d.nheaders);
    d.substitutions = substitutions(r, row_member(auth, "substitutions"), &d.nsubstitutions);
    if (!binding_read(&d, false, r->a, b, &error))
        return row_fail(r, "the binding is refused: %.*s", STR_ARG(error));
    arm(b, &(struct values){value_of, (void *)(uintptr_t)r->v}, r->a, bag, ret);
    return true;
}

/* ---- comparing ---- */

static bool is_left_out(struct str name)
{
    return str_ieq(name, STR("connection")) || str_ieq(name, STR("keep-alive"));
}

/* Without those that are not compared. */
static unsigned compared(struct field *fields, unsigned n)
{
    unsigned kept = 0;
    for (unsigned i = 0; i < n; i++)
        if (!is_left_out(fields[i].name))
            fields[kept++] = fields[i];
    return kept;
}

/* Takes the first line of that name out. */
static bool take_line(struct field *fields, unsigned *n, const struct field *line)
{
    for (unsigned i = 0; i < *n; i++) {
        if (!str_eq(fields[i].name, line->name))
            continue;
        if (!str_eq(fields[i].value, line->value))
            return false;
        memmove(&fields[i], &fields[i + 1], (--*n - i) * sizeof *fields);
        return true;
    }
    return false;
}

static struct str shown(struct row *r, const struct field *fields, unsigned n)
{
    struct str text = STR("");
    for (unsigned i = 0; i < n; i++)
        text = arena_printf(r->a, "%.*s%s%.*s: %.*s", STR_ARG(text), i ? " | " : "",
                            STR_ARG(fields[i].name), STR_ARG(fields[i].value));
    return text;
}

bool row_same_lines(struct row *r, const char *what, const struct field *fields, unsigned n,
                    const struct json *list)
{
    unsigned nwant;
    struct field *want = row_fields(r, list, 0, &nwant), *got = arena_get(r->a, n * sizeof *got);
    struct str expected = shown(r, want, nwant);
    if (n)
        memcpy(got, fields, n * sizeof *got);
    n = compared(got, n);
    nwant = compared(want, nwant);
    bool same = n == nwant;
    for (unsigned i = 0; i < n && same; i++)
        same = take_line(want, &nwant, &got[i]);
    if (same)
        return true;
    struct str lines = shown(r, got, n);
    return row_fail(r, "%s: got %.*s\n    expected %.*s", what, STR_ARG(lines), STR_ARG(expected));
}

/* ---- the request ---- */

/* Reads, injects and hands the head on; what the head says of its framing in *ret_framing. */
static bool inject(struct row *r, const struct armed *x, struct http_head *head,
                   struct secret_bag *bag)
{
    const struct json *settings = row_member(r->v, "settings");
    const struct json *scrubs = settings ? row_member(settings, "scrub_bodies") : NULL;
    struct inject_request q = {.fields = head->fields,
                               .nfields = head->nfields,
                               .target = head->path,
                               .scrubs = !scrubs || json_bool(scrubs)};
    struct injected out;
    if (inject_head(x, &q, r->a, bag, &out) != INJECT_OK)
        return row_fail(r, "the request is refused");
    for (unsigned i = 0; i < x->nheaders; i++)
        if (!secret_covers(x->headers[i].value.p))
            return row_fail(r, "a value that is set does not lie in the memory of secrets");
    head->fields = out.fields;
    head->nfields = out.nfields;
    head->path = out.target;
    return true;
}

static bool same_trailers(struct row *r, const struct armed *x, bool h2)
{
    const struct json *list = row_member(row_member(r->v, "request"), "trailers");
    unsigned n;
    struct field *fields = row_fields(r, list, 0, &n);
    struct http_head head;
    if (h2 && h2head_trailers(&(struct h2_list){fields, n}, true, &head) != WHY_OK)
        return row_fail(r, "the trailers are refused");
    if (h2) {
        fields = head.fields;
        n = head.nfields;
    } else {
        rules_trailers(fields, &n);
    }
    inject_trailers(x, fields, &n);
    return row_same_lines(r, "trailers", fields, n,
                          row_member(row_member(r->v, "expect"), "trailers"));
}

/* Trailer is framing to the codecs, which say it anew or not at all. */
static void put_back_trailer(struct http_head *h, const struct json *list)
{
    for (const struct json *pair = json_first(list); pair; pair = json_next(pair))
        if (str_ieq(json_string(json_first(pair)), STR("trailer")))
            head_add(h, STR("Trailer"), json_string(json_next(json_first(pair))));
}

static bool run_h1(struct row *r, const struct armed *x, struct secret_bag *bag)
{
    const struct json *list = row_member(row_member(r->v, "request"), "headers");
    struct http_raw raw = {.method = STR("POST"), .target = STR("/"), .minor = 1};
    struct http_head head, *sent;
    struct framing framing;
    struct http_fault fault;
    raw.fields = row_fields(r, list, 0, &raw.nfields);
    if (rules_request(&raw, STR("https"), &head, &framing, &fault) != WHY_OK)
        return row_fail(r, "the request is malformed: %s", fault.text);
    if (!inject(r, x, &head, bag))
        return false;
    sent = head_copy(&head, 5, r->a);
    head_add(sent, STR("Host"), sent->authority);
    if (framing.body == BODY_CHUNKED)
        head_add(sent, STR("Transfer-Encoding"), STR("chunked"));
    if (framing.body == BODY_LENGTH)
        head_add(sent, STR("Content-Length"), arena_printf(r->a, "%lld", (long long)head.length));
    if (sent->te_trailers)
        head_add(sent, STR("TE"), STR("trailers"));
    put_back_trailer(sent, list);
    return row_same_lines(r, "headers", sent->fields, sent->nfields,
                          row_member(row_member(r->v, "expect"), "headers"));
}

static bool run_h2(struct row *r, const struct armed *x, struct secret_bag *bag)
{
    struct h2_list list;
    struct http_head head;
    struct http_fault fault;
    list.fields =
        row_fields(r, row_member(row_member(r->v, "request"), "headers"), 0, &list.nfields);
    if (h2head_request(&list, false, STR("https"), r->a, &head, &fault) != WHY_OK)
        return row_fail(r, "the request is malformed: %s", fault.text);
    if (!inject(r, x, &head, bag))
        return false;
    h2head_write_request(&head, false, r->a, &list);
    return row_same_lines(r, "headers", list.fields, list.nfields,
                          row_member(row_member(r->v, "expect"), "headers"));
}

bool run_inject(struct row *r)
{
    struct secret_bag bag;
    struct armed x;
    bool h2 = row_is(row_member(r->v, "request"), "version", "2");
    secret_bag_init(&bag);
    bool good = row_arm(r, &bag, &x) && (h2 ? run_h2(r, &x, &bag) : run_h1(r, &x, &bag)) &&
                same_trailers(r, &x, h2);
    secret_bag_done(&bag);
    return good;
}
