/* activity.h — the time of the last request of each sandbox, in Redis (contract ingress 11).  Only
 * forward in time, in batches, coalesced; never in a request's way. */
#ifndef INGRESS_REDIS_ACTIVITY_H
#define INGRESS_REDIS_ACTIVITY_H

#include "base/metrics.h"
#include "ingress/redis/resp.h"
#include "ingress/settings.h"

struct activity;
struct worker;

/* On the owner.  NULL and one line: the DSN cannot be used.  A server that does not answer is a
 * warning. */
struct activity *activity_new(struct worker *owner, const struct ingress_settings *s,
                              struct arena *a, struct str *ret_error);
/* From any worker; ms of worker_now(), ms since 1970. */
void activity_note(struct activity *v, struct str ns, struct str id, uint64_t now_ms,
                   uint64_t unix_ms);
/* As renew_flush() and renew_free(). */
void activity_flush(struct activity *v, void (*done)(void *user), void *user);
void activity_free(struct activity *v);
/* ingress.activity.writes_dropped and what goes with it. */
void activity_metrics(const struct activity *v, struct metrics_out *o);

/* ---- pure */
/* One key, two arguments (time, life); answers 0 or 1. */
extern const char activity_script[];
/* The command that runs it; sha as SCRIPT LOAD answered. */
struct resp_command activity_command(struct str sha, struct str id, uint64_t unix_ms,
                                     int64_t ttl_seconds, struct arena *a);

#endif
