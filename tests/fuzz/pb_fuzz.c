/* pb_fuzz.c — any bytes as the answers of FastPath: read or refused; what is read points into the
 * message, and what it comes to is a fault or a whole route. */
#include <assert.h>
#include <stdint.h>

#include "base/text.h"
#include "ingress/fastpath/fastpath.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void inside(struct str s, struct str message)
{
    assert(s.n == 0 || (s.p >= message.p && s.p + s.n <= message.p + message.n));
    assert(text_utf8(s));
}

static void try_route(const struct pb_resolved *r, struct arena *a)
{
    struct fast_route route;
    fast_route_read(r, 2000000000, a, &route);
    if (route.fault) {
        assert(route.fault < FAULTS);
        return;
    }
    assert(r->nheaders == 1 && fast_fresh(route.expires_unix_s, 2000000000));
    assert(route.end.host.n > 0 && route.end.to > 0 && route.end.port == 0);
    assert(route.url.authority.n >= route.end.host.n);
    assert(route.url.path.n == 0 || route.url.path.p[0] == '/');
    assert(route.url.nadd == 1 && route.add.value.n > 0);
    assert(str_chr(route.add.value, '\n') < 0 && str_chr(route.add.value, '\r') < 0);
    assert(str_chr(route.url.path, ' ') < 0 && str_chr(route.url.query, ' ') < 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct str message = {(const char *)data, size};
    struct pb_resolved r;
    struct pb_sandbox s;
    struct arena a;
    arena_init(&a, NULL, 0);
    if (pb_read_resolved(message, &a, &r)) {
        inside(r.uid, message);
        inside(r.proxy_endpoint, message);
        for (unsigned i = 0; i < r.nheaders; i++) {
            inside(r.headers[i].name, message);
            inside(r.headers[i].value, message);
        }
        try_route(&r, &a);
    }
    if (pb_read_sandbox(message, &s)) {
        inside(s.checkpoint, message);
        assert((unsigned)s.runtime < PB_RUNTIMES && s.plane <= PB_PLANE_UNAVAILABLE);
        assert(pb_runtime_text(s.runtime));
    }
    arena_done(&a);
    return 0;
}
