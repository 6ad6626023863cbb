/* caller.c — the server that calls go to.  The end of a caller has to wait for its connections, of
 * which only the pool knows: it looks again with each turn, and that holds up the end of the
 * worker, too. */
#include <assert.h>

#include "net/tls.h"
#include "proxy/call_impl.h"

enum { HEAD_BYTES = 65536, WINDOW_BYTES = 256 * 1024, WINDOW_MAX_BYTES = 1024 * 1024 };
enum { MAX_RESETS = 1000, MAX_CONTROL = 1000 };

static const struct http_limits limits = {.max_head_bytes = HEAD_BYTES,
                                          .window = WINDOW_BYTES,
                                          .window_max = WINDOW_MAX_BYTES,
                                          .max_resets = MAX_RESETS,
                                          .max_control = MAX_CONTROL};

static struct str base_of(const struct url *u, struct arena *a)
{
    struct str path = url_target(u, a);
    ptrdiff_t query = str_chr(path, '?');
    if (query >= 0)
        path.n = (size_t)query;
    while (path.n > 0 && path.p[path.n - 1] == '/')
        path.n--;
    return path;
}

struct caller *caller_start(struct worker *w, const struct caller_rules *r)
{
    struct caller *c = mem_new(sizeof *c);
    unsigned idle_max = r->h2 && r->idle_max == 0 ? 1 : r->idle_max;
    const struct origin_rules rules = {&limits, r->idle_ms, idle_max, idle_max};
    assert(!r->url.tls || r->tls);
    arena_init(&c->mem, NULL, 0);
    c->w = w;
    c->tls = r->url.tls;
    c->authority = arena_str(&c->mem, r->url.authority);
    c->base = base_of(&r->url, &c->mem);
    c->connect_ms = r->connect_ms;
    c->allow = r->allow;
    c->user = r->user;
    c->want.pool = STR("server");
    c->want.need = !r->h2 ? ORIGIN_H1 : c->tls ? ORIGIN_ANY : ORIGIN_H2;
    c->want.to = (struct dial_to){.host = arena_str(&c->mem, r->url.host),
                                  .port = r->url.port,
                                  .names = r->names,
                                  .tls = c->tls ? tls_ctx_ref(r->tls) : NULL,
                                  .tls_name = arena_str(&c->mem, r->tls_name),
                                  .tls_h2 = c->tls && r->h2};
    c->origins = origins_new(w, &rules);
    list_init(&c->calls);
    return c;
}

struct worker *caller_worker(const struct caller *c)
{
    return c->w;
}

void caller_set_tls(struct caller *c, struct tls_ctx *tls)
{
    struct tls_ctx *old = c->want.to.tls;
    assert(c->tls);
    c->want.to.tls = tls_ctx_ref(tls);
    tls_ctx_unref(old);
    origin_renew(c->origins);
}

static void on_pool_thread(void *user)
{
    (void)user;
}

static void on_looked(void *user)
{
    struct caller *c = user;
    if (origin_open(c->origins) > 0) {
        worker_call(c->w, on_pool_thread, on_looked, c);
        return;
    }
    origins_free(c->origins);
    tls_ctx_unref(c->want.to.tls);
    arena_done(&c->mem);
    mem_free(c);
}

void caller_free(struct caller *c)
{
    if (!c)
        return;
    for (struct list *l; (l = list_first(&c->calls));)
        call_let_go(container_of(l, struct call, link), WHY_DRAIN);
    origin_drain(c->origins);
    origin_purge(c->origins, c->want.pool);
    worker_call(c->w, on_pool_thread, on_looked, c);
}
