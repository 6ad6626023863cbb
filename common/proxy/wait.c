/* wait.c — requests that wait for somebody to be asked (ACT_WAIT).  Those of one key stand in a
 * line; when the key is known the whole line leaves the map at once, so that who comes later is the
 * first again, and is decided anew some at a time: ten thousand that waited for one sandbox must
 * not stop the loop for the others.  Nobody is decided within proxy_resume(), which so may be
 * called from anywhere. */
#include <assert.h>

#include "base/map.h"
#include "proxy/exchange.h"

enum { SLICE = 128 }; /* so many in a turn of the loop */

struct wait_line {
    struct list link;    /* in waits.told, once the key is known */
    struct list waiting; /* waiters, the first to come first */
    bool known;
    void *told;
    void (*drop)(void *told);
    struct str key;
    char text[];
};

/* A post of its own, since it may come after the proxy. */
struct bell {
    struct post post;
    struct waits *waits; /* NULL: they are gone */
};

struct waits {
    struct proxy *p;
    struct map *lines; /* by key; none is empty, none is known */
    struct list told;
    struct bell *bell; /* NULL: none is on its way */
};

struct waits *waits_new(struct proxy *p)
{
    struct waits *s = mem_new(sizeof *s);
    s->p = p;
    s->lines = map_new();
    list_init(&s->told);
    return s;
}

static void line_free(struct wait_line *l)
{
    assert(list_empty(&l->waiting));
    list_del(&l->link);
    if (l->drop)
        l->drop(l->told);
    mem_free(l);
}

void waits_free(struct waits *s)
{
    assert(map_size(s->lines) == 0);
    for (struct list *l; (l = list_first(&s->told));)
        line_free(container_of(l, struct wait_line, link));
    if (s->bell)
        s->bell->waits = NULL;
    map_free(s->lines);
    mem_free(s);
}

/* ---- to wait */

static struct wait_line *line_new(struct waits *s, struct str key)
{
    struct wait_line *l = mem_new(sizeof *l + key.n);
    memcpy(l->text, key.p, key.n);
    l->key = (struct str){l->text, key.n};
    list_init(&l->link);
    list_init(&l->waiting);
    map_put(s->lines, l->key, l);
    return l;
}

static void stand(struct exchange *x, struct wait_line *l)
{
    x->waiter.line = l;
    list_push(&l->waiting, &x->waiter.link);
}

static void leave(struct exchange *x)
{
    struct wait_line *l = x->waiter.line;
    x->waiter.line = NULL;
    list_del(&x->waiter.link);
    if (l->known || !list_empty(&l->waiting))
        return; /* of a known one the bell sees to the rest */
    map_del(x->p->waits->lines, l->key);
    line_free(l);
}

void wait_begin(struct exchange *x)
{
    struct waits *s = x->p->waits;
    const struct gate *gate = x->p->rules.gate;
    assert(gate->wait && x->verdict.key.n > 0 && !x->waiter.line);
    if (x->facts.turn >= TURNS_MOST) {
        exchange_fail(x, WHY_OVERLOAD, NULL);
        return;
    }
    struct wait_line *l = map_get(s->lines, x->verdict.key);
    bool first = !l;
    stand(x, l ? l : line_new(s, x->verdict.key));
    x->facts.asked_ms = worker_now(x->p->w);
    exchange_enter(x, X_DECIDE);
    if (gate->wait(x->p->w, &x->facts, first, &x->mem, &x->verdict)) {
        exchange_park(x);
        return;
    }
    assert(x->verdict.act != ACT_WAIT);
    leave(x);
    exchange_judge(x);
}

void wait_end(struct exchange *x, enum why why)
{
    const struct gate *gate = x->p->rules.gate;
    if (!x->waiter.line)
        return;
    leave(x);
    x->t_decided = worker_now_us(x->p->w);
    if (!gate->waited)
        return;
    struct facts f = exchange_facts(x, x->facts.snap);
    gate->waited(x->p->w, &f, &x->verdict, why);
}

/* ---- to be told */

/* One fewer of the line that is served first.  False: there is none. */
static bool serve_one(struct waits *s)
{
    struct list *first = list_first(&s->told);
    if (!first)
        return false;
    struct wait_line *l = container_of(first, struct wait_line, link);
    struct list *waiter = list_first(&l->waiting);
    if (!waiter) {
        line_free(l);
        return true;
    }
    struct exchange *x = container_of(waiter, struct exchange, waiter.link);
    x->facts.told = l->told;
    wait_end(x, WHY_OK);
    exchange_decide(x, l->told);
    return true;
}

static void ring(struct waits *s);

static void on_bell(struct worker *w, struct post *post)
{
    struct bell *b = container_of(post, struct bell, post);
    struct waits *s = b->waits;
    (void)w;
    mem_free(b);
    if (!s)
        return;
    s->bell = NULL;
    for (int i = 0; i < SLICE; i++)
        if (!serve_one(s))
            return;
    ring(s);
}

static void ring(struct waits *s)
{
    if (s->bell)
        return;
    s->bell = mem_new(sizeof *s->bell);
    s->bell->waits = s;
    s->bell->post.run = on_bell;
    worker_post(s->p->w, &s->bell->post);
}

void proxy_resume(struct proxy *p, struct str key, void *told, void (*drop)(void *told))
{
    struct waits *s = p->waits;
    struct wait_line *l = map_del(s->lines, key);
    if (!l) {
        if (drop)
            drop(told);
        return;
    }
    l->known = true;
    l->told = told;
    l->drop = drop;
    list_push(&s->told, &l->link);
    ring(s);
}
