/* h2_budget.h — what a peer may make a connection of HTTP/2 do without getting anywhere: streams
 * that are reset, frames that carry nothing.  Each budget is a debt that useful work pays back, so
 * that a connection may live for ever and a flood ends within its limit (DESIGN 18.2 N10).  Pure.
 */
#ifndef HTTP_H2_BUDGET_H
#define HTTP_H2_BUDGET_H

#include <stdbool.h>
#include <stddef.h>

struct h2_budget {
    unsigned max_resets, max_control; /* 0: no limit */
    unsigned resets, control;         /* debts */
    unsigned updates;                 /* WINDOW_UPDATEs that our data have called for */
};

/* These return false when the budget is used up: the connection ends. */
bool h2_budget_reset(struct h2_budget *b);
bool h2_budget_control(struct h2_budget *b);
bool h2_budget_update(struct h2_budget *b);

/* A stream has ended well. */
void h2_budget_ended(struct h2_budget *b);
/* The peer sent a frame that carries something. */
void h2_budget_carried(struct h2_budget *b);
/* We sent a DATA frame of n bytes. */
void h2_budget_sent(struct h2_budget *b, size_t n);

#endif
