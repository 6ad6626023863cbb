/* rig.h — a worker's proxy, the real one with its real codecs, between fake clients and fake
 * origins, under a gate made for tests.
 *
 * The gate goes by the path: "/POOL/…" is forwarded to host "h" in that pool, "/POOL@HOST/…" to
 * another host of it; a pool whose name ends with 2 is spoken to in HTTP/2; "/local" is answered
 * with a page, "/refuse" with a 403.  Host "denied" is an address that may not be dialled.  An
 * answer gets the field "x-gate: 1".  What the gate is told and every access line become lines of a
 * text.
 *
 * CONNECT to "refuse:…" is refused, to any other host forwarded as bytes in the pool of that name;
 * of a host that begins with "look" the first word is looked at, which ends with a blank: "pass",
 * "take", "more" (for ever) or "slow" (until it is late), anything else is refused; silence passes.
 * Of taken connections each request is decided as ever.  A host that begins with "late" is the
 * same, but dialled only after the look.  rig.banned is the host to which nothing may go any more.
 *
 * Each judged exchange has a note on the heap, which goes with gate->over(), and one that is
 * forwarded a place, counted in rig.places.  What else the gate may do to an exchange a test asks
 * for by the members below. */
#ifndef HARNESS_RIG_H
#define HARNESS_RIG_H

#include "harness/fake_dial.h"
#include "harness/meter.h"
#include "harness/trace.h"
#include "proxy/exchange.h"

struct rig {
    struct worker *w;
    struct proxy *p;
    struct snapshot *snap;
    struct trace judged; /* "judged forward", "dialled ok", … */
    struct trace lines;  /* access lines */
    unsigned nlines;
    struct begin begin; /* of the next clients */
    const char *banned; /* recheck: nothing goes there any more; NULL: all may */
    unsigned nlooks, nrechecks;
    struct tls_ctx *tls; /* requests go over TLS, in the version that the origin chooses ... */
    bool h1_only;        /* ... or in HTTP/1.1, as for a client that offers no other */
    enum why peer;       /* what is said of any connection to an origin */
    unsigned npeers;
    int unwanted; /* heads of this status are not wanted: WHY_IDENTITY, with again() WHY_STALE */
    bool marks;   /* trailers and interim heads get the field "x-gate: 1", too */
    /* A filter for this answer, whose length is not known then; NULL: none. */
    struct filter *(*filter)(struct rig *r, const struct http_head *head);
    size_t hold; /* of bodies */
    bool plain;  /* no upgrade is asked for, whatever the client wants */
    void (*held)(struct rig *r, struct verdict *v, struct buf *body, bool whole, struct arena *a);
    /* Decides in place of the gate; false: the gate decides after all.  What it asks with WAIT is
     * granted unless wait() says no. */
    bool (*decide)(struct rig *r, const struct facts *f, struct arena *a, struct verdict *v);
    bool (*wait)(struct rig *r, const struct facts *f, bool first, struct verdict *v);
    bool (*again)(struct rig *r, const struct facts *f, enum why why, enum stage stage);
    size_t keep;     /* of bodies */
    bool full;       /* nobody is admitted */
    unsigned places; /* taken */
    unsigned nmoved;
    enum proxy_taken take_as;
    bool quiet; /* the texts are not kept */
    void (*on_line)(struct rig *r, struct str line);
    void *user;
    struct conn **conns; /* all there were */
    unsigned nconns, room;
};

/* Heads of 8 KiB, a window of 64 KiB; head 10 s, dial 5 s, wait 20 s, body 30 s, tunnel 40 s,
 * half-closed 15 s, look 2 s, linger 3 s, idle client 60 s, idle origin 50 s, 4 of them per pool
 * and 8 over all; decide 8 s, moved 1 s. */
extern const struct proxy_rules rig_rules;

/* rules: NULL for rig_rules; its gate is put in. */
void rig_init(struct rig *r, const struct proxy_rules *rules);
/* Cuts what still runs and sees that nothing is left: no session, no stream, no byte. */
void rig_done(struct rig *r);
/* A client's connection, and one that is over the limit. */
struct conn *rig_client(struct rig *r);
struct conn *rig_surplus(struct rig *r);
/* A client's connection that is not accepted yet: proxy_accept() is the test's. */
struct conn *rig_conn(struct rig *r);
/* The dial that has waited longest comes up; NULL: none waits, or its address is not allowed. */
struct conn *rig_origin(struct rig *r);
/* The same, with this protocol where it asks for TLS. */
struct conn *rig_origin_as(struct rig *r, const char *alpn);
/* The rig frees it at the end. */
void rig_keep(struct rig *r, struct conn *c);
/* Exchanges in progress. */
unsigned rig_running(const struct rig *r);
/* DESIGN 19.6: an exchange's list is its state. */
void rig_check(const struct rig *r);

#endif
