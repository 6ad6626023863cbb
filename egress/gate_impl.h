/* gate_impl.h — what the gate keeps of an exchange, for gate_ask.c (the decision), gate.c (what
 * comes of it) and gate_tunnel.c (what is said first, and another policy). */
#ifndef EGRESS_GATE_IMPL_H
#define EGRESS_GATE_IMPL_H

#include "egress/caller.h"
#include "egress/gate.h"
#include "egress/judge.h"

/* Which question was asked, and is asked again under another policy. */
enum errand_question { ERRAND_TARGET, ERRAND_FIRST, ERRAND_REQUEST };

/* verdict.note; in the exchange's arena. */
struct errand {
    enum errand_question question;
    /* What it was asked about; its pointers lead into this struct or the arena. */
    struct identity_conn c;
    struct host target;
    struct host host; /* what is asked for; HOST_NONE: an address, c.to, and nothing else */
    struct str asked; /* the same as text, without the port; "" where it cannot be read */
    struct opinion opinion;
    unsigned lates;               /* times that it was looked at in vain */
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

static inline const struct sidecar *gate_sidecar(const struct facts *f)
{
    return f->tables;
}

/* "name" or an address, an IPv6 one in brackets. */
struct str gate_host_text(const struct host *h, struct arena *a);
/* An answer of one line, which ends with a line feed. */
void gate_answer(struct verdict *v, int status, enum why why, struct str line);
/* What it is asked about, with the address that it goes to by now (facts.origin). */
struct identity_conn gate_conn(const struct facts *f, const struct errand *e);
/* Tells of what the errand came to. */
void gate_tell(const struct sidecar *s, const struct errand *e, enum why why);

/* see struct gate; gate_ask.c */
void gate_decide(const struct facts *f, struct arena *a, struct verdict *v);
/* gate_tunnel.c */
enum glance gate_look(const struct facts *f, const struct verdict *v, const struct buf *bytes,
                      bool late, struct arena *a);
void gate_take(struct worker *w, const struct facts *f, const struct verdict *v, struct conn *conn);
enum why gate_recheck(const struct facts *f, const struct verdict *v);

#endif
