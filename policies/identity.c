/* identity.c — whom a connection is for.  Any one of the names and the address could be chosen by
 * the workload to get around what the others are judged by, so all that is there must agree, and
 * the address must be one that the policy permits for that very name, bound or not. */
#include "policies/identity.h"

#include <assert.h>

#include "policies/special.h"

static const struct {
    enum why why;
    int status;
    struct str text;
} faults[] = {
#define X(id, why, status, text) {WHY_##why, status, {text, sizeof text - 1}},
    IDENTITY_MAP(X)
#undef X
};

enum why identity_why(enum identity i)
{
    return faults[i].why;
}

int identity_status(enum identity i)
{
    return faults[i].status;
}

struct str identity_text(enum identity i)
{
    return faults[i].text;
}

/* ---- the parts of an opinion */

static struct identity_answer fault(enum identity i)
{
    return (struct identity_answer){.fault = i};
}

static struct identity_answer verdict(struct policy_answer by, enum identity otherwise)
{
    return (struct identity_answer){by.allow ? IDENTITY_OK : otherwise, by};
}

static bool is_target_name(const struct identity_conn *c)
{
    return c->target && c->target->kind == HOST_NAME;
}

/* What we resolved for the explicit proxy's client is what a lease is for others. */
static bool is_leased(const struct identity_rules *r, const struct identity_conn *c,
                      const struct host *h)
{
    if (h->kind != HOST_NAME)
        return false;
    if (is_target_name(c))
        return host_same(c->target, h);
    return r->leased && r->leased(r->user, host_name(h), &c->to);
}

static enum learned learned_for_any(const struct identity_rules *r, const struct identity_conn *c)
{
    if (is_target_name(c))
        return policy_learns(r->policy, host_name(c->target));
    return r->learned ? r->learned(r->user, &c->to) : LEARNED_NOT;
}

/* Nobody filtered a literal that is asked of the proxy, or an answer that we got ourselves. */
static bool is_filtered(const struct identity_rules *r, const struct identity_conn *c)
{
    return c->target && !answer_kept(r->policy, &c->to, r->private_deny);
}

static struct identity_answer judge_address(const struct identity_rules *r,
                                            const struct identity_conn *c)
{
    if (c->unresolved)
        return fault(IDENTITY_OK);
    if (is_filtered(r, c))
        return fault(IDENTITY_FILTERED);
    return verdict(policy_addr(r->policy, &c->to, learned_for_any(r, c)), IDENTITY_DENIED);
}

/* The name is allowed.  Where no rule speaks, what is missing is that the address belongs to it. */
static struct identity_answer judge_destination(const struct identity_rules *r,
                                                const struct identity_conn *c, const struct host *h)
{
    if (c->unresolved)
        return fault(IDENTITY_OK);
    if (is_filtered(r, c))
        return fault(IDENTITY_FILTERED);
    bool leased = (c->held && host_same(c->held, h)) || is_leased(r, c, h);
    enum learned learned = leased ? policy_learns(r->policy, host_name(h)) : LEARNED_NOT;
    struct policy_answer by = policy_addr(r->policy, &c->to, learned);
    return verdict(by, by.layer == LAYER_DEFAULT ? IDENTITY_NAMES : IDENTITY_DENIED);
}

static struct identity_answer judge_name(const struct identity_rules *r, const struct host *h)
{
    return verdict(policy_name(r->policy, host_name(h)), IDENTITY_DENIED);
}

bool identity_takes_credential(const struct identity_conn *c)
{
    struct host h;
    if (c->kind == IDENTITY_TLS)
        return c->port == 443 && c->sni.p && host_read(c->sni, &h) && h.kind == HOST_NAME;
    return c->kind == IDENTITY_HTTP && c->port == 80;
}

static enum bound bound_here(const struct identity_rules *r, const struct identity_conn *c,
                             const struct host *h)
{
    if (!r->bound || h->kind != HOST_NAME || !identity_takes_credential(c))
        return BOUND_NOT;
    return r->bound(r->user, host_name(h), c->kind == IDENTITY_TLS);
}

/* ---- connections */

struct identity_answer identity_target(const struct identity_rules *r,
                                       const struct identity_conn *c)
{
    assert(is_target_name(c) || !c->unresolved);
    if (!is_target_name(c))
        return judge_address(r, c);
    struct identity_answer answer = judge_name(r, c->target);
    return answer.fault ? answer : judge_destination(r, c, c->target);
}

static struct identity_first first(enum passage passage, struct identity_answer answer)
{
    return (struct identity_first){passage, answer};
}

static struct identity_first nameless(const struct identity_rules *r, const struct identity_conn *c)
{
    struct identity_answer answer = judge_address(r, c);
    if (answer.fault)
        return first(PASSAGE_REFUSE, answer);
    bool read = c->kind == IDENTITY_TLS && r->scope_all && r->insecure;
    return first(read ? PASSAGE_INTERCEPT : PASSAGE_PASS, answer);
}

/* Clause by clause as in contract egress-vault 8.1, c to h; h stands first, since names that
 * disagree are no question for the policy. */
static struct identity_first named(const struct identity_rules *r, const struct identity_conn *c,
                                   const struct host *sni)
{
    enum bound bound = bound_here(r, c, sni);
    enum passage denied = bound == BOUND_NOT ? PASSAGE_REFUSE : PASSAGE_INTERCEPT;
    if (is_target_name(c) && !host_same(c->target, sni))
        return first(denied, fault(IDENTITY_NAMES));
    struct identity_answer answer = judge_name(r, sni);
    if (answer.fault)
        return first(denied, answer);
    bool passed = r->passed && r->passed(r->user, c->sni, &c->to, c->port);
    if (bound == BOUND_LOST && !passed)
        return first(PASSAGE_INTERCEPT, fault(IDENTITY_LOST));
    answer = judge_destination(r, c, sni);
    if (answer.fault)
        return first(PASSAGE_REFUSE, answer);
    bool read = !passed && (bound == BOUND_HELD || r->scope_all);
    return first(read ? PASSAGE_INTERCEPT : PASSAGE_PASS, answer);
}

struct identity_first identity_first(const struct identity_rules *r, const struct identity_conn *c)
{
    struct host sni;
    if (c->kind == IDENTITY_HTTP)
        return first(PASSAGE_INTERCEPT, fault(IDENTITY_OK));
    if (c->kind == IDENTITY_RAW || !c->sni.p)
        return nameless(r, c);
    if (!host_read(c->sni, &sni))
        return first(PASSAGE_REFUSE, fault(IDENTITY_FORM));
    return sni.kind == HOST_NAME ? named(r, c, &sni) : nameless(r, c);
}

/* ---- requests */

/* The host that the request names, in each place the same and with the port that is dialled. */
static enum identity read_names(const struct identity_conn *c, const struct identity_request *q,
                                struct host *ret)
{
    bool differ = false;
    struct host all = {.kind = HOST_NONE};
    for (unsigned i = 0; i < IDENTITY_NAMES_MAX; i++) {
        struct host h;
        uint16_t port;
        if (!q->names[i].p)
            continue;
        if (!authority_read(q->names[i], &h, &port))
            return IDENTITY_FORM;
        differ |= (port && port != c->port) || (all.kind != HOST_NONE && !host_same(&all, &h));
        all = h;
    }
    if (all.kind == HOST_NONE) {
        if (!q->may_lack || c->kind == IDENTITY_TLS)
            return IDENTITY_FORM;
        all = (struct host){.kind = HOST_ADDRESS, .ip = c->to};
    }
    *ret = all;
    return differ ? IDENTITY_NAMES : IDENTITY_OK;
}

/* Is it what the connection was opened for? */
static bool is_of_conn(const struct identity_conn *c, const struct host *h)
{
    struct host sni;
    if (c->kind == IDENTITY_TLS && c->sni.p && !(host_read(c->sni, &sni) && host_same(&sni, h)))
        return false;
    if (is_target_name(c) && !host_same(c->target, h))
        return false;
    return h->kind != HOST_ADDRESS || ip_eq(&h->ip, &c->to);
}

static struct identity_answer judge_host(const struct identity_rules *r,
                                         const struct identity_conn *c, const struct host *h)
{
    if (h->kind == HOST_ADDRESS)
        return judge_address(r, c);
    struct identity_answer answer = judge_name(r, h);
    if (answer.fault)
        return answer;
    enum bound bound = bound_here(r, c, h);
    if (bound == BOUND_LOST)
        return fault(IDENTITY_LOST);
    answer = judge_destination(r, c, h);
    if (answer.fault == IDENTITY_NAMES && bound == BOUND_HELD && c->kind == IDENTITY_HTTP &&
        !r->http_any)
        answer.fault = IDENTITY_ENDPOINT; /* the same refusal, and the text that helps */
    return answer;
}

struct identity_answer identity_request(const struct identity_rules *r,
                                        const struct identity_conn *c,
                                        const struct identity_request *q, struct host *ret_host)
{
    struct host h;
    enum identity names = read_names(c, q, &h);
    if (names != IDENTITY_OK)
        return fault(names);
    if (!is_of_conn(c, &h))
        return fault(IDENTITY_NAMES);
    struct identity_answer answer = judge_host(r, c, &h);
    if (answer.fault == IDENTITY_OK)
        *ret_host = h;
    return answer;
}

enum identity identity_peer(const struct identity_rules *r, const struct identity_conn *c,
                            const struct host *host, struct str verified, bool credential)
{
    struct host proven;
    if (credential && !identity_takes_credential(c))
        return IDENTITY_ENDPOINT;
    if (c->kind == IDENTITY_TLS) {
        if (r->insecure && !credential)
            return IDENTITY_OK;
        bool same = verified.p && host_read(verified, &proven) && host_same(&proven, host);
        return same ? IDENTITY_OK : IDENTITY_UNPROVEN;
    }
    bool proof = !credential || r->http_any || is_leased(r, c, host);
    return proof ? IDENTITY_OK : IDENTITY_ENDPOINT;
}
