/* fake_redis.h — a Redis on loopback in the test's own thread, over TCP, TLS or a Unix socket: it
 * moves only when it is stepped, writes down each command, and answers what the test says, or what
 * a good server would. */
#ifndef HARNESS_FAKE_REDIS_H
#define HARNESS_FAKE_REDIS_H

#include "harness/tls_peer.h"

enum { FAKE_REDIS_CALLS = 64, FAKE_REDIS_ARGS = 8 };

struct fake_redis;

/* One connection. */
struct redis_call {
    int fd; /* -1: over */
    bool tls;
    struct tls_peer peer;
    char *in;
    size_t n, room;
};

struct fake_redis {
    int fd;
    unsigned short port;
    char path[64]; /* of the socket, or empty */
    SSL_CTX *ctx;  /* NULL: plain */
    /* The answer as it goes out, e.g. "+OK\r\n"; "" none; NULL: what a good server says.  NULL
     * itself: always that. */
    const char *(*on)(void *user, struct redis_call *c, const struct str *args, unsigned n);
    void *user;
    bool forgetful; /* keeps nothing of what it is told: no log, no bytes */
    bool deaf;      /* reads nothing */
    bool hold;      /* answers are kept back until it is false again */
    char *held;     /* what was kept back, for the last call */
    size_t nheld;
    struct redis_call *last;
    struct redis_call *calls[FAKE_REDIS_CALLS];
    unsigned n;
    unsigned commands; /* that came */
    char *log;         /* each command, its words with blanks between, and "|" behind */
    size_t nlog;
};

/* path NULL: TCP on a free port; ctx NULL: plain. */
void fake_redis_start(struct fake_redis *f, const char *path, SSL_CTX *ctx);
/* One step: what can be done without waiting. */
void fake_redis_step(struct fake_redis *f);
/* Ends all connections; new ones may come. */
void fake_redis_cut(struct fake_redis *f);
/* Is not there any more, and is again, at the same place. */
void fake_redis_close(struct fake_redis *f);
void fake_redis_open(struct fake_redis *f);
void fake_redis_say(struct redis_call *c, const char *text);
/* How often does this stand in the log? */
unsigned fake_redis_count(const struct fake_redis *f, const char *text);
void fake_redis_forget(struct fake_redis *f); /* the log */
void fake_redis_stop(struct fake_redis *f);

#endif
