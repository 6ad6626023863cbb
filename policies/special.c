/* special.c — the ranges that names of the outside world have no business in.  A name that is
 * allowed must not be a way to the sandbox's own loopback or to a metadata service, unless somebody
 * allowed that very address. */
#include "policies/special.h"

#define V4(a, b, c, d, bits)                                  \
    {                                                         \
        {{[10] = 0xff, [11] = 0xff, a, b, c, d}}, 96 + (bits) \
    }

static const struct cidr never_remote[] = {
    V4(0, 0, 0, 0, 8),
    V4(127, 0, 0, 0, 8),
    V4(169, 254, 0, 0, 16), /* 169.254.169.254 is one of them */
    V4(224, 0, 0, 0, 4),
    V4(100, 100, 100, 200, 32), /* metadata of several clouds, from here on */
    V4(168, 63, 129, 16, 32),
    V4(192, 0, 0, 192, 32),
    {{{0}}, 128},
    {{{[15] = 1}}, 128},
    {{{0xfe, 0x80}}, 10},
    {{{0xff}}, 8},
    {{{0xfd, 0x00, 0x0e, 0xc2, [14] = 0x02, [15] = 0x54}}, 128},
    {{{0xfd, 0x20, 0x00, 0xce, [14] = 0x02, [15] = 0x54}}, 128},
};

static const struct cidr private_nets[] = {
    V4(10, 0, 0, 0, 8),
    V4(172, 16, 0, 0, 12),
    V4(192, 168, 0, 0, 16),
    {{{0xfc}}, 7},
};

static bool is_never_remote(const struct ip *ip)
{
    static const struct cidr_set set = {never_remote, sizeof never_remote / sizeof *never_remote};
    return cidr_set_has(&set, ip);
}

static bool is_private(const struct ip *ip)
{
    static const struct cidr_set set = {private_nets, sizeof private_nets / sizeof *private_nets};
    return cidr_set_has(&set, ip);
}

static bool carries_v4(const struct ip *ip, struct ip *ret)
{
    static const uint8_t nat64[12] = {0x00, 0x64, 0xff, 0x9b};
    if (memcmp(ip->b, nat64, sizeof nat64) != 0)
        return false;
    *ret = (struct ip){{[10] = 0xff, [11] = 0xff}};
    memcpy(ret->b + 12, ip->b + 12, 4);
    return true;
}

static bool kept(const struct policy *p, const struct ip *ip, bool private_deny)
{
    if (!is_never_remote(ip) && !(private_deny && is_private(ip)))
        return true;
    return policy_addr_by_rule(p, ip);
}

bool answer_kept(const struct policy *p, const struct ip *ip, bool private_deny)
{
    struct ip v4;
    if (!kept(p, ip, private_deny))
        return false;
    return !carries_v4(ip, &v4) || kept(p, &v4, private_deny);
}
