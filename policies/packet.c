/* packet.c — the order in which things decide about a packet.  The kernel does the same with chains
 * and sets; this is the order written down once where it can be read and tested. */
#include "policies/packet.h"

#include <stdio.h>

/* A container engine's resolver listens there on a port of its own. */
static bool is_engine_resolver(const struct ip *ip)
{
    static const struct ip resolver = {{[10] = 0xff, [11] = 0xff, 127, 0, 0, 11}};
    return ip_eq(ip, &resolver);
}

static bool is_exempt(const struct packet_rules *rules, const struct packet *k)
{
    return k->proto != PACKET_ICMP && k->port == 53 && cidr_set_has(&rules->exempt, &k->to);
}

static bool goes_to_dns(const struct packet_rules *rules, const struct packet *k)
{
    if (k->proto == PACKET_ICMP || is_exempt(rules, k))
        return false;
    return k->port == 53 || is_engine_resolver(&k->to);
}

static bool is_doh(const struct packet_rules *rules, const struct packet *k)
{
    if (!rules->block_doh || k->proto != PACKET_TCP || k->port != 443)
        return false;
    return rules->doh_blocklist.n == 0 || cidr_set_has(&rules->doh_blocklist, &k->to);
}

static struct packet_answer plain(enum packet_verdict verdict, enum packet_rule by)
{
    return (struct packet_answer){.verdict = verdict, .by = by};
}

static struct packet_answer by_policy(const struct policy *p, const struct packet_rules *rules,
                                      const struct packet *k)
{
    struct policy_answer answer = policy_addr(p, &k->to, k->learned);
    if (answer.layer == LAYER_DEFAULT && is_exempt(rules, k))
        return plain(PACKET_ACCEPT, PACKET_BY_EXEMPT);
    return (struct packet_answer){answer.allow ? PACKET_ACCEPT : PACKET_REFUSE, PACKET_BY_POLICY,
                                  answer};
}

struct packet_answer packet_judge(const struct policy *p, const struct packet_rules *rules,
                                  const struct packet *packet)
{
    if (packet->reply)
        return plain(PACKET_ACCEPT, PACKET_BY_REPLY);
    if (packet->own)
        return plain(PACKET_ACCEPT, PACKET_BY_OWN);
    if (goes_to_dns(rules, packet))
        return plain(PACKET_TO_DNS, PACKET_BY_DNS53);
    if (!rules->nft)
        return plain(PACKET_ACCEPT, PACKET_BY_NOTHING);
    if (ip_is_loopback(&packet->to))
        return plain(PACKET_ACCEPT, PACKET_BY_LOOPBACK);
    if (packet->proto != PACKET_ICMP && packet->port == 853)
        return plain(PACKET_REFUSE, PACKET_BY_PORT853);
    if (is_doh(rules, packet))
        return plain(PACKET_REFUSE, PACKET_BY_DOH);
    if (packet->bound && packet->proto == PACKET_UDP && packet->port == 443)
        return plain(PACKET_REFUSE, PACKET_BY_QUIC);
    return by_policy(p, rules, packet);
}

size_t packet_rule_text(const struct packet_answer *answer, char out[POLICY_RULE_BYTES])
{
    static const char *const words[] = {
        [PACKET_BY_REPLY] = "reply",       [PACKET_BY_OWN] = "own",
        [PACKET_BY_DNS53] = "dns53",       [PACKET_BY_NOTHING] = "none",
        [PACKET_BY_LOOPBACK] = "loopback", [PACKET_BY_PORT853] = "port853",
        [PACKET_BY_DOH] = "doh",           [PACKET_BY_QUIC] = "quic",
        [PACKET_BY_EXEMPT] = "exempt",
    };
    if (answer->by == PACKET_BY_POLICY)
        return policy_rule_text(answer->answer, out);
    return (size_t)snprintf(out, POLICY_RULE_BYTES, "%s", words[answer->by]);
}
