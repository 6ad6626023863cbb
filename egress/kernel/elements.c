/* elements.c — writes set elements as nf_tables wants them.  By hand rather than with another
 * library's objects: an element has six attributes, and a policy has thousands of elements. */
#include "egress/kernel/elements_impl.h"

#include <arpa/inet.h>
#include <endian.h>
#include <linux/netfilter.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nfnetlink.h>

#include "egress/kernel/ruleset.h"

enum {
    ELEMENT_MAX = 1024,   /* more than one element takes */
    LIST_MAX = 48 * 1024, /* an attribute's length has 16 bits */
    FIRST_BYTES = 4096,
    UDATA_COMMENT = 0 /* type of user data that nft takes for a comment */
};

static struct nlmsghdr *message_of(struct elements *e)
{
    return (struct nlmsghdr *)(e->p + e->message);
}

static void make_room(struct elements *e)
{
    if (e->room - e->n >= ELEMENT_MAX)
        return;
    e->room *= 2;
    e->p = mem_renew(e->p, e->room);
}

/* A message at the end of the batch; it is grown in place until finish(). */
static struct nlmsghdr *start(struct elements *e, uint16_t type, uint16_t flags, uint8_t family,
                              uint16_t resource)
{
    make_room(e);
    e->message = e->n;
    struct nlmsghdr *m = netlink_begin(e->nl, e->p + e->n, type, flags);
    struct nfgenmsg *g = mnl_nlmsg_put_extra_header(m, sizeof *g);
    g->nfgen_family = family;
    g->version = NFNETLINK_V0;
    g->res_id = htons(resource);
    return m;
}

static void finish(struct elements *e)
{
    struct nlmsghdr *m = message_of(e);
    if (e->list)
        mnl_attr_nest_end(m, (struct nlattr *)(e->p + e->list));
    e->n = e->message + NLMSG_ALIGN(m->nlmsg_len);
    e->list = 0;
}

void elements_begin(struct elements *e, struct netlink *nl)
{
    *e = (struct elements){.nl = nl, .p = mem_new(FIRST_BYTES), .room = FIRST_BYTES};
    start(e, NFNL_MSG_BATCH_BEGIN, 0, AF_UNSPEC, NFNL_SUBSYS_NFTABLES);
    finish(e);
}

static void open_list(struct elements *e, uint16_t type, uint16_t flags, const char *set)
{
    struct nlmsghdr *m = start(e, type, flags, NFPROTO_INET, 0);
    e->last_seq = m->nlmsg_seq;
    mnl_attr_put_strz(m, NFTA_SET_ELEM_LIST_TABLE, RULESET_TABLE);
    mnl_attr_put_strz(m, NFTA_SET_ELEM_LIST_SET, set);
    struct nlattr *list = mnl_attr_nest_start(m, NFTA_SET_ELEM_LIST_ELEMENTS);
    e->list = (size_t)((char *)list - e->p);
    e->n = e->message + m->nlmsg_len;
}

void elements_of(struct elements *e, bool add, const char *set)
{
    uint16_t verb = add ? NFT_MSG_NEWSETELEM : NFT_MSG_DELSETELEM;
    if (e->list)
        finish(e);
    open_list(e, (uint16_t)(NFNL_SUBSYS_NFTABLES << 8 | verb), add ? NLM_F_CREATE : 0, set);
}

/* The same set again, in a message of its own. */
static void split(struct elements *e)
{
    char set[64];
    struct nlmsghdr *m = message_of(e);
    const struct nlattr *table = mnl_nlmsg_get_payload_offset(m, sizeof(struct nfgenmsg));
    const struct nlattr *name = mnl_attr_next(table);
    struct str text = str_of(mnl_attr_get_str(name));
    uint16_t type = m->nlmsg_type, flags = m->nlmsg_flags;
    memcpy(set, text.p, text.n + 1);
    finish(e);
    open_list(e, type, flags, set);
}

static void put_verdict(struct nlmsghdr *m, const char *chain)
{
    struct nlattr *data = mnl_attr_nest_start(m, NFTA_SET_ELEM_DATA);
    struct nlattr *verdict = mnl_attr_nest_start(m, NFTA_DATA_VERDICT);
    mnl_attr_put_u32(m, NFTA_VERDICT_CODE, htonl((uint32_t)NFT_GOTO));
    mnl_attr_put_strz(m, NFTA_VERDICT_CHAIN, chain);
    mnl_attr_nest_end(m, verdict);
    mnl_attr_nest_end(m, data);
}

static void put_comment(struct nlmsghdr *m, struct str comment)
{
    uint8_t data[2 + ELEMENT_COMMENT_MAX + 1] = {UDATA_COMMENT, (uint8_t)(comment.n + 1)};
    memcpy(data + 2, comment.p, comment.n);
    mnl_attr_put(m, NFTA_SET_ELEM_USERDATA, 2 + comment.n + 1, data);
}

void elements_put(struct elements *e, const struct element *one)
{
    make_room(e);
    if (e->n - e->list > LIST_MAX)
        split(e);
    struct nlmsghdr *m = message_of(e);
    struct nlattr *item = mnl_attr_nest_start(m, NFTA_LIST_ELEM);
    struct nlattr *key = mnl_attr_nest_start(m, NFTA_SET_ELEM_KEY);
    mnl_attr_put(m, NFTA_DATA_VALUE, one->key_len, one->key);
    mnl_attr_nest_end(m, key);
    if (one->interval_end)
        mnl_attr_put_u32(m, NFTA_SET_ELEM_FLAGS, htonl(NFT_SET_ELEM_INTERVAL_END));
    if (one->chain)
        put_verdict(m, one->chain);
    if (one->timeout_ms)
        mnl_attr_put_u64(m, NFTA_SET_ELEM_TIMEOUT, htobe64(one->timeout_ms));
    if (one->comment.n > 0 && one->comment.n <= ELEMENT_COMMENT_MAX)
        put_comment(m, one->comment);
    mnl_attr_nest_end(m, item);
    e->n = e->message + m->nlmsg_len;
}

int elements_commit(struct elements *e)
{
    int error = 0;
    if (e->list) {
        message_of(e)->nlmsg_flags |= NLM_F_ACK;
        finish(e);
        start(e, NFNL_MSG_BATCH_END, 0, AF_UNSPEC, NFNL_SUBSYS_NFTABLES);
        finish(e);
        error = netlink_send_batch(e->nl, e->p, e->n, e->last_seq);
    }
    mem_free(e->p);
    return error;
}

const uint8_t *element_key(const struct ip *ip, uint16_t *ret_len)
{
    bool v4 = ip_is_v4(ip);
    *ret_len = v4 ? 4 : 16;
    return v4 ? ip->b + 12 : ip->b;
}
