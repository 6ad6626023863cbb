/* wheel.c — the timer wheel.  A timer lies in the slot in which it becomes due, rounded up, so it
 * never fires early; what was due already when it was set lies in front of the slot that ran last,
 * and the next turn begins there.  A turn first takes out everything that is due and then calls, so
 * that callbacks see a wheel that does not move under them. */
#include "base/wheel.h"

#include <assert.h>

enum { SORT_BINS = 48 };

static uint64_t slot_of(uint64_t due_ms)
{
    return due_ms / WHEEL_SLOT_MS + (due_ms % WHEEL_SLOT_MS != 0);
}

static struct timer *timer_of(struct list *l)
{
    return container_of(l, struct timer, link);
}

void wheel_init(struct wheel *w, uint64_t now_ms)
{
    for (size_t i = 0; i < WHEEL_SLOTS; i++)
        list_init(&w->slot[i]);
    w->now = now_ms - now_ms % WHEEL_SLOT_MS;
    w->count = 0;
}

void timer_init(struct timer *t, void (*fire)(struct timer *t))
{
    list_init(&t->link);
    t->due = 0;
    t->fire = fire;
}

void wheel_set(struct wheel *w, struct timer *t, uint64_t due_ms)
{
    wheel_clear(w, t);
    t->due = due_ms;
    w->count++;
    if (due_ms <= w->now)
        list_push_front(&w->slot[w->now / WHEEL_SLOT_MS % WHEEL_SLOTS], &t->link);
    else
        list_push(&w->slot[slot_of(due_ms) % WHEEL_SLOTS], &t->link);
}

void wheel_clear(struct wheel *w, struct timer *t)
{
    if (!timer_is_set(t))
        return;
    list_del(&t->link);
    assert(w->count > 0);
    w->count--;
}

/* Moves what was overdue when it was set; the others in that slot belong to later rounds. */
static void take_overdue(struct wheel *w, struct list *due)
{
    struct list *slot = &w->slot[w->now / WHEEL_SLOT_MS % WHEEL_SLOTS];
    while (!list_empty(slot) && timer_of(slot->next)->due <= w->now)
        list_push_front(due, list_pop(slot)); /* they were pushed in front: turned round again */
}

static void take_due(struct list *slot, uint64_t now_ms, struct list *due)
{
    list_each(it, slot)
    {
        if (timer_of(it)->due > now_ms)
            continue;
        list_del(it);
        list_push(due, it);
    }
}

/* Merges two chains linked by next, each in order; of equals those of a come first. */
static struct list *merge(struct list *a, struct list *b)
{
    struct list *first = NULL, **end = &first;
    while (a && b) {
        struct list **less = slot_of(timer_of(a)->due) <= slot_of(timer_of(b)->due) ? &a : &b;
        *end = *less;
        end = &(*less)->next;
        *less = (*less)->next;
    }
    *end = a ? a : b;
    return first;
}

/* After more than one round a slot holds timers of several rounds: brings them into the order of
 * time (a merge sort in which bin i holds a chain of 2^i). */
static void sort_by_slot(struct list *due)
{
    struct list *bin[SORT_BINS] = {NULL};
    for (struct list *l; (l = list_pop(due));) {
        l->next = NULL;
        size_t i = 0;
        for (; bin[i]; i++) {
            l = merge(bin[i], l);
            bin[i] = NULL;
        }
        bin[i] = l;
    }
    struct list *all = NULL;
    for (size_t i = 0; i < SORT_BINS; i++)
        all = merge(bin[i], all);
    for (struct list *next; all; all = next) {
        next = all->next;
        list_push(due, all);
    }
}

void wheel_turn(struct wheel *w, uint64_t now_ms)
{
    struct list due;
    list_init(&due);
    take_overdue(w, &due);
    uint64_t from = w->now / WHEEL_SLOT_MS + 1, to = now_ms / WHEEL_SLOT_MS;
    if (to >= from) {
        w->now = to * WHEEL_SLOT_MS;
        uint64_t end = to - from < WHEEL_SLOTS ? to + 1 : from + WHEEL_SLOTS;
        for (uint64_t i = from; i < end; i++)
            take_due(&w->slot[i % WHEEL_SLOTS], w->now, &due);
        if (to - from >= WHEEL_SLOTS)
            sort_by_slot(&due);
    }
    for (struct list *l; (l = list_pop(&due));) {
        w->count--;
        timer_of(l)->fire(timer_of(l));
    }
}

uint64_t wheel_wait(const struct wheel *w, uint64_t now_ms)
{
    if (w->count == 0)
        return UINT64_MAX;
    uint64_t at = w->now / WHEEL_SLOT_MS;
    const struct list *slot = &w->slot[at % WHEEL_SLOTS];
    if (!list_empty(slot) && timer_of(slot->next)->due <= w->now)
        return 0;
    /* A slot of a later round only costs a turn that finds nothing due, less than looking at every
     * timer would. */
    for (uint64_t i = 1; i <= WHEEL_SLOTS; i++) {
        if (list_empty(&w->slot[(at + i) % WHEEL_SLOTS]))
            continue;
        uint64_t start = (at + i) * WHEEL_SLOT_MS;
        return start > now_ms ? start - now_ms : 0;
    }
    return WHEEL_SLOT_MS; /* unreachable outside a callback: those still to be called count too */
}
