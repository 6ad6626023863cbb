/* sets_print.c — recognizes our tables by all that somebody else could change in them.  What the
 * kernel counts (uses, packets) is left out, and the elements of a policy, which we change
 * ourselves; handles are in, so a rule that was taken out and put back is another one. */
#include <arpa/inet.h>
#include <errno.h>
#include <linux/netfilter.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nfnetlink.h>

#include "egress/kernel/sets_impl.h"

enum { TABLE_NAME = 1, ATTRIBUTES = 32 }; /* the first attribute of all these messages */

#define BIT(attribute) (1u << (attribute))

/* What is dumped, and which attributes of it count. */
static const struct look {
    uint16_t ask, told;
    bool filtered; /* the kernel wants to be told the table */
    uint32_t counts;
} looks[] = {
    {NFT_MSG_GETTABLE, NFT_MSG_NEWTABLE, false,
     BIT(NFTA_TABLE_NAME) | BIT(NFTA_TABLE_FLAGS) | BIT(NFTA_TABLE_HANDLE) |
         BIT(NFTA_TABLE_USERDATA)},
    {NFT_MSG_GETCHAIN, NFT_MSG_NEWCHAIN, false,
     BIT(NFTA_CHAIN_TABLE) | BIT(NFTA_CHAIN_HANDLE) | BIT(NFTA_CHAIN_NAME) | BIT(NFTA_CHAIN_HOOK) |
         BIT(NFTA_CHAIN_POLICY) | BIT(NFTA_CHAIN_TYPE) | BIT(NFTA_CHAIN_FLAGS)},
    {NFT_MSG_GETRULE, NFT_MSG_NEWRULE, true,
     BIT(NFTA_RULE_TABLE) | BIT(NFTA_RULE_CHAIN) | BIT(NFTA_RULE_HANDLE) |
         BIT(NFTA_RULE_EXPRESSIONS)},
    {NFT_MSG_GETSET, NFT_MSG_NEWSET, true,
     BIT(NFTA_SET_TABLE) | BIT(NFTA_SET_NAME) | BIT(NFTA_SET_FLAGS) | BIT(NFTA_SET_KEY_TYPE) |
         BIT(NFTA_SET_KEY_LEN) | BIT(NFTA_SET_DATA_TYPE) | BIT(NFTA_SET_HANDLE)},
};

enum { LOOKS = sizeof looks / sizeof *looks };

struct printing {
    const struct look *look;
    struct sets_print *print;
};

/* FNV-1a: who could make another table with the same print could make any. */
static void add(struct sets_print *p, const void *bytes, size_t n)
{
    const uint8_t *b = bytes;
    for (size_t i = 0; i < n; i++)
        p->hash = (p->hash ^ b[i]) * 1099511628211u;
}

static void add_attribute(struct sets_print *p, const struct nlattr *a)
{
    uint16_t type = mnl_attr_get_type(a), len = mnl_attr_get_payload_len(a);
    add(p, &type, sizeof type);
    add(p, &len, sizeof len);
    add(p, mnl_attr_get_payload(a), len);
}

static bool is_ours(const struct nlmsghdr *m)
{
    static const char name[] = RULESET_TABLE;
    const struct nlattr *a = mnl_nlmsg_get_payload_offset(m, sizeof(struct nfgenmsg));
    return mnl_nlmsg_get_payload_len(m) > sizeof(struct nfgenmsg) + MNL_ATTR_HDRLEN &&
           mnl_attr_get_type(a) == TABLE_NAME && mnl_attr_get_payload_len(a) == sizeof name &&
           memcmp(mnl_attr_get_payload(a), name, sizeof name) == 0;
}

/* Devices of a chain's hook: one by itself, or a list. */
static unsigned devices_of(const struct nlattr *hook)
{
    const struct nlattr *list = netlink_inside(hook, NFTA_HOOK_DEVS), *a;
    unsigned n = 0;
    if (!list)
        return netlink_inside(hook, NFTA_HOOK_DEV) ? 1 : 0;
    mnl_attr_for_each_nested(a, list) n++;
    return n;
}

static int on_message(const struct nlmsghdr *m, void *user)
{
    struct printing *p = user;
    const struct nlattr *a;
    if ((m->nlmsg_type & 0xff) != p->look->told || !is_ours(m))
        return 0;
    mnl_attr_for_each(a, m, sizeof(struct nfgenmsg))
    {
        uint16_t type = mnl_attr_get_type(a);
        if (type < ATTRIBUTES && p->look->counts & BIT(type))
            add_attribute(p->print, a);
        if (p->look->told == NFT_MSG_NEWCHAIN && type == NFTA_CHAIN_HOOK)
            p->print->devices += devices_of(a);
    }
    p->print->rules += p->look->told == NFT_MSG_NEWRULE;
    return 0;
}

static struct nlmsghdr *question(struct sets *s, void *p, uint16_t verb, uint8_t family)
{
    struct nlmsghdr *m =
        netlink_begin(&s->nl, p, (uint16_t)(NFNL_SUBSYS_NFTABLES << 8 | verb), NLM_F_DUMP);
    struct nfgenmsg *g = mnl_nlmsg_put_extra_header(m, sizeof *g);
    *g = (struct nfgenmsg){.nfgen_family = family, .version = NFNETLINK_V0};
    return m;
}

static int look_at(struct sets *s, const struct look *look, uint8_t family, struct sets_print *ret)
{
    char q[1024] __attribute__((aligned(8)));
    struct printing p = {look, ret};
    struct nlmsghdr *m = question(s, q, look->ask, family);
    if (look->filtered)
        mnl_attr_put_strz(m, TABLE_NAME, RULESET_TABLE);
    int error = netlink_dump(&s->nl, m, on_message, &p);
    return error == -ENOENT ? 0 : error;
}

static int on_elements(const struct nlmsghdr *m, void *user)
{
    const struct nlattr *a;
    mnl_attr_for_each(a, m, sizeof(struct nfgenmsg))
    {
        if (mnl_attr_get_type(a) == NFTA_SET_ELEM_LIST_ELEMENTS)
            add_attribute(user, a);
    }
    return 0;
}

/* Named sets that come with the rules, where elements could be added. */
static int look_at_doh(struct sets *s, struct sets_print *ret)
{
    static const char *const names[] = {"doh4", "doh6"};
    for (unsigned i = 0; i < 2; i++) {
        char q[1024] __attribute__((aligned(8)));
        struct nlmsghdr *m = question(s, q, NFT_MSG_GETSETELEM, NFPROTO_INET);
        mnl_attr_put_strz(m, NFTA_SET_ELEM_LIST_TABLE, RULESET_TABLE);
        mnl_attr_put_strz(m, NFTA_SET_ELEM_LIST_SET, names[i]);
        int error = netlink_dump(&s->nl, m, on_elements, ret);
        if (error && error != -ENOENT)
            return error;
    }
    return 0;
}

static int print_once(struct sets *s, struct sets_print *ret)
{
    static const uint8_t families[] = {NFPROTO_INET, NFPROTO_NETDEV};
    int error = 0;
    *ret = (struct sets_print){.hash = 14695981039346656037u};
    for (unsigned f = 0; f < 2; f++) {
        for (unsigned i = 0; i < LOOKS && error == 0; i++)
            error = look_at(s, &looks[i], families[f], ret);
    }
    return error ? error : look_at_doh(s, ret);
}

int sets_print(struct sets *s, struct sets_print *ret)
{
    int error = -EINTR;
    for (unsigned i = 0; i < NETLINK_DUMP_TRIES && error == -EINTR; i++)
        error = print_once(s, ret);
    if (error == 0 && ret->rules == 0)
        return -ENOENT;
    return error;
}
