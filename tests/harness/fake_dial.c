/* fake_dial.c — dials as rows of a list.  What dial.c does with names, addresses and sockets is
 * done by whoever drives the test; the order in which the caller hears of it is the same. */
#include "harness/fake_dial.h"

#include <stdlib.h>

#include "net/splice.h"

#include <arpa/inet.h>
#include <assert.h>
#include <errno.h>

#include "base/list.h"

struct dial {
    struct list link;
    struct worker *w;
    struct timer timer;
    int err;
    bool over;
    enum why (*allow)(void *user, const struct sockaddr *addr);
    void (*done)(void *user, struct conn *c, enum why why);
    void *user;
    uint16_t port;
    struct tls_ctx *tls;
    bool tls_h2;
    struct str fault;
    size_t host_n;
    char host[];
};

/* All dials of a worker; in SLOT_NAMES, which nobody else needs here. */
struct dials {
    struct list waiting;
    unsigned n;
};

static struct dials *dials_of(const struct worker *w)
{
    return worker_get(w, SLOT_NAMES);
}

static void forget(struct dial *d)
{
    struct dials *all = dials_of(d->w);
    assert(!d->over);
    d->over = true;
    timer_clear(d->w, &d->timer);
    list_del(&d->link);
    worker_bury(d->w, mem_free, d);
    if (--all->n > 0)
        return;
    worker_set(d->w, SLOT_NAMES, NULL);
    mem_free(all);
}

static void finish(struct dial *d, struct conn *c, enum why why)
{
    forget(d);
    d->done(d->user, c, why);
}

static void on_deadline(struct timer *t)
{
    fake_dial_fail(container_of(t, struct dial, timer), WHY_DEADLINE, ETIMEDOUT);
}

struct dial *dial_start(struct worker *w, const struct dial_to *to, uint64_t timeout_ms,
                        enum why (*allow)(void *user, const struct sockaddr *addr),
                        void (*done)(void *user, struct conn *c, enum why why), void *user)
{
    struct dials *all = dials_of(w);
    struct dial *d = mem_new(sizeof *d + to->host.n);
    if (!all) {
        all = mem_new(sizeof *all);
        list_init(&all->waiting);
        worker_set(w, SLOT_NAMES, all);
    }
    all->n++;
    d->w = w;
    d->allow = allow;
    d->done = done;
    d->user = user;
    d->port = to->port;
    d->tls = to->tls;
    d->tls_h2 = to->tls_h2;
    d->host_n = to->host.n;
    memcpy(d->host, to->host.p, to->host.n);
    list_init(&d->link);
    list_push(&all->waiting, &d->link);
    timer_init(&d->timer, on_deadline);
    timer_set(w, &d->timer, timeout_ms);
    return d;
}

void dial_cancel(struct dial *d)
{
    forget(d);
}

int dial_errno(const struct dial *d)
{
    return d->err;
}

struct str dial_fault(const struct dial *d)
{
    return d->fault;
}

unsigned fake_dials(const struct worker *w)
{
    const struct dials *all = dials_of(w);
    return all ? all->n : 0;
}

struct dial *fake_dial_first(const struct worker *w)
{
    struct dials *all = dials_of(w);
    return all ? container_of(list_first(&all->waiting), struct dial, link) : NULL;
}

struct str fake_dial_host(const struct dial *d)
{
    return (struct str){d->host, d->host_n};
}

bool fake_dial_offers(const struct dial *d, const char *alpn)
{
    return d->tls && (d->tls_h2 || strcmp(alpn, "h2") != 0);
}

struct conn *fake_dial_up(struct dial *d)
{
    return fake_dial_up_as(d, NULL);
}

struct conn *fake_dial_up_as(struct dial *d, const char *alpn)
{
    struct sockaddr_in to = {
        .sin_family = AF_INET, .sin_port = htons(d->port), .sin_addr.s_addr = htonl(0x0a000001)};
    enum why why = d->allow(d->user, (const struct sockaddr *)&to);
    if (why != WHY_OK) {
        finish(d, NULL, why);
        return NULL;
    }
    struct conn *c = fake_new(d->w, false);
    assert(!alpn || fake_dial_offers(d, alpn));
    if (d->tls)
        fake_tls(c, alpn, NULL);
    finish(d, c, WHY_OK);
    return c;
}

void fake_dial_says(struct dial *d, const char *fault)
{
    d->fault = str_of(fault);
}

void fake_dial_fail(struct dial *d, enum why why, int error)
{
    d->err = error;
    finish(d, NULL, why);
}

/* ---- listeners */

struct listener {
    struct worker *w;
    void (*accept)(void *user, struct conn *c);
    void *user;
    unsigned queued, ntaken;
    bool ebbing, stopped;
    struct conn *taken[16];
};

struct listener *fake_listener(struct worker *w, unsigned n,
                               void (*accept)(void *user, struct conn *c), void *user)
{
    struct listener *l = mem_new(sizeof *l);
    assert(n <= sizeof l->taken / sizeof *l->taken);
    l->w = w;
    l->queued = n;
    l->accept = accept;
    l->user = user;
    return l;
}

void listener_ebb(struct listener *l)
{
    assert(!l->ebbing && !l->stopped);
    l->ebbing = true;
}

void listener_stop(struct listener *l)
{
    assert(!l->stopped);
    l->stopped = true;
    for (; l->queued > 0; l->queued--) {
        struct conn *c = l->taken[l->ntaken++] = fake_new(l->w, true);
        l->accept(l->user, c);
    }
}

bool fake_listener_stopped(const struct listener *l)
{
    return l->stopped;
}

struct conn *fake_listener_taken(struct listener *l)
{
    return l->ntaken > 0 ? l->taken[--l->ntaken] : NULL;
}

void fake_listener_free(struct listener *l)
{
    mem_free(l);
}

/* ---- splice.h: fake connections have no descriptors, so bulk goes the ordinary way */

struct splice *splice_start(struct conn *from, struct conn *to, int64_t n,
                            const struct splice_events *ev, void *user)
{
    (void)from;
    (void)to;
    (void)n;
    (void)ev;
    (void)user;
    return NULL;
}

void splice_stop(struct splice *s)
{
    (void)s;
    abort();
}

bool splice_full(const struct splice *s)
{
    (void)s;
    abort();
}
