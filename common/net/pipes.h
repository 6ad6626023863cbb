/* pipes.h — kernel pipes for splice.c: a few per worker, used again while any bulk is under way. */
#ifndef NET_PIPES_H
#define NET_PIPES_H

#include "net/worker.h"

enum { PIPE_BYTES = 256 * 1024, MAX_PIPES = 32 }; /* of a worker */

struct pipe_pair {
    struct pipe_pair *next;
    int fd[2]; /* read, write; neither blocks */
};

/* An empty one; NULL: MAX_PIPES are in use, or there are no descriptors. */
struct pipe_pair *pipes_get(struct worker *w);
/* One with bytes left in it would give them to a stranger: it is closed. */
void pipes_put(struct worker *w, struct pipe_pair *p, bool empty);
/* Closes those that are not in use. */
void pipes_free(struct worker *w);

#endif
