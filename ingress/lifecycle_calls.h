/* lifecycle_calls.h — calls to the lifecycle server: so many at a time, the others in a line, none
 * of them for longer than it may take (contract integration 8.1, 8.4).  On one worker. */
#ifndef INGRESS_LIFECYCLE_CALLS_H
#define INGRESS_LIFECYCLE_CALLS_H

#include "base/list.h"
#include "base/secret.h"
#include "base/wheel.h"
#include "http/url.h"
#include "ingress/lifecycle_answer.h"

struct worker;
struct call;
struct lifecycle_calls;

enum { LIFECYCLE_LINE = 4096, LIFECYCLE_REQUEST_ID_BYTES = 128 };

struct lifecycle_calls_rules {
    struct url url;      /* copied */
    struct tls_ctx *tls; /* for https; counted */
    unsigned max;        /* in flight */
    uint64_t connect_ms, whole_ms;
};
struct lifecycle_calls *lifecycle_calls_new(struct worker *w,
                                            const struct lifecycle_calls_rules *r);
/* All asks must be over or given up. */
void lifecycle_calls_free(struct lifecycle_calls *c);
/* The API key from now on; the reference is theirs. */
void lifecycle_calls_key(struct lifecycle_calls *c, struct secret *key);
unsigned lifecycle_calls_active(const struct lifecycle_calls *c);
unsigned lifecycle_calls_waiting(const struct lifecycle_calls *c);

struct lifecycle_reply {
    enum why why;     /* OK: the answer is whole; OVERLOAD: it was never asked; else of call.h */
    int status;       /* 0: no answer */
    struct str body;  /* lent; wiped afterwards */
    struct str fault; /* static, may be empty */
};

/* Lies in what wants to know. */
struct lifecycle_ask {
    /* Once for each start.  A new one may be started within. */
    void (*done)(struct lifecycle_ask *a, const struct lifecycle_reply *r);

    struct list link;
    struct lifecycle_calls *all;
    enum lifecycle_ask_state { ASK_IDLE, ASK_WAITING, ASK_CALLING } state;
    struct timer patience;
    struct call *call;
    uint64_t began_ms; /* when the call began, or the wait for it */
    struct str target;
    int status;
    char *body;
    size_t n, room;
    size_t request_id_n;
    char request_id[LIFECYCLE_REQUEST_ID_BYTES];
};
void lifecycle_ask_init(struct lifecycle_ask *a,
                        void (*done)(struct lifecycle_ask *a, const struct lifecycle_reply *r));
/* target: lent until done(); request_id: copied, cut.  False: the line is full; done() does not
 * come. */
bool lifecycle_ask_start(struct lifecycle_calls *c, struct lifecycle_ask *a, struct str target,
                         struct str request_id);
/* done() does not come; harmless when idle. */
void lifecycle_ask_cancel(struct lifecycle_ask *a);

#endif
