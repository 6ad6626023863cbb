/* vanish.c — finds peers that vanished without a word while we had something for them.  Keep-alive
 * finds the silent ones, but not while bytes are unacknowledged; TCP_USER_TIMEOUT would also end a
 * reader that only pauses, since it counts a closed window as silence.  So connections that were
 * written to are looked at from time to time: unacknowledged bytes and no acknowledgement of
 * anything, probes included, for 90 s means gone (cases OPS-08). */
#include <netinet/tcp.h>
#include <sys/ioctl.h>

#include "net/conn_impl.h"
#include "net/splice_impl.h"

enum { LOOK_MS = 15000, QUIET_MS = 60000, GONE_MS = 90000, LOOKS = 256, STOPPED_MS = 1000 };

static enum why gone(const struct conn *c)
{
    return c->info.listener ? WHY_CLIENT_GONE : WHY_ORIGIN_GONE;
}

static bool vanished(struct conn *c, bool *ret_waiting)
{
    uv_os_fd_t fd;
    struct tcp_info i;
    socklen_t n = sizeof i;
    *ret_waiting = false;
    if (uv_fileno((uv_handle_t *)&c->tcp, &fd) < 0 ||
        getsockopt(fd, IPPROTO_TCP, TCP_INFO, &i, &n) < 0)
        return false;
    *ret_waiting = i.tcpi_unacked > 0 || c->flying;
    return *ret_waiting && i.tcpi_last_ack_recv >= GONE_MS;
}

static void look(struct worker *w, struct conn *c)
{
    bool waiting;
    list_del(&c->written);
    if (vanished(c, &waiting)) {
        conn_close(c, gone(c));
        return;
    }
    if (waiting) {
        c->last_write_ms = worker_now(w); /* looked at again after another quiet time */
        list_push(&w->written, &c->written);
    }
}

static void on_sweep(struct timer *t)
{
    struct worker *w = container_of(t, struct worker, sweep);
    uint64_t now = worker_now(w);
    int looks = 0;
    list_each(l, &w->written)
    {
        struct conn *c = container_of(l, struct conn, written);
        if (now - c->last_write_ms < QUIET_MS || looks++ == LOOKS)
            break;
        look(w, c);
    }
    if (!list_empty(&w->written))
        timer_set(w, &w->sweep, looks > LOOKS ? WHEEL_SLOT_MS : LOOK_MS);
}

void vanish_note(struct conn *c)
{
    struct worker *w = c->w;
    c->last_write_ms = worker_now(w);
    list_del(&c->written);
    list_push(&w->written, &c->written);
    if (timer_is_set(&w->sweep))
        return;
    timer_init(&w->sweep, on_sweep);
    timer_set(w, &w->sweep, LOOK_MS);
}

void vanish_forget(struct conn *c)
{
    list_del(&c->written);
    list_del(&c->stopped);
}

static bool was_reset(struct conn *c)
{
    uv_os_fd_t fd;
    struct tcp_info i;
    socklen_t n = sizeof i;
    return uv_fileno((uv_handle_t *)&c->tcp, &fd) == 0 &&
           getsockopt(fd, IPPROTO_TCP, TCP_INFO, &i, &n) == 0 && i.tcpi_state == TCP_CLOSE;
}

/* An origin that has said all and was reset behind it, with a client that takes its time: what lies
 * here is still the answer, and the reset is read after it. */
static bool has_more(const struct conn *c)
{
    int unread = 0;
    if (c->info.listener)
        return false;
    return c->in.len > 0 || (c->source && splice_full(c->source)) ||
           (ioctl(c->fd, FIONREAD, &unread) == 0 && unread > 0);
}

static void on_look(struct timer *t)
{
    struct worker *w = container_of(t, struct worker, look);
    list_each(l, &w->stopped)
    {
        struct conn *c = container_of(l, struct conn, stopped);
        if (was_reset(c) && !has_more(c))
            conn_close(c, gone(c));
    }
    if (!list_empty(&w->stopped))
        timer_set(w, t, STOPPED_MS);
}

void vanish_stopped(struct conn *c, bool stopped)
{
    struct worker *w = c->w;
    list_del(&c->stopped);
    if (!stopped)
        return;
    list_push(&w->stopped, &c->stopped);
    if (timer_is_set(&w->look))
        return;
    timer_init(&w->look, on_look);
    timer_set(w, &w->look, STOPPED_MS);
}
