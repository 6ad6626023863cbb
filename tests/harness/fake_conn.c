/* fake_conn.c — conn.h for codec tests and fuzz targets.  It keeps the shape of conn.c (dirty list,
 * offer, fill, one write in flight), so that a codec that is right here is right there; in place of
 * the kernel there are two texts, one to be read and one that was written.  Beyond that it asserts
 * what a codec must not do: take bytes from the middle, act on a dead pointer, nest events. */
#include "harness/fake_conn.h"

#include <assert.h>

#include "net/worker_impl.h"

enum { FILL_BYTES = 65536, ROUNDS = 4, SETTLE_TURNS = 100000, FILL_SLACK = 4 << 20 };

struct text {
    char *p;
    size_t n, room;
};

struct conn {
    struct list dirty; /* in worker.dirty */
    struct list all;   /* in net.conns */
    struct worker *w;
    const struct conn_events *ev;
    void *user;
    struct conn_info info;
    union addr peer;

    struct text wire; /* sent by the peer, not read */
    size_t wire_at;
    bool wire_eof, wire_error;
    struct text written;
    size_t room; /* the kernel's, for output */
    size_t lost;

    struct buf in, out;
    struct buf gap; /* keeps reads apart, see read_some() */
    enum why why;
    enum fake_end end;
    bool closing, told, attached, reading, paused, offer, eof, eof_told, finishing, flying, bulk,
        in_event, secured, shaking, untaken;

    void (*on_end)(void *user, enum fake_end end, enum why why);
    void *watcher;
};

/* All fake conns of a worker. */
struct net {
    struct list conns;
};

/* The time of all workers of the program; tests are single-threaded. */
static uint64_t clock_ms = 1000000;

uint64_t __wrap_uv_now(const uv_loop_t *loop);
uint64_t __wrap_uv_now(const uv_loop_t *loop)
{
    (void)loop;
    return clock_ms;
}

static void text_add(struct text *t, const void *p, size_t n)
{
    if (t->n + n > t->room) {
        t->room = 2 * (t->n + n);
        t->p = mem_renew(t->p, t->room);
    }
    if (n > 0)
        memcpy(t->p + t->n, p, n);
    t->n += n;
}

static struct net *net_of(struct worker *w)
{
    struct net *net = worker_get(w, SLOT_NET);
    if (!net) {
        net = mem_new(sizeof *net);
        list_init(&net->conns);
        worker_set(w, SLOT_NET, net);
    }
    return net;
}

struct conn *fake_new(struct worker *w, bool accepted)
{
    struct conn *c = mem_new(sizeof *c);
    c->w = w;
    list_init(&c->dirty);
    list_init(&c->all);
    list_push(&net_of(w)->conns, &c->all);
    buf_init(&c->in, worker_pool(w));
    buf_init(&c->out, worker_pool(w));
    buf_init(&c->gap, worker_pool(w));
    c->room = SIZE_MAX;
    c->peer.sa.sa_family = AF_INET;
    c->info.peer = &c->peer.sa;
    c->info.listener = accepted ? 80 : 0;
    return c;
}

void fake_free(struct conn *c)
{
    struct worker *w = c->w;
    struct net *net = net_of(w);
    assert(c->told || !c->attached);
    list_del(&c->all);
    list_del(&c->dirty);
    buf_clear(&c->in);
    buf_clear(&c->out);
    buf_clear(&c->gap);
    mem_free(c->wire.p);
    mem_free(c->written.p);
    mem_free(c);
    if (list_empty(&net->conns)) {
        worker_set(w, SLOT_NET, NULL);
        mem_free(net);
    }
}

static void set_end(struct conn *c, enum fake_end end, enum why why)
{
    c->end = end;
    if (c->on_end)
        c->on_end(c->watcher, end, why);
}

void fake_watch(struct conn *c, void (*on_end)(void *user, enum fake_end end, enum why why),
                void *user)
{
    c->on_end = on_end;
    c->watcher = user;
}

static void mark(struct conn *c)
{
    assert(!c->told);
    if (!c->closing && list_empty(&c->dirty))
        list_push(&c->w->dirty, &c->dirty);
}

static void begin_closing(struct conn *c, enum fake_end end, enum why why)
{
    assert(!c->told);
    if (c->closing)
        return;
    c->closing = true;
    c->reading = false;
    c->why = why;
    c->lost = c->out.len;
    list_del(&c->dirty);
    set_end(c, end, why);
}

static enum why gone(const struct conn *c)
{
    if (c->info.fault.n > 0)
        return WHY_TLS;
    return c->info.listener ? WHY_CLIENT_GONE : WHY_ORIGIN_GONE;
}

static void update_reading(struct conn *c)
{
    size_t bound = c->bulk ? CHUNK_BULK_BYTES : CHUNK_BYTES;
    c->reading = c->attached && !c->closing && !c->paused && !c->eof && c->in.len < bound;
}

static void enter(struct conn *c)
{
    assert(!c->in_event && !c->closing && !c->told);
    c->in_event = true;
}

static void offer(struct conn *c)
{
    if (c->shaking)
        return; /* cipher text, so to speak */
    c->offer = false;
    if (c->in.len > 0 && !c->paused) {
        size_t before = c->in.len;
        c->untaken = false;
        enter(c);
        if (c->ev->bytes)
            c->ev->bytes(c->user, &c->in);
        c->in_event = false;
        assert(c->untaken || c->in.len <= before);
    }
    if (c->closing)
        return;
    if (c->eof && !c->eof_told && c->in.len == 0) {
        c->eof_told = true;
        enter(c);
        if (c->ev->eof)
            c->ev->eof(c->user);
        c->in_event = false;
    }
    update_reading(c);
}

/* One read.  A byte of nobody's is left between two reads, so that they do not become one slice by
 * lying side by side. */
static void read_some(struct conn *c)
{
    size_t n = c->wire.n - c->wire_at, room;
    uint8_t *p = buf_reserve(worker_pool(c->w), c->bulk, &room);
    if (n > room)
        n = room;
    memcpy(p, c->wire.p + c->wire_at, n);
    buf_commit(&c->in, n);
    c->wire_at += n;
    buf_clear(&c->gap);
    buf_write(&c->gap, "|", 1);
    offer(c);
}

static bool read_end(struct conn *c)
{
    if (c->wire_error) {
        begin_closing(c, FAKE_CLOSED, gone(c));
        return true;
    }
    if (!c->wire_eof || c->eof)
        return false;
    c->eof = true;
    offer(c);
    return true;
}

/* What epoll would bring.  True: something came. */
static bool poll_conn(struct conn *c)
{
    bool any = false;
    while (c->reading) {
        if (c->wire_error || c->wire_at == c->wire.n)
            return read_end(c) || any;
        read_some(c);
        any = true;
    }
    return any;
}

void fake_feed(struct conn *c, const void *p, size_t n)
{
    assert(!c->wire_eof);
    text_add(&c->wire, p, n);
    if (!c->closing)
        poll_conn(c);
}

void fake_feed_eof(struct conn *c)
{
    c->wire_eof = true;
    if (!c->closing)
        poll_conn(c);
}

void fake_feed_error(struct conn *c)
{
    c->wire_error = true;
    if (!c->closing)
        poll_conn(c);
}

/* ---- output */

/* Moves what fits; true: out is empty. */
static bool kernel_takes(struct conn *c)
{
    while (c->out.len > 0 && c->room > 0) {
        struct slice *s = c->out.head;
        size_t n = s->n < c->room ? s->n : c->room;
        text_add(&c->written, s->p, n);
        if (c->room != SIZE_MAX)
            c->room -= n;
        buf_drop(&c->out, n);
    }
    return c->out.len == 0;
}

void fake_room(struct conn *c, size_t n)
{
    c->room = n;
    if (c->closing || !c->flying || !kernel_takes(c))
        return;
    c->flying = false;
    mark(c);
}

static void send_fin(struct conn *c)
{
    if (!c->finishing || c->end != FAKE_UP)
        return;
    set_end(c, FAKE_FIN, WHY_OK);
}

static void shake(struct conn *c)
{
    c->shaking = false;
    c->offer = true;
    enter(c);
    if (c->ev->ready)
        c->ev->ready(c->user);
    c->in_event = false;
}

static void flush(struct conn *c)
{
    if (c->shaking)
        shake(c);
    if (c->closing)
        return;
    for (int round = 0; round < ROUNDS; round++) {
        if (c->offer)
            offer(c);
        if (c->closing || c->flying)
            return;
        enter(c);
        if (c->ev->fill)
            c->ev->fill(c->user, &c->out, FILL_BYTES);
        c->in_event = false;
        assert(c->out.len <= FILL_BYTES + FILL_SLACK);
        if (c->closing)
            return;
        if (c->out.len == 0) {
            send_fin(c);
            if (!c->offer)
                return;
            continue;
        }
        assert(c->end == FAKE_UP); /* nothing may follow FIN */
        if (c->wire_error) {       /* after a reset that nobody read a write fails */
            begin_closing(c, FAKE_CLOSED, gone(c));
            return;
        }
        if (!kernel_takes(c)) {
            c->flying = true;
            return;
        }
    }
    mark(c);
}

void conn_flush_all(struct worker *w)
{
    struct list now;
    for (int pass = 0; pass < ROUNDS && !list_empty(&w->dirty); pass++) {
        list_init(&now);
        for (struct list *l; (l = list_pop(&w->dirty));)
            list_push(&now, l);
        for (struct list *l; (l = list_pop(&now));)
            flush(container_of(l, struct conn, dirty));
    }
}

/* ---- the loop */

static bool tell_closed(struct conn *c)
{
    if (!c->closing || c->told)
        return false;
    c->told = true;
    buf_clear(&c->in);
    buf_clear(&c->out);
    buf_clear(&c->gap);
    if (c->attached && c->ev->closed)
        c->ev->closed(c->user, c->why);
    return true;
}

static bool turn(struct worker *w)
{
    struct net *net = worker_get(w, SLOT_NET);
    if (!net)
        return false;
    bool any = false;
    list_each(l, &net->conns)
    {
        struct conn *c = container_of(l, struct conn, all);
        if (!c->closing)
            any |= poll_conn(c);
    }
    any |= !list_empty(&w->dirty);
    worker_turn(w);
    list_each(l, &net->conns)
    {
        any |= tell_closed(container_of(l, struct conn, all));
    }
    return any;
}

void fake_settle(struct worker *w)
{
    int turns = 0;
    while (turn(w))
        assert(++turns < SETTLE_TURNS); /* a codec that asks for turns for ever would eat a core */
    worker_turn(w);                     /* the graves of the last turn */
}

void fake_time(struct worker *w, uint64_t ms)
{
    clock_ms += ms;
    wheel_turn(&w->wheel, clock_ms);
    fake_settle(w);
}

struct str fake_written(const struct conn *c)
{
    return (struct str){c->written.p ? c->written.p : "", c->written.n};
}

size_t fake_unread(const struct conn *c)
{
    return c->wire.n - c->wire_at;
}

enum fake_end fake_end(const struct conn *c)
{
    return c->end;
}

size_t fake_lost(const struct conn *c)
{
    return c->lost;
}

void fake_surplus(struct conn *c)
{
    c->info.surplus = true;
}

void fake_tls(struct conn *c, const char *alpn, const char *sni)
{
    c->info.tls = true;
    c->info.alpn = str_of(alpn);
    c->info.sni = str_of(sni);
}

void fake_fault(struct conn *c, const char *text)
{
    c->info.fault = str_of(text);
}

bool fake_secured(const struct conn *c)
{
    return c->secured;
}

/* ---- conn.h */

const struct conn_info *conn_info(const struct conn *c)
{
    assert(!c->told);
    return &c->info;
}

void conn_attach(struct conn *c, const struct conn_events *ev, void *user)
{
    c->ev = ev;
    c->user = user;
    c->attached = true;
    update_reading(c);
    if (c->in.len > 0 || (c->eof && !c->eof_told)) {
        c->offer = true;
        mark(c);
    }
}

void conn_read(struct conn *c, bool on)
{
    c->paused = !on;
    if (!on) {
        update_reading(c);
        return;
    }
    c->offer = true;
    mark(c);
}

void conn_secure(struct conn *c, struct tls_ctx *ctx, const struct tls_to *to)
{
    assert(!c->told && c->attached && ctx && !c->secured);
    (void)to;
    if (c->closing)
        return;
    c->info.tls = c->secured = c->shaking = true;
    mark(c);
}

void conn_set_peer(struct conn *c, const struct sockaddr *peer)
{
    assert(!c->told);
    memcpy(&c->peer, peer, addr_len(peer));
}

void conn_untake(struct conn *c, struct buf *b)
{
    assert(!c->told);
    buf_move_all(b, &c->in);
    buf_move_all(&c->in, b);
    c->eof_told = false;
    c->untaken = c->offer = true;
    update_reading(c);
    mark(c);
}

void conn_bulk(struct conn *c, bool on)
{
    assert(!c->told);
    c->bulk = on;
}

void conn_wake(struct conn *c)
{
    mark(c);
}

void conn_finish(struct conn *c)
{
    c->finishing = true;
    mark(c);
}

void conn_close(struct conn *c, enum why why)
{
    begin_closing(c, FAKE_CLOSED, why);
}

void conn_reset(struct conn *c, enum why why)
{
    begin_closing(c, FAKE_RESET, why);
}

size_t conn_unsent(const struct conn *c)
{
    assert(!c->told);
    return c->out.len;
}

size_t conn_untaken(const struct conn *c)
{
    assert(!c->told);
    return c->in.len;
}
