/* payload.c — what an intent says (contract ingress 10.2).  It is written byte for byte as the
 * server has always been sent it, so the escapes are spelled out here and not left to a library. */
#include <assert.h>
#include <stdio.h>

#include "base/text.h"
#include "ingress/redis/renew.h"

enum {
    ESCAPE_BYTES = 6 /* of one byte, at most */,
    FRAME_BYTES = 160 /* of all keys and numbers */
};

struct out {
    char *p;
    size_t n;
};

static void put(struct out *o, struct str s)
{
    memcpy(o->p + o->n, s.p, s.n);
    o->n += s.n;
}

static void put_escape(struct out *o, unsigned code)
{
    o->n += (size_t)snprintf(o->p + o->n, ESCAPE_BYTES + 1, "\\u%04x", code);
}

/* Bytes of the character at the front of s; 0: it is none. */
static size_t character(struct str s)
{
    for (size_t n = 1; n <= 4 && n <= s.n; n++)
        if (text_utf8(str_head(s, n)))
            return n;
    return 0;
}

static bool put_short(struct out *o, char c)
{
    static const char plain[] = "\"\\\n\r\t", letters[] = "\"\\nrt";
    const char *at = c ? strchr(plain, c) : NULL;
    if (at)
        put(o, (struct str){(char[]){'\\', letters[at - plain]}, 2});
    return at != NULL;
}

static void put_character(struct out *o, struct str c)
{
    if (c.n == 1 && put_short(o, c.p[0]))
        return;
    if (c.n == 1 && ((unsigned char)c.p[0] < ' ' || strchr("<>&", c.p[0])))
        put_escape(o, (unsigned char)c.p[0]);
    else if (str_eq(c, STR("\xe2\x80\xa8")))
        put_escape(o, 0x2028);
    else if (str_eq(c, STR("\xe2\x80\xa9")))
        put_escape(o, 0x2029);
    else
        put(o, c);
}

static void put_string(struct out *o, struct str s)
{
    put(o, STR("\""));
    while (s.n > 0) {
        size_t n = character(s);
        if (n == 0)
            put_escape(o, 0xfffd);
        else
            put_character(o, str_head(s, n));
        s = str_skip(s, n ? n : 1);
    }
    put(o, STR("\""));
}

/* As a server of O's kind prints it: a fraction without zeros at its end. */
static void put_time(struct out *o, uint64_t unix_ns)
{
    char iso[24], fraction[16];
    text_put_iso8601(iso, unix_ns / 1000000);
    put(o, (struct str){iso, sizeof "2026-09-21T14:13:20" - 1});
    int n = snprintf(fraction, sizeof fraction, ".%09u", (unsigned)(unix_ns % 1000000000));
    while (n > 1 && fraction[n - 1] == '0')
        n--;
    if (n > 1)
        put(o, (struct str){fraction, (size_t)n});
    put(o, STR("Z"));
}

/* Decoded, without query; an escape that is broken stays as it is. */
static struct str decoded(struct str forward, struct arena *a)
{
    ptrdiff_t mark = str_chr(forward, '?');
    struct str path = mark < 0 ? forward : str_head(forward, (size_t)mark);
    char *out = arena_get(a, path.n + 1);
    size_t n;
    return text_percent(path, out, &n) ? (struct str){out, n} : path;
}

struct str renew_payload(const struct renew_note *n, uint64_t unix_ns, struct arena *a)
{
    bool has_uri = n->forward.p && n->forward.n <= RENEW_FORWARD_BYTES;
    struct str uri = has_uri ? decoded(n->forward, a) : STR_NONE;
    size_t room = FRAME_BYTES + ESCAPE_BYTES * (n->ns.n + n->id.n + uri.n);
    struct out o = {arena_get(a, room), 0};
    char port[20];
    put(&o, STR("{"));
    if (n->ns.n > 0) {
        put(&o, STR("\"namespace\":"));
        put_string(&o, n->ns);
        put(&o, STR(","));
    }
    put(&o, STR("\"sandbox_id\":"));
    put_string(&o, n->id);
    put(&o, STR(",\"observed_at\":\""));
    put_time(&o, unix_ns);
    put(&o, STR("\""));
    if (n->port) {
        put(&o, STR(",\"port\":"));
        put(&o, (struct str){port, text_put_u64(port, n->port)});
    }
    if (has_uri) {
        put(&o, STR(",\"request_uri\":"));
        put_string(&o, uri);
    }
    put(&o, STR("}"));
    assert(o.n < room);
    return (struct str){o.p, o.n};
}

bool renew_skips(const struct str *first_value)
{
    return first_value && str_eq(str_trim(*first_value), STR("skip"));
}
