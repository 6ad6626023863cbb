/* visit.c — one request to the API: route, access, body, deadlines, and the answer.  What it is
 * about is decided elsewhere, once its whole body is here; so nobody waits for a slow client, and
 * the order of refusals is the order of the functions below. */
#include <assert.h>

#include "egress/api/access.h"
#include "egress/api/api_impl.h"
#include "http/path.h"

enum { SLOW_MS = 200, TICK_MS = 20 };

const struct api_host *visit_host(const struct visit *v)
{
    return &v->api->host;
}

struct str visit_body(const struct visit *v)
{
    return (struct str){v->body, v->n};
}

/* ---- its end */

void visit_drop_body(struct visit *v)
{
    v->api->bodies -= v->room;
    mem_free_wiped(v->body);
    v->body = NULL;
    v->n = v->room = 0;
}

static void visit_free(struct visit *v)
{
    struct api *api = v->api;
    timer_clear(api->w, &v->timer);
    visit_drop_body(v);
    buf_clear(&v->early);
    vault_visit_done(v);
    if (v->client)
        v->client->visit = NULL;
    api->nvisits--;
    arena_done(&v->mem);
    worker_bury(api->w, mem_free, v);
    api_free_if_over(api);
}

void visit_wait(struct visit *v)
{
    v->state = VISIT_CHANGE;
    timer_clear(v->api->w, &v->timer); /* the queue has deadlines of its own */
}

bool visit_resume(struct visit *v)
{
    assert(v->state == VISIT_CHANGE);
    v->state = VISIT_BODY;
    if (v->stream)
        return true;
    visit_free(v);
    return false;
}

/* ---- answers */

static void send_head(struct visit *v, int status, const char *type, size_t n, bool bodyless)
{
    struct http_head *h = arena_zero(&v->mem, sizeof *h);
    h->status = status;
    h->length = (int64_t)n;
    h->fields = arena_get(&v->mem, 4 * sizeof *h->fields);
    if (type)
        head_add(h, STR("Content-Type"), str_of(type));
    head_add(h, STR("X-Content-Type-Options"), STR("nosniff"));
    head_add(h, STR("Cache-Control"), STR("no-store"));
    if (status == 405)
        head_add(h, STR("Allow"), str_of(v->route->methods));
    v->stream->ops->head(v->stream, h, bodyless);
}

/* What waited for an answer of another kind is swallowed like the rest. */
static void drop_early(struct visit *v)
{
    size_t n = v->early.len;
    buf_clear(&v->early);
    if (n)
        v->stream->ops->credit(v->stream, n);
}

static void answer(struct visit *v, int status, const char *type, struct str body)
{
    struct buf b;
    bool bodyless = status == 204 || (v->head && str_eq(v->head->method, STR("HEAD")));
    if (!v->stream || v->state == VISIT_ANSWERED)
        return;
    v->state = VISIT_ANSWERED;
    timer_set(v->api->w, &v->timer, settings_ms(v->api->host.set->api_body_timeout));
    send_head(v, status, type, body.n, bodyless);
    drop_early(v);
    if (bodyless)
        return;
    buf_init(&b, worker_pool(v->api->w));
    buf_str(&b, body);
    v->stream->ops->data(v->stream, &b);
    v->stream->ops->end(v->stream, NULL);
}

void visit_refuse(struct visit *v, int status, struct str text)
{
    answer(v, status, "text/plain; charset=utf-8", arena_cat(&v->mem, text, STR("\n")));
}

void visit_json_as(struct visit *v, int status, struct json_out *o)
{
    o->comma = false;
    json_put_raw(o, STR("\n"));
    answer(v, status, "application/json", (struct str){o->p, o->n});
    json_out_done(o);
}

void visit_json(struct visit *v, struct json_out *o)
{
    visit_json_as(v, 200, o);
}

void visit_nothing(struct visit *v)
{
    answer(v, 204, NULL, STR(""));
}

/* ---- /healthz */

void serve_health(struct visit *v)
{
    const struct api_host *h = &v->api->host;
    const char *reason = h->not_enforced ? h->not_enforced(h->user) : NULL;
    if (v->api->draining)
        visit_refuse(v, 503, STR("stopping"));
    else if (reason && !h->set->allow_unenforced)
        visit_refuse(v, 503, arena_cat(&v->mem, STR("not enforced: "), str_of(reason)));
    else if (h->set->mitm && h->interception_ready && !h->interception_ready(h->user))
        visit_refuse(v, 503, STR("mitmproxy not ready"));
    else
        answer(v, 200, "text/plain; charset=utf-8", STR("ok"));
}

/* ---- what comes before the body */

/* Guessing tokens is slow, whoever has one does not wait. */
static void refuse_token(struct visit *v)
{
    v->state = VISIT_SLOW;
    timer_set(v->api->w, &v->timer, SLOW_MS);
}

static bool may_enter(struct visit *v)
{
    struct api_client *c = v->client;
    enum access access = access_judge(v->api->token, conn_info(c->conn)->peer, v->head);
    if (access == ACCESS_NOT_LOCAL)
        visit_refuse(
            v, 403,
            STR("forbidden: without " EGRESS_VARIABLE "TOKEN only loopback peers are served"));
    else if (!v->route)
        visit_refuse(v, 404, STR("404 page not found"));
    else if (access == ACCESS_NO_TOKEN)
        refuse_token(v);
    else if (access == ACCESS_BROWSER)
        visit_refuse(v, 403, STR("forbidden: requests of web pages are not served"));
    else if (!route_takes(v->route, v->head->method))
        visit_refuse(v, 405, STR("method not allowed"));
    c->proven |= v->api->token && access == ACCESS_GOOD;
    return v->state == VISIT_HEAD;
}

static size_t max_body(const struct visit *v)
{
    size_t most = (size_t)v->api->host.set->max_body_bytes, own = v->route->max_body;
    return own && own < most ? own : most;
}

static void refuse_size(struct visit *v)
{
    visit_refuse(v, 413, arena_printf(&v->mem, "body exceeds limit of %zu bytes", max_body(v)));
}

static void ask_for_body(struct visit *v)
{
    struct http_head *h = arena_zero(&v->mem, sizeof *h);
    h->status = 100;
    h->length = -1;
    v->stream->ops->head(v->stream, h, false);
}

static void take_early(struct visit *v);

void visit_go_on(struct visit *v)
{
    if (!v->bodyless && v->head->length > (int64_t)max_body(v)) {
        refuse_size(v);
        return;
    }
    v->state = VISIT_BODY;
    if (v->bodyless) {
        v->route->serve(v);
        return;
    }
    timer_set(v->api->w, &v->timer, settings_ms(v->api->host.set->api_body_timeout));
    if (v->head->expect_continue)
        ask_for_body(v);
    take_early(v);
}

void visit_pause(struct visit *v, void (*tick)(struct visit *v))
{
    v->state = VISIT_READY;
    v->tick = tick;
    timer_set(v->api->w, &v->timer, TICK_MS);
}

static void serve_open(struct visit *v)
{
    if (route_takes(v->route, v->head->method))
        v->route->serve(v);
    else
        visit_refuse(v, 405, STR("method not allowed"));
}

static void on_head(void *user, struct http_head *head, bool end)
{
    struct visit *v = user;
    struct str query, path = path_without_query(head->path, &query);
    if (v->state != VISIT_HEAD)
        return; /* too late: the 408 is on its way */
    v->head = head;
    v->route = route_find(v, path);
    v->bodyless = end || str_eq(head->method, STR("GET"));
    if (v->route && v->route->open)
        serve_open(v);
    else if (may_enter(v) && (!v->route->admit || v->route->admit(v)))
        visit_go_on(v);
}

/* ---- the body */

/* Grows by a copy, so that the old bytes can be wiped: it may hold secrets. */
static bool make_room(struct visit *v, size_t more)
{
    size_t need = v->n + more, room = v->room ? v->room : 1024;
    while (room < need)
        room *= 2;
    if (v->api->bodies - v->room + room > (size_t)v->api->host.set->max_bodies_bytes)
        return false;
    v->api->bodies += room - v->room;
    v->room = room;
    char *grown = mem_new(room);
    if (v->n)
        memcpy(grown, v->body, v->n);
    mem_free_wiped(v->body);
    v->body = grown;
    return true;
}

static void keep(struct visit *v, struct buf *b)
{
    if (v->n + b->len > max_body(v)) {
        refuse_size(v);
        return;
    }
    if (v->n + b->len > v->room && !make_room(v, b->len)) {
        visit_refuse(v, 503, STR("too many request bodies at once; try again"));
        return;
    }
    buf_peek(b, v->body + v->n, b->len);
    v->n += b->len;
}

static void take(struct visit *v, struct buf *b)
{
    size_t n = b->len;
    if (v->state == VISIT_BODY)
        keep(v, b);
    if (v->state == VISIT_ANSWERED)
        visit_drop_body(v);
    buf_clear(b);
    v->stream->ops->credit(v->stream, n);
}

static void on_data(void *user, struct buf *b)
{
    struct visit *v = user;
    if (v->state == VISIT_READY)
        buf_move_all(&v->early, b);
    else
        take(v, b);
}

static void on_end(void *user, struct http_head *trailers)
{
    struct visit *v = user;
    (void)trailers;
    v->early_end = v->state == VISIT_READY;
    if (v->state == VISIT_BODY)
        v->route->serve(v);
}

static void take_early(struct visit *v)
{
    if (v->early.len)
        take(v, &v->early);
    if (v->early_end && v->state == VISIT_BODY)
        v->route->serve(v);
}

static void on_sent(void *user, size_t n)
{
    (void)user;
    (void)n;
}

static void on_fault(void *user, const struct http_fault *fault)
{
    struct visit *v = user;
    if (v->state == VISIT_BODY || v->state == VISIT_READY)
        visit_refuse(v, fault->status,
                     arena_cat(&v->mem, STR("failed to read body: "), str_of(fault->text)));
    else if (v->state == VISIT_HEAD)
        visit_refuse(v, fault->status, str_of(fault->text));
}

static void on_closed(void *user, enum why why)
{
    struct visit *v = user;
    (void)why;
    v->stream = NULL;
    if (v->client)
        v->client->visit = NULL;
    v->client = NULL;
    if (v->state != VISIT_CHANGE)
        visit_free(v);
}

static const struct http_events visit_events = {on_head, on_data,  on_end,
                                                on_sent, on_fault, on_closed};

static void on_timer(struct timer *t)
{
    struct visit *v = container_of(t, struct visit, timer);
    if (v->state == VISIT_SLOW) {
        visit_refuse(v, 401, STR("unauthorized"));
        return;
    }
    if (v->state == VISIT_READY) {
        timer_set(v->api->w, t, TICK_MS);
        v->tick(v);
        return;
    }
    if (v->state != VISIT_ANSWERED) {
        visit_refuse(v, 408, STR("request not complete in time"));
        return;
    }
    struct http_stream *s = v->stream;
    v->stream = NULL;
    s->ops->cancel(s, WHY_DEADLINE);
    visit_free(v);
}

/* ---- its beginning */

void visit_new(struct api_client *c, struct http_stream *stream)
{
    struct visit *v = mem_new(sizeof *v);
    v->api = c->api;
    v->client = c;
    v->stream = stream;
    v->before.rules = NULL;
    c->visit = v;
    c->api->nvisits++;
    arena_init_private(&v->mem, v->first, sizeof v->first);
    buf_init(&v->early, worker_pool(c->api->w));
    timer_init(&v->timer, on_timer);
    timer_set(c->api->w, &v->timer, settings_ms(c->api->host.set->api_head_timeout));
    stream->ev = &visit_events;
    stream->user = v;
    stream->mem = &v->mem;
}
