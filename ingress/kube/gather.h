/* gather.h — bytes of an answer in one piece, or line by line.  They hold tokens: wiped when given
 * back. */
#ifndef INGRESS_KUBE_GATHER_H
#define INGRESS_KUBE_GATHER_H

#include "base/buf.h"

/* All zero: empty. */
struct gather {
    char *p;
    size_t n, room;
    size_t at, seen; /* of lines: where the next one begins; no end of one lies before */
};

/* Appends a copy of b. */
void gather_add(struct gather *g, const struct buf *b);
struct str gather_text(const struct gather *g);
/* The next whole line without its LF (and CR); lent until gather_add() or gather_settle(). */
bool gather_line(struct gather *g, struct str *ret);
/* Lines that were read make room.  Bytes left: of one that is not whole. */
size_t gather_settle(struct gather *g);
/* Empty; the room is kept. */
void gather_clear(struct gather *g);
/* Empty, memory given back. */
void gather_done(struct gather *g);

#endif
