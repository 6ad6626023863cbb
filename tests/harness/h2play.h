/* h2play.h — frames of HTTP/2 made of any bytes, for fuzz targets: mostly right ones, in any order,
 * with a few that are wrong, so that an input reaches what lies behind the first error. */
#ifndef HARNESS_H2PLAY_H
#define HARNESS_H2PLAY_H

#include "harness/h2frames.h"

struct tape {
    const uint8_t *p;
    size_t n;
};

/* The next byte; 0 at the end. */
unsigned tape_next(struct tape *t);
struct str tape_cut(struct tape *t, size_t n);

struct h2play {
    bool client;      /* the frames are a client's */
    bool calm;        /* windows are left as they are */
    bool stays;       /* no GOAWAY */
    uint32_t next_id; /* client: of its next request; server: of the peer's next one */
};

/* Adds one frame, or part of one. */
void h2play_frame(struct h2play *p, struct tape *t, struct frames *f);

#endif
