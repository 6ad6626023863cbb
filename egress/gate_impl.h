/* gate_impl.h — what the gate keeps of an exchange, for gate_ask.c (the decision),
 * gate_credential.c (what a binding puts in), gate_answer.c (what must not come back),
 * gate_tunnel.c (what is said first, and another policy) and gate.c (what comes of it). */
#ifndef EGRESS_GATE_IMPL_H
#define EGRESS_GATE_IMPL_H

#include "base/secret.h"
#include "egress/caller.h"
#include "egress/events/events.h"
#include "egress/forward.h"
#include "egress/gate.h"
#include "egress/judge.h"
#include "egress/vault/vault.h"

/* Which question was asked, and is asked again under another policy. */
enum errand_question { ERRAND_TARGET, ERRAND_FIRST, ERRAND_REQUEST };

/* What the vault has to do with a request; all zero where nothing. */
struct errand_credential {
    bool bound; /* a binding names the host: the answer is scrubbed */
    bool lost;  /* one did, of a vault that is gone */
    enum credential_decision decision;
    const char *cause;             /* of a refusal; static */
    const struct binding *binding; /* the one that matched, or NULL; the snapshot's */
    const struct armed *armed;     /* of it, once it goes in */
    unsigned sets, hits;           /* as of inject.h */
    bool sent;                     /* a peer was found that may have it */
    bool skipped;                  /* a body that could not be looked into */
    struct redaction *own;         /* what this request alone has made of secrets too; or NULL */
    uint64_t masked;               /* marks in the body of the answer */
    struct secret_bag bag;
};

/* verdict.note; in the exchange's arena, but for what gate->over() gives back. */
struct errand {
    enum errand_question question;
    /* What it was asked about; its pointers lead into this struct or the arena. */
    struct identity_conn c;
    struct host target;
    struct host host; /* what is asked for; HOST_NONE: an address, c.to, and nothing else */
    struct str asked; /* the same as text, without the port; "" where it cannot be read */
    struct opinion opinion;
    bool read;    /* over TLS that ends here */
    bool refused; /* by gate_look(): it is read only to be answered so */
    struct errand_credential credential;
    unsigned lates;               /* times that it was looked at in vain */
    uint64_t began_ms;            /* as of worker_now() */
    uint64_t number;              /* counted by connection; 0: not judged yet */
    char sni[NAME_BYTES_MAX + 2]; /* that gate_look() found */
};

static inline struct errand *errand_of(const struct verdict *v)
{
    return (struct errand *)(uintptr_t)v->note;
}

static inline bool gate_has_name(const struct errand *e)
{
    return e->host.kind == HOST_NAME;
}

static inline bool errand_takes_part(const struct errand *e)
{
    return e->credential.bound || e->credential.lost;
}

static inline const struct sidecar *gate_sidecar(const struct facts *f)
{
    return f->tables;
}

/* An answer of one line, which ends with a line feed. */
void gate_answer(struct verdict *v, int status, enum why why, struct str line);
/* What it is asked about, with the address that it goes to by now (facts.origin). */
struct identity_conn gate_conn(const struct facts *f, const struct errand *e);
/* Tells of what the errand came to. */
void gate_tell(const struct sidecar *s, const struct errand *e, enum why why);

/* gate_credential.c.  Has the vault to do with the host that is asked for, or with the one that its
 * TLS is for? */
void credential_look(const struct facts *f, struct errand *e);
/* The identity of what takes part was refused. */
void credential_denied(struct errand *e, enum identity fault);
/* v forwards v->head, a copy of the request's: what a binding wants goes into it, or v becomes a
 * refusal. */
void credential_apply(const struct facts *f, struct errand *e, struct arena *a, struct verdict *v);
/* Told once, at the end; gives back what is not the arena's. */
void credential_over(struct worker *w, const struct facts *f, struct errand *e, enum why why,
                     int status);

/* see struct gate; gate_ask.c */
void gate_decide(const struct facts *f, struct arena *a, struct verdict *v);
/* gate_credential.c */
enum why gate_peer(const struct facts *f, const struct verdict *v, const struct conn_info *origin);
void gate_held(const struct facts *f, struct verdict *v, struct buf *body, bool whole,
               struct arena *a);
/* gate_answer.c */
enum why gate_answered(const struct facts *f, const struct verdict *v, const struct http_head *head,
                       bool end, struct arena *a, struct answer *ret);
const struct http_head *gate_trailers(const struct facts *f, const struct verdict *v,
                                      const struct http_head *trailers, bool request,
                                      struct arena *a);
/* gate_tunnel.c */
enum glance gate_look(const struct facts *f, const struct verdict *v, const struct buf *bytes,
                      bool late, struct arena *a);
void gate_take(struct worker *w, const struct facts *f, const struct verdict *v, struct conn *conn);
enum why gate_recheck(const struct facts *f, const struct verdict *v);

#endif
