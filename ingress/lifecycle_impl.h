/* lifecycle_impl.h — between the files of the lifecycle resolver: lifecycle.c asks,
 * lifecycle_ports.c keeps what was learned and tells the tables, lifecycle_server.c knows the
 * server: key, TLS, what is said about it in log, metrics and readiness. */
#ifndef INGRESS_LIFECYCLE_IMPL_H
#define INGRESS_LIFECYCLE_IMPL_H

#include "ingress/lifecycle_calls.h"

struct lifecycle {
    struct worker *w;
    const struct ingress_settings *set;
    struct resolver_events ev;
    void *user;
    struct lifecycle_calls *calls;
    uint64_t cache_ms, negative_ms, not_ready_ms, stale_max_ms;
    bool ready;
    struct map *subjects, *ports; /* by id, by key */
    struct list by_want;          /* ports; wanted last at the end */
    size_t held;                  /* bytes, about */
    struct timer timer;

    uint64_t answers[LIFECYCLE_CALLS][LIFECYCLE_VERDICTS], stale, overflows;
    uint64_t good_ms;    /* of the last answer that was understood; 0: none yet */
    int refused;         /* status of the last answer if that was 401 or 403; else 0 */
    uint64_t refusal_ms; /* when that was logged last; 0: never */
};

/* A sandbox. */
struct subject {
    struct lifecycle *l;
    struct lifecycle_ask ask;
    struct list waiting; /* ports that want to know its state */
    unsigned nports;
    bool askable; /* its id could be one */
    struct lifecycle_state known;
    uint64_t fresh_ms; /* until then `known` is; 0: it is not known */
    char name[64];
    struct str id, target;
    char text[];
};

/* A port of a sandbox, wanted by somebody. */
struct port {
    struct list link, wait;
    struct subject *s;
    struct lifecycle_ask ask;
    bool busy;              /* something will be told */
    struct sandbox *record; /* what was told last; NULL: nothing */
    uint64_t wanted_ms;     /* last */
    uint64_t asked_ms;      /* the last want that what is told next is for */
    uint64_t good_ms;       /* when the call began that taught the running record */
    uint64_t end_fresh_ms;  /* until then its endpoint need not be asked for */
    uint64_t again_ms;      /* the last good answer serves: when to ask again; 0: it does not */
    size_t cost, record_cost;
    struct str request_id, key, target;
    char request_id_text[LIFECYCLE_REQUEST_ID_BYTES];
    char text[];
};

/* ---- lifecycle.c */

void lifecycle_on_state(struct lifecycle_ask *a, const struct lifecycle_reply *r);
void lifecycle_on_endpoint(struct lifecycle_ask *a, const struct lifecycle_reply *r);

/* ---- lifecycle_ports.c */

/* ms, as worker_now() but exact: no worker that asks has a later time. */
uint64_t lifecycle_now(const struct lifecycle *l);
/* fresh_ms, but not after that second: never longer than the sandbox is there. */
uint64_t lifecycle_capped(const struct lifecycle *l, uint64_t fresh_ms, int64_t until_unix_s);
struct port *port_new(struct lifecycle *l, const struct want *want);
void port_free(struct port *p);
/* More than is to be kept? */
bool ports_full(const struct lifecycle *l);
/* Forgets one that nobody has wanted for long; false: all are being asked about. */
bool ports_evict(struct lifecycle *l);
/* Reports them gone and frees them; what runs there goes on. */
void ports_forget(struct lifecycle *l, struct port **ports, size_t n);
/* Has the end of a running one come, or of one that ran when the doubt began? */
bool port_is_over(const struct port *p);
/* What a port is to be told as; each ends `busy`.  Texts are copied. */
void port_tell_running(struct port *p, const struct endpoint *end, struct str token,
                       uint64_t fresh_ms);
void port_tell_closed(struct port *p, enum sandbox_state state, struct str reason,
                      uint64_t fresh_ms);
void port_tell_failed(struct port *p, enum fault_id fault, struct str reason);
/* The server could not tell: the last good answer serves for a while, and again_ms is set; else as
 * failed. */
void port_tell_trouble(struct port *p, enum fault_id fault, struct str reason);

/* ---- lifecycle_server.c */

/* NULL: one line. */
struct lifecycle_calls *lifecycle_connect(struct worker *w, const struct ingress_settings *set,
                                          struct arena *a, struct str *ret_error);
/* From the file, else the variable; a reference. */
bool lifecycle_key(const struct ingress_settings *set, struct secret **ret, struct arena *a,
                   struct str *ret_error);
/* An answer, or none: counts it, and logs what is no answer.  fault: why a 200 was not understood.
 */
void lifecycle_note(struct lifecycle *l, enum lifecycle_call call, struct str id,
                    enum lifecycle_verdict v, const struct lifecycle_reply *r, const char *fault);
/* It points back at a gateway. */
void lifecycle_note_gateway(struct str id);
/* In a few words, static: the reason of a record. */
struct str lifecycle_reason(enum lifecycle_verdict v, const struct lifecycle_reply *r,
                            const char *fault);
/* Parts of the resolver (resolver.h). */
bool lifecycle_check(const struct ingress_settings *set, struct arena *a, struct str *ret_error);
void lifecycle_reload(void *self);
void lifecycle_metrics(void *self, struct metrics_out *o);
struct str lifecycle_unready(void *self, struct arena *a);

#endif
