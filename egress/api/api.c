/* api.c — the API's listener: connections, routes, access, bodies, deadlines.  What a request is
 * about is decided elsewhere, once its whole body is here; so nobody waits for a slow client, and
 * the order of refusals is the order of the functions below. */
#include "egress/api/api_impl.h"

#include <assert.h>

#include "egress/api/access.h"
#include "http/path.h"
#include "net/listen.h"

enum { API_HEAD_BYTES = 32768, SLOW_MS = 200, LINGER_MS = 2000 };

struct api {
    struct worker *w;
    struct api_host host;
    struct secret *token; /* NULL: none */
    struct listener *listener;
    struct http_limits limits;
    struct list clients; /* oldest first */
    unsigned nclients;   /* without those that are closing */
    unsigned nvisits;
    size_t bodies; /* bytes */
    bool draining, stopping;
};

struct api_client {
    struct list link;
    struct api *api;
    struct conn *conn;
    struct session *session;
    struct visit *visit; /* the one there is, or NULL */
    bool proven;         /* has shown the token */
    bool local;          /* could be the sandbox */
    bool closing;
};

const struct api_host *visit_host(const struct visit *v)
{
    return &v->api->host;
}

struct str visit_body(const struct visit *v)
{
    return (struct str){v->body, v->n};
}

/* ---- the end of things */

static void free_when_over(struct api *api)
{
    if (!api->stopping || !list_empty(&api->clients) || api->nvisits > 0)
        return;
    secret_unref(api->token);
    worker_bury(api->w, mem_free, api);
}

static void drop_body(struct visit *v)
{
    v->api->bodies -= v->room;
    mem_free(v->body);
    v->body = NULL;
    v->n = v->room = 0;
}

static void visit_free(struct visit *v)
{
    struct api *api = v->api;
    timer_clear(api->w, &v->timer);
    drop_body(v);
    if (v->client)
        v->client->visit = NULL;
    api->nvisits--;
    arena_done(&v->mem);
    worker_bury(api->w, mem_free, v);
    free_when_over(api);
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
    head_add(h, STR("Content-Type"), str_of(type));
    head_add(h, STR("X-Content-Type-Options"), STR("nosniff"));
    head_add(h, STR("Cache-Control"), STR("no-store"));
    if (status == 405)
        head_add(h, STR("Allow"), str_of(v->route->methods));
    v->stream->ops->head(v->stream, h, bodyless);
}

void visit_answer(struct visit *v, int status, const char *type, struct str body)
{
    struct buf b;
    bool bodyless = v->head && str_eq(v->head->method, STR("HEAD"));
    if (!v->stream || v->state == VISIT_ANSWERED)
        return;
    v->state = VISIT_ANSWERED;
    timer_set(v->api->w, &v->timer, settings_ms(v->api->host.set->api_body_timeout));
    send_head(v, status, type, body.n, bodyless);
    if (bodyless)
        return;
    buf_init(&b, worker_pool(v->api->w));
    buf_str(&b, body);
    v->stream->ops->data(v->stream, &b);
    v->stream->ops->end(v->stream, NULL);
}

void visit_refuse(struct visit *v, int status, struct str text)
{
    visit_answer(v, status, "text/plain; charset=utf-8", arena_cat(&v->mem, text, STR("\n")));
}

void visit_json(struct visit *v, struct json_out *o)
{
    o->comma = false;
    json_put_raw(o, STR("\n"));
    visit_answer(v, 200, "application/json", (struct str){o->p, o->n});
    json_out_done(o);
}

/* ---- /healthz */

static void serve_health(struct visit *v)
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
        visit_answer(v, 200, "text/plain; charset=utf-8", STR("ok"));
}

/* ---- what comes before the body */

static const struct route routes[] = {
    {"/healthz", NULL, serve_health},
    {"/policy", "GET, POST, PUT, PATCH, DELETE", serve_policy},
    {"/policy/check", "POST", serve_check},
    {"/policy/log", "GET", serve_log},
};

static const struct route *find_route(struct str path)
{
    for (size_t i = 0; i < sizeof routes / sizeof *routes; i++)
        if (str_eq(path, str_of(routes[i].path)))
            return &routes[i];
    return NULL;
}

static bool has_method(const struct route *route, struct str method)
{
    struct str rest = str_of(route->methods);
    for (struct str one; str_next(&rest, ',', &one);)
        if (str_eq(str_trim(one), method))
            return true;
    return false;
}

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
    else if (!has_method(v->route, v->head->method))
        visit_refuse(v, 405, STR("method not allowed"));
    c->proven |= v->api->token && access == ACCESS_GOOD;
    return v->state == VISIT_HEAD;
}

static void refuse_size(struct visit *v)
{
    visit_refuse(v, 413,
                 arena_printf(&v->mem, "body exceeds limit of %lld bytes",
                              (long long)v->api->host.set->max_body_bytes));
}

static void ask_for_body(struct visit *v)
{
    struct http_head *h = arena_zero(&v->mem, sizeof *h);
    h->status = 100;
    h->length = -1;
    v->stream->ops->head(v->stream, h, false);
}

static void on_head(void *user, struct http_head *head, bool end)
{
    struct visit *v = user;
    struct str query, path = path_without_query(head->path, &query);
    if (v->state != VISIT_HEAD)
        return; /* too late: the 408 is on its way */
    v->head = head;
    v->route = find_route(path);
    if (v->route && !v->route->methods) {
        v->route->serve(v);
        return;
    }
    if (!may_enter(v))
        return;
    bool bodyless = end || str_eq(head->method, STR("GET"));
    if (!bodyless && head->length > v->api->host.set->max_body_bytes) {
        refuse_size(v);
        return;
    }
    v->state = VISIT_BODY;
    if (bodyless) {
        v->route->serve(v);
        return;
    }
    timer_set(v->api->w, &v->timer, settings_ms(v->api->host.set->api_body_timeout));
    if (head->expect_continue)
        ask_for_body(v);
}

/* ---- the body */

static bool make_room(struct visit *v, size_t more)
{
    size_t need = v->n + more, room = v->room ? v->room : 1024;
    while (room < need)
        room *= 2;
    if (v->api->bodies - v->room + room > (size_t)v->api->host.set->max_bodies_bytes)
        return false;
    v->api->bodies += room - v->room;
    v->room = room;
    v->body = mem_renew(v->body, room);
    return true;
}

static void keep(struct visit *v, struct buf *b)
{
    if (v->n + b->len > (size_t)v->api->host.set->max_body_bytes) {
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

static void on_data(void *user, struct buf *b)
{
    struct visit *v = user;
    size_t n = b->len;
    if (v->state == VISIT_BODY)
        keep(v, b);
    if (v->state == VISIT_ANSWERED)
        drop_body(v);
    buf_clear(b);
    v->stream->ops->credit(v->stream, n);
}

static void on_end(void *user, struct http_head *trailers)
{
    struct visit *v = user;
    (void)trailers;
    if (v->state == VISIT_BODY)
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
    if (v->state == VISIT_BODY)
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
    if (v->state != VISIT_ANSWERED) {
        visit_refuse(v, 408, STR("request not complete in time"));
        return;
    }
    struct http_stream *s = v->stream;
    v->stream = NULL;
    s->ops->cancel(s, WHY_DEADLINE);
    visit_free(v);
}

/* ---- connections */

static void on_visit(void *user, struct session *s, struct http_stream *stream)
{
    struct api_client *c = user;
    struct visit *v = mem_new(sizeof *v);
    (void)s;
    v->api = c->api;
    v->client = c;
    v->stream = stream;
    v->before.rules = NULL;
    c->visit = v;
    c->api->nvisits++;
    arena_init(&v->mem, v->first, sizeof v->first);
    timer_init(&v->timer, on_timer);
    timer_set(c->api->w, &v->timer, settings_ms(c->api->host.set->api_head_timeout));
    stream->ev = &visit_events;
    stream->user = v;
    stream->mem = &v->mem;
}

static void close_client(struct api_client *c, enum why why)
{
    if (c->closing)
        return;
    c->closing = true;
    c->api->nclients--;
    c->session->ops->close(c->session, why);
}

static void on_session_closed(void *user, struct session *s)
{
    struct api_client *c = user;
    struct api *api = c->api;
    (void)s;
    if (!c->closing)
        api->nclients--;
    if (c->visit)
        c->visit->client = NULL;
    list_del(&c->link);
    worker_bury(api->w, mem_free, c);
    free_when_over(api);
}

static const struct session_events session_events = {on_visit, NULL, NULL, on_session_closed};

static struct api_client *oldest_idler(struct api *api, bool local)
{
    list_each(l, &api->clients)
    {
        struct api_client *c = container_of(l, struct api_client, link);
        bool busy = c->visit && c->visit->state == VISIT_CHANGE;
        if (!c->proven && !c->closing && !busy && c->local == local)
            return c;
    }
    return NULL;
}

/* The sandbox can open as many connections as there may be, over and over: whoever has shown no
 * token makes room, and those from elsewhere, whose first request is long on its way, not to it. */
static struct api_client *find_idler(struct api *api, const struct api_client *newcomer)
{
    struct api_client *c = oldest_idler(api, true);
    return c || newcomer->local ? c : oldest_idler(api, false);
}

static bool is_local(const struct api *api, const struct conn *conn)
{
    struct ip peer;
    addr_ip(conn_info(conn)->peer, &peer);
    return api->host.is_local && api->host.is_local(&peer);
}

static void on_accept(void *user, struct conn *conn)
{
    struct api *api = user;
    bool full = api->nclients >= (unsigned)api->host.set->api_max_connections;
    struct api_client *c = mem_new(sizeof *c);
    c->api = api;
    c->conn = conn;
    c->local = is_local(api, conn);
    struct api_client *out = full ? find_idler(api, c) : NULL;
    list_init(&c->link);
    list_push(&api->clients, &c->link);
    api->nclients++;
    c->session = h1_start(api->w, conn, true, &api->limits, &session_events, c);
    if (full)
        close_client(out ? out : c, WHY_LIMIT);
}

struct api *api_start(struct worker *w, int fd, const struct api_host *host)
{
    struct api *api = mem_new(sizeof *api);
    const struct egress_settings *set = host->set;
    api->w = w;
    api->host = *host;
    api->token = set->token.n ? secret_new(set->token.p, set->token.n) : NULL;
    list_init(&api->clients);
    api->limits = (struct http_limits){.max_head_bytes = API_HEAD_BYTES,
                                       .window = 65536,
                                       .keep_alive_ms = settings_ms(set->api_idle_timeout),
                                       .linger_ms = LINGER_MS,
                                       .drain_idle_ms = 1};
    api->listener = listener_start(w, fd, NULL, on_accept, api);
    return api;
}

unsigned api_open(const struct api *api)
{
    return api->nclients + api->nvisits;
}

void api_drain(struct api *api)
{
    if (api->draining)
        return;
    api->draining = true;
    listener_stop(api->listener);
    list_each(l, &api->clients)
    {
        struct api_client *c = container_of(l, struct api_client, link);
        c->session->ops->drain(c->session);
    }
}

void api_stop(struct api *api)
{
    if (!api)
        return;
    api_drain(api);
    api->stopping = true;
    list_each(l, &api->clients) close_client(container_of(l, struct api_client, link), WHY_DRAIN);
    free_when_over(api);
}
