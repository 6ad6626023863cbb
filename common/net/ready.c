/* ready.c — one poll handle.  It lives until the loop has let go of it, which is after the user
 * has. */
#include "net/ready.h"

#include "net/worker_impl.h"

struct ready {
    uv_poll_t poll;
    void (*on)(void *user);
    void *user;
};

static void on_close(uv_handle_t *h)
{
    mem_free(h->data);
}

static void on_poll(uv_poll_t *p, int status, int events)
{
    (void)events;
    struct ready *r = p->data;
    r->on(r->user);
    /* An error of the socket, of which the user has read, makes libuv stop. */
    if (status < 0 && !uv_is_closing((uv_handle_t *)p))
        uv_poll_start(p, UV_READABLE, on_poll);
}

struct ready *ready_start(struct worker *w, int fd, void (*on)(void *user), void *user)
{
    struct ready *r = mem_new(sizeof *r);
    r->on = on;
    r->user = user;
    if (uv_poll_init(worker_loop(w), &r->poll, fd) != 0) {
        mem_free(r);
        return NULL;
    }
    r->poll.data = r;
    uv_poll_start(&r->poll, UV_READABLE, on_poll);
    return r;
}

void ready_stop(struct ready *r)
{
    if (!r)
        return;
    uv_poll_stop(&r->poll);
    uv_close((uv_handle_t *)&r->poll, on_close);
}
