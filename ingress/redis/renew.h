/* renew.h — renew intents (contract ingress 10): which sandboxes are in use, told to the lifecycle
 * server by a list in Redis.  Never in a request's way: a note is a mark and a slot in a bounded
 * queue, or it is dropped and counted. */
#ifndef INGRESS_REDIS_RENEW_H
#define INGRESS_REDIS_RENEW_H

#include "base/metrics.h"
#include "ingress/redis/resp.h"
#include "ingress/settings.h"

struct renew;
struct worker;

/* A request that was routed and allowed. */
struct renew_note {
    struct str ns, id;
    uint16_t port;
    struct str
        forward; /* path forms: the forwarded path as it goes on, query included; else p NULL */
};

/* On the owner; the DSN was checked with the settings.  NULL and one line: it cannot be used.  A
 * server that does not answer is no fault: the connection is made when it can be. */
struct renew *renew_new(struct worker *owner, const struct ingress_settings *s, struct arena *a,
                        struct str *ret_error);
/* From any worker.  now in ms of worker_now(), unix_ns wall clock. */
void renew_note(struct renew *r, const struct renew_note *n, uint64_t now_ms, uint64_t unix_ns);
/* On the owner: what is queued leaves, done(user) then, or at its own deadline (2 s).  Once, never
 * before this returns. */
void renew_flush(struct renew *r, void (*done)(void *user), void *user);
/* On the owner, when nobody notes any more and not within done(); NULL is fine. */
void renew_free(struct renew *r);
/* Written, dropped by reason, queue length, connected. */
void renew_metrics(const struct renew *r, struct metrics_out *o);

/* ---- pure */
enum { RENEW_FORWARD_BYTES = 8192 /* a longer forwarded path is left out of the payload */ };
/* The payload of 10.2; observed in ns since 1970.  Is UTF-8: what is not, is U+FFFD. */
struct str renew_payload(const struct renew_note *n, uint64_t unix_ns, struct arena *a);
/* `skip` of OpenSandbox-Access-Renew (10.1). */
bool renew_skips(const struct str *first_value);
/* The pipeline of 10.3 for n payloads, their first one being the oldest; ret has room for n + 1.
 * max_len <= 0: no cap. */
unsigned renew_commands(struct str key, int64_t max_len, const struct str *payloads, unsigned n,
                        struct arena *a, struct resp_command *ret);

#endif
