/* call.c — one exchange on a stream of a pool that serves one server.  A call is told its end in
 * one place; whatever it still holds by then is let go first, so that nothing can come after that.
 */
#include <assert.h>

#include "proxy/call_impl.h"

static const struct http_events stream_events;

/* ---- ends */

static void free_call(void *p)
{
    struct call *k = p;
    arena_done(&k->mem);
    mem_free(k);
}

void call_let_go(struct call *k, enum why why)
{
    struct http_stream *stream = k->stream;
    struct origin_dial *dial = k->dial;
    bool buried = k->state == CALL_TELLING;
    k->state = CALL_OVER;
    k->stream = NULL;
    k->dial = NULL;
    timer_clear(k->c->w, &k->timer);
    list_del(&k->link);
    if (stream)
        stream->ops->cancel(stream, why);
    if (dial)
        origin_dial_cancel(dial);
    if (!buried)
        worker_bury(k->c->w, free_call, k);
}

/* A connection of HTTP/2 that says nothing may be one that nobody is at the other end of: who comes
 * now gets another.  Once, however many calls have waited there. */
static void distrust(const struct call *k)
{
    struct caller *c = k->c;
    if (!k->h2 || k->state != CALL_WAITING || k->start_ms < c->renewed_ms)
        return;
    c->renewed_ms = worker_now(c->w);
    origin_renew(c->origins);
}

static void finish(struct call *k, enum why why)
{
    assert(k->state != CALL_OVER);
    if (k->ended)
        why = WHY_OK;
    if (why == WHY_DEADLINE)
        distrust(k);
    call_let_go(k, why);
    k->ev.done(k->user, why == WHY_REFUSED ? WHY_ORIGIN_GONE : why, k->trailers, k->fault);
}

/* ---- time */

static uint64_t due_ms(const struct call *k)
{
    uint64_t due = UINT64_MAX;
    if (k->state != CALL_READING)
        due = k->head_ms;
    else if (k->silence_ms > 0)
        due = k->heard_ms + k->silence_ms;
    return due < k->whole_ms ? due : k->whole_ms;
}

static void arm(struct call *k)
{
    uint64_t due = due_ms(k), now = worker_now(k->c->w);
    if (due == UINT64_MAX)
        timer_clear(k->c->w, &k->timer);
    else
        timer_set(k->c->w, &k->timer, due > now ? due - now : 0);
}

/* What comes only notes when, and does not set the timer each time. */
static void on_timer(struct timer *t)
{
    struct call *k = container_of(t, struct call, timer);
    if (worker_now(k->c->w) < due_ms(k))
        arm(k);
    else
        finish(k, WHY_DEADLINE);
}

/* ---- the request */

static void say(struct call *k, const struct origin_got *got)
{
    struct http_stream *s = k->stream = got->stream;
    struct buf b;
    k->state = CALL_WAITING;
    k->info = got->info;
    k->h2 = got->h2;
    s->ev = &stream_events;
    s->user = k;
    s->mem = &k->mem;
    s->ops->head(s, &k->ask, k->body.n == 0);
    if (k->body.n == 0)
        return;
    buf_init(&b, worker_pool(k->c->w));
    buf_str(&b, k->body);
    s->ops->data(s, &b);
    s->ops->end(s, NULL);
}

static enum why on_allow(void *user, const struct sockaddr *addr)
{
    const struct caller *c = ((struct call *)user)->c;
    return c->allow ? c->allow(c->user, addr) : WHY_OK;
}

static void on_dialled(void *user, enum why why, int error, uint64_t took_us)
{
    (void)user;
    (void)why;
    (void)error;
    (void)took_us;
}

static void on_telling(void *p)
{
    struct call *k = p;
    if (k->state == CALL_TELLING)
        finish(k, k->why);
    free_call(k);
}

/* The pool is telling all that wait in its line.  Who is told may give up other calls, and they
 * must not leave the line meanwhile: so he is told when this turn ends. */
static void tell_later(struct call *k, enum why why)
{
    k->state = CALL_TELLING;
    k->why = why;
    timer_clear(k->c->w, &k->timer);
    worker_bury(k->c->w, on_telling, k);
}

/* A stream that has said nothing is none to the server, and the connection is kept. */
static void reached(struct call *k, const struct origin_got *got)
{
    struct http_stream *s = got->stream;
    s->ev = &stream_events;
    s->user = k;
    s->mem = &k->mem;
    s->ops->cancel(s, WHY_OK);
    tell_later(k, WHY_OK);
}

static void use(struct call *k, const struct origin_got *got)
{
    if (k->reach)
        reached(k, got);
    else
        say(k, got);
}

static void on_origin(void *user, const struct origin_got *got, enum why why)
{
    struct call *k = user;
    k->fault = origin_dial_fault(k->dial);
    k->dial = NULL;
    if (got)
        use(k, got);
    else
        tell_later(k, why);
}

static const struct origin_asker asker = {NULL, on_allow, on_dialled, on_origin};

static void dial(struct call *k, bool anew)
{
    struct caller *c = k->c;
    struct origin_want want = c->want;
    want.anew = anew;
    k->state = CALL_DIALLING;
    k->reused = false;
    k->dial = origin_dial(c->origins, &want, c->connect_ms, &asker, k);
}

static void begin(struct call *k)
{
    struct origin_got got;
    enum why why = origin_reuse(k->c->origins, &k->c->want, NULL, NULL, &got);
    assert(why == WHY_OK); /* nobody is asked who could refuse it */
    k->reused = got.stream != NULL;
    if (got.stream)
        use(k, &got);
    else
        dial(k, false);
}

/* REFUSED: the server has not begun with it. */
static bool may_retry(const struct call *k, enum why why, bool spoke)
{
    if (k->retried || spoke || k->state != CALL_WAITING)
        return false;
    return why == WHY_REFUSED || (why == WHY_ORIGIN_GONE && k->reused && k->ask.idempotent);
}

/* ---- the answer */

static void on_head(void *user, struct http_head *head, bool end)
{
    struct call *k = user;
    if (head->status < 200 && head->protocol.n == 0)
        return;
    k->state = CALL_READING;
    k->heard_ms = worker_now(k->c->w);
    k->ended = end;
    arm(k);
    if (k->ev.head)
        k->ev.head(k->user, head);
}

static void on_data(void *user, struct buf *b)
{
    struct call *k = user;
    size_t n = b->len;
    if (n > k->left) {
        buf_clear(b);
        finish(k, WHY_LIMIT);
        return;
    }
    k->left -= n;
    k->heard_ms = worker_now(k->c->w);
    if (k->ev.data)
        k->ev.data(k->user, b);
    buf_clear(b);
    if (k->state != CALL_OVER)
        k->stream->ops->credit(k->stream, n);
}

/* closed() follows; or, where the request is not wanted any more, the deadline. */
static void on_end(void *user, struct http_head *trailers)
{
    struct call *k = user;
    k->ended = true;
    k->trailers = trailers;
}

static void on_sent(void *user, size_t n)
{
    (void)user;
    (void)n;
}

static void on_closed(void *user, enum why why)
{
    struct call *k = user;
    bool again = may_retry(k, why, k->stream->spoke);
    k->fault = k->info->fault;
    k->stream = NULL;
    if (!again) {
        finish(k, why == WHY_OK ? WHY_ORIGIN_GONE : why);
        return;
    }
    k->retried = true;
    dial(k, true);
}

static const struct http_events stream_events = {on_head, on_data, on_end,
                                                 on_sent, NULL,    on_closed};

/* ---- calls, from outside */

static void make_head(struct call *k, const struct call_request *r)
{
    struct http_head *h = &k->ask;
    h->method = arena_str(&k->mem, r->method);
    h->scheme = k->c->tls ? STR("https") : STR("http");
    h->authority = k->c->authority;
    h->path = arena_cat(&k->mem, k->c->base, r->target);
    h->length = r->body.n > 0 ? (int64_t)r->body.n : -1;
    h->te_trailers = r->te_trailers;
    h->idempotent = rules_idempotent(h->method);
    h->protocol = STR("");
    h->fields = arena_get(&k->mem, (r->nfields + 1) * sizeof *h->fields);
    for (unsigned i = 0; i < r->nfields; i++)
        head_add(h, arena_str(&k->mem, r->fields[i].name), arena_str(&k->mem, r->fields[i].value));
}

static struct call *call_new(struct caller *c, uint64_t head_ms, const struct call_events *ev,
                             void *user)
{
    struct call *k = mem_new(sizeof *k);
    assert(head_ms > 0);
    k->c = c;
    k->ev = *ev;
    k->user = user;
    k->start_ms = worker_now(c->w);
    k->head_ms = k->start_ms + head_ms;
    k->whole_ms = UINT64_MAX;
    arena_init_private(&k->mem, NULL, 0);
    timer_init(&k->timer, on_timer);
    list_push(&c->calls, &k->link);
    return k;
}

static void start(struct call *k)
{
    begin(k);
    if (k->state != CALL_TELLING)
        arm(k);
}

struct call *call_start(struct caller *c, const struct call_request *r,
                        const struct call_events *ev, void *user)
{
    struct call *k = call_new(c, r->head_ms, ev, user);
    make_head(k, r);
    k->body = arena_str(&k->mem, r->body);
    k->left = r->max_bytes > 0 ? r->max_bytes : SIZE_MAX;
    k->silence_ms = r->silence_ms;
    if (r->whole_ms > 0)
        k->whole_ms = k->start_ms + r->whole_ms;
    start(k);
    return k;
}

struct call *call_reach(struct caller *c, uint64_t timeout_ms, const struct call_events *ev,
                        void *user)
{
    struct call *k = call_new(c, timeout_ms, ev, user);
    k->reach = true;
    start(k);
    return k;
}

void call_cancel(struct call *k)
{
    assert(k->state != CALL_OVER);
    call_let_go(k, WHY_CLIENT_GONE);
}
