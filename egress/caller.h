/* caller.h — what the relay knows of a client's connection: the note that its conn carries (net/
 * conn.h) and the gate reads.
 *
 * Made when the connection is accepted, freed with it; while there is one, the connection counts
 * against the limit it was accepted under. */
#ifndef EGRESS_CALLER_H
#define EGRESS_CALLER_H

#include "egress/relay/first.h"
#include "net/conn.h"
#include "policies/identity.h"

/* Connections of one kind; outlives whoever made it while there are any.  `open` may be read from
 * any thread. */
struct tally {
    _Atomic unsigned open;
    unsigned max;
    bool over; /* whoever made it is gone */
};

/* Freed by tally_end() and the end of its last connection, whichever comes last. */
struct tally *tally_new(unsigned max);
void tally_end(struct tally *t);

enum caller_way {
    WAY_EXPLICIT,    /* to the explicit proxy, nothing asked yet */
    WAY_TRANSPARENT, /* redirected to us */
    WAY_TUNNEL       /* HTTP inside of a CONNECT */
};

struct caller {
    enum caller_way way;
    bool served; /* EXPLICIT: the peer may use the proxy */
    /* TRANSPARENT: kind, to, port and sni; TUNNEL: kind, target and port, and sni if it is read.
     * Its pointers lead into this struct. */
    struct identity_conn c;
    struct host target; /* TUNNEL */
    /* TRANSPARENT: the host that it was let through for last; HOST_NONE: for none (E5). */
    struct host held;
    bool read;   /* its TLS ends here, and requests on it are judged one by one: kind TLS */
    bool silent; /* TRANSPARENT: nothing was said yet, so that it is still to be looked at */
    /* How far the first bytes of its last tunnel were looked at, NULL: not yet; of which errand. */
    struct first *first;
    uint64_t first_of, errands;
    struct tally *tally; /* NULL: it counts nowhere */
    char sni[NAME_BYTES_MAX + 2];
};

/* NULL: as many are open as may be.  tally may be NULL. */
struct caller *caller_new(enum caller_way way, struct tally *tally);
/* conn_set_note() with this; p belongs to c from now on. */
void caller_give(struct conn *c, struct caller *p);
/* Copies what a client has asked for by SNI; false: too long for a name. */
bool caller_set_sni(struct caller *p, struct str sni);
/* What identity.h is asked about it; lent, lies in p but for the struct itself. */
struct identity_conn caller_conn(const struct caller *p);
/* The note of a connection, or NULL. */
struct caller *caller_of(const struct conn_info *info);

#endif
