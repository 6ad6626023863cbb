/* hello_fuzz.c — any bytes as the beginning of a connection: pieces make no difference, what is
 * told of a hello lies within it, and what the first bytes told stands. */
#include <assert.h>

#include "egress/relay/firstbytes.h"
#include "egress/relay/hello.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void expect_within(struct str part, const uint8_t *p, size_t n)
{
    if (part.p)
        assert((const uint8_t *)part.p >= p && (const uint8_t *)part.p + part.n <= p + n);
}

static void expect_sound(const struct hello *h, const uint8_t *p, size_t n)
{
    struct str rest = h->protocols, protocol;
    expect_within(h->name, p, n);
    expect_within(h->protocols, p, n);
    expect_within(h->versions, p, n);
    assert(!h->name.p || h->name.n > 0);
    while (hello_next_protocol(&rest, &protocol))
        assert(protocol.n > 0 && hello_offers_protocol(h, protocol));
    assert(rest.n == 0);
    (void)hello_offers_version(h, HELLO_TLS13);
}

static bool same(const struct hello *a, const struct hello *b)
{
    return str_eq(a->name, b->name) && str_eq(a->protocols, b->protocols) &&
           str_eq(a->versions, b->versions) && a->ech == b->ech && a->version == b->version;
}

static void read_stream(const uint8_t *data, size_t size)
{
    struct hello_reader whole, pieces;
    hello_init(&whole);
    hello_init(&pieces);
    hello_feed(&whole, data, size);
    for (size_t at = 0, n = 1; at < size; at += n, n = 1 + (n * 7 + at) % 61)
        hello_feed(&pieces, data + at, n < size - at ? n : size - at);
    assert(whole.step == pieces.step);
    if (whole.step == HELLO_DONE) {
        expect_sound(&whole.hello, whole.message, whole.n);
        assert(same(&whole.hello, &pieces.hello));
        assert(firstbytes_look(data, size) == FIRST_TLS);
    }
    hello_done(&whole);
    hello_done(&pieces);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    enum firstbytes told = FIRST_MORE;
    for (size_t n = 0; n <= size && n <= FIRSTBYTES_MAX + 1; n++) {
        enum firstbytes seen = firstbytes_look(data, n);
        assert(told == FIRST_MORE || seen == told);
        assert(n < FIRSTBYTES_MAX || seen != FIRST_MORE);
        told = seen;
    }
    struct hello h;
    if (hello_parse((struct str){(const char *)data, size}, &h))
        expect_sound(&h, data, size);
    read_stream(data, size);
    return 0;
}
