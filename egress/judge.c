/* judge.c — one place where snapshot, leases and settings become the rules of identity.h.  The
 * order is the kernel's: what closes a port stands before every rule, so that no rule reopens it
 * by way of us. */
#include "egress/judge.h"

#include <ifaddrs.h>
#include <stdio.h>
#include <unistd.h>

#include "egress/dns/leases.h"
#include "egress/intercept/passlist.h"
#include "egress/state/view.h"
#include "egress/vault/lost.h"
#include "egress/vault/vault.h"

/* ---- what is in force */

static bool leased(void *user, struct str name, const struct ip *to)
{
    const struct judge *j = user;
    return j->sidecar->leases && leases_covers(j->sidecar->leases, name, to, j->now_ms);
}

static enum learned learned(void *user, const struct ip *to)
{
    const struct judge *j = user;
    bool bound;
    if (!j->sidecar->leases)
        return LEARNED_NOT;
    return leases_learned(j->sidecar->leases, to, j->now_ms, &bound);
}

static enum bound bound(void *user, struct str name, bool tls)
{
    const struct egress_view *v = ((const struct judge *)user)->view;
    if (lost_binds(v->lost, name, tls))
        return BOUND_LOST;
    return bindings_bind_host(vault_bindings(v->vault), name, tls) ? BOUND_HELD : BOUND_NOT;
}

static bool passed(void *user, struct str sni, const struct ip *to, uint16_t port)
{
    const struct judge *j = user;
    return j->sidecar->passlist && passlist_passes(j->sidecar->passlist, sni, to, port);
}

void judge_init(struct judge *j, const struct snapshot *snap, const struct sidecar *s,
                uint64_t now_ms)
{
    const struct egress_settings *set = s->set;
    *j = (struct judge){
        .rules = {.policy = view_of(snap)->policy,
                  .scope_all = set->mitm_scope == EGRESS_SCOPE_ALL,
                  .insecure = set->ssl_insecure,
                  .http_any = set->http_binding == EGRESS_HTTP_ANY,
                  .private_deny = set->private_answers == EGRESS_PRIVATE_DENY,
                  .bound = bound,
                  .passed = passed,
                  .leased = leased,
                  .learned = learned,
                  .user = j},
        /* the explicit proxy alone decides as the kernel would (E18) */
        .packet = {.nft = set->mode != EGRESS_DNS,
                   .block_doh = set->block_doh,
                   .doh_blocklist = set->doh},
        .sidecar = s,
        .view = view_of(snap),
        .now_ms = now_ms,
    };
}

/* ---- ports that no rule opens */

/* Port 53 is where a name server answers that the policy has no say in.  The address of a name that
 * a parent resolves is never seen. */
static bool is_closed(const struct judge *j, const struct identity_conn *c,
                      struct packet_answer *ret)
{
    struct packet k = {.to = c->to, .port = c->port, .proto = PACKET_TCP};
    bool waits = c->unresolved && !j->sidecar->parent;
    *ret = packet_judge(j->rules.policy, &j->packet, &k);
    switch (ret->by) {
    case PACKET_BY_DNS53:
        return !waits && !(c->port == 53 && egress_is_exempt(j->sidecar->set, &c->to));
    case PACKET_BY_PORT853:
    case PACKET_BY_DOH:
        return true;
    default:
        return false;
    }
}

/* ---- questions */

/* Of a name that is not looked up yet the name's own rule has decided. */
static struct opinion opinion_of(const struct judge *j, const struct identity_conn *c,
                                 struct identity_answer answer)
{
    struct opinion o = {.fault = answer.fault};
    if (answer.fault == IDENTITY_OK && c->unresolved)
        answer.by = policy_name(j->rules.policy, host_name(c->target));
    if (answer.fault == IDENTITY_OK || answer.fault == IDENTITY_DENIED)
        policy_rule_text(answer.by, o.rule);
    return o;
}

/* False: the port is open, *ret is not set. */
static bool closed(const struct judge *j, const struct identity_conn *c, struct opinion *ret)
{
    struct packet_answer by;
    if (!c->unresolved && judge_is_ours(j->sidecar, &c->to, c->port)) {
        *ret = (struct opinion){IDENTITY_DENIED, "own"};
        return true;
    }
    if (!is_closed(j, c, &by))
        return false;
    ret->fault = IDENTITY_DENIED;
    packet_rule_text(&by, ret->rule);
    return true;
}

struct opinion judge_target(const struct judge *j, const struct identity_conn *c)
{
    struct opinion o;
    if (closed(j, c, &o))
        return o;
    return opinion_of(j, c, identity_target(&j->rules, c));
}

struct opinion judge_first(const struct judge *j, const struct identity_conn *c, enum passage *ret)
{
    struct opinion o;
    *ret = PASSAGE_REFUSE;
    if (closed(j, c, &o))
        return o;
    struct identity_first first = identity_first(&j->rules, c);
    *ret = first.passage;
    return opinion_of(j, c, first.answer);
}

struct opinion judge_request(const struct judge *j, const struct identity_conn *c,
                             const struct identity_request *q, struct host *ret_host)
{
    struct opinion o;
    if (closed(j, c, &o))
        return o;
    return opinion_of(j, c, identity_request(&j->rules, c, q, ret_host));
}

bool judge_holds(const struct judge *j, const struct identity_conn *c, const struct host *name)
{
    if (name->kind != HOST_NAME)
        return false;
    if (c->held && host_same(c->held, name))
        return true;
    if (c->target && host_same(c->target, name))
        return true;
    return leased((void *)(uintptr_t)j, host_name(name), &c->to);
}

enum bound judge_bound(const struct judge *j, const struct identity_conn *c,
                       const struct host *name)
{
    if (name->kind != HOST_NAME || !identity_takes_credential(c))
        return BOUND_NOT;
    return bound((void *)(uintptr_t)j, host_name(name), c->kind == IDENTITY_TLS);
}

bool judge_would_read(const struct judge *j, const struct identity_conn *c, const struct host *name)
{
    struct identity_conn as = *c;
    enum passage passage;
    if (name->kind != HOST_NAME)
        return false;
    as.kind = IDENTITY_HTTP;
    if (judge_bound(j, &as, name) != BOUND_NOT)
        return true;
    as.kind = IDENTITY_TLS;
    as.sni = host_name(name);
    judge_first(j, &as, &passage);
    return passage == PASSAGE_INTERCEPT;
}

/* ---- addresses of our own */

static bool has_address(const struct ifaddrs *all, const struct ip *ip)
{
    for (const struct ifaddrs *i = all; i; i = i->ifa_next) {
        struct ip own;
        if (!i->ifa_addr ||
            (i->ifa_addr->sa_family != AF_INET && i->ifa_addr->sa_family != AF_INET6))
            continue;
        addr_ip(i->ifa_addr, &own);
        if (ip_eq(&own, ip))
            return true;
    }
    return false;
}

bool judge_is_loopback(const struct ip *ip)
{
    return ip_is_loopback(ip);
}

/* Where it cannot be told it is not: who asks serves those that are. */
bool judge_is_local(const struct ip *ip)
{
    struct ifaddrs *all;
    if (judge_is_loopback(ip))
        return true;
    if (getifaddrs(&all) < 0)
        return false;
    bool local = has_address(all, ip);
    freeifaddrs(all);
    return local;
}

/* The kernel lets a socket be bound to what is delivered here, whole ranges and `0.0.0.0` among it.
 * Where it cannot be told it is ours: who asks wants to keep away. */
static bool leads_here(const struct ip *ip)
{
    union addr at;
    addr_make(&at, ip, 0);
    int fd = socket(at.sa.sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return true;
    bool bound = bind(fd, &at.sa, addr_len(&at.sa)) == 0;
    close(fd);
    return bound;
}

bool judge_is_ours(const struct sidecar *s, const struct ip *ip, uint16_t port)
{
    bool listens = false;
    for (unsigned i = 0; i < s->nports; i++)
        listens |= s->ports[i] == port;
    return listens && leads_here(ip);
}
