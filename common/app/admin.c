/* admin.c — the admin listener: a user of http_events like the proxy, on the main worker.  What
 * belongs to a serving worker is asked for on that worker's own loop and put together here. */
#include "app/admin.h"

#include <assert.h>

#include "app/pages.h"
#include "base/list.h"
#include "base/log.h"
#include "conf/sources.h"
#include "http/session.h"
#include "net/listen.h"
#include "net/worker.h"

enum { ADMIN_DEADLINE_MS = 10000, ADMIN_HEAD_BYTES = 16384, ADMIN_CONNECTIONS = 256 };

struct admin {
    struct app *app;
    struct worker *w;
    struct listener *listener;
    struct accept_gate gate;
    struct http_limits limits;
    struct list clients;
    unsigned nvisits;
    bool stopped; /* it goes with the last visit */
};

struct admin_client {
    struct list link;
    struct admin *ad;
    struct session *session;
};

/* Where a request is.  One that waits is there until what it waits for has come, silent if its
 * client has left by then; any other ends with its stream. */
enum visit_state {
    VISIT_HEAD,
    VISIT_BODY,    /* of a request to the product's API */
    VISIT_WAITING, /* for the workers' parts, or for the product's answer */
    VISIT_ANSWERED
};

struct admin_visit {
    struct admin *ad;
    struct http_stream *stream; /* NULL: the client left */
    const struct http_head *head;
    enum visit_state state;
    const struct page *page;
    struct part *parts;
    char *body; /* on the heap, wiped wherever it is given back */
    size_t body_bytes, room;
    struct timer timer;
    struct arena mem; /* private: heads hold tokens */
    char first[1024];
};

static void free_if_over(struct admin *ad)
{
    if (ad->stopped && ad->nvisits == 0)
        worker_bury(ad->w, mem_free, ad);
}

static void visit_free(struct admin_visit *v)
{
    struct admin *ad = v->ad;
    timer_clear(ad->w, &v->timer);
    pages_free_parts(v->parts, app_nworkers(ad->app));
    mem_free_wiped(v->body);
    arena_done(&v->mem);
    worker_bury(ad->w, mem_free, v);
    ad->nvisits--;
    free_if_over(ad);
}

/* ---- answers */

static void send_head(struct admin_visit *v, const struct admin_answer *a, bool bodyless)
{
    struct http_head *h = arena_zero(&v->mem, sizeof *h);
    h->status = a->status;
    h->length = a->type ? (int64_t)a->body.n : a->status == 304 ? -1 : 0;
    h->fields = arena_get(&v->mem, (2 + a->nfields) * sizeof *h->fields);
    if (a->type)
        head_add(h, STR("Content-Type"), str_of(a->type));
    head_add(h, STR("Cache-Control"), STR("no-store"));
    for (unsigned i = 0; i < a->nfields; i++)
        head_add(h, a->fields[i].name, a->fields[i].value);
    v->stream->ops->head(v->stream, h, bodyless);
}

static void say(struct admin_visit *v, const struct admin_answer *a)
{
    struct buf b;
    bool bodyless = !a->type || a->body.n == 0 || (v->head && str_eq(v->head->method, STR("HEAD")));
    v->state = VISIT_ANSWERED;
    send_head(v, a, bodyless);
    if (bodyless)
        return;
    buf_init(&b, worker_pool(v->ad->w));
    buf_str(&b, a->body);
    v->stream->ops->data(v->stream, &b);
    v->stream->ops->end(v->stream, NULL);
}

void admin_answer(struct admin_visit *v, const struct admin_answer *a)
{
    assert(v->state != VISIT_ANSWERED);
    if (v->stream)
        say(v, a);
    else
        visit_free(v);
}

static void send_page(struct admin_visit *v, int status, const char *type, struct str body)
{
    say(v, &(struct admin_answer){.status = status, .type = type, .body = body});
}

static const char plain[] = "text/plain; charset=utf-8";

static void refuse(struct admin_visit *v, int status, struct str line)
{
    struct admin_answer a = {
        .status = status, .type = plain, .body = arena_cat(&v->mem, line, STR("\n"))};
    if (status == 405)
        a.fields[a.nfields++] = (struct field){STR("Allow"), STR("GET, HEAD")};
    say(v, &a);
}

/* ---- pages */

static void on_parts(void *user)
{
    struct admin_visit *v = user;
    if (!v->stream) {
        visit_free(v);
        return;
    }
    send_page(v, 200, v->page->type, v->page->assemble(v->ad->app, v->parts, &v->mem));
}

static void ask_workers(struct admin_visit *v)
{
    v->parts = mem_new(app_nworkers(v->ad->app) * sizeof *v->parts);
    v->state = VISIT_WAITING;
    if (!app_collect(v->ad->app, v->page->part, v->parts, sizeof *v->parts, on_parts, v))
        refuse(v, 503, STR("stopping"));
}

static void serve_page(struct admin_visit *v)
{
    int status = 200;
    v->page = page_find(v->ad->app, admin_path(v));
    if (!v->page)
        refuse(v, 404, STR("no such page"));
    else if (!str_eq(v->head->method, STR("GET")) && !str_eq(v->head->method, STR("HEAD")))
        refuse(v, 405, STR("only GET and HEAD"));
    else if (v->page->part)
        ask_workers(v);
    else {
        struct str body = v->page->simple(v->ad->app, &status, &v->mem);
        send_page(v, status, v->page->type, body);
    }
}

/* ---- the product's API */

const struct http_head *admin_head(const struct admin_visit *v)
{
    return v->head;
}

struct str admin_path(const struct admin_visit *v)
{
    struct str query;
    return path_without_query(v->head->path, &query);
}

struct str admin_body(const struct admin_visit *v)
{
    return (struct str){v->body, v->body_bytes};
}

struct arena *admin_mem(struct admin_visit *v)
{
    return &v->mem;
}

static const struct admin_api *api_of(const struct admin_visit *v)
{
    return app_product_of(v->ad->app)->api;
}

static bool is_for_api(const struct admin_visit *v)
{
    const struct admin_api *api = api_of(v);
    struct str path = admin_path(v);
    if (!api || !str_starts(path, str_of(api->path)))
        return false;
    path = str_skip(path, strlen(api->path));
    return path.n == 0 || path.p[0] == '/';
}

static void serve_api(struct admin_visit *v)
{
    v->state = VISIT_WAITING;
    api_of(v)->serve(v->ad->app, v);
}

static void ask_for_body(struct admin_visit *v)
{
    struct http_head *h = arena_zero(&v->mem, sizeof *h);
    h->status = 100;
    h->length = -1;
    v->stream->ops->head(v->stream, h, false);
}

static void refuse_size(struct admin_visit *v)
{
    const struct admin_api *api = api_of(v);
    api->refuse(v->ad->app, v, 413,
                arena_printf(&v->mem, "the body is over %zu bytes", api->max_body_bytes));
}

static void enter_api(struct admin_visit *v, bool end)
{
    if (!api_of(v)->admit(v->ad->app, v))
        return;
    v->state = VISIT_BODY;
    if (end)
        serve_api(v);
    else if (v->head->length > (int64_t)api_of(v)->max_body_bytes)
        refuse_size(v);
    else if (v->head->expect_continue)
        ask_for_body(v);
}

static void keep(struct admin_visit *v, const struct buf *b)
{
    size_t n = v->body_bytes + b->len, most = api_of(v)->max_body_bytes;
    if (n > most) {
        refuse_size(v);
        return;
    }
    if (n > v->room) {
        v->room = 2 * n < most ? 2 * n : most;
        v->body = mem_renew_wiped(v->body, v->room);
    }
    buf_peek(b, v->body + v->body_bytes, b->len);
    v->body_bytes = n;
}

/* ---- events of its stream */

static void on_head(void *user, struct http_head *head, bool end)
{
    struct admin_visit *v = user;
    v->head = head;
    if (is_for_api(v))
        enter_api(v, end);
    else
        serve_page(v);
}

static void on_data(void *user, struct buf *b)
{
    struct admin_visit *v = user;
    size_t n = b->len;
    if (v->state == VISIT_BODY)
        keep(v, b);
    buf_clear(b); /* no page takes a body */
    v->stream->ops->credit(v->stream, n);
}

static void on_end(void *user, struct http_head *trailers)
{
    struct admin_visit *v = user;
    (void)trailers;
    if (v->state == VISIT_BODY)
        serve_api(v);
}

static void on_sent(void *user, size_t n)
{
    (void)user;
    (void)n;
}

static void on_fault(void *user, const struct http_fault *fault)
{
    struct admin_visit *v = user;
    if (v->state == VISIT_BODY)
        api_of(v)->refuse(v->ad->app, v, fault->status, str_of(fault->text));
    else if (v->state == VISIT_HEAD)
        refuse(v, fault->status, str_of(fault->text));
    /* else the connection ends with the answer there is */
}

static void on_closed(void *user, enum why why)
{
    struct admin_visit *v = user;
    (void)why;
    v->stream = NULL;
    if (v->state != VISIT_WAITING)
        visit_free(v);
}

static const struct http_events visit_events = {on_head, on_data,  on_end,
                                                on_sent, on_fault, on_closed};

static void on_deadline(struct timer *t)
{
    struct admin_visit *v = container_of(t, struct admin_visit, timer);
    struct http_stream *s = v->stream;
    if (!s)
        return;
    v->stream = NULL;
    s->ops->cancel(s, WHY_DEADLINE);
    if (v->state != VISIT_WAITING)
        visit_free(v);
}

static void on_visit(void *user, struct session *s, struct http_stream *stream)
{
    struct admin_client *c = user;
    struct admin_visit *v = mem_new(sizeof *v);
    (void)s;
    v->ad = c->ad;
    v->ad->nvisits++;
    v->stream = stream;
    arena_init_private(&v->mem, v->first, sizeof v->first);
    timer_init(&v->timer, on_deadline);
    timer_set(c->ad->w, &v->timer, ADMIN_DEADLINE_MS);
    stream->ev = &visit_events;
    stream->user = v;
    stream->mem = &v->mem;
}

static void on_session_closed(void *user, struct session *s)
{
    struct admin_client *c = user;
    (void)s;
    list_del(&c->link);
    worker_bury(c->ad->w, mem_free, c);
}

static const struct session_events session_events = {on_visit, NULL, NULL, on_session_closed};

static void on_accept(void *user, struct conn *conn)
{
    struct admin *ad = user;
    struct admin_client *c = mem_new(sizeof *c);
    c->ad = ad;
    list_push(&ad->clients, &c->link);
    c->session = h1_start(ad->w, conn, true, &ad->limits, &session_events, c);
}

struct admin *admin_start(struct app *app, int fd)
{
    struct admin *ad = mem_new(sizeof *ad);
    ad->app = app;
    ad->w = app_main(app);
    list_init(&ad->clients);
    ad->limits = (struct http_limits){.max_head_bytes = ADMIN_HEAD_BYTES,
                                      .window = 65536,
                                      .keep_alive_ms = ADMIN_DEADLINE_MS,
                                      .linger_ms = 1000,
                                      .drain_idle_ms = 1};
    accept_gate_init(&ad->gate, ADMIN_CONNECTIONS, 0);
    ad->listener = listener_start(ad->w, fd, &ad->gate, on_accept, ad);
    return ad;
}

void admin_stop(struct admin *ad)
{
    if (!ad)
        return;
    listener_stop(ad->listener);
    list_each(l, &ad->clients)
    {
        struct admin_client *c = container_of(l, struct admin_client, link);
        c->session->ops->close(c->session, WHY_DRAIN);
    }
    for (int i = 0; i < 3 && !list_empty(&ad->clients); i++)
        worker_turn(ad->w);
    ad->stopped = true;
    free_if_over(ad);
}
