/* identity.h — one opinion over everything that says whom a connection is for: SNI, CONNECT's
 * target, Host and :authority, the address that is dialled, the certificate that was verified
 * (contract egress-vault 8, egress-policy 3.4 and 4.7, E11, E12).  Pure.
 *
 * All paths ask here: identity_target() before the explicit proxy dials, identity_first() when the
 * first bytes are there, identity_request() for each request that is read, identity_peer() before
 * any byte of it goes out. */
#ifndef POLICIES_IDENTITY_H
#define POLICIES_IDENTITY_H

#include "policies/authority.h"
#include "policies/policy.h"

/* What is wrong, how a request is answered then, and with which text (contract egress-vault 13). */
#define IDENTITY_MAP(X)                                                                       \
    X(OK, OK, 0, "")                                                                          \
    X(FORM, CLIENT_PROTOCOL, 400, "request authority is missing or malformed")                \
    X(NAMES, IDENTITY, 421, "request authority does not match the intercepted destination")   \
    X(DENIED, DENIED, 403, "host denied by egress policy")                                    \
    X(FILTERED, DENIED, 403, "host denied by egress policy: address of a reserved range")     \
    X(ENDPOINT, IDENTITY, 421, "request endpoint identity does not match credential binding") \
    X(LOST, VAULT, 503, "credential proxy unavailable")                                       \
    X(UNPROVEN, TLS, 502, "certificate of the origin was not verified for the host")

enum identity {
#define X(id, why, status, text) IDENTITY_##id,
    IDENTITY_MAP(X)
#undef X
        IDENTITIES
};

enum why identity_why(enum identity i);
int identity_status(enum identity i);      /* 0 for OK */
struct str identity_text(enum identity i); /* static, without a line's end */

/* LOST: a vault that is gone bound it (contract egress-vault 13.1). */
enum bound { BOUND_NOT, BOUND_HELD, BOUND_LOST };

/* What is in force.  Names are lower case, without a final dot; functions that are NULL say no. */
struct identity_rules {
    const struct policy *policy;
    bool scope_all;    /* E_MITM_SCOPE=all */
    bool insecure;     /* E_MITMPROXY_SSL_INSECURE */
    bool http_any;     /* E_HTTP_BINDING_ADDRESS=any */
    bool private_deny; /* E_PRIVATE_ANSWERS=deny */
    /* Does a binding for https (tls) or http name this host? */
    enum bound (*bound)(void *user, struct str name, bool tls);
    /* Is it passed by configuration, whatever binds it?  `sni` as sent. */
    bool (*passed)(void *user, struct str sni, const struct ip *to, uint16_t port);
    /* Was the address handed out for this name? */
    bool (*leased)(void *user, struct str name, const struct ip *to);
    /* What is it learned for, the best name counting? */
    enum learned (*learned)(void *user, const struct ip *to);
    void *user;
};

enum identity_kind { IDENTITY_TLS, IDENTITY_HTTP, IDENTITY_RAW };

struct identity_conn {
    enum identity_kind kind;
    struct str sni; /* as sent; p NULL: none */
    /* By the explicit proxy: what the client asked for, NULL else.  If it is a name, `to` is an
     * address that we resolved for it. */
    const struct host *target;
    /* Only with a target that is a name: nothing is resolved yet, and `to` is not judged.  Whoever
     * goes on asks identity_target() for each address. */
    bool unresolved;
    struct ip to; /* where it leads */
    uint16_t port;
    /* The host that this connection was let through for earlier, or NULL: it outlives the lease of
     * that name (E5). */
    const struct host *held;
};

struct identity_answer {
    enum identity fault;
    struct policy_answer by; /* what decided, for DENIED; of the name or of the address */
};

/* May the explicit proxy dial `to` for c->target?  Unresolved: may it resolve the name? */
struct identity_answer identity_target(const struct identity_rules *r,
                                       const struct identity_conn *c);

enum passage { PASSAGE_PASS, PASSAGE_INTERCEPT, PASSAGE_REFUSE };

/* PASS: relay it unread.  INTERCEPT with a fault: it is opened only so that each request can be
 * answered with that; nothing is dialled.  HTTP in clear is always read. */
struct identity_first {
    enum passage passage;
    struct identity_answer answer;
};
struct identity_first identity_first(const struct identity_rules *r, const struct identity_conn *c);

enum { IDENTITY_NAMES_MAX = 3 };

struct identity_request {
    /* Host, :authority, the authority of an absolute target, as received and in any order; p NULL:
     * not there. */
    struct str names[IDENTITY_NAMES_MAX];
    bool may_lack; /* HTTP/1.0: in clear the address is the name then */
};

/* May this request go out on this connection?  With any fault it must not.  On OK *ret_host is the
 * one host that everything names. */
struct identity_answer identity_request(const struct identity_rules *r,
                                        const struct identity_conn *c,
                                        const struct identity_request *q, struct host *ret_host);
/* Can there be a credential at all: a name, and the port of its scheme? */
bool identity_takes_credential(const struct identity_conn *c);
/* Is the peer proven to be this host?  Asked for each request, before any byte of it goes out.
 * `verified`: the name that the origin's certificate was verified for, p NULL: it was not.
 * credential: a binding matched, and a secret would go out; in clear that takes a lease that runs.
 */
enum identity identity_peer(const struct identity_rules *r, const struct identity_conn *c,
                            const struct host *host, struct str verified, bool credential);

#endif
