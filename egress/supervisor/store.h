/* store.h — what a supervisor keeps for its workers: the other side of keep.h.
 *
 * Bounded by KEEP_ENTRIES_MAX entries of KEEP_BLOB_MAX bytes and one descriptor each.  Whatever a
 * worker sends, the store stays whole and the supervisor never waits for it. */
#ifndef SUPERVISOR_STORE_H
#define SUPERVISOR_STORE_H

#include "egress/supervisor/keep.h"
#include "egress/supervisor/keep_impl.h"

struct store {
    struct kept entries[KEEP_ENTRIES_MAX]; /* names and blobs on the heap */
    unsigned n;
};

void store_init(struct store *s);
/* Closes and frees everything. */
void store_done(struct store *s);

/* Answers one packet.  fd (-1: none) came with it and is the store's now.  The answer's texts and
 * *ret_fd (-1: none) are the store's, until it is asked again. */
void store_answer(struct store *s, struct str packet, int fd, struct keep_packet *ret, int *ret_fd);
/* Answers what waits on this socket; false when the other end is gone, and everything it had sent
 * is done. */
bool store_serve(struct store *s, int socket);

#endif
