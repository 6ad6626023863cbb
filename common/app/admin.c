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
};

struct admin_client {
    struct list link;
    struct admin *ad;
    struct session *session;
};

/* One request.  It may end before what it asked the workers for has come; then it waits for that,
 * silent. */
struct visit {
    struct admin *ad;
    struct http_stream *stream; /* NULL: the client left */
    const struct http_head *head;
    const struct page *page;
    struct part *parts;
    bool collecting;
    struct timer timer;
    struct arena mem;
    char first[1024];
};

static void visit_free(struct visit *v)
{
    timer_clear(v->ad->w, &v->timer);
    pages_free_parts(v->parts, app_nworkers(v->ad->app));
    arena_done(&v->mem);
    worker_bury(v->ad->w, mem_free, v);
}

static void answer(struct visit *v, int status, const char *type, struct str body)
{
    struct buf b;
    bool bodyless = body.n == 0 || (v->head && str_eq(v->head->method, STR("HEAD")));
    struct http_head *h = arena_zero(&v->mem, sizeof *h);
    h->status = status;
    h->length = (int64_t)body.n;
    h->fields = arena_get(&v->mem, 3 * sizeof *h->fields);
    head_add(h, STR("Content-Type"), str_of(type));
    head_add(h, STR("Cache-Control"), STR("no-store"));
    if (status == 405)
        head_add(h, STR("Allow"), STR("GET, HEAD"));
    v->stream->ops->head(v->stream, h, bodyless);
    if (bodyless)
        return;
    buf_init(&b, worker_pool(v->ad->w));
    buf_str(&b, body);
    v->stream->ops->data(v->stream, &b);
    v->stream->ops->end(v->stream, NULL);
}

static void on_parts(void *user)
{
    struct visit *v = user;
    v->collecting = false;
    if (!v->stream) {
        visit_free(v);
        return;
    }
    struct str body = v->page->assemble(v->ad->app, v->parts, &v->mem);
    answer(v, 200, v->page->type, body);
}

static void serve(struct visit *v)
{
    struct str query, path = path_without_query(v->head->path, &query);
    v->page = page_find(path);
    if (!v->page) {
        answer(v, 404, "text/plain; charset=utf-8", STR("no such page\n"));
        return;
    }
    if (!str_eq(v->head->method, STR("GET")) && !str_eq(v->head->method, STR("HEAD"))) {
        answer(v, 405, "text/plain; charset=utf-8", STR("only GET and HEAD\n"));
        return;
    }
    if (!v->page->part) {
        int status = 200;
        struct str body = v->page->simple(v->ad->app, &status, &v->mem);
        answer(v, status, v->page->type, body);
        return;
    }
    v->parts = mem_new(app_nworkers(v->ad->app) * sizeof *v->parts);
    v->collecting = app_collect(v->ad->app, v->page->part, v->parts, sizeof *v->parts, on_parts, v);
    if (!v->collecting)
        answer(v, 503, "text/plain; charset=utf-8", STR("stopping\n"));
}

static void on_head(void *user, struct http_head *head, bool end)
{
    struct visit *v = user;
    (void)end;
    v->head = head;
    serve(v);
}

static void on_data(void *user, struct buf *b)
{
    struct visit *v = user;
    size_t n = b->len;
    buf_clear(b); /* no page takes a body */
    v->stream->ops->credit(v->stream, n);
}

static void on_end(void *user, struct http_head *trailers)
{
    (void)user;
    (void)trailers;
}

static void on_sent(void *user, size_t n)
{
    (void)user;
    (void)n;
}

static void on_fault(void *user, const struct http_fault *fault)
{
    struct visit *v = user;
    if (v->page || v->head)
        return; /* answered already; the connection ends with that */
    answer(v, fault->status, "text/plain; charset=utf-8",
           arena_cat(&v->mem, str_of(fault->text), STR("\n")));
}

static void on_closed(void *user, enum why why)
{
    struct visit *v = user;
    (void)why;
    v->stream = NULL;
    if (!v->collecting)
        visit_free(v);
}

static const struct http_events visit_events = {on_head, on_data,  on_end,
                                                on_sent, on_fault, on_closed};

static void on_deadline(struct timer *t)
{
    struct visit *v = container_of(t, struct visit, timer);
    struct http_stream *s = v->stream;
    if (!s)
        return;
    v->stream = NULL;
    s->ops->cancel(s, WHY_DEADLINE);
    if (!v->collecting)
        visit_free(v);
}

static void on_visit(void *user, struct session *s, struct http_stream *stream)
{
    struct admin_client *c = user;
    struct visit *v = mem_new(sizeof *v);
    (void)s;
    v->ad = c->ad;
    v->stream = stream;
    arena_init(&v->mem, v->first, sizeof v->first);
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
    worker_bury(ad->w, mem_free, ad);
}
