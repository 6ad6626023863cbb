/* gate_impl.h — the inside of the gate: gate.c (the decision), lookup.c (the
 * sandbox, and whom to ask for it), gate_told.c (what came of it). */
#ifndef INGRESS_GATE_IMPL_H
#define INGRESS_GATE_IMPL_H

#include "ingress/gateway.h"
#include "ingress/view.h"
#include "policies/access.h"

/* What a request has waited for last. */
enum waiting { WAITING_NOTHING, WAITING_ANSWER, WAITING_WAKE };

struct gateway_note {
    struct route route;
    struct str ns;      /* of f1. routes */
    struct str counted; /* id of the record: what counts per sandbox counts by it, since several ids
                           can lead to one (7.3); nothing: there was none */
    struct str key;     /* its sandbox_key(): of f1. routes, and once a resolver had to be asked */
    struct str client;  /* address, for logs and counts */
    struct str target;  /* "address:port" */
    struct str reason;  /* for the log only */

    enum fault_id fault; /* FAULTS: none */
    enum access access;
    enum waiting waiting;
    bool routed; /* the route parsed, and its token is good */

    /* of asking resolvers */
    bool again; /* this is its second try: the last */
    bool stale; /* the first one ended with a stale answer */
    bool woken;
    uint64_t generation; /* of the record it goes by; 0: none */
    uint64_t after_ms;   /* what was learned before is not good enough */
    uint64_t parked_ms;  /* since then it waits for a wake */
};

const struct ingress_view *gate_view(const struct facts *f);
const struct gateway_worker *gate_worker(const struct facts *f);
/* The note is of the exchange's arena, so that it may be written. */
struct gateway_note *gate_note(const struct verdict *v);
void gate_refuse_id(struct verdict *v, enum fault_id id, struct str value, struct arena *a);

/* lookup.c */
/* The record of its sandbox, running, lent until the loop turns; NULL: v is a
 * refusal, or a WAIT.
 */
const struct sandbox *lookup(const struct facts *f, struct gateway_note *note, struct arena *a,
                             struct verdict *v);
bool lookup_wait(struct worker *w, const struct facts *f, bool first, struct arena *a,
                 struct verdict *v);
void lookup_waited(struct worker *w, const struct facts *f, const struct verdict *v, enum why why);
bool lookup_again(struct worker *w, const struct facts *f, const struct verdict *v, enum why why,
                  enum stage stage);
/* Is this answer that of a route that is none any more (8.5)? */
bool lookup_is_stale(const struct verdict *v, const struct http_head *answer);
/* What is known of its sandbox has proved wrong. */
void lookup_drop(struct worker *w, const struct gateway_note *note);

/* gate_told.c */
void told_admit(struct worker *w, const struct facts *f, struct arena *a, struct verdict *v);
void told_judged(struct worker *w, const struct facts *f, const struct verdict *v,
                 uint64_t took_us);
void told_moved(struct worker *w, const struct facts *f, const struct verdict *v);
void told_dialled(struct worker *w, const struct verdict *v, enum why why, int error, bool tunnel,
                  uint64_t took_us);
void told_over(struct worker *w, const struct facts *f, const struct verdict *v, enum why why,
               int status);
void told_describe(const struct facts *f, const struct verdict *v, struct log_line *l);

#endif
