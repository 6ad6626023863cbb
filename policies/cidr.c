/* cidr.c — networks.  Both families are one kind of number (16 bytes), so a match is a comparison
 * of bits; only one thing needs care: a network written in IPv6 that is wide enough to hold the
 * mapped range does not thereby mean IPv4. */
#include "policies/cidr.h"

#include "base/text.h"

enum { V4_PREFIX = 96 };

static bool covers(const struct cidr *net, const struct ip *ip)
{
    unsigned whole = net->prefix / 8, bits = net->prefix % 8;
    if (net->prefix < V4_PREFIX && ip_is_v4(ip))
        return false;
    if (memcmp(net->ip.b, ip->b, whole) != 0)
        return false;
    return bits == 0 || (net->ip.b[whole] ^ ip->b[whole]) >> (8 - bits) == 0;
}

bool cidr_has(const struct cidr *net, const struct ip *ip)
{
    return covers(net, ip);
}

bool cidr_is_v4(const struct cidr *net)
{
    return net->prefix >= V4_PREFIX && ip_is_v4(&net->ip);
}

struct ip cidr_last(const struct cidr *net)
{
    struct ip last = net->ip;
    for (unsigned bit = net->prefix; bit < 128; bit++)
        last.b[bit / 8] |= (uint8_t)(0x80u >> bit % 8);
    return last;
}

size_t cidr_text(const struct cidr *net, char out[CIDR_TEXT_BYTES])
{
    size_t n = ip_text(&net->ip, out);
    unsigned prefix = net->prefix - (cidr_is_v4(net) ? V4_PREFIX : 0u);
    out[n++] = '/';
    return n + text_put_u64(out + n, prefix);
}

static void cut_host_bits(struct cidr *net)
{
    for (unsigned bit = net->prefix; bit < 128; bit++)
        net->ip.b[bit / 8] &= (uint8_t) ~(0x80u >> bit % 8);
}

bool cidr_parse(struct str s, struct cidr *ret)
{
    ptrdiff_t slash = str_chr(s, '/');
    struct str address = slash < 0 ? s : str_head(s, (size_t)slash);
    bool dotted = str_chr(address, ':') < 0;
    struct cidr net = {.prefix = 128};
    if (!ip_parse(address, &net.ip))
        return false;
    if (slash >= 0) {
        struct str digits = str_skip(s, (size_t)slash + 1);
        uint64_t prefix;
        if (!text_u64(digits, dotted ? 32 : 128, &prefix) || (digits.n > 1 && digits.p[0] == '0'))
            return false;
        net.prefix = (uint8_t)(prefix + (dotted ? V4_PREFIX : 0));
    }
    cut_host_bits(&net);
    *ret = net;
    return true;
}

static unsigned count_pieces(struct str list)
{
    unsigned n = 1;
    for (size_t i = 0; i < list.n; i++)
        n += list.p[i] == ',';
    return n;
}

bool cidr_set_parse(struct str list, struct arena *a, struct cidr_set *ret, struct str *ret_bad)
{
    if (str_trim(list).n == 0) {
        *ret = (struct cidr_set){NULL, 0};
        return true;
    }
    struct cidr *nets = arena_get(a, count_pieces(list) * sizeof *nets);
    struct str piece;
    unsigned n = 0;
    while (str_next(&list, ',', &piece)) {
        if (!cidr_parse(str_trim(piece), &nets[n++])) {
            *ret_bad = str_trim(piece);
            return false;
        }
    }
    *ret = (struct cidr_set){nets, n};
    return true;
}

bool cidr_set_has(const struct cidr_set *s, const struct ip *ip)
{
    for (unsigned i = 0; i < s->n; i++)
        if (covers(&s->nets[i], ip))
            return true;
    return false;
}

#define V4(a, b, c, d, bits)                                       \
    {                                                              \
        {{[10] = 0xff, [11] = 0xff, a, b, c, d}}, V4_PREFIX + bits \
    }

bool cidr_is_special(const struct ip *ip)
{
    static const struct cidr nets[] = {
        V4(0, 0, 0, 0, 8),
        V4(127, 0, 0, 0, 8),
        V4(169, 254, 0, 0, 16),
        V4(224, 0, 0, 0, 4),
        V4(240, 0, 0, 0, 4),
        V4(100, 100, 100, 200, 32),
        V4(168, 63, 129, 16, 32),
        V4(192, 0, 0, 192, 32),
        {{{0}}, 128},
        {{{[15] = 1}}, 128},
        {{{0xfe, 0x80}}, 10},
        {{{0xff}}, 8},
        {{{0xfd, 0x00, 0x0e, 0xc2, [14] = 0x02, [15] = 0x54}}, 128},
    };
    static const struct cidr_set set = {nets, sizeof nets / sizeof *nets};
    return cidr_set_has(&set, ip);
}
