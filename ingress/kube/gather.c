/* gather.c — one block that doubles.  Each byte is looked at once for an end of line, in whatever
 * pieces it comes. */
#include "ingress/kube/gather.h"

enum { FIRST_ROOM = 32768, KEPT_ROOM = 1 << 20 };

void gather_add(struct gather *g, const struct buf *b)
{
    size_t room = g->room ? g->room : FIRST_ROOM;
    while (room < g->n + b->len)
        room *= 2;
    if (room != g->room)
        g->p = mem_renew_wiped(g->p, room);
    g->room = room;
    buf_peek(b, g->p + g->n, b->len);
    g->n += b->len;
}

struct str gather_text(const struct gather *g)
{
    return (struct str){g->p, g->n};
}

bool gather_line(struct gather *g, struct str *ret)
{
    const char *end = g->n > g->seen ? memchr(g->p + g->seen, '\n', g->n - g->seen) : NULL;
    if (!end) {
        g->seen = g->n;
        return false;
    }
    struct str line = {g->p + g->at, (size_t)(end - g->p) - g->at};
    if (line.n > 0 && line.p[line.n - 1] == '\r')
        line.n--;
    g->at = g->seen = (size_t)(end - g->p) + 1;
    *ret = line;
    return true;
}

size_t gather_settle(struct gather *g)
{
    size_t left = g->n - g->at;
    if (left == 0 && g->room > KEPT_ROOM) {
        gather_done(g);
        return 0;
    }
    if (g->at > 0)
        memmove(g->p, g->p + g->at, left);
    g->n = left;
    g->seen -= g->at;
    g->at = 0;
    return left;
}

void gather_clear(struct gather *g)
{
    g->n = g->at = g->seen = 0;
}

void gather_done(struct gather *g)
{
    mem_free_wiped(g->p);
    *g = (struct gather){0};
}
