/* check.c — /policy/check and /policy/log: what would be decided, and what was.  Nothing is
 * resolved and nothing changes, so both answer from memory. */
#include <stdio.h>

#include "base/text.h"
#include "egress/api/api_impl.h"
#include "http/path.h"
#include "policies/domains.h"
#include "policies/packet.h"

struct question {
    struct str name, address; /* one of them; p == NULL: not given */
    struct packet packet;
};

/* ---- reading */

static bool fail(struct visit *v, const char *what)
{
    visit_refuse(v, 400, arena_cat(&v->mem, STR("invalid check: "), str_of(what)));
    return false;
}

static bool read_proto(const struct json *j, enum packet_proto *ret)
{
    static const struct {
        const char *word;
        enum packet_proto proto;
    } words[] = {{"tcp", PACKET_TCP}, {"udp", PACKET_UDP}, {"icmp", PACKET_ICMP}};
    for (size_t i = 0; i < sizeof words / sizeof *words && json_type(j) == JSON_STRING; i++) {
        if (str_eq(json_string(j), str_of(words[i].word))) {
            *ret = words[i].proto;
            return true;
        }
    }
    return false;
}

static bool read_port(const struct json_doc *d, const struct json *j, uint16_t *ret)
{
    int64_t port;
    if (json_type(j) != JSON_NUMBER || !json_int(d, j, &port) || port < 1 || port > UINT16_MAX)
        return false;
    *ret = (uint16_t)port;
    return true;
}

static bool read_text(struct visit *v, const struct json *j, struct str *ret)
{
    if (json_type(j) != JSON_STRING)
        return false;
    *ret = arena_str(&v->mem, target_trim(json_string(j)));
    return ret->n > 0;
}

static bool read_members(struct visit *v, const struct json_doc *d, struct question *ret)
{
    const struct json *root = json_root(d);
    if (json_type(root) != JSON_OBJECT)
        return fail(v, "an object is expected");
    for (const struct json *j = json_first(root); j; j = json_next(j)) {
        struct str name = json_name(j);
        if (str_eq(name, STR("name")) ? !read_text(v, j, &ret->name)
            : str_eq(name, STR("address"))
                ? !read_text(v, j, &ret->address) || !ip_parse(ret->address, &ret->packet.to)
            : str_eq(name, STR("port"))  ? !read_port(d, j, &ret->packet.port)
            : str_eq(name, STR("proto")) ? !read_proto(j, &ret->packet.proto)
                                         : true)
            return fail(v, "members are name or address, port (1 to 65535) and proto (tcp, udp or "
                           "icmp)");
    }
    if (!ret->name.p == !ret->address.p)
        return fail(v, "one of name and address is expected");
    return true;
}

static bool read_question(struct visit *v, struct question *ret)
{
    struct json_fault fault;
    struct json_doc *d = document_json(visit_body(v), &fault);
    *ret = (struct question){.packet = {.proto = PACKET_TCP}};
    if (!d)
        return fail(v, fault.text);
    bool good = read_members(v, d, ret);
    json_free(d);
    if (!good || !ret->name.p)
        return good;
    if (!name_canonical(ret->name, &v->mem, &ret->name) || !name_can_match(ret->name))
        return fail(v, "that is no name");
    return true;
}

/* ---- deciding */

static struct packet_rules rules_of(struct visit *v)
{
    const struct egress_settings *set = visit_host(v)->set;
    struct cidr *exempt = arena_get(&v->mem, (set->nexempt + 1) * sizeof *exempt);
    for (size_t i = 0; i < set->nexempt; i++)
        exempt[i] = (struct cidr){set->exempt[i], 128};
    return (struct packet_rules){
        .nft = set->mode == EGRESS_DNS_NFT,
        .block_doh = set->block_doh,
        .doh_blocklist = set->doh,
        .exempt = {exempt, set->nexempt},
    };
}

/* An address that a name would lead to: what the policy says of names, then what holds for any
 * address of that port. */
static struct packet_answer judge_name(struct visit *v, const struct policy *p,
                                       const struct packet_rules *rules, struct question *q)
{
    static const struct ip anywhere = {{[10] = 0xff, [11] = 0xff, 192, 0, 2, 1}};
    const struct api_host *h = visit_host(v);
    struct policy_answer name = policy_name(p, q->name);
    q->packet.to = anywhere;
    q->packet.bound = h->bound && h->bound(h->user, q->name);
    struct packet_answer port = packet_judge(p, rules, &q->packet);
    bool listed = port.by == PACKET_BY_DOH && rules->doh_blocklist.n > 0;
    bool by_port = port.verdict != PACKET_ACCEPT && port.by != PACKET_BY_POLICY && !listed;
    if (name.allow && by_port)
        return port;
    return (struct packet_answer){name.allow ? PACKET_ACCEPT : PACKET_REFUSE, PACKET_BY_POLICY,
                                  name};
}

static struct packet_answer judge_address(struct visit *v, const struct policy *p,
                                          const struct packet_rules *rules, struct question *q)
{
    const struct api_host *h = visit_host(v);
    if (h->learned)
        q->packet.learned = h->learned(h->user, &q->packet.to, &q->packet.bound);
    if (h->set->mode != EGRESS_PROXY)
        return packet_judge(p, rules, &q->packet);
    struct policy_answer by = policy_addr(p, &q->packet.to, q->packet.learned);
    return (struct packet_answer){by.allow ? PACKET_ACCEPT : PACKET_REFUSE, PACKET_BY_POLICY, by};
}

void serve_check(struct visit *v)
{
    struct question q;
    struct json_out o;
    char rule[POLICY_RULE_BYTES];
    if (!read_question(v, &q))
        return;
    const struct policy *p = changes_now(visit_host(v)->changes)->policy;
    struct packet_rules rules = rules_of(v);
    struct packet_answer by =
        q.name.p ? judge_name(v, p, &rules, &q) : judge_address(v, p, &rules, &q);
    struct str target = by.by == PACKET_BY_POLICY ? policy_target(p, by.answer) : STR("");
    json_out_init(&o);
    json_open(&o, '{');
    json_key(&o, "verdict");
    json_put_str(&o, by.verdict == PACKET_REFUSE ? STR("deny") : STR("allow"));
    json_key(&o, "rule");
    json_put_str(&o, (struct str){rule, packet_rule_text(&by, rule)});
    if (target.n) {
        json_key(&o, "target");
        json_put_str(&o, target);
    }
    json_close(&o, '}');
    visit_json(v, &o);
}

/* ---- what was decided */

/* Of several the first counts; other parameters are ignored. */
static bool read_since(struct str query, uint64_t *ret)
{
    *ret = 0;
    query = query.n ? str_skip(query, 1) : query;
    for (struct str part; str_next(&query, '&', &part);)
        if (str_starts(part, STR("since=")))
            return text_u64(str_skip(part, 6), INT64_MAX, ret);
    return true;
}

void serve_log(struct visit *v)
{
    struct json_out o;
    struct str query;
    uint64_t since;
    path_without_query(v->head->path, &query);
    if (!read_since(query, &since)) {
        visit_refuse(v, 400, STR("invalid since: a number is expected"));
        return;
    }
    json_out_init(&o);
    if (visit_host(v)->decisions)
        decisions_put(visit_host(v)->decisions, since, &o);
    else
        json_put_raw(&o, STR("{\"entries\":[],\"next\":0}"));
    visit_json(v, &o);
}
