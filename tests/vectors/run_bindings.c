/* run_bindings.c — binding_match and path_match: which binding a request gets, and which paths mean
 * more than one thing. */
#include "policies/authority.h"
#include "policies/bindings.h"
#include "policies/pathsafe.h"
#include "vectors/vectors.h"

static struct str_list texts(struct row *r, const struct json *list)
{
    struct str *at = arena_get(r->a, ((list ? json_count(list) : 0) + 1) * sizeof *at);
    unsigned n = 0;
    for (const struct json *v = list ? json_first(list) : NULL; v; v = json_next(v))
        at[n++] = json_string(v);
    return (struct str_list){at, n};
}

static const struct binding *read_one(struct row *r, const struct json *v)
{
    const struct json *match = row_member(v, "match");
    struct binding *b = arena_zero(r->a, sizeof *b);
    struct str error;
    struct binding_draft d = {
        .name = row_text(v, "name"),
        .schemes = texts(r, row_member(match, "schemes")),
        .hosts = texts(r, row_member(match, "hosts")),
        .methods = texts(r, row_member(match, "methods")),
        .paths = texts(r, row_member(match, "paths")),
        .type = STR("passthrough"),
    };
    if (!binding_read(&d, false, r->a, b, &error))
        row_fail(r, "%.*s", STR_ARG(error));
    return b;
}

/* NULL: the row failed. */
static struct bindings *read_set(struct row *r)
{
    const struct json *list = row_member(r->v, "bindings");
    const struct binding **at = arena_get(r->a, json_count(list) * sizeof *at);
    unsigned n = 0;
    struct str error;
    for (const struct json *v = json_first(list); v; v = json_next(v))
        at[n++] = read_one(r, v);
    if (r->trouble.n)
        return NULL;
    struct bindings *s = bindings_new(at, n, r->a, &error);
    if (row_bool(r->v, "bypass_write_check")) {
        if (s) {
            row_fail(r, "nothing to bypass");
            bindings_free(s);
            return NULL;
        }
        return bindings_new_unchecked(at, n);
    }
    if (!s)
        row_fail(r, "%.*s", STR_ARG(error));
    return s;
}

static bool expect_choice(struct row *r, enum binding_choice choice, const struct binding *b)
{
    static const struct str texts_of[] = {
        [BINDING_AMBIGUOUS] = {"credential binding ambiguous", 28},
        [BINDING_UNSAFE] = {"request path contains ambiguous segments", 40},
    };
    const struct json *expect = row_member(r->v, "expect");
    bool refused = choice == BINDING_AMBIGUOUS || choice == BINDING_UNSAFE;
    if (!row_same_int(r, "refused", refused ? 403 : 0, row_int(r, expect, "refused", 0)))
        return false;
    if (refused)
        return row_same(r, "text", texts_of[choice], row_text(expect, "text"));
    return row_same(r, "binding", choice == BINDING_ONE ? b->name : STR(""),
                    row_text(expect, "binding"));
}

bool run_binding_match(struct row *r)
{
    const struct json *request = row_member(r->v, "request");
    const struct binding *got = NULL;
    struct host h;
    uint16_t stated;
    struct bindings *s = read_set(r);
    if (!s)
        return false;
    if (!authority_read(row_text(request, "host"), &h, &stated)) {
        bindings_free(s);
        return row_fail(r, "the host is not to be read");
    }
    struct binding_request q = {
        .tls = row_is(request, "scheme", "https"),
        .port = (uint16_t)row_int(r, request, "port", 0),
        .method = row_text(request, "method"),
        .host = host_name(&h),
        .target = row_text(request, "target"),
    };
    enum binding_choice choice = bindings_choose(s, &q, &got);
    bool good = expect_choice(r, choice, got);
    bindings_free(s);
    return good;
}

/* ---- path_match */

static enum binding_choice choose(struct row *r)
{
    const struct str hosts[] = {STR("api.example.com")};
    const struct binding *got;
    struct binding b;
    struct str error;
    struct binding_draft d = {.name = STR("b"),
                              .hosts = {hosts, 1},
                              .paths = texts(r, row_member(r->v, "patterns")),
                              .type = STR("passthrough")};
    struct binding_request q = {true, 443, STR("GET"), hosts[0], row_text(r->v, "target")};
    if (!binding_read(&d, false, r->a, &b, &error))
        return BINDING_AMBIGUOUS; /* no row expects it */
    struct bindings *s = bindings_new((const struct binding *[]){&b}, 1, r->a, &error);
    enum binding_choice choice = bindings_choose(s, &q, &got);
    bindings_free(s);
    return choice;
}

bool run_path_match(struct row *r)
{
    static const struct str words[] = {[BINDING_NONE] = {"no", 2},
                                       [BINDING_ONE] = {"match", 5},
                                       [BINDING_AMBIGUOUS] = {"?", 1},
                                       [BINDING_UNSAFE] = {"refuse", 6}};
    if (!row_bool(r->v, "strict"))
        return row_same(r, "match", words[choose(r)], row_text(r->v, "expect"));
    struct str target = row_text(r->v, "target"), path;
    ptrdiff_t query = str_chr(target, '?');
    path = query < 0 ? target : str_head(target, (size_t)query);
    bool safe = path_is_safe(path, true, r->a);
    return row_same(r, "strict", safe ? STR("clean") : STR("refuse"), row_text(r->v, "expect"));
}
