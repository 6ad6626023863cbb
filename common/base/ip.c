/* ip.c — reads and writes IP addresses.  Written by hand rather than over inet_pton: the texts are
 * slices, the grammar is the strict one everywhere (a leading zero is octal to some readers), and
 * there is one form for both families. */
#include "base/ip.h"

static const uint8_t v4_head[12] = {[10] = 0xff, [11] = 0xff};

bool ip_is_v4(const struct ip *ip)
{
    return memcmp(ip->b, v4_head, sizeof v4_head) == 0;
}

bool ip_eq(const struct ip *a, const struct ip *b)
{
    return memcmp(a->b, b->b, sizeof a->b) == 0;
}

bool ip_is_loopback(const struct ip *ip)
{
    static const struct ip v6 = {{[15] = 1}};
    return ip_is_v4(ip) ? ip->b[12] == 127 : ip_eq(ip, &v6);
}

bool ip_is_unspecified(const struct ip *ip)
{
    static const struct ip v4 = {{[10] = 0xff, [11] = 0xff}}, v6 = {{0}};
    return ip_eq(ip, &v4) || ip_eq(ip, &v6);
}

/* One decimal part, 0..255 without leading zeros; the number of characters it has, or 0. */
static size_t read_part(struct str s, uint8_t *ret)
{
    unsigned v = 0;
    size_t n = 0;
    for (; n < s.n && s.p[n] >= '0' && s.p[n] <= '9'; n++) {
        v = v * 10 + (unsigned)(s.p[n] - '0');
        if (v > 255 || (n > 0 && s.p[0] == '0'))
            return 0;
    }
    *ret = (uint8_t)v;
    return n;
}

static bool parse_v4(struct str s, uint8_t ret[4])
{
    for (unsigned part = 0; part < 4; part++) {
        if (part > 0) {
            if (s.n == 0 || s.p[0] != '.')
                return false;
            s = str_skip(s, 1);
        }
        size_t n = read_part(s, &ret[part]);
        if (n == 0)
            return false;
        s = str_skip(s, n);
    }
    return s.n == 0;
}

static unsigned hex_value(char c)
{
    if (c >= '0' && c <= '9')
        return (unsigned)(c - '0');
    c = ascii_lower(c);
    return c >= 'a' && c <= 'f' ? (unsigned)(c - 'a') + 10 : 16;
}

/* One group of 1..4 hex digits; the number of characters it has, or 0. */
static size_t read_group(struct str s, unsigned *ret)
{
    unsigned v = 0;
    size_t n = 0;
    for (; n < s.n && n < 4 && hex_value(s.p[n]) < 16; n++)
        v = v * 16 + hex_value(s.p[n]);
    *ret = v;
    return n;
}

/* Groups before and behind a "::" are collected in one row; `gap` is where the zeros go. */
struct groups {
    uint8_t b[16];
    unsigned n; /* bytes so far */
    int gap;    /* position of "::" in bytes, or -1 */
};

/* What stands between two colons; the number of characters it has, or 0. */
static size_t take_group(struct groups *g, struct str s)
{
    unsigned v;
    size_t n = read_group(s, &v);
    if (n > 0 && n < s.n && s.p[n] == '.') {
        if (g->n > 12 || !parse_v4(s, g->b + g->n))
            return 0;
        g->n += 4;
        return s.n;
    }
    if (n == 0 || g->n > 14)
        return 0;
    g->b[g->n++] = (uint8_t)(v >> 8);
    g->b[g->n++] = (uint8_t)v;
    return n;
}

static bool take_groups(struct groups *g, struct str s)
{
    bool expect = true; /* a group must follow */
    while (s.n) {
        if (str_starts(s, STR("::"))) {
            if (g->gap >= 0)
                return false;
            g->gap = (int)g->n;
            s = str_skip(s, 2);
            expect = false;
            continue;
        }
        if (s.p[0] == ':') {
            if (expect || g->n == 0 || g->gap == (int)g->n)
                return false;
            s = str_skip(s, 1);
            expect = true;
            continue;
        }
        size_t n = take_group(g, s);
        if (n == 0 || (n < s.n && s.p[n] != ':'))
            return false;
        s = str_skip(s, n);
        expect = false;
    }
    return !expect;
}

static bool parse_v6(struct str s, struct ip *ret)
{
    struct groups g = {.gap = -1};
    if (!take_groups(&g, s) || (g.gap < 0 ? g.n != 16 : g.n > 14))
        return false;
    memset(ret, 0, sizeof *ret);
    size_t before = g.gap < 0 ? g.n : (size_t)g.gap, behind = g.n - before;
    memcpy(ret->b, g.b, before);
    memcpy(ret->b + 16 - behind, g.b + before, behind);
    return true;
}

bool ip_parse(struct str s, struct ip *ret)
{
    struct ip ip;
    if (str_chr(s, ':') >= 0) {
        if (!parse_v6(s, &ip))
            return false;
        *ret = ip;
        return true;
    }
    memcpy(ip.b, v4_head, sizeof v4_head);
    if (!parse_v4(s, ip.b + sizeof v4_head))
        return false;
    *ret = ip;
    return true;
}

static char *put_decimal(char *out, unsigned v)
{
    if (v >= 100)
        *out++ = (char)('0' + v / 100);
    if (v >= 10)
        *out++ = (char)('0' + v / 10 % 10);
    *out++ = (char)('0' + v % 10);
    return out;
}

static size_t text_v4(const uint8_t b[4], char *out)
{
    char *at = out;
    for (unsigned i = 0; i < 4; i++) {
        if (i > 0)
            *at++ = '.';
        at = put_decimal(at, b[i]);
    }
    return (size_t)(at - out);
}

static char *put_group(char *out, unsigned v)
{
    static const char digits[] = "0123456789abcdef";
    for (int shift = 12; shift > 0; shift -= 4)
        if (v >> shift)
            *out++ = digits[v >> shift & 15];
    *out++ = digits[v & 15];
    return out;
}

/* The longest run of two or more zero groups, the first of equals (RFC 5952 section 4.2). */
static unsigned zero_run(const unsigned g[8], unsigned *ret_at)
{
    unsigned best = 1;
    for (unsigned i = 0; i < 8; i++) {
        unsigned n = 0;
        while (i + n < 8 && g[i + n] == 0)
            n++;
        if (n > best) {
            best = n;
            *ret_at = i;
        }
    }
    return best > 1 ? best : 0;
}

static size_t text_v6(const uint8_t b[16], char *out)
{
    unsigned g[8], at = 8;
    for (unsigned i = 0; i < 8; i++)
        g[i] = (unsigned)b[2 * i] << 8 | b[2 * i + 1];
    unsigned run = zero_run(g, &at);
    char *to = out;
    for (unsigned i = 0; i < 8; i++) {
        if (run && i == at) {
            *to++ = ':';
            *to++ = ':';
            i += run - 1;
            continue;
        }
        if (i > 0 && to[-1] != ':')
            *to++ = ':';
        to = put_group(to, g[i]);
    }
    return (size_t)(to - out);
}

size_t ip_text(const struct ip *ip, char out[IP_TEXT_BYTES])
{
    if (ip_is_v4(ip))
        return text_v4(ip->b + sizeof v4_head, out);
    return text_v6(ip->b, out);
}
