/* route_fuzz.c — any routing header, Host and target in every mode: a route holds what its form
 * promises, and the log shows no signature.  Input: settings, header, Host and target, one per LF.
 */
#include <stdint.h>
#include <stdlib.h>

#include "http/path.h"
#include "ingress/route.h"

#define CHECK(what)  \
    do {             \
        if (!(what)) \
            abort(); \
    } while (0)

static bool is_tail_of(struct str s, struct str whole)
{
    return s.n <= whole.n && str_eq(s, str_skip(whole, whole.n - s.n));
}

/* What is forwarded is the end of the target, with a '/' before it where there was none. */
static void check_forward(struct str forward, struct str target)
{
    CHECK(forward.n > 0);
    CHECK(is_tail_of(forward, target) ||
          (forward.p[0] == '/' && is_tail_of(str_skip(forward, 1), target)));
}

static void check_route(const struct route *r, const struct route_rules *rules,
                        const struct http_head *h)
{
    struct str query, rest;
    check_forward(r->forward, h->path);
    CHECK(r->source != FROM_HEADER || rules->mode != ROUTE_BY_URI);
    CHECK(r->form != FORM_URI || rules->mode == ROUTE_BY_URI);
    if (r->form == FORM_SCOPE) {
        CHECK(str_starts(r->token, STR("f1.")) && !r->by && r->prefix.n == 0);
        return;
    }
    CHECK(r->id.n > 0 && r->port > 0);
    if (r->by) {
        CHECK(signature_is_exp36(r->by->exp36) && signature_is_signature(r->by->signature));
        check_forward(r->by->forward, h->path);
        CHECK(r->by->climbs ==
              (r->source == FROM_PATH && path_climbs(path_without_query(r->by->forward, &query))));
    }
    if (r->source != FROM_PATH) {
        CHECK(str_eq(r->forward, h->path) && r->prefix.n == 0);
        return;
    }
    rest = path_without_query(r->forward, &query);
    CHECK(!path_climbs(rest) && rest.p[0] == '/');
    CHECK(r->prefix.n > 0 && str_starts(h->path, r->prefix) && !str_starts(r->id, STR("f1.")));
    CHECK(!str_eq(r->id, STR(".")) && !str_eq(r->id, STR("..")) && str_chr(r->id, '/') < 0);
}

static void check_mask(const struct http_head *h, struct arena *a)
{
    struct str masked = route_masked_uri(h, a), segment, before = STR("");
    CHECK(masked.n <= h->path.n && str_chr(masked, '?') < 0);
    for (bool first = true; path_segment(&masked, &segment); first = false) {
        CHECK(!first || !str_starts(segment, STR("f1.")));
        CHECK(!signature_is_signature(segment) || !signature_is_exp36(before));
        before = segment;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct str rest = {(const char *)data, size}, settings, header, host, target;
    if (!str_next(&rest, '\n', &settings) || !str_next(&rest, '\n', &header) ||
        !str_next(&rest, '\n', &host) || !str_next(&rest, '\n', &target))
        return 0;
    struct arena a;
    arena_init(&a, NULL, 0);
    struct field field = {STR("OpenSandbox-Ingress-To"), header};
    struct http_head h = {
        .method = STR("GET"), .authority = host, .path = target, .fields = &field, .nfields = 1};
    for (unsigned mode = ROUTE_AUTO; mode <= ROUTE_BY_URI; mode++) {
        struct route_rules rules = {
            .mode = (enum route_mode)mode,
            .base_domain = str_chr(settings, 'd') >= 0 ? STR("gw.test") : STR(""),
            .lenient_ports = str_chr(settings, 'l') >= 0,
        };
        struct route route;
        struct fault fault;
        if (route_parse(&rules, &h, &a, &route, &fault))
            check_route(&route, &rules, &h);
        else
            CHECK(fault.id < FAULTS && fault_message(&fault, &a).n > 0);
    }
    check_mask(&h, &a);
    arena_done(&a);
    return 0;
}
