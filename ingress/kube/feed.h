/* feed.h — one kind of object of a cluster, listed and then watched for as long as the program runs
 * (contract ingress 7.1).
 *
 * List in pages, watch from its version with bookmarks, watch again from the last version where a
 * watch ended, list again where that version is gone.  Whatever goes wrong, the last state goes on
 * being told: only a complete list or an event removes an object. */
#ifndef INGRESS_KUBE_FEED_H
#define INGRESS_KUBE_FEED_H

#include "ingress/kube/kubeapi.h"
#include "ingress/kube/objects.h"

struct kube_feed;

/* Ends of requests that were no good, as a metric names them. */
#define KUBE_FAULTS(X)                                                      \
    X(CONNECT, "connect")           /* name, connect, TLS */                \
    X(TIMEOUT, "timeout")           /* a deadline of ours */                \
    X(BROKEN, "broken")             /* cut off, or not understood */        \
    X(LIMIT, "limit")               /* too large */                         \
    X(UNAUTHORIZED, "unauthorized") /* 401 */                               \
    X(FORBIDDEN, "forbidden")       /* 403 */                               \
    X(MISSING, "not-found")         /* 404 */                               \
    X(EXPIRED, "expired")           /* 410 */                               \
    X(STATUS, "status")             /* another status */                    \
    X(OLD, "old-list")              /* a list from before the last event */ \
    X(OBJECT, "object")             /* an object that has no name */
enum kube_fault {
#define X(id, text) KUBE_FAULT_##id,
    KUBE_FAULTS(X)
#undef X
        KUBE_FAULT_KINDS
};

/* ms; all > 0. */
struct kube_times {
    uint64_t head_ms;              /* of any answer */
    uint64_t page_ms;              /* a whole page */
    uint64_t list_ms;              /* a whole list */
    uint64_t quiet_ms;             /* between bytes: of a page, and of a watch with bookmarks */
    uint64_t watch_ms;             /* a watch, twice as long at most: for so long we ask for it */
    uint64_t margin_ms;            /* after that it is over for us */
    uint64_t proven_ms;            /* a watch that lasted so long has worked */
    uint64_t rest_ms, rest_max_ms; /* back-off */
};
extern const struct kube_times kube_times;

struct kube_feed_rules {
    enum kube_kind kind;
    struct kubeapi *api; /* lent */
    struct kube_times times;
};
/* Begins with the next turn of the loop.  ready and change of ev. */
struct kube_feed *kube_feed_start(struct worker *w, const struct kube_feed_rules *rules,
                                  const struct resolver_events *ev, void *user);
void kube_feed_stop(struct kube_feed *f);
/* Somebody knows that it may go better now: what rests goes on. */
void kube_feed_nudge(struct kube_feed *f);

struct kube_feed_state {
    size_t objects, ambiguous;
    bool ready;           /* a complete list has been told */
    bool watching;        /* a watch is open and was granted */
    uint64_t news_age_ms; /* since the server last said something that counts, or since the start */
    uint64_t lists, watches, events, faults[KUBE_FAULT_KINDS];
    struct str resource; /* "batchsandboxes" */
    struct str fault;    /* of the last request that was no good; empty since one was good; lent */
};
struct kube_feed_state kube_feed_state(const struct kube_feed *f);
const char *kube_fault_text(enum kube_fault kind);

#endif
