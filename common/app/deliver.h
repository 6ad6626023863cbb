/* deliver.h — events that go out, each as one request to one URL, over http/client.h (contract
 * egress-policy 6.1).
 *
 * A few run at a time, each with its tries and the pauses between them; so many more wait; what
 * comes on top of that is refused, since whoever has something to tell is never held up.  Order is
 * not kept. */
#ifndef APP_DELIVER_H
#define APP_DELIVER_H

#include "http/client.h"

struct deliver;

struct deliver_rules {
    unsigned queue;      /* events that wait for their first try */
    unsigned parallel;   /* that run: tries and pauses */
    unsigned tries;      /* at most, per event */
    uint64_t timeout_ms; /* one try */
    uint64_t pause_ms;   /* after the first try; each further pause is twice as long */
};

/* label, of deliver_push(), is lent.  Neither may free the deliver. */
struct deliver_events {
    /* Answered below 300.  NULL: nobody asks. */
    void (*delivered)(void *user, struct str label);
    /* No further try: status 300 to 499, or the last try failed with a status of 500 and above or,
     * status 0, for `why`; DRAIN: the drain was over before the next try. */
    void (*given_up)(void *user, struct str label, enum why why, int status);
};

/* to: what each request is made of; its body, timeout_ms and max_bytes do not count.  Its texts,
 * fields, tls and names are lent for the life of the deliver. */
struct deliver *deliver_new(struct worker *w, const struct client_request *to,
                            const struct deliver_rules *rules, const struct deliver_events *ev,
                            void *user);
/* One event; label (for the events above) and body are copied.  False: dropped, the queue is full,
 * or it drains.  No event before it returns. */
bool deliver_push(struct deliver *d, struct str label, struct str body) must_check;
/* No new events; those that are there are sent within ms: tries are cut to what is left, and where
 * a pause would not end before, the next try comes at once.  done(user) when nothing is left or the
 * time is over, once, never before this returns; deliver_free() may follow within it. */
void deliver_drain(struct deliver *d, uint64_t ms, void (*done)(void *user), void *user);
/* Events that wait and that run. */
unsigned deliver_waiting(const struct deliver *d);
unsigned deliver_running(const struct deliver *d);
/* Forgets what is left, without a word.  NULL: nothing. */
void deliver_free(struct deliver *d);

#endif
