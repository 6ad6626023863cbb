/* hello_bytes.c — as little of a ClientHello as there can be (RFC 8446 section 4.1.2). */
#include "harness/hello_bytes.h"

struct out {
    char *p;
    size_t n;
};

static void put(struct out *o, struct str s)
{
    memcpy(o->p + o->n, s.p, s.n);
    o->n += s.n;
}

static void put_number(struct out *o, size_t v, unsigned bytes)
{
    while (bytes-- > 0)
        o->p[o->n++] = (char)(v >> 8 * bytes);
}

static void put_name(struct out *o, struct str sni)
{
    put_number(o, 0, 2); /* server_name */
    put_number(o, sni.n + 5, 2);
    put_number(o, sni.n + 3, 2);
    put_number(o, 0, 1);
    put_number(o, sni.n, 2);
    put(o, sni);
}

static void put_message(struct out *o, struct str sni)
{
    static const struct str front = {"\x03\x03"
                                     "0123456789abcdef0123456789abcdef"
                                     "\x00\x00\x02\x13\x01\x01\x00",
                                     2 + 32 + 7};
    size_t extensions = sni.p ? sni.n + 9 : 0;
    put_number(o, 1, 1);
    put_number(o, front.n + 2 + extensions, 3);
    put(o, front);
    put_number(o, extensions, 2);
    if (sni.p)
        put_name(o, sni);
}

struct str hello_bytes(struct str sni, size_t most, char out[HELLO_TEST_BYTES])
{
    char message[HELLO_TEST_BYTES / 2];
    struct out m = {message, 0}, o = {out, 0};
    put_message(&m, sni);
    for (size_t at = 0; at < m.n;) {
        size_t n = m.n - at < most ? m.n - at : most;
        put_number(&o, 0x160301, 3);
        put_number(&o, n, 2);
        put(&o, (struct str){message + at, n});
        at += n;
    }
    return (struct str){out, o.n};
}
