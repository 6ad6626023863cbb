/* splice.c — bulk through a kernel pipe.  The near socket's readability comes as for any read, the
 * far one's writability as the end of a write in flight: libuv allows one watcher for a descriptor,
 * and conn has it (U18).  So when the far socket is full, a small piece leaves the pipe as an
 * ordinary write, and its callback is the signal to go on. */
#include "net/splice.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "net/conn_impl.h"
#include "net/pipes.h"
#include "net/splice_impl.h"

enum {
    TURN_BYTES = 1024 * 1024, /* of one splice in one go: others want their turn */
    DRIP_BYTES = 8192,        /* less than this in one go is cheaper by recv() and send() */
    PIECE_BYTES = 4096
};

struct splice {
    struct conn *from, *to; /* NULL: abandoned */
    struct worker *w;
    struct pipe_pair *pipe; /* while there are bytes in it */
    const struct splice_events *ev;
    void *user;
    int64_t left, moved; /* left: -1 until EOF */
    size_t in_pipe;
    size_t untold; /* moved, not reported */
    bool eof, full, lost;
    bool over; /* no pipe, or no bulk any more */
};

/* ---- life */

static void detach(struct splice *s)
{
    struct conn *from = s->from, *to = s->to;
    s->from = s->to = NULL;
    if (from)
        from->source = NULL;
    if (to)
        to->sink = NULL;
}

static void release_pipe(struct splice *s)
{
    if (s->pipe)
        pipes_put(s->w, s->pipe, s->in_pipe == 0);
    s->pipe = NULL;
}

static void retire(struct splice *s)
{
    release_pipe(s);
    if (--s->w->nsplices == 0)
        pipes_free(s->w); /* an idle worker keeps none */
    worker_bury(s->w, mem_free, s);
}

/* What was read already goes out by the ordinary way, before the pipe is asked. */
static void take_untaken(struct splice *s)
{
    size_t n = s->from->in.len;
    if (s->left >= 0 && (int64_t)n > s->left)
        n = (size_t)s->left;
    buf_move(&s->to->out, &s->from->in, n);
    if (s->left >= 0)
        s->left -= (int64_t)n;
    s->moved += (int64_t)n;
    s->untold += n;
}

struct splice *splice_start(struct conn *from, struct conn *to, int64_t n,
                            const struct splice_events *ev, void *user)
{
    assert(!from->info.tls && !to->info.tls && from->w == to->w && !from->source && !to->sink);
    if (from->closing || to->closing)
        return NULL;
    struct splice *s = mem_new(sizeof *s);
    *s = (struct splice){.from = from, .to = to, .w = from->w, .ev = ev, .user = user, .left = n};
    from->source = s;
    to->sink = s;
    from->w->nsplices++;
    take_untaken(s);
    conn_wake(to);
    conn_read(from, true); /* it may have stopped, full of what was just taken */
    return s;
}

void splice_stop(struct splice *s)
{
    struct conn *from = s->from;
    detach(s);
    if (from && !from->closing)
        conn_read(from, true);
    retire(s);
}

void splice_abandon(struct splice *s)
{
    detach(s);
}

bool splice_full(const struct splice *s)
{
    return s->full;
}

/* ---- moving */

static void count(struct splice *s, size_t n)
{
    s->moved += (int64_t)n;
    s->untold += n;
}

/* Kernels, and sandboxes around them, that do not splice these sockets, or not now. */
static bool cannot_splice(int error)
{
    return error == EINVAL || error == ENOSYS || error == EPERM || error == EOPNOTSUPP ||
           error == ENOMEM;
}

/* Into the pipe; false: nothing came. */
static bool take(struct splice *s)
{
    if (s->left == 0 || s->eof || s->lost || s->over)
        return false;
    if (!s->pipe && !(s->pipe = pipes_get(s->w))) {
        s->over = true;
        return false;
    }
    size_t want = s->left >= 0 && s->left < PIPE_BYTES ? (size_t)s->left : PIPE_BYTES;
    ssize_t n =
        splice(s->from->fd, NULL, s->pipe->fd[1], NULL, want, SPLICE_F_MOVE | SPLICE_F_NONBLOCK);
    if (n > 0) {
        s->in_pipe += (size_t)n;
        s->left -= s->left > 0 ? n : 0;
        return true;
    }
    s->eof = n == 0;
    s->over |= n < 0 && cannot_splice(errno);
    s->lost = n < 0 && !s->over && errno != EAGAIN && errno != EINTR;
    return s->eof || s->lost;
}

/* The far socket takes nothing: a small piece becomes its write in flight, and wakes us. */
static void wait_writable(struct splice *s)
{
    size_t room;
    s->full = true;
    uint8_t *p = buf_reserve(s->w->pool, false, &room);
    if (room > PIECE_BYTES)
        room = PIECE_BYTES;
    ssize_t n = read(s->pipe->fd[0], p, room < s->in_pipe ? room : s->in_pipe);
    buf_commit(&s->to->out, n > 0 ? (size_t)n : 0);
    if (n <= 0) {
        conn_close(s->to, conn_gone(s->to));
        return;
    }
    s->in_pipe -= (size_t)n;
    count(s, (size_t)n);
    conn_fly(s->to);
}

/* Out of the pipe; false: nothing left, or the far side is lost or full. */
static bool give(struct splice *s)
{
    if (s->in_pipe == 0)
        return false;
    /* not SPLICE_F_MORE: what has come does not wait for what may come */
    ssize_t n = splice(s->pipe->fd[0], NULL, s->to->fd, NULL, s->in_pipe,
                       SPLICE_F_MOVE | SPLICE_F_NONBLOCK);
    if (n > 0) {
        s->in_pipe -= (size_t)n;
        count(s, (size_t)n);
        vanish_note(s->to);
        return true;
    }
    if (n < 0 && errno == EINTR)
        return true;
    if (n < 0 && (errno == EAGAIN || cannot_splice(errno)))
        wait_writable(s);
    else
        conn_close(s->to, conn_gone(s->to));
    return false;
}

/* Everything that can go now; false: there is more than one turn's share. */
static bool move(struct splice *s)
{
    int64_t start = s->moved;
    while (s->from && s->to && s->moved - start < TURN_BYTES) {
        bool took = take(s);
        bool gave = give(s);
        if (s->full || (!took && !gave))
            return true;
        if ((s->eof || s->lost) && s->in_pipe == 0)
            return true;
    }
    return !s->from || !s->to;
}

static bool complete(const struct splice *s)
{
    return s->in_pipe == 0 && !s->full && !s->lost && (s->left == 0 || s->eof || s->over);
}

static void finish(struct splice *s)
{
    struct conn *from = s->from, *to = s->to;
    detach(s);
    conn_read(from, true);
    conn_wake(to);
    s->ev->done(s->user, s->moved);
    retire(s);
}

static void step(struct splice *s, bool readable)
{
    int64_t before = s->moved;
    bool rest = !move(s);
    size_t n = s->untold;
    s->over |= readable && !rest && !s->full && s->moved - before < DRIP_BYTES;
    if (s->in_pipe == 0)
        release_pipe(s);
    s->untold = 0;
    if (n > 0)
        s->ev->moved(s->user, n);
    if (!s->from || !s->to)
        return; /* lost, or stopped by the user just now */
    if (complete(s))
        finish(s);
    else if (s->lost && s->in_pipe == 0)
        conn_close(s->from, conn_gone(s->from));
    else if (rest)
        conn_wake(s->to);
}

void splice_pump(struct splice *s, bool readable)
{
    s->full = s->to->flying;
    if (!s->full && s->to->out.len == 0) /* what was queued before goes first */
        step(s, readable);
    if (s->from)
        conn_update_reading(s->from);
}
