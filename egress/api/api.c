/* api.c — the API's listener and its connections: who has to make room when there are too many, and
 * how all of it ends.  A request is in visit.c. */
#include "egress/api/api.h"

#include "egress/api/api_impl.h"
#include "net/listen.h"

enum { API_HEAD_BYTES = 32768, LINGER_MS = 2000 };

void api_free_if_over(struct api *api)
{
    if (!api->stopping || !list_empty(&api->clients) || api->nvisits > 0)
        return;
    secret_unref(api->token);
    worker_bury(api->w, mem_free, api);
}

/* ---- connections */

static void on_visit(void *user, struct session *s, struct http_stream *stream)
{
    (void)s;
    visit_new(user, stream);
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
    api_free_if_over(api);
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

/* ---- life */

struct api *api_start(struct worker *w, int fd, const struct api_host *host)
{
    struct api *api = mem_new(sizeof *api);
    const struct egress_settings *set = host->set;
    api->w = w;
    api->host = *host;
    counter_add(&api->vault.epoch, worker_unix_ms(w));
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

const struct vault_counters *api_vault_counters(const struct api *api)
{
    return &api->vault;
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
    api_free_if_over(api);
}
