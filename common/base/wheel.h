/* wheel.h — timers: a hashed wheel of 512 slots of 64 ms, driven by a number.
 *
 * Set and clear are O(1), a timer is a list node, and time is an argument, so that tests turn the
 * wheel by hand.  A timer fires at its due time or up to one slot later, never earlier.  After a
 * long pause the wheel catches up in one turn, oldest slot first. */
#ifndef BASE_WHEEL_H
#define BASE_WHEEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/list.h"

enum { WHEEL_SLOTS = 512, WHEEL_SLOT_MS = 64 };

struct timer {
    struct list link;
    uint64_t due; /* ms; of no meaning while not set */
    void (*fire)(struct timer *t);
};

struct wheel {
    struct list slot[WHEEL_SLOTS];
    uint64_t now; /* ms, start of the slot that was run last */
    size_t count; /* timers set */
};

void wheel_init(struct wheel *w, uint64_t now_ms);
/* Must come before the first use of a timer. */
void timer_init(struct timer *t, void (*fire)(struct timer *t));
static inline bool timer_is_set(const struct timer *t)
{
    return !list_empty(&t->link);
}
/* (Re-)arms t to fire at due_ms; a due time in the past fires in the next turn. */
void wheel_set(struct wheel *w, struct timer *t, uint64_t due_ms);
/* Disarms; harmless when not set. */
void wheel_clear(struct wheel *w, struct timer *t);
/* Runs every timer that is due at now_ms.  A callback may set and clear any timer, itself included.
 */
void wheel_turn(struct wheel *w, uint64_t now_ms);
/* ms from now_ms until wheel_turn() should be called next; UINT64_MAX when no timer is set. */
uint64_t wheel_wait(const struct wheel *w, uint64_t now_ms);

#endif
