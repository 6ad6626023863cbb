/* asking.c — posts that carry a copy of what they say.  One per question and
 * not a queue: the proxy asks once for all that wait on a worker, so there are
 * few. */
#include "ingress/asking.h"

#include "app/app.h"
#include "net/worker.h"

/* ---- to the main worker */

struct question {
    struct post post;
    struct gateway *g;
    bool fast, drop;
    uint64_t generation; /* of a drop */
    struct want want;
    struct arena mem;
};

static void *self_of(const struct question *q, const struct resolver **ret)
{
    *ret = q->fast ? q->g->fast : q->g->resolver;
    return q->fast ? q->g->fasting : q->g->resolving;
}

static void on_question(struct worker *w, struct post *p)
{
    struct question *q = container_of(p, struct question, post);
    const struct resolver *r;
    void *self = self_of(q, &r);
    (void)w;
    if (self && q->drop)
        r->drop(self, q->want.key, q->generation);
    else if (self)
        r->want(self, &q->want);
    arena_done(&q->mem);
    mem_free(q);
}

static struct question *question_new(struct gateway *g, bool fast, const struct want *want)
{
    struct question *q = mem_new(sizeof *q);
    arena_init(&q->mem, NULL, 0);
    q->post.run = on_question;
    q->g = g;
    q->fast = fast;
    q->want = (struct want){.key = arena_str(&q->mem, want->key),
                            .ns = arena_str(&q->mem, want->ns),
                            .id = arena_str(&q->mem, want->id),
                            .port = want->port,
                            .request_id = arena_str(&q->mem, want->request_id)};
    return q;
}

void asking_want(struct gateway *g, bool fast, const struct want *want)
{
    worker_post(app_main(g->app), &question_new(g, fast, want)->post);
}

void asking_drop(struct gateway *g, bool fast, struct str key, uint64_t generation)
{
    struct question *q = question_new(g, fast, &(struct want){.key = key});
    q->drop = true;
    q->generation = generation;
    worker_post(app_main(g->app), &q->post);
}

/* ---- to the others */

struct tell {
    struct post post;
    struct str key;
    struct wake_end end;
    bool woken;
    struct arena mem;
};

static void drop(void *told)
{
    struct tell *t = container_of(told, struct tell, end);
    arena_done(&t->mem);
    mem_free(t);
}

static void on_tell(struct worker *w, struct post *p)
{
    struct tell *t = container_of(p, struct tell, post);
    struct proxy *proxy = proxy_of(w);
    if (proxy && t->woken) { /* from here on it is the line's */
        proxy_resume(proxy, t->key, &t->end, drop);
        return;
    }
    if (proxy)
        proxy_resume(proxy, t->key, NULL, NULL);
    drop(&t->end);
}

void asking_tell(struct gateway *g, struct str key, const struct wake_end *end)
{
    for (unsigned i = 0; i < app_nworkers(g->app); i++) {
        struct tell *t = mem_new(sizeof *t);
        arena_init(&t->mem, NULL, 0);
        t->post.run = on_tell;
        t->key = arena_str(&t->mem, key);
        t->woken = end != NULL;
        if (end)
            t->end = (struct wake_end){end->fault, arena_str(&t->mem, end->value), end->at_ms};
        worker_post(app_worker(g->app, i), &t->post);
    }
}
