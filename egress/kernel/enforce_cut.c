/* enforce_cut.c — flows: which lost their permission, which are in use.  They are judged by the
 * same function as everything else (policies/packet.h), with what is learned as it was when the
 * queue came to it; nothing is learned meanwhile, so no flow is judged that is younger than that.
 */
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>

#include "base/log.h"
#include "egress/kernel/enforce_impl.h"

enum { IN_USE_MAX = 65536, RECUT_MS = 1000 };

static struct packet packet_of(const struct flow *f, unsigned kinds)
{
    struct packet k = {.to = f->dst, .learned = books_learned(kinds)};
    k.bound = kinds & SETS_BOUND;
    k.proto = f->protocol == IPPROTO_TCP   ? PACKET_TCP
              : f->protocol == IPPROTO_UDP ? PACKET_UDP
                                           : PACKET_ICMP;
    k.port = k.proto == PACKET_ICMP ? 0 : f->dst_port;
    return k;
}

static bool is_to_parent(const struct enforce *e, const struct flow *f, unsigned kinds)
{
    return kinds & SETS_PARENT && f->protocol == IPPROTO_TCP && f->dst_port == e->rules.parent_port;
}

static bool keep(void *user, const struct flow *f)
{
    const struct errand *o = user;
    unsigned kinds = books_kinds(o->learned_now, o->nlearned_now, &f->dst);
    struct packet k = packet_of(f, kinds);
    if (is_to_parent(o->e, f, kinds))
        return false;
    return packet_judge(o->view->policy, &o->e->packets, &k).verdict == PACKET_ACCEPT;
}

static void work(void *user)
{
    struct errand *o = user;
    struct enforce *e = o->e;
    pthread_mutex_lock(&e->lock);
    o->error = e->ended ? -ECANCELED : flows_cut(e->pool.flows, keep, o, &o->ended);
    pthread_mutex_unlock(&e->lock);
}

static void note(struct errand *o)
{
    struct enforce *e = o->e;
    e->counts.cut += o->ended;
    e->counts.cut_failed += o->error != 0;
    e->flows_judged |= o->error == 0;
    e->recut = o->error != 0;
    e->cut_owed |= e->recut;
    if (e->recut)
        timer_set(e->w, &e->tick, RECUT_MS);
    if (o->error)
        log_note_rarely(LOG_WARN, "flows could not be looked through", "error",
                        strerrordesc_np(-o->error), NULL);
}

static void on_back(void *user)
{
    struct errand *o = user;
    struct enforce *e = o->e;
    if (!errand_returned(o))
        return;
    e->running = true;
    note(o);
    if (o->after)
        o->after(o->arg);
    errand_back(o);
}

void cut_start(struct errand *o)
{
    struct enforce *e = o->e;
    if (!enforce_applies(e) || !e->pool.flows || !e->cut_owed) {
        if (o->after)
            o->after(o->arg);
        errand_free(o);
        return;
    }
    e->cut_owed = e->ahead; /* then this view is not the last word */
    o->view = view_ref(e->view);
    o->nlearned_now = books_copy(e->books, worker_now(e->w), e->view->policy, &o->learned_now);
    e->under_way = o;
    enforce_job(e);
    worker_call(e->w, work, on_back, o);
}

/* ---- in use */

struct use {
    struct enforce *e;
    void (*done)(void *arg, bool readable, const struct ip *list, size_t n);
    void *arg;
    struct ip *list;
    size_t n, room;
    bool full;
    int error;
};

static int by_ip(const void *a, const void *b)
{
    return memcmp(a, b, sizeof(struct ip));
}

static void drop_doubles(struct use *u)
{
    size_t n = 0;
    if (u->n > 1)
        qsort(u->list, u->n, sizeof *u->list, by_ip);
    for (size_t i = 0; i < u->n; i++) {
        if (n == 0 || !ip_eq(&u->list[n - 1], &u->list[i]))
            u->list[n++] = u->list[i];
    }
    u->n = n;
}

/* Many flows to one address leave room for others; sorting often is not worth it. */
static void make_room(struct use *u)
{
    if (u->room == IN_USE_MAX) {
        drop_doubles(u);
        u->full = u->n > IN_USE_MAX / 2;
        return;
    }
    u->room = u->room ? 2 * u->room : 64;
    u->list = mem_renew(u->list, u->room * sizeof *u->list);
}

static void add(void *user, const struct flow *f)
{
    struct use *u = user;
    if (u->n == u->room && !u->full)
        make_room(u);
    if (u->n < u->room)
        u->list[u->n++] = f->dst;
}

static void read_use(void *user)
{
    struct use *u = user;
    struct enforce *e = u->e;
    pthread_mutex_lock(&e->lock);
    u->error = e->ended ? -ECANCELED : flows_in_use(e->pool.flows, add, u);
    pthread_mutex_unlock(&e->lock);
    drop_doubles(u);
}

static void on_use(void *user)
{
    struct use *u = user;
    if (!enforce_job_over(u->e))
        u->done(u->arg, u->error == 0, u->list, u->n);
    mem_free(u->list);
    mem_free(u);
}

void enforce_in_use(void *enforce,
                    void (*done)(void *arg, bool readable, const struct ip *list, size_t n),
                    void *arg)
{
    struct enforce *e = enforce;
    if (!e->pool.flows) {
        done(arg, false, NULL, 0);
        return;
    }
    struct use *u = mem_new(sizeof *u);
    *u = (struct use){.e = e, .done = done, .arg = arg};
    enforce_job(e);
    worker_call(e->w, read_use, on_use, u);
}
