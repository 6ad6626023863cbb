/* answer.c — the head of an answer on its way down: what the gate makes of it, and what begins with
 * it.  Until the gate has agreed nothing of it is the exchange's, so that a refusal can still be an
 * answer of ours. */
#include "base/text.h"
#include "proxy/exchange.h"

/* gRPC's own outcome: in the trailers, or in a head that is all there is. */
void answer_note_grpc(struct exchange *x, const struct http_head *h)
{
    const struct str *value = head_get(h, STR("grpc-status"));
    uint64_t n;
    if (value && text_u64(*value, 999, &n))
        x->grpc_status = (int)n;
}

/* False: the gate does not want it, and the exchange has failed, or is decided anew. */
static bool ask_answer(struct exchange *x, const struct http_head *head, bool end,
                       struct answer *ret)
{
    bool final = head->status >= 200 || head->protocol.n > 0;
    bool body = !end && final && head->protocol.n == 0;
    x->answering = true;
    x->facts.http_date = proxy_http_date(x->p);
    enum why why = x->p->rules.gate->answer(&x->facts, &x->verdict, head, end, &x->mem, ret);
    x->facts.fault = STR_NONE; /* where the date was */
    exchange_hold(x);
    if (ret->filter && (why != WHY_OK || !body)) {
        ret->filter->ops->free(ret->filter);
        ret->filter = NULL;
    }
    if (why != WHY_OK && !(final && replay_again(x, why, STAGE_ANSWER)))
        exchange_fail(x, why, NULL);
    x->answering = false;
    return why == WHY_OK;
}

void answer_interim(struct exchange *x, const struct http_head *head)
{
    struct answer answer = {NULL, NULL};
    bool again = head->status == 100 && x->cont_sent;
    x->cont_sent |= head->status == 100;
    exchange_hold(x);
    upstream_wait(x);
    if (again || !ask_answer(x, head, false, &answer))
        return;
    x->hinted |= head->status != 100;
    x->down->ops->head(x->down, answer.head, false);
}

void answer_final(struct exchange *x, const struct http_head *head, bool end)
{
    struct worker *w = x->p->w;
    struct answer answer = {NULL, NULL};
    timer_clear(w, &x->cont);
    x->t_answer = worker_now_us(w);
    if (!ask_answer(x, head, end, &answer))
        return;
    replay_forget(x);
    x->status = head->status;
    answer_note_grpc(x, head);
    x->tunnel = head->protocol.n > 0;
    x->up_end = end;
    x->request_end &= !x->tunnel; /* both directions are open again */
    x->request_passed &= !x->tunnel;
    exchange_enter(x, x->tunnel ? X_TUNNEL : X_BODY);
    if (answer.filter)
        filtering_begin(x, answer.filter);
    x->down->ops->head(x->down, answer.head, end);
}
