/* h2_budget.c — debts and what pays them back.  Nothing depends on time: a peer that does something
 * useful for each thing that is not never runs out, and one that does not runs out whatever its
 * pace. */
#include "http/h2_budget.h"

enum {
    UPDATE_BYTES = 512,     /* data a WINDOW_UPDATE may answer; a client may read in small pieces */
    FRAME_UPDATES = 2,      /* one for the stream, one for the connection */
    MAX_UPDATES = 64 * 1024 /* a peer that has not read for long is heard, not for ever */
};

static bool debt(unsigned *n, unsigned max)
{
    if (max == 0)
        return true;
    if (*n >= max)
        return false;
    ++*n;
    return true;
}

static void pay(unsigned *n)
{
    if (*n > 0)
        --*n;
}

bool h2_budget_reset(struct h2_budget *b)
{
    return debt(&b->resets, b->max_resets);
}

bool h2_budget_control(struct h2_budget *b)
{
    return debt(&b->control, b->max_control);
}

bool h2_budget_update(struct h2_budget *b)
{
    if (b->updates > 0) {
        b->updates--;
        return true;
    }
    return h2_budget_control(b);
}

void h2_budget_ended(struct h2_budget *b)
{
    pay(&b->resets);
}

void h2_budget_carried(struct h2_budget *b)
{
    pay(&b->control);
}

void h2_budget_sent(struct h2_budget *b, size_t n)
{
    size_t more = FRAME_UPDATES + n / UPDATE_BYTES;
    b->updates = more < MAX_UPDATES - b->updates ? b->updates + (unsigned)more : MAX_UPDATES;
    if (n > 0)
        pay(&b->control); /* a peer may measure by PING how fast it is served */
}
