/* side.h — one codec under test: a session over a fake conn, taps as the users of its streams, and
 * the ways to cut what it is fed. */
#ifndef HARNESS_SIDE_H
#define HARNESS_SIDE_H

#include "harness/fake_conn.h"
#include "harness/trace.h"

enum side_kind { H1_SERVER, H1_CLIENT, RAW_SERVER, RAW_CLIENT, H2_SERVER, H2_CLIENT };

enum { SIDE_STREAMS = 64 };

struct side {
    enum side_kind kind;
    struct worker *w;
    struct conn *c;
    struct session *s; /* NULL after its closed() */
    struct http_limits limits;
    struct trace trace;
    const struct tap_user *user;
    void *context;
    bool hold; /* taps begin with this */
    void (*on_idle)(struct side *x);
    struct tap taps[SIDE_STREAMS]; /* the last ones */
    char prefixes[SIDE_STREAMS][12];
    unsigned n; /* streams so far */
    unsigned idles;
};

/* Heads of 8 KiB, a window of 1 KiB, 60 s idle, 5 s linger, 2 s drain; h2: a window of 64 KiB that
 * grows to 256. */
extern const struct http_limits side_limits, side_h2_limits;

/* limits: NULL for side_limits. */
void side_init(struct side *x, struct worker *w, enum side_kind kind,
               const struct http_limits *limits, const struct tap_user *user, void *context);
/* Ends what still runs, sees that the session says closed() and frees everything. */
void side_done(struct side *x);
/* The stream that was begun last. */
struct tap *side_tap(struct side *x);
/* The one that was begun as number n, from 1 on; only the last ones are kept. */
struct tap *side_stream(struct side *x, unsigned n);
/* Client role: NULL, if the session has no room. */
struct tap *side_open(struct side *x);

/* Where an input is cut. */
struct cuts {
    const size_t *at; /* rising, all in 1..n-1; NULL: nowhere */
    size_t n;
    size_t every;  /* or: after each so many bytes */
    bool together; /* no turn of the loop between the pieces */
};
void side_feed(struct side *x, struct str input, const struct cuts *cuts);

/* Runs a scenario whole, byte by byte, at each single cut and at random ones, and asserts that what
 * is told and what is written is always the same.  run() must leave all there is in the two texts.
 */
struct outcome {
    struct trace events, output;
};
typedef void scenario(const struct cuts *cuts, void *arg, struct outcome *ret);
void same_however_cut(scenario *run, void *arg, size_t input_n, struct outcome *ret);
void outcome_done(struct outcome *o);

#endif
