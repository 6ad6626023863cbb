/* caller.c — notes of connections and how many there are.  The count goes down when the conn is
 * freed and not when it is judged, so that what the kernel still holds for us counts too. */
#include "egress/caller.h"

struct tally *tally_new(unsigned max)
{
    struct tally *t = mem_new(sizeof *t);
    t->max = max;
    return t;
}

static void settle(struct tally *t)
{
    if (t->over && t->open == 0)
        mem_free(t);
}

void tally_end(struct tally *t)
{
    t->over = true;
    settle(t);
}

struct caller *caller_new(enum caller_way way, struct tally *tally)
{
    if (tally && tally->open >= tally->max)
        return NULL;
    struct caller *p = mem_new(sizeof *p);
    p->way = way;
    p->tally = tally;
    if (tally)
        tally->open++;
    return p;
}

static void drop(void *note)
{
    struct caller *p = note;
    if (p->first) {
        first_done(p->first);
        mem_free(p->first);
    }
    if (p->tally) {
        p->tally->open--;
        settle(p->tally);
    }
    mem_free(p);
}

void caller_give(struct conn *c, struct caller *p)
{
    conn_set_note(c, p, drop);
}

bool caller_set_sni(struct caller *p, struct str sni)
{
    if (sni.n > sizeof p->sni)
        return false;
    memcpy(p->sni, sni.p, sni.n);
    p->c.sni = (struct str){p->sni, sni.n};
    return true;
}

struct identity_conn caller_conn(const struct caller *p)
{
    struct identity_conn c = p->c;
    c.held = p->held.kind == HOST_NONE ? NULL : &p->held;
    return c;
}

struct caller *caller_of(const struct conn_info *info)
{
    return info ? (struct caller *)(uintptr_t)info->note : NULL;
}
