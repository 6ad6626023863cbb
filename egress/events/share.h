/* share.h — lines that a stranger can cause: so many a second, and one more that says how many were
 * left out (cases OPS-09). */
#ifndef EVENTS_SHARE_H
#define EVENTS_SHARE_H

#include "base/log.h"
#include "base/metrics.h"
#include "net/worker.h"

struct share {
    struct worker *w;
    struct counter *left_out_total;
    enum log_level level; /* of all its lines */
    const char *more;     /* the msg of the line with the number, field "repeated" */
    unsigned per_s, used;
    uint64_t left_out;
    struct timer timer; /* a second is over */
};

/* `more` is kept; the share must stay where it is. */
void share_init(struct share *s, struct worker *w, struct counter *left_out_total,
                enum log_level level, unsigned per_s, const char *more);
/* Tells what was left out. */
void share_done(struct share *s);
/* May one more line be written?  If not, and only the share forbids it, that is counted. */
bool share_take(struct share *s);

#endif
