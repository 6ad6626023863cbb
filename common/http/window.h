/* window.h — how much of a body may be received and not credited.  It grows while a whole window of
 * credit keeps coming quickly, and goes back once it comes slowly: who reads slowly holds little.
 * Pure. */
#ifndef HTTP_WINDOW_H
#define HTTP_WINDOW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { WINDOW_QUICK_MS = 10, WINDOW_SLOW_MS = 200 };

struct window {
    size_t size;
    size_t credited; /* since `at` */
    uint64_t at;     /* ms */
};

static inline void window_init(struct window *w, size_t base, uint64_t now)
{
    *w = (struct window){.size = base, .at = now};
}

/* n bytes are credited at `now`: the size that is right from now on, base..max. */
static inline size_t window_next(struct window *w, size_t n, uint64_t now, size_t base, size_t max)
{
    w->credited += n;
    if (w->credited < w->size)
        return w->size;
    uint64_t took = now - w->at;
    w->credited = 0;
    w->at = now;
    if (took >= WINDOW_SLOW_MS)
        return base;
    if (took > WINDOW_QUICK_MS || w->size >= max)
        return w->size;
    return 2 * w->size < max ? 2 * w->size : max;
}

#endif
