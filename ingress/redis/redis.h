/* redis.h — one connection to a Redis server, on its owner worker (contract ingress 10.4): it is
 * kept up by itself, and carries one pipeline at a time.
 *
 * Dialled at once and again after it is lost: max_retries times after the DSN's back-off, then
 * slower, up to 5 s.  Timeouts are the DSN's; one that is off is bounded all the same (30 s to
 * connect; a pipeline by its own limit). */
#ifndef INGRESS_REDIS_REDIS_H
#define INGRESS_REDIS_REDIS_H

#include "ingress/dsn.h"
#include "ingress/redis/resp.h"

struct redis;
struct worker;

enum { REDIS_PIPELINE = 160 /* commands, at most */ };

struct redis_rules {
    const struct dsn *dsn; /* copied; the password lies in a secret, and its command is wiped.  The
                              worker becomes a private one if there is a password */
    /* Connected, or not any more, or a first attempt failed: redis_trouble() says why.  Once for
     * each change.  Never before redis_new() returns. */
    void (*changed)(void *user, bool up);
    void *user;
};

/* NULL: *ret_error is one line without a secret. */
struct redis *redis_new(struct worker *w, const struct redis_rules *rules, struct arena *a,
                        struct str *ret_error);
/* Not within an event.  A pipeline that is under way is forgotten. */
void redis_free(struct redis *r);

/* done(user, replies, n) with a reply to each command; or (user, NULL, 0): not all were answered
 * within limit_ms, some of them may have been done.  A pipeline whose connection is lost is sent
 * once more as a whole, up to max_retries times, so it has to bear that.  Once, never before this
 * returns; it may send the next.  One at a time; commands are copied. */
void redis_send(struct redis *r, const struct resp_command *commands, unsigned n, uint64_t limit_ms,
                void (*done)(void *user, const struct resp_reply *replies, unsigned n), void *user);
/* done() will not be called. */
void redis_forget(struct redis *r);
bool redis_busy(const struct redis *r);
bool redis_up(const struct redis *r);
/* What went wrong last, for a log line: "READONLY", "certificate has expired", "dial"; empty:
 * nothing yet.  Holds nothing of the DSN.  Lives until the next event. */
const char *redis_trouble(const struct redis *r);

#endif
