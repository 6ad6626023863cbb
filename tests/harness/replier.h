/* replier.h — a server on loopback in the test's own thread, with or without TLS: it moves only
 * when it is stepped, and says what the test tells it to.
 *
 * A request is whole with its head and as much body as Content-Length states. */
#ifndef HARNESS_REPLIER_H
#define HARNESS_REPLIER_H

#include "harness/tls_peer.h"

enum { REPLIER_CALLS = 64, REPLIER_BYTES = 32768 };

struct replier;

/* One connection. */
struct call_in {
    struct replier *r;
    int fd; /* -1: closed by us */
    bool tls;
    struct tls_peer peer;
    char text[REPLIER_BYTES]; /* what has come, terminated */
    size_t n;
    bool whole;  /* on() was told */
    bool closed; /* the other side is gone */
};

struct replier {
    int fd;
    unsigned short port;
    SSL_CTX *ctx; /* NULL: plain */
    void (*on)(
        void *user,
        struct call_in *c); /* a request is whole; may say and hang up; NULL: nobody answers */
    void *user;
    struct call_in *calls[REPLIER_CALLS];
    unsigned n;
};

void replier_start(struct replier *r, SSL_CTX *ctx, void (*on)(void *user, struct call_in *c),
                   void *user);
void replier_step(struct replier *r);
void replier_stop(struct replier *r);
void replier_say(struct call_in *c, const char *text);
/* FIN, after close_notify where there is TLS. */
void replier_hang_up(struct call_in *c);

#endif
