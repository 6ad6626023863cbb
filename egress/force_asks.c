/* force_asks.c — what the API and the log ask of the sidecar's other parts. */
#include "egress/boot_impl.h"
#include "egress/intercept/passlist.h"
#include "egress/judge.h"
#include "policies/packet.h"

bool force_passed(void *user, struct str host)
{
    const struct boot *b = user;
    return b->sc->passlist && passlist_covers(b->sc->passlist, host);
}

const char *force_fault(const struct boot *b)
{
    if (b->draining)
        return "stopping";
    if (b->unsure)
        return "it is not known which rules the kernel holds";
    return b->sc->enforce ? enforce_fault(b->sc->enforce) : NULL;
}

static const char *not_enforced(void *user)
{
    return force_fault(user);
}

static bool interception_ready(void *user)
{
    const struct boot *b = user;
    return b->sc->intercept != NULL;
}

static enum learned learned(void *user, const struct ip *ip, bool *ret_bound)
{
    const struct boot *b = user;
    return leases_learned(b->sc->leases, ip, worker_now(b->w), ret_bound);
}

static bool bound(void *user, struct str name)
{
    const struct boot *b = user;
    return gate_is_bound(&b->rules, name);
}

static void updated(void *user, const struct api_update *u)
{
    events_update(((struct boot *)user)->sc->events, u);
}

struct api_host force_asks(struct boot *b)
{
    return (struct api_host){.set = b->set,
                             .decisions = b->sc->decisions,
                             .not_enforced = not_enforced,
                             .interception_ready = interception_ready,
                             .learned = learned,
                             .bound = bound,
                             .passed = force_passed,
                             .updated = updated,
                             .is_local = judge_is_local,
                             .user = b};
}

/* ---- packets that were refused */

static enum packet_proto proto_of(uint8_t protocol)
{
    return protocol == IPPROTO_TCP   ? PACKET_TCP
           : protocol == IPPROTO_UDP ? PACKET_UDP
                                     : PACKET_ICMP;
}

struct str force_drop_rule(struct boot *b, const struct drop *drop, char out[POLICY_RULE_BYTES])
{
    struct packet p = {.to = drop->dst, .port = drop->dst_port, .proto = proto_of(drop->protocol)};
    struct packet_rules rules = {.nft = b->set->mode == EGRESS_DNS_NFT,
                                 .block_doh = b->set->block_doh,
                                 .doh_blocklist = b->set->doh};
    p.learned = leases_learned(b->sc->leases, &p.to, worker_now(b->w), &p.bound);
    struct packet_answer by = packet_judge(b->view->policy, &rules, &p);
    if (by.verdict == PACKET_ACCEPT) /* the kernel has its own reasons: a forged or a stale one */
        return STR("kernel");
    return (struct str){out, packet_rule_text(&by, out)};
}
