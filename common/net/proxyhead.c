/* proxyhead.c — reads the header by which a proxy says whose connection it passes on (PROXY
 * protocol, versions 1 and 2 of its specification).  Strict: whoever may send one can choose the
 * address that all later checks go by, so a header that could be read in two ways is none. */
#include "net/proxyhead.h"

#include "base/text.h"

enum {
    LINE_BYTES = 107, /* longest line of version 1, with CR LF */
    FIXED_BYTES = 16, /* of version 2, before addresses and TLVs */
    V4_BYTES = 12,
    V6_BYTES = 36
};

static const struct str word = {"PROXY ", 6};
static const struct str signature = {"\r\n\r\n\0\r\nQUIT\n", 12};

/* As far as both go. */
static bool agrees(const uint8_t *p, size_t n, struct str with)
{
    return memcmp(p, with.p, n < with.n ? n : with.n) == 0;
}

/* ---- version 1: "PROXY TCP4 192.0.2.1 198.51.100.1 56324 443" CR LF */

/* The line without CR LF; what is no line is found as early as possible. */
static enum proxyhead_result take_line(const uint8_t *p, size_t n, struct str *ret)
{
    size_t at = 0, end = n < LINE_BYTES ? n : LINE_BYTES;
    while (at < end && p[at] >= ' ' && p[at] <= '~')
        at++;
    if (at + 1 < end && p[at] == '\r' && p[at + 1] == '\n') {
        *ret = (struct str){(const char *)p, at};
        return PROXYHEAD_DONE;
    }
    bool may_end = at == end || (at + 1 == end && p[at] == '\r');
    return may_end && n < LINE_BYTES ? PROXYHEAD_MORE : PROXYHEAD_BAD;
}

static bool is_address(struct str s, bool v6, struct ip *ret)
{
    return ip_parse(s, ret) && (str_chr(s, ':') >= 0) == v6;
}

static bool is_port(struct str s, uint16_t *ret)
{
    uint64_t v;
    if ((s.n > 1 && s.p[0] == '0') || !text_u64(s, UINT16_MAX, &v))
        return false;
    *ret = (uint16_t)v;
    return true;
}

/* "TCP4 source destination port port", each parted by one blank; both ends are judged. */
static bool read_ends(struct str rest, union addr *ret_source)
{
    struct str family, text[4];
    struct ip ip[2];
    uint16_t port[2];
    if (!str_next(&rest, ' ', &family))
        return false;
    for (unsigned i = 0; i < 4; i++)
        if (!str_next(&rest, ' ', &text[i]))
            return false;
    bool v6 = str_eq(family, STR("TCP6"));
    if (rest.p || (!v6 && !str_eq(family, STR("TCP4"))))
        return false;
    if (!is_address(text[0], v6, &ip[0]) || !is_address(text[1], v6, &ip[1]) ||
        !is_port(text[2], &port[0]) || !is_port(text[3], &port[1]))
        return false;
    addr_make(ret_source, &ip[0], port[0]);
    return true;
}

static enum proxyhead_result read_text(const uint8_t *p, size_t n, size_t *ret_used, bool *ret_has,
                                       union addr *ret_source)
{
    static const struct str unknown = {"UNKNOWN", 7};
    struct str line;
    union addr source;
    enum proxyhead_result r = take_line(p, n, &line);
    if (r != PROXYHEAD_DONE)
        return r;
    if (line.n < word.n) /* its blank is the first byte of an end */
        return PROXYHEAD_BAD;
    struct str rest = str_skip(line, word.n);
    bool names_none =
        str_starts(rest, unknown) && (rest.n == unknown.n || rest.p[unknown.n] == ' ');
    if (!names_none && !read_ends(rest, &source))
        return PROXYHEAD_BAD;
    *ret_used = line.n + 2;
    *ret_has = !names_none;
    if (!names_none)
        *ret_source = source;
    return PROXYHEAD_DONE;
}

/* ---- version 2: signature, version and command, family and transport, length, addresses, TLVs */

/* Judges as much of the fixed part as has come. */
static bool is_fixed_part(const uint8_t *p, size_t n)
{
    enum { VERSION = 2, COMMANDS = 2, FAMILIES = 4, TRANSPORTS = 3 };
    if (n > 12 && (p[12] >> 4 != VERSION || (p[12] & 15) >= COMMANDS))
        return false;
    if (n > 13 && (p[13] >> 4 >= FAMILIES || (p[13] & 15) >= TRANSPORTS))
        return false;
    return n < FIXED_BYTES || FIXED_BYTES + (size_t)p[14] * 256 + p[15] <= PROXYHEAD_MAX;
}

static void make_source(union addr *ret, const uint8_t *address, bool v6, const uint8_t *port)
{
    struct ip ip = {{[10] = 0xff, [11] = 0xff}};
    memcpy(v6 ? ip.b : ip.b + 12, address, v6 ? 16 : 4);
    addr_make(ret, &ip, (uint16_t)(port[0] << 8 | port[1]));
}

static enum proxyhead_result read_binary(const uint8_t *p, size_t n, size_t *ret_used,
                                         bool *ret_has, union addr *ret_source)
{
    enum { LOCAL = 0x20, STREAM4 = 0x11, STREAM6 = 0x21 };
    if (!is_fixed_part(p, n))
        return PROXYHEAD_BAD;
    if (n < FIXED_BYTES)
        return PROXYHEAD_MORE;
    size_t behind = (size_t)p[14] * 256 + p[15];
    bool v6 = p[13] == STREAM6, has = p[12] != LOCAL && (v6 || p[13] == STREAM4);
    if (has && behind < (v6 ? (size_t)V6_BYTES : (size_t)V4_BYTES))
        return PROXYHEAD_BAD;
    if (n < FIXED_BYTES + behind)
        return PROXYHEAD_MORE;
    if (has)
        make_source(ret_source, p + FIXED_BYTES, v6, p + FIXED_BYTES + (v6 ? 32 : 8));
    *ret_used = FIXED_BYTES + behind;
    *ret_has = has;
    return PROXYHEAD_DONE;
}

enum proxyhead_result proxyhead_read(const uint8_t *p, size_t n, size_t *ret_used, bool *ret_has,
                                     union addr *ret_source)
{
    if (agrees(p, n, signature))
        return n < signature.n ? PROXYHEAD_MORE : read_binary(p, n, ret_used, ret_has, ret_source);
    return agrees(p, n, word) ? read_text(p, n, ret_used, ret_has, ret_source) : PROXYHEAD_BAD;
}
