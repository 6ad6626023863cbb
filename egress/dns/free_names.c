/* free_names.c — two questions, for A and AAAA, straight to the upstreams.  Nothing is kept: who
 * asks does so seldom. */
#include "egress/dns/free_names.h"

#include "dns/answer.h"
#include "net/worker.h"

struct free_ask {
    struct worker *w;
    struct ns_ask *v4, *v6; /* under way */
    struct post post;       /* the name is none */
    struct dns_name name;
    struct dns_answer a, aaaa;
    enum why why; /* of a question that failed */
    bool over;    /* cancelled, but its post is on the way */
    void (*done)(void *arg, const struct ip *ips, unsigned count, enum why why);
    void *arg;
};

static void tell(struct free_ask *f)
{
    struct ip ips[RESOLVE_ADDRESSES];
    unsigned n = 0;
    if (f->v4 || f->v6)
        return;
    for (unsigned i = 0; i < f->a.n && n < RESOLVE_ADDRESSES; i++)
        ips[n++] = f->a.ip[i];
    for (unsigned i = 0; i < f->aaaa.n && n < RESOLVE_ADDRESSES; i++)
        ips[n++] = f->aaaa.ip[i];
    f->done(f->arg, n ? ips : NULL, n, n ? WHY_OK : f->why);
    worker_bury(f->w, mem_free, f);
}

static void read_reply(struct free_ask *f, struct str reply, enum why why, uint16_t type,
                       struct dns_answer *ret)
{
    if (why == WHY_OK)
        dns_answer(reply.p, reply.n, &f->name, type, ret);
    else
        f->why = why;
}

static void on_v4(void *user, struct str reply, enum why why)
{
    struct free_ask *f = user;
    f->v4 = NULL;
    read_reply(f, reply, why, DNS_A, &f->a);
    tell(f);
}

static void on_v6(void *user, struct str reply, enum why why)
{
    struct free_ask *f = user;
    f->v6 = NULL;
    read_reply(f, reply, why, DNS_AAAA, &f->aaaa);
    tell(f);
}

static void on_no_name(struct worker *w, struct post *p)
{
    struct free_ask *f = container_of(p, struct free_ask, post);
    if (f->over)
        worker_bury(w, mem_free, f);
    else
        tell(f);
}

static void *start(void *user, struct str host, uint64_t timeout_ms,
                   void (*done)(void *arg, const struct ip *ips, unsigned count, enum why why),
                   void *arg)
{
    const struct free_names *names = user;
    struct free_ask *f = mem_new(sizeof *f);
    f->w = names->w;
    f->why = WHY_DNS;
    f->done = done;
    f->arg = arg;
    f->post.run = on_no_name;
    if (!dns_name_parse(host, &f->name)) {
        worker_post(f->w, &f->post);
        return f;
    }
    f->v4 = nameserver_ask(names->servers, &f->name, DNS_A, timeout_ms, on_v4, f);
    f->v6 = nameserver_ask(names->servers, &f->name, DNS_AAAA, timeout_ms, on_v6, f);
    return f;
}

static void cancel(void *user, void *asked)
{
    struct free_ask *f = asked;
    (void)user;
    if (!f->v4 && !f->v6) {
        f->over = true;
        return;
    }
    if (f->v4)
        nameserver_cancel(f->v4);
    if (f->v6)
        nameserver_cancel(f->v6);
    worker_bury(f->w, mem_free, f);
}

struct names *free_names_new(struct free_names *names)
{
    struct names_source source = {.start = start, .cancel = cancel, .user = names};
    return names_through(names->w, &source);
}
