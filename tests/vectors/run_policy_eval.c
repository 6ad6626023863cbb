/* run_policy_eval.c — policy_eval_domain, policy_eval_ip, answer_filter: what a policy decides. */
#include "policies/packet.h"
#include "policies/special.h"
#include "vectors/run_policy.h"

bool run_policy_eval_domain(struct row *r)
{
    char rule[POLICY_RULE_BYTES];
    struct policy *p = row_policy(r);
    if (!p)
        return false;
    struct policy_answer answer = policy_name(p, row_text(r->v, "name"));
    size_t n = policy_rule_text(answer, rule);
    policy_free(p);
    return row_same(r, "verdict", answer.allow ? STR("allow") : STR("deny"),
                    row_text(r->v, "verdict")) &&
           row_same(r, "rule", (struct str){rule, n}, row_text(r->v, "rule"));
}

/* ---- packets */

static bool is_listed(const struct json *list, struct str text)
{
    for (const struct json *v = list ? json_first(list) : NULL; v; v = json_next(v))
        if (str_eq(json_string(v), text))
            return true;
    return false;
}

/* What the running leases say about the packet's address. */
static void learn(struct row *r, const struct policy *p, struct packet *k)
{
    const struct json *list = row_member(r->v, "learned");
    bool intercepts = row_env(r, "MITMPROXY_TRANSPARENT").n > 0;
    for (const struct json *v = list ? json_first(list) : NULL; v; v = json_next(v)) {
        struct ip ip;
        struct str name = row_text(v, "name");
        if (!ip_parse(row_text(v, "addr"), &ip) || !ip_eq(&ip, &k->to))
            continue;
        enum learned learned = policy_learns(p, name);
        k->learned = learned > k->learned ? learned : k->learned;
        k->bound |= intercepts && is_listed(row_member(r->v, "intercepted"), name);
    }
}

static bool settings_of(struct row *r, struct packet_rules *ret)
{
    struct str bad;
    *ret = (struct packet_rules){
        .nft = !str_eq(row_env(r, "MODE"), STR("dns")),
        .block_doh = row_env(r, "BLOCK_DOH_443").n > 0,
    };
    return cidr_set_parse(row_env(r, "DOH_BLOCKLIST"), r->a, &ret->doh_blocklist, &bad) &&
           cidr_set_parse(row_env(r, "NAMESERVER_EXEMPT"), r->a, &ret->exempt, &bad);
}

static bool packet_of(struct row *r, struct packet *ret)
{
    struct str proto = row_text(r->v, "proto");
    *ret = (struct packet){
        .port = (uint16_t)row_int(r, r->v, "port", 0),
        .proto = str_eq(proto, STR("udp"))   ? PACKET_UDP
                 : str_eq(proto, STR("tcp")) ? PACKET_TCP
                                             : PACKET_ICMP,
        .own = row_bool(r->v, "own"),
        .reply = row_bool(r->v, "reply"),
    };
    return ip_parse(row_text(r->v, "addr"), &ret->to);
}

bool run_policy_eval_ip(struct row *r)
{
    static const struct str verdicts[] = {[PACKET_ACCEPT] = {"accept", 6},
                                          [PACKET_REFUSE] = {"drop", 4},
                                          [PACKET_TO_DNS] = {"dns", 3}};
    char rule[POLICY_RULE_BYTES];
    struct packet k;
    struct packet_rules settings;
    if (!settings_of(r, &settings) || !packet_of(r, &k))
        return row_fail(r, "the row is not to be read");
    struct policy *p = row_policy(r);
    if (!p)
        return false;
    learn(r, p, &k);
    struct packet_answer answer = packet_judge(p, &settings, &k);
    size_t n = packet_rule_text(&answer, rule);
    policy_free(p);
    return row_same(r, "verdict", verdicts[answer.verdict], row_text(r->v, "verdict")) &&
           row_same(r, "rule", (struct str){rule, n}, row_text(r->v, "rule"));
}

/* ---- answers */

bool run_answer_filter(struct row *r)
{
    struct ip ip;
    if (!ip_parse(row_text(r->v, "addr"), &ip))
        return row_fail(r, "no address");
    struct policy *p = row_policy(r);
    if (!p)
        return false;
    bool kept = answer_kept(p, &ip, str_eq(row_env(r, "PRIVATE_ANSWERS"), STR("deny")));
    policy_free(p);
    return row_same_int(r, "kept", kept, row_bool(r->v, "kept"));
}
