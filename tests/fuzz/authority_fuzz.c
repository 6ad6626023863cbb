/* authority_fuzz.c — any bytes as a host, an authority and a proxy's target: what is accepted has
 * one canonical form, and the stricter readers accept nothing that the others refuse. */
#include <assert.h>
#include <stdio.h>

#include "egress/relay/explicit_target.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Written out again and read, it is the same host. */
static void expect_canonical(const struct host *h)
{
    struct host again;
    char text[IP_TEXT_BYTES];
    struct str s = host_name(h);
    assert(h->kind == HOST_NAME || h->kind == HOST_ADDRESS);
    if (h->kind == HOST_ADDRESS)
        s = (struct str){text, ip_text(&h->ip, text)};
    assert(s.n > 0 && s.p[s.n - 1] != '.');
    bool ok = host_read(s, &again);
    assert(ok && host_same(h, &again));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct str s = {(const char *)data, size};
    struct host strict, h;
    struct explicit_target t;
    const char *fault = NULL;
    uint16_t port;
    bool read = authority_read(s, &h, &port);
    if (host_read(s, &strict)) {
        expect_canonical(&strict);
        assert(strict.kind == HOST_ADDRESS || (read && host_same(&strict, &h) && port == 0));
    }
    if (explicit_target_read(s, 80, &t, &fault) == WHY_OK) {
        expect_canonical(&t.host);
        assert(read && host_same(&t.host, &h) && t.port > 0);
        assert(t.port == port || port == 0);
    } else {
        assert(fault);
    }
    return 0;
}
