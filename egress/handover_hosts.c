/* handover_hosts.c — see handover_hosts.h.  Both texts are sorted lists of lines, so that one walk
 * tells whether anything came or went; where nothing did the supervisor is not asked. */
#include "egress/handover_hosts.h"

#include "egress/vault/lost.h"

struct bound_hosts {
    struct handover *hand;
    char *left; /* with the supervisor; a copy, or NULL */
    size_t nleft;
    char *fresh; /* what is to be there */
    size_t nfresh;
};

static struct str left_of(const struct bound_hosts *b)
{
    return (struct str){b->left, b->nleft};
}

static struct str fresh_of(const struct bound_hosts *b)
{
    return (struct str){b->fresh, b->nfresh};
}

static void set(char **text, size_t *n, struct str s)
{
    mem_free(*text);
    *text = s.n ? mem_strdup(s) : NULL;
    *n = s.n;
}

struct bound_hosts *bound_hosts_new(struct handover *h)
{
    struct bound_hosts *b = mem_new(sizeof *b);
    struct str found;
    b->hand = h;
    if (handover_text(h, HANDOVER_BOUND, &found))
        set(&b->left, &b->nleft, found);
    return b;
}

void bound_hosts_free(struct bound_hosts *b)
{
    if (!b)
        return;
    mem_free(b->left);
    mem_free(b->fresh);
    mem_free(b);
}

static bool next_line(struct str *rest, struct str *ret)
{
    while (str_next(rest, '\n', ret))
        if (ret->n)
            return true;
    return false;
}

/* Is each line of `some` one of `all`?  Of lists that are not sorted it may say no in error. */
static bool holds(struct str all, struct str some)
{
    struct str a = STR_NONE, s;
    while (next_line(&some, &s)) {
        int order = -1;
        while (order < 0) {
            if (!next_line(&all, &a))
                return false;
            order = str_cmp(a, s);
        }
        if (order > 0)
            return false;
    }
    return true;
}

bool bound_hosts_change(struct bound_hosts *b, const struct bindings *fresh)
{
    struct arena a;
    arena_init(&a, NULL, 0);
    set(&b->fresh, &b->nfresh, lost_text(fresh, &a));
    arena_done(&a);
    return handover_kept(b->hand) && !str_eq(left_of(b), fresh_of(b));
}

static void leave(struct bound_hosts *b, struct str text)
{
    bool good = true;
    if (text.n)
        good = handover_leave_text(b->hand, HANDOVER_BOUND, text);
    else
        handover_leave(b->hand, HANDOVER_BOUND, -1);
    if (good)
        set(&b->left, &b->nleft, text);
}

void bound_hosts_before(struct bound_hosts *b)
{
    struct arena a;
    if (holds(left_of(b), fresh_of(b)))
        return;
    arena_init(&a, NULL, 0);
    struct str both = arena_cat(&a, left_of(b), STR("\n"));
    leave(b, b->nleft ? arena_cat(&a, both, fresh_of(b)) : fresh_of(b));
    arena_done(&a);
}

void bound_hosts_after(struct bound_hosts *b)
{
    if (!str_eq(left_of(b), fresh_of(b)))
        leave(b, fresh_of(b));
}
