/* replay.c — requests that go a second time, and what is kept of their bodies for that.  Two
 * reasons: a connection was lost on which nothing can have begun (contract ingress 8.4), and then
 * another one to the same place is taken; or the gate wants to think again, as long as the client
 * has seen nothing.  What the client was credited for is not credited a second time. */
#include "proxy/exchange.h"

/* ---- what is kept */

/* gate->again() may still be asked: once, but for pools that end, which are not the request's
 * doing; the number of turns bounds them. */
static bool may_ask(const struct exchange *x, enum why why)
{
    return (why == WHY_REVOKED ? x->facts.turn < TURNS_MOST : !x->again) && !x->hinted &&
           !x->tunnel && x->down && x->status == 0 && x->verdict.hold == 0 &&
           x->p->rules.gate->again;
}

/* A length that is too long is known beforehand, and near the memory cap nobody's body is kept. */
static size_t keep_of(const struct exchange *x)
{
    size_t keep = x->verdict.keep;
    if (keep == 0 || !may_ask(x, WHY_OK) || proxy_crowded(x->p))
        return 0;
    return x->request->length > 0 && (uint64_t)x->request->length > keep ? 0 : keep;
}

void replay_begin(struct exchange *x)
{
    bool bytes = x->verdict.head->protocol.n > 0;
    x->keep = bytes ? 0 : keep_of(x);
    x->keep_replay = !bytes && (!x->retried || x->keep > 0);
}

void replay_forget(struct exchange *x)
{
    x->keep = 0;
    x->keep_replay = false;
    buf_clear(&x->replay);
}

void replay_keep(struct exchange *x, const struct buf *b)
{
    size_t most = x->keep > REPLAY_BYTES ? x->keep : REPLAY_BYTES;
    if (!x->keep_replay)
        return;
    if (x->replay.len + b->len > most || (x->replay.len > 0 && proxy_crowded(x->p)))
        replay_forget(x);
    else
        buf_share(&x->replay, b);
}

void replay_left(struct exchange *x)
{
    if (!x->reused && !x->up_h2 && x->keep == 0)
        replay_forget(x); /* its head has left: this connection cannot refuse it any more */
}

void replay_spoke(struct exchange *x)
{
    x->up_spoke = true;
    if (x->keep == 0)
        replay_forget(x);
}

/* ---- again */

/* The body so far is to be sent once more. */
static void take_back(struct exchange *x)
{
    x->request_passed = false;
    hold_ahead(x, x->recredit + x->replay.len - x->owed);
    x->owed = 0;
    buf_move_all(&x->pending, &x->replay);
    replay_forget(x);
}

/* REFUSED: the origin has not begun with it, so that it does not matter what it is.  Nothing goes
 * to a place that was left. */
static bool may_retry(const struct exchange *x, enum why why)
{
    if (x->retried || x->up_spoke || x->tunnel || !x->down || x->leave_ms > 0)
        return false;
    if (x->bytes_in > 0 && !x->keep_replay)
        return false;
    return why == WHY_REFUSED || (why == WHY_ORIGIN_GONE && x->reused && x->request->idempotent);
}

bool replay_retry(struct exchange *x, enum why why)
{
    if (!may_retry(x, why))
        return false;
    counter_add(&x->p->metrics->retries, 1);
    x->retried = true;
    take_back(x);
    upstream_redial(x);
    return true;
}

static bool is_no_connection(enum why why)
{
    return why == WHY_DIAL || why == WHY_DNS || why == WHY_TLS || why == WHY_DEADLINE;
}

static bool is_at_hand(const struct exchange *x, enum why why, enum stage stage)
{
    if (stage == STAGE_DIAL)
        return is_no_connection(why) || why == WHY_REVOKED; /* nothing was sent */
    bool spoke = x->up_spoke || (x->up && x->up->spoke);    /* part of a head is an answer too */
    if (stage == STAGE_WAIT && (spoke || !x->request->idempotent))
        return false;
    if (x->request_end && x->bytes_in == 0)
        return true;
    return x->keep_replay && x->keep > 0 && x->replay.len <= x->keep;
}

/* As if nobody had been asked, but for what the client has said. */
static void start_over(struct exchange *x, enum why why)
{
    upstream_leave(x, why);
    take_back(x);
    x->answering = false;
    x->up_spoke = false;
    x->up_end = false;
    x->reused = false;
    x->t_answer = 0;
    x->leave_ms = 0;
    x->facts.fault = STR_NONE;
    exchange_enter(x, X_DECIDE);
}

bool replay_again(struct exchange *x, enum why why, enum stage stage)
{
    const struct gate *gate = x->p->rules.gate;
    if (!may_ask(x, why) || !is_at_hand(x, why, stage))
        return false;
    struct facts f = exchange_facts(x, x->facts.snap);
    x->again |= why != WHY_REVOKED;
    if (!gate->again(x->p->w, &f, &x->verdict, why, stage))
        return false;
    start_over(x, why);
    exchange_decide(x, NULL);
    return true;
}
