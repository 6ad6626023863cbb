/* sets_dump.c — reads back what stands in the kernel, so that a successor can take it over and a
 * test can compare.  Many dumps make one picture only if the table's generation is the same before
 * and after; else it is taken again. */
#include "egress/kernel/sets_impl.h"

#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <linux/netfilter.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nfnetlink.h>
#include <stdlib.h>

/* One element, as it was dumped. */
struct point {
    struct ip ip;
    bool end, allow;
    unsigned seconds;
    struct str name;
};

/* The elements of one set; they lie in the arena and grow by doubling. */
struct points {
    struct arena *a;
    struct point *at;
    size_t n, room;
    bool v4;
    bool map; /* each has a verdict */
    bool odd; /* one has another verdict than ours */
};

enum verdict { VERDICT_PASS, VERDICT_REFUSE, VERDICT_ODD };

struct defaults {
    unsigned n;
    bool odd;
};

/* ---- attributes */

static const struct nlattr *top(const struct nlmsghdr *m, uint16_t type)
{
    const struct nlattr *a;
    mnl_attr_for_each(a, m, sizeof(struct nfgenmsg))
    {
        if (mnl_attr_get_type(a) == type)
            return a;
    }
    return NULL;
}

static struct str bytes(const struct nlattr *a)
{
    return a ? (struct str){mnl_attr_get_payload(a), mnl_attr_get_payload_len(a)} : STR_NONE;
}

static uint64_t number64(const struct nlattr *a)
{
    uint64_t v = 0;
    if (a && mnl_attr_get_payload_len(a) == sizeof v)
        memcpy(&v, mnl_attr_get_payload(a), sizeof v);
    return be64toh(v);
}

static uint32_t number32(const struct nlattr *a)
{
    uint32_t v = 0;
    if (a && mnl_attr_get_payload_len(a) == sizeof v)
        memcpy(&v, mnl_attr_get_payload(a), sizeof v);
    return ntohl(v);
}

/* The first entry of user data, which for tables and elements is the comment; without its end. */
static struct str comment(const struct nlattr *a)
{
    struct str s = bytes(a);
    if (s.n < 3 || s.p[0] != 0 || (uint8_t)s.p[1] > s.n - 2 || (uint8_t)s.p[1] == 0)
        return STR_NONE;
    return (struct str){s.p + 2, (size_t)(uint8_t)s.p[1] - 1};
}

/* ---- elements */

static struct point *grow(struct points *p)
{
    if (p->n == p->room) {
        size_t room = p->room ? 2 * p->room : 64;
        struct point *at = arena_get(p->a, room * sizeof *at);
        if (p->n > 0)
            memcpy(at, p->at, p->n * sizeof *at);
        p->at = at;
        p->room = room;
    }
    return &p->at[p->n++];
}

static bool key_of(struct str key, bool v4, struct ip *ret)
{
    static const uint8_t v4_head[12] = {[10] = 0xff, [11] = 0xff};
    if (key.n != (v4 ? 4u : 16u))
        return false;
    if (v4)
        memcpy(ret->b, v4_head, 12);
    memcpy(ret->b + 16 - key.n, key.p, key.n);
    return true;
}

/* What we write is a goto to one of two chains. */
static enum verdict verdict_of(const struct nlattr *e)
{
    const struct nlattr *v =
        netlink_inside(netlink_inside(e, NFTA_SET_ELEM_DATA), NFTA_DATA_VERDICT);
    struct str chain = bytes(netlink_inside(v, NFTA_VERDICT_CHAIN));
    if (number32(netlink_inside(v, NFTA_VERDICT_CODE)) != (uint32_t)NFT_GOTO || chain.n == 0)
        return VERDICT_ODD;
    chain.n--; /* its end */
    if (str_eq(chain, STR("pass")))
        return VERDICT_PASS;
    return str_eq(chain, STR("refuse")) ? VERDICT_REFUSE : VERDICT_ODD;
}

static void add_point(struct points *p, const struct nlattr *e)
{
    enum verdict v = verdict_of(e);
    struct str key = bytes(netlink_inside(netlink_inside(e, NFTA_SET_ELEM_KEY), NFTA_DATA_VALUE));
    struct ip ip;
    if (!key_of(key, p->v4, &ip))
        return;
    struct point *one = grow(p);
    uint32_t flags = number32(netlink_inside(e, NFTA_SET_ELEM_FLAGS));
    one->ip = ip;
    one->end = flags & NFT_SET_ELEM_INTERVAL_END;
    one->allow = v == VERDICT_PASS;
    p->odd |= p->map && !one->end && v == VERDICT_ODD;
    one->seconds = (unsigned)(number64(netlink_inside(e, NFTA_SET_ELEM_EXPIRATION)) / 1000);
    one->name = arena_str(p->a, comment(netlink_inside(e, NFTA_SET_ELEM_USERDATA)));
}

static int on_elements(const struct nlmsghdr *m, void *user)
{
    const struct nlattr *list = top(m, NFTA_SET_ELEM_LIST_ELEMENTS), *e;
    if (!list)
        return 0;
    mnl_attr_for_each_nested(e, list) add_point(user, e);
    return 0;
}

static struct nlmsghdr *ask(struct sets *s, void *p, unsigned verb, uint16_t flags, uint8_t family)
{
    struct nlmsghdr *m =
        netlink_begin(&s->nl, p, (uint16_t)(NFNL_SUBSYS_NFTABLES << 8 | verb), flags);
    struct nfgenmsg *g = mnl_nlmsg_put_extra_header(m, sizeof *g);
    *g = (struct nfgenmsg){.nfgen_family = family, .version = NFNETLINK_V0};
    return m;
}

static int read_set(struct sets *s, const char *name, struct points *p)
{
    char q[1024] __attribute__((aligned(8)));
    struct nlmsghdr *m = ask(s, q, NFT_MSG_GETSETELEM, NLM_F_DUMP, NFPROTO_INET);
    mnl_attr_put_strz(m, NFTA_SET_ELEM_LIST_TABLE, RULESET_TABLE);
    mnl_attr_put_strz(m, NFTA_SET_ELEM_LIST_SET, name);
    return netlink_dump(&s->nl, m, on_elements, p);
}

/* ---- ranges from points */

static int by_ip(const void *x, const void *y)
{
    const struct point *a = x, *b = y;
    int order = memcmp(a->ip.b, b->ip.b, 16);
    return order ? order : b->end - a->end;
}

static struct ip last_ip(bool v4)
{
    struct ip ip;
    memset(ip.b, 0xff, 16);
    if (v4)
        memset(ip.b, 0, 10);
    return ip;
}

static struct ip before(struct ip ip)
{
    for (unsigned i = 16; i-- > 0 && ip.b[i]-- == 0;)
        ;
    return ip;
}

/* Points in order: a start reaches to the next point, whatever that is. */
static struct range_list ranges_of(const struct points *p, bool single)
{
    struct range *out = arena_get(p->a, (p->n + 1) * sizeof *out);
    size_t n = 0;
    if (p->n > 1)
        qsort(p->at, p->n, sizeof *p->at, by_ip);
    for (size_t i = 0; i < p->n; i++) {
        struct range r = {.lo = p->at[i].ip, .hi = p->at[i].ip, .allow = p->at[i].allow};
        if (p->at[i].end)
            continue;
        if (!single)
            r.hi = i + 1 < p->n ? before(p->at[i + 1].ip) : last_ip(p->v4);
        out[n++] = r;
    }
    return (struct range_list){out, n};
}

static int read_layer(struct sets *s, const char *const maps[RANGE_KINDS], struct arena *a,
                      struct ranges *ret, bool *ret_odd)
{
    for (unsigned k = 0; k < RANGE_KINDS; k++) {
        struct points p = {.a = a, .v4 = k == RANGES_V4 || k == RANGES_V4_SINGLE, .map = true};
        int error = read_set(s, maps[k], &p);
        if (error)
            return error;
        *ret_odd |= p.odd;
        ret->list[k] = ranges_of(&p, k == RANGES_V4_SINGLE || k == RANGES_V6_SINGLE);
    }
    return 0;
}

/* ---- the rest of a picture */

static int on_default(const struct nlmsghdr *m, void *user)
{
    const struct nlattr *list = top(m, NFTA_SET_ELEM_LIST_ELEMENTS), *e;
    struct defaults *d = user;
    if (!list)
        return 0;
    mnl_attr_for_each_nested(e, list)
    {
        enum verdict v = verdict_of(e);
        d->n++;
        d->odd |= v != VERDICT_PASS;
    }
    return 0;
}

/* To allow, there is one element for each family. */
static int read_default(struct sets *s, struct sets_content *ret)
{
    char q[1024] __attribute__((aligned(8)));
    struct defaults d = {0, false};
    struct nlmsghdr *m = ask(s, q, NFT_MSG_GETSETELEM, NLM_F_DUMP, NFPROTO_INET);
    mnl_attr_put_strz(m, NFTA_SET_ELEM_LIST_TABLE, RULESET_TABLE);
    mnl_attr_put_strz(m, NFTA_SET_ELEM_LIST_SET, SETS_FALLBACK);
    int error = netlink_dump(&s->nl, m, on_default, &d);
    ret->rules.allow = d.n > 0;
    ret->odd |= d.odd || (d.n != 0 && d.n != 2);
    return error;
}

static void append(struct sets_content *c, struct arena *a, const struct points *p, unsigned kind)
{
    struct sets_address *at = arena_get(a, (c->n + p->n + 1) * sizeof *at);
    if (c->n > 0)
        memcpy(at, c->at, c->n * sizeof *at);
    for (size_t i = 0; i < p->n; i++)
        at[c->n + i] = (struct sets_address){p->at[i].ip, kind, p->at[i].seconds, p->at[i].name};
    c->at = at;
    c->n += p->n;
}

static int read_learned(struct sets *s, struct arena *a, struct sets_content *ret)
{
    for (unsigned i = 0; i < 2 * SETS_NAMES; i++) {
        struct points p = {.a = a, .v4 = i % 2 == 0};
        int error = read_set(s, sets_names[i / 2].name[i % 2], &p);
        if (error == -ENOENT && sets_names[i / 2].kind == SETS_PARENT)
            continue;
        if (error)
            return error;
        append(ret, a, &p, sets_names[i / 2].kind);
    }
    return 0;
}

static int read_all(struct sets *s, struct arena *a, struct sets_content *ret)
{
    *ret = (struct sets_content){0};
    int error = read_layer(s, sets_maps[0], a, &ret->rules.always, &ret->odd);
    if (error == 0)
        error = read_layer(s, sets_maps[1], a, &ret->rules.user, &ret->odd);
    if (error == 0)
        error = read_default(s, ret);
    return error ? error : read_learned(s, a, ret);
}

static int on_generation(const struct nlmsghdr *m, void *user)
{
    uint32_t *generation = user;
    *generation = number32(top(m, NFTA_GEN_ID));
    return 0;
}

int sets_generation(struct sets *s, uint32_t *ret)
{
    char q[1024] __attribute__((aligned(8)));
    *ret = 0;
    return netlink_dump(&s->nl, ask(s, q, NFT_MSG_GETGEN, 0, AF_UNSPEC), on_generation, ret);
}

int sets_dump(struct sets *s, struct arena *a, struct sets_content *ret)
{
    int error = -EINTR;
    for (unsigned i = 0; i < NETLINK_DUMP_TRIES && error == -EINTR; i++) {
        uint32_t was, is;
        error = sets_generation(s, &was);
        if (error == 0)
            error = read_all(s, a, ret);
        if (error == 0)
            error = sets_generation(s, &is);
        if (error == 0 && is != was)
            error = -EINTR;
    }
    return error;
}

/* ---- the table itself */

static int on_table(const struct nlmsghdr *m, void *user)
{
    struct str text = comment(top(m, NFTA_TABLE_USERDATA)), mark = STR("sallyport ");
    if (!str_starts(text, mark) || text.n != mark.n + RULESET_HASH_TEXT)
        return -ENODATA;
    memcpy(user, text.p + mark.n, RULESET_HASH_TEXT);
    return 0;
}

int sets_table(struct sets *s, char ret_hash[RULESET_HASH_TEXT])
{
    char q[1024] __attribute__((aligned(8)));
    struct nlmsghdr *m = ask(s, q, NFT_MSG_GETTABLE, 0, NFPROTO_INET);
    mnl_attr_put_strz(m, NFTA_TABLE_NAME, RULESET_TABLE);
    return netlink_dump(&s->nl, m, on_table, ret_hash);
}

static int on_counter(const struct nlmsghdr *m, void *user)
{
    uint64_t *packets = user;
    *packets = number64(netlink_inside(top(m, NFTA_OBJ_DATA), NFTA_COUNTER_PACKETS));
    return 0;
}

static int counter(struct sets *s, uint8_t family, const char *name, uint64_t *ret)
{
    char q[1024] __attribute__((aligned(8)));
    struct nlmsghdr *m = ask(s, q, NFT_MSG_GETOBJ, 0, family);
    mnl_attr_put_strz(m, NFTA_OBJ_TABLE, RULESET_TABLE);
    mnl_attr_put_strz(m, NFTA_OBJ_NAME, name);
    mnl_attr_put_u32(m, NFTA_OBJ_TYPE, htonl(NFT_OBJECT_COUNTER));
    int error = netlink_dump(&s->nl, m, on_counter, ret);
    return error == -ENOENT ? 0 : error;
}

int sets_counts(struct sets *s, struct sets_counts *ret)
{
    *ret = (struct sets_counts){0};
    int error = counter(s, NFPROTO_INET, "refused", &ret->refused);
    if (error == 0)
        error = counter(s, NFPROTO_INET, "forged", &ret->forged);
    if (error == 0)
        error = counter(s, NFPROTO_INET, "wrong_mark", &ret->wrong_mark);
    return error ? error : counter(s, NFPROTO_NETDEV, "frames", &ret->frames);
}
