/* share.c — a second begins with its first line and ends with a timer, so that what was left out is
 * told even if nothing more happens. */
#include "egress/events/share.h"

enum { SECOND_MS = 1000 };

static void tell_left_out(struct share *s)
{
    struct log_line l;
    if (s->left_out == 0)
        return;
    log_begin(&l, s->level, s->more);
    log_int(&l, "repeated", (int64_t)s->left_out);
    log_end(&l);
    s->left_out = 0;
}

static void on_second(struct timer *t)
{
    struct share *s = container_of(t, struct share, timer);
    tell_left_out(s);
    s->used = 0;
}

void share_init(struct share *s, struct worker *w, struct counter *left_out_total,
                enum log_level level, unsigned per_s, const char *more)
{
    *s = (struct share){
        .w = w, .left_out_total = left_out_total, .level = level, .per_s = per_s, .more = more};
    timer_init(&s->timer, on_second);
}

void share_done(struct share *s)
{
    timer_clear(s->w, &s->timer);
    tell_left_out(s);
}

bool share_take(struct share *s)
{
    if (!log_on(s->level))
        return false;
    if (s->used == s->per_s) {
        s->left_out++;
        counter_add(s->left_out_total, 1);
        return false;
    }
    if (s->used++ == 0)
        timer_set(s->w, &s->timer, SECOND_MS);
    return true;
}
