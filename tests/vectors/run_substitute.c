/* run_substitute.c — substitute.jsonl: what a request becomes where its placeholders are filled in.
 * Rows are judged by the pure functions: a field that no head could have in fields[] is among them,
 * and a body has been held as a whole, or was too long for that. */
#include "base/text.h"
#include "vectors/run_inject.h"

enum { HELD_MOST = 1048576 };

struct work {
    struct row *r;
    const struct json *request, *expect, *settings;
    struct armed x;
    struct injected out;
    struct str body, sent; /* as it came, as it goes */
    unsigned hits;
};

static struct str filled(struct row *r, const struct json *fill)
{
    struct str prefix = row_text(fill, "prefix"), one = row_text(fill, "fill"),
               suffix = row_text(fill, "suffix");
    size_t total = (size_t)row_int(r, fill, "total", 0);
    char *out = arena_get(r->a, total);
    memset(out, one.p[0], total);
    memcpy(out, prefix.p, prefix.n);
    memcpy(out + total - suffix.n, suffix.p, suffix.n);
    return (struct str){out, total};
}

static struct str body_of(struct row *r, const struct json *request)
{
    const struct json *fill = row_member(request, "body_fill");
    struct str base64 = row_text(request, "body_b64");
    if (fill)
        return filled(r, fill);
    if (!base64.n)
        return row_text(request, "body");
    char *out = arena_get(r->a, base64.n);
    struct str body = {out, 0};
    return text_base64(base64, (uint8_t *)out, &body.n) ? body : STR("");
}

/* A changed body is as long as it is now. */
static void set_length(struct work *w)
{
    unsigned n = 0;
    for (unsigned i = 0; i < w->out.nfields; i++) {
        struct field f = w->out.fields[i];
        if (!str_ieq(f.name, STR("content-length")) && !str_ieq(f.name, STR("transfer-encoding")))
            w->out.fields[n++] = f;
    }
    w->out.fields = memcpy(arena_get(w->r->a, (n + 1) * sizeof *w->out.fields), w->out.fields,
                           n * sizeof *w->out.fields);
    w->out.fields[n++] =
        (struct field){STR("Content-Length"), arena_printf(w->r->a, "%zu", w->sent.n)};
    w->out.nfields = n;
}

/* The status of a refusal, or 0. */
static int put_body(struct work *w, struct secret_bag *bag)
{
    size_t most = (size_t)row_int(w->r, w->settings, "body_max", HELD_MOST);
    w->sent = w->body;
    if (!w->x.buffers || !inject_reads_body(w->out.fields, w->out.nfields))
        return 0;
    if (w->body.n > most)
        return row_is(w->settings, "oversize", "refuse") ? 413 : 0;
    if (inject_body(&w->x, w->out.fields, w->out.nfields, w->body, bag, &w->sent) != BODY_CHANGED)
        return 0;
    w->hits |= SURFACE_BODY;
    set_length(w);
    return 0;
}

static int put_all(struct work *w, struct secret_bag *bag)
{
    struct inject_request q = {.target = row_text(w->request, "target")};
    q.fields = row_fields(w->r, row_member(w->request, "headers"), 0, &q.nfields);
    w->body = body_of(w->r, w->request);
    enum inject_fault fault = inject_head(&w->x, &q, w->r->a, bag, &w->out);
    if (fault != INJECT_OK)
        return fault == INJECT_UNSAFE ? 403 : 431;
    w->hits = w->out.hits;
    return put_body(w, bag);
}

static bool same_hits(struct work *w)
{
    static const struct {
        enum surface on;
        const char *name;
    } surfaces[] = {{SURFACE_PATH, "path"},
                    {SURFACE_QUERY, "query"},
                    {SURFACE_HEADER, "header"},
                    {SURFACE_BODY, "body"}};
    struct str got = STR("");
    for (size_t i = 0; i < 4; i++)
        if (w->hits & surfaces[i].on)
            got =
                arena_printf(w->r->a, "%.*s%s%s", STR_ARG(got), got.n ? "," : "", surfaces[i].name);
    return row_same(w->r, "hits", got, row_joined(w->r, row_member(w->expect, "hits")));
}

static bool same_body(struct work *w)
{
    if (row_bool(w->expect, "body_same"))
        return row_same_int(w->r, "body kept", str_eq(w->sent, w->body), 1);
    return row_same(w->r, "body", w->sent, row_text(w->expect, "body"));
}

/* Whatever a value was put into lies in the memory of secrets. */
static bool is_covered(struct work *w)
{
    bool good = !(w->hits & (SURFACE_PATH | SURFACE_QUERY)) || secret_covers(w->out.target.p);
    good = good && (!(w->hits & SURFACE_BODY) || secret_covers(w->sent.p));
    unsigned covered = 0;
    for (unsigned i = 0; i < w->out.nfields; i++)
        covered += secret_covers(w->out.fields[i].value.p);
    return (good && (!(w->hits & SURFACE_HEADER) || covered > 0)) ||
           row_fail(w->r, "a text with a secret lies in the open");
}

bool run_substitute(struct row *r)
{
    struct work w = {.r = r,
                     .request = row_member(r->v, "request"),
                     .expect = row_member(r->v, "expect"),
                     .settings = row_member(r->v, "settings")};
    struct secret_bag bag;
    secret_bag_init(&bag);
    bool good = row_arm(r, &bag, &w.x);
    int refused = good ? put_all(&w, &bag) : 0;
    good = good && row_same_int(r, "refused", refused, row_int(r, w.expect, "refused", 0));
    if (good && !refused)
        good = row_same(r, "target", w.out.target, row_text(w.expect, "target")) &&
               row_same_lines(r, "headers", w.out.fields, w.out.nfields,
                              row_member(w.expect, "headers")) &&
               same_hits(&w) && same_body(&w) && is_covered(&w);
    secret_bag_done(&bag);
    return good;
}
