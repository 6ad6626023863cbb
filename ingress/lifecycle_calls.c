/* lifecycle_calls.c — a line in front of the server.  Who waits there does so no longer than a call
 * may take, so that a server which is slow gives few late answers rather than many later ones.
 * What comes back can hold tokens and is wiped. */
#include "ingress/lifecycle_calls.h"

#include <assert.h>

#include "net/worker.h"
#include "proxy/call.h"

enum { IDLE_MS = 20000, BODY_BYTES = 65536, FIRST_ROOM = 1024 };

struct lifecycle_calls {
    struct worker *w;
    struct caller *caller;
    struct secret *key;
    unsigned max, active, nwaiting;
    uint64_t whole_ms;
    struct list waiting, calling;
};

struct lifecycle_calls *lifecycle_calls_new(struct worker *w, const struct lifecycle_calls_rules *r)
{
    struct lifecycle_calls *c = mem_new(sizeof *c);
    const struct caller_rules rules = {.url = r->url,
                                       .tls = r->tls,
                                       .idle_max = r->max,
                                       .idle_ms = IDLE_MS, /* the server keeps them for 30 s */
                                       .connect_ms = r->connect_ms};
    c->w = w;
    c->max = r->max;
    c->whole_ms = r->whole_ms;
    c->caller = caller_start(w, &rules);
    list_init(&c->waiting);
    list_init(&c->calling);
    return c;
}

void lifecycle_calls_free(struct lifecycle_calls *c)
{
    if (!c)
        return;
    assert(c->active == 0 && c->nwaiting == 0);
    caller_free(c->caller);
    secret_unref(c->key);
    mem_free(c);
}

void lifecycle_calls_key(struct lifecycle_calls *c, struct secret *key)
{
    secret_unref(c->key);
    c->key = key;
}

unsigned lifecycle_calls_active(const struct lifecycle_calls *c)
{
    return c->active;
}

unsigned lifecycle_calls_waiting(const struct lifecycle_calls *c)
{
    return c->nwaiting;
}

/* ---- one ask */

static void clear_body(struct lifecycle_ask *a)
{
    mem_free_wiped(a->body);
    a->body = NULL;
    a->n = a->room = 0;
}

/* Takes it out of wherever it is. */
static void leave(struct lifecycle_ask *a)
{
    struct lifecycle_calls *c = a->all;
    c->nwaiting -= a->state == ASK_WAITING;
    c->active -= a->state == ASK_CALLING;
    a->state = ASK_IDLE;
    a->call = NULL;
    timer_clear(c->w, &a->patience);
    list_del(&a->link);
}

static void go_on(struct lifecycle_calls *c);

/* The body is taken along, for the ask may be started anew within done(), or be no more. */
static void finish(struct lifecycle_ask *a, enum why why, struct str fault)
{
    struct lifecycle_calls *c = a->all;
    struct lifecycle_reply r = {
        .why = why, .status = a->status, .body = {a->body, a->n}, .fault = fault};
    char *body = a->body;
    a->body = NULL;
    a->n = a->room = 0;
    leave(a);
    a->done(a, &r);
    mem_free_wiped(body);
    go_on(c);
}

static void on_head(void *user, const struct http_head *head)
{
    struct lifecycle_ask *a = user;
    a->status = head->status;
}

static void on_data(void *user, struct buf *b)
{
    struct lifecycle_ask *a = user;
    size_t n = b->len;
    if (a->n + n > a->room) {
        size_t room = a->room ? a->room : FIRST_ROOM;
        while (room < a->n + n)
            room *= 2;
        a->body = mem_renew_wiped(a->body, room);
        a->room = room;
    }
    buf_peek(b, a->body + a->n, n);
    a->n += n;
    buf_clear(b);
}

static void on_done(void *user, enum why why, const struct http_head *trailers, struct str fault)
{
    (void)trailers;
    finish(user, why, fault);
}

static const struct call_events events = {on_head, on_data, on_done};

static void call(struct lifecycle_ask *a)
{
    struct lifecycle_calls *c = a->all;
    struct field fields[3] = {{STR("Accept"), STR("application/json")},
                              {STR("OPEN-SANDBOX-API-KEY"), secret_bytes(c->key)},
                              {STR("X-Request-ID"), {a->request_id, a->request_id_n}}};
    struct call_request r = {.method = STR("GET"),
                             .target = a->target,
                             .fields = fields,
                             .nfields = a->request_id_n ? 3 : 2,
                             .head_ms = c->whole_ms,
                             .whole_ms = c->whole_ms,
                             .max_bytes = BODY_BYTES};
    a->state = ASK_CALLING;
    a->status = 0;
    a->began_ms = worker_now_us(c->w) / 1000;
    c->active++;
    list_push(&c->calling, &a->link);
    a->call = call_start(c->caller, &r, &events, a);
}

static void go_on(struct lifecycle_calls *c)
{
    while (c->active < c->max && c->nwaiting > 0) {
        struct lifecycle_ask *a = container_of(list_first(&c->waiting), struct lifecycle_ask, link);
        leave(a);
        call(a);
    }
}

static void on_patience(struct timer *t)
{
    struct lifecycle_ask *a = container_of(t, struct lifecycle_ask, patience);
    finish(a, WHY_OVERLOAD, STR("waited too long for its turn"));
}

void lifecycle_ask_init(struct lifecycle_ask *a,
                        void (*done)(struct lifecycle_ask *a, const struct lifecycle_reply *r))
{
    memset(a, 0, sizeof *a);
    a->done = done;
    list_init(&a->link);
    timer_init(&a->patience, on_patience);
}

bool lifecycle_ask_start(struct lifecycle_calls *c, struct lifecycle_ask *a, struct str target,
                         struct str request_id)
{
    assert(a->state == ASK_IDLE);
    if (c->nwaiting >= LIFECYCLE_LINE)
        return false;
    a->all = c;
    a->target = target;
    a->status = 0;
    a->request_id_n = request_id.n < sizeof a->request_id ? request_id.n : sizeof a->request_id;
    memcpy(a->request_id, request_id.n ? request_id.p : "", a->request_id_n);
    a->began_ms = worker_now_us(c->w) / 1000;
    a->state = ASK_WAITING;
    c->nwaiting++;
    list_push(&c->waiting, &a->link);
    timer_set(c->w, &a->patience, c->whole_ms);
    go_on(c);
    return true;
}

void lifecycle_ask_cancel(struct lifecycle_ask *a)
{
    if (a->state == ASK_IDLE)
        return;
    if (a->call)
        call_cancel(a->call);
    leave(a);
    clear_body(a);
}
