/* pipes.c — the pool of pipes: making one costs three system calls and a table of pages, so what
 * comes back empty is kept until nobody splices any more. */
#include "net/pipes.h"

#include <fcntl.h>
#include <unistd.h>

#include "net/worker_impl.h"

struct pipe_pair *pipes_get(struct worker *w)
{
    struct pipe_pair *p = w->pipes;
    if (p) {
        w->pipes = p->next;
        return p;
    }
    if (w->npipes >= MAX_PIPES)
        return NULL;
    p = mem_new(sizeof *p);
    if (pipe2(p->fd, O_NONBLOCK | O_CLOEXEC) < 0) {
        mem_free(p);
        return NULL;
    }
    fcntl(p->fd[1], F_SETPIPE_SZ, PIPE_BYTES); /* refused: the usual 64 KiB will do */
    w->npipes++;
    return p;
}

static void pipe_close(struct worker *w, struct pipe_pair *p)
{
    close(p->fd[0]);
    close(p->fd[1]);
    mem_free(p);
    w->npipes--;
}

void pipes_put(struct worker *w, struct pipe_pair *p, bool empty)
{
    if (!empty) {
        pipe_close(w, p);
        return;
    }
    p->next = w->pipes;
    w->pipes = p;
}

void pipes_free(struct worker *w)
{
    for (struct pipe_pair *p = w->pipes, *next; p; p = next) {
        next = p->next;
        pipe_close(w, p);
    }
    w->pipes = NULL;
}
