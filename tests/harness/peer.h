/* peer.h — the far ends of a proxy in a rig: a client or an origin, of either version.
 *
 * Each is our own codec in the other role, on a connection of its own that is wired to the proxy's:
 * so a test says once what is asked and answered, and runs for every pair of versions.  Their
 * streams are taps (trace.h); their sessions are not metered.  Nothing passes a wire but in
 * peer_pump(); each end is told of the other's as by a kernel. */
#ifndef HARNESS_PEER_H
#define HARNESS_PEER_H

#include "harness/rig.h"

enum version { H1, H2 };
enum { PEER_CALLS = 64 };

struct peer;

/* One exchange, as this end sees it. */
struct call {
    struct tap tap;
    struct trace trace;
    struct peer *peer;
    unsigned number; /* the test's */
    bool answered;   /* likewise */
};

struct peer {
    struct rig *rig;
    enum version version;
    bool origin;
    struct http_limits limits;
    struct conn *c, *far; /* its own connection, the proxy's */
    struct session *s;    /* NULL after its closed() */
    size_t to_far, from_far;
    bool told_far, told_c; /* the end of one was told to the other */
    bool hold;             /* calls begin with this */
    const struct tap_user *user;
    bool broken; /* nothing passes any more */
    struct call calls[PEER_CALLS];
    unsigned ncalls;
};

/* A client of the proxy. */
void peer_client(struct peer *p, struct rig *r, enum version version);
/* The origin that has been dialled longest; takes at most max_streams at a time. */
void peer_origin(struct peer *p, struct rig *r, enum version version, unsigned max_streams);
/* Everything that was said arrives, until nobody says any more. */
void peer_pump(struct peer *const *all, unsigned n);
/* The connection breaks off; what is under way is lost. */
void peer_break(struct peer *p);
/* Ends what still runs. */
void peer_done(struct peer *p);

/* Client: a request with this method, path and body; end: that is all of it.  NULL: no stream. */
struct call *peer_ask(struct peer *p, const char *method, const char *path, const char *body,
                      bool end);
/* Any head; NULL: no stream. */
struct call *peer_ask_head(struct peer *p, const struct http_head *head, bool end);
/* Origin: an answer to the call. */
void call_answer(struct call *c, int status, const char *body, bool end);
void call_answer_head(struct call *c, const struct http_head *head, bool end);
/* What this end was told so far, with the data up to now. */
const char *call_text(struct call *c);
bool call_has(struct call *c, const char *text);

#endif
