/* name_list.c — answers from a timer, since no answer may come before the question has returned. */
#include "harness/name_list.h"

#include <stdio.h>

struct question {
    struct name_list *l;
    struct timer timer;
    bool known;
    void (*done)(void *arg, const struct ip *ips, unsigned count, enum why why);
    void *arg;
};

static void answer(struct timer *t)
{
    struct question *q = container_of(t, struct question, timer);
    struct ip ip;
    bool good = q->known && ip_parse(str_of(q->l->ip), &ip);
    q->l->waiting--;
    q->done(q->arg, good ? &ip : NULL, good, good ? WHY_OK : WHY_DNS);
    worker_bury(q->l->w, mem_free, q);
}

static void *start(void *user, struct str host, uint64_t timeout_ms,
                   void (*done)(void *arg, const struct ip *ips, unsigned count, enum why why),
                   void *arg)
{
    struct name_list *l = user;
    struct question *q = mem_new(sizeof *q);
    size_t at = strlen(l->asked);
    (void)timeout_ms;
    snprintf(l->asked + at, sizeof l->asked - at, "%.*s ", STR_ARG(host));
    *q = (struct question){.l = l, .done = done, .arg = arg};
    q->known = l->name && str_eq(host, str_of(l->name));
    l->waiting++;
    timer_init(&q->timer, answer);
    if (!l->silent)
        timer_set(l->w, &q->timer, 0);
    return q;
}

static void cancel(void *user, void *asked)
{
    struct name_list *l = user;
    struct question *q = asked;
    l->waiting--;
    l->cancelled++;
    timer_clear(l->w, &q->timer);
    mem_free(q);
}

struct names *name_list_names(struct name_list *l)
{
    return names_through(l->w, &(struct names_source){start, cancel, l});
}
