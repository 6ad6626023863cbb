/* nameserver.c — the course of a question over several servers, and what is remembered of each
 * server.  A question owns its tries; the first useful reply to any of them ends it.  Time alone,
 * or a reply that is of no use, makes the next server be asked. */
#include "net/nameserver.h"

#include <assert.h>

#include "base/digest.h"
#include "dns/answer.h"
#include "net/nameserver_impl.h"

enum {
    MISSES = 3,               /* in a row, and a server is asked last */
    PROBE_FIRST_MS = 1000,    /* then doubling ... */
    PROBE_LONGEST_MS = 30000, /* ... up to here */
};

struct ns_ask {
    struct list link;
    struct nameservers *set;
    struct timer timer; /* the last try's share of the time, or the end */
    uint64_t deadline;
    struct dns_question question; /* as spelt this time */
    uint16_t flags;
    bool dnssec_ok;
    uint8_t order[NAMESERVERS_MAX];
    unsigned norder;
    unsigned at;       /* how far in rounds × order */
    unsigned answered; /* servers, as bits, that replied with something useless */
    struct ns_try tries[NS_TRIES];
    unsigned ntries;
    void (*done)(void *user, struct str reply, enum why why);
    void *user;
};

/* ---- servers ---- */

static void tell(const struct nameservers *set, enum ns_news news, const union addr *addr)
{
    if (set->news)
        set->news(set->user, news, addr);
}

static bool all_out(const struct nameservers *set)
{
    for (unsigned i = 0; i < set->n; i++)
        if (!set->server[i].out)
            return false;
    return true;
}

/* Asks the server whether it is there.  If that cannot be sent, the next probe may. */
static void probe(struct ns_server *s, const struct dns_question *question)
{
    ns_try_over(&s->probing);
    ns_try_init(&s->probing, s, NULL, question);
    ns_try_udp(&s->probing);
}

static void go_out(struct ns_server *s)
{
    bool was = s->out;
    s->out = true;
    if (!was && s->set->watch_every_ms && all_out(s->set))
        tell(s->set, NS_NONE_LEFT, NULL);
}

static void probe_silent(struct ns_server *s)
{
    timer_clear(s->set->w, &s->probe);
    ns_try_over(&s->probing);
    tell(s->set, NS_PROBE_SILENT, &s->addr);
    go_out(s);
}

static void on_probe(struct timer *timer)
{
    static const struct dns_question root = {.name = {.n = 1}, .type = DNS_NS, .class = DNS_IN};
    struct ns_server *s = container_of(timer, struct ns_server, probe);
    if (s->set->watch_every_ms) {
        probe_silent(s);
        return;
    }
    probe(s, &root);
    timer_set(s->set->w, &s->probe, s->probe_ms);
    s->probe_ms = s->probe_ms * 2 < PROBE_LONGEST_MS ? s->probe_ms * 2 : PROBE_LONGEST_MS;
}

/* The watch asks all of them. */
static void on_round(struct timer *timer)
{
    struct nameservers *set = container_of(timer, struct nameservers, round);
    for (unsigned i = 0; i < set->n; i++) {
        probe(&set->server[i], &set->probe);
        timer_set(set->w, &set->server[i].probe, set->watch_ms);
    }
    timer_set(set->w, &set->round, set->watch_every_ms);
}

/* Whatever it said: it is there. */
static void server_spoke(struct ns_server *s)
{
    s->heard = worker_now(s->set->w);
    s->misses = 0;
    if (!s->out && !s->probing.server)
        return;
    s->out = false;
    timer_clear(s->set->w, &s->probe);
    ns_try_over(&s->probing);
}

/* It let a question pass that was sent at that time.  If it has said something since, the question
 * or the reply was lost. */
static void server_missed(struct ns_server *s, uint64_t sent)
{
    tell(s->set, NS_MISSED, &s->addr);
    if (s->out || (s->heard && s->heard >= sent) || ++s->misses < MISSES)
        return;
    go_out(s);
    if (s->set->watch_every_ms)
        return;
    s->probe_ms = PROBE_FIRST_MS;
    timer_set(s->set->w, &s->probe, PROBE_FIRST_MS);
}

/* ---- a question's course ---- */

static void ask_end(struct ns_ask *a, struct str reply, enum why why)
{
    nameserver_cancel(a);
    a->done(a->user, reply, why);
}

/* The server of the first try from *at on, which is moved there; NULL: the rounds are over. */
static struct ns_server *next_server(const struct ns_ask *a, unsigned *at)
{
    struct nameservers *set = a->set;
    for (; *at < a->norder * set->rounds; ++*at) {
        unsigned i = a->order[*at % a->norder];
        if (!(a->answered & 1u << i))
            return &set->server[i];
    }
    return NULL;
}

static unsigned tries_left(const struct ns_ask *a)
{
    unsigned n = 0;
    for (unsigned at = a->at; next_server(a, &at); at++)
        n++;
    return n < NS_TRIES - a->ntries ? n : NS_TRIES - a->ntries;
}

static bool any_waiting(const struct ns_ask *a)
{
    for (unsigned i = 0; i < a->ntries; i++)
        if (a->tries[i].server)
            return true;
    return false;
}

/* The time until the next server is asked, or until the end. */
static void plan(struct ns_ask *a)
{
    uint64_t now = worker_now(a->set->w), left = a->deadline > now ? a->deadline - now : 0;
    unsigned more = tries_left(a);
    uint64_t share = left / (more + 1);
    timer_set(a->set->w, &a->timer, more && share > a->set->try_ms ? a->set->try_ms : share);
}

static void try_init(struct ns_try *t, struct ns_server *server, struct ns_ask *a)
{
    ns_try_init(t, server, a, &a->question);
    t->flags = a->flags;
    t->dnssec_ok = a->dnssec_ok;
}

static bool start_try(struct ns_ask *a, struct ns_server *server)
{
    struct ns_try *t = &a->tries[a->ntries++];
    try_init(t, server, a);
    if (ns_try_udp(t))
        return true;
    server_missed(server, worker_now(a->set->w));
    ns_try_over(t);
    return false;
}

/* Starts the next try that can be sent.  False: nobody is left to ask. */
static bool ask_next(struct ns_ask *a)
{
    struct ns_server *s;
    while (a->ntries < NS_TRIES && (s = next_server(a, &a->at))) {
        a->at++;
        if (start_try(a, s))
            return true;
    }
    return false;
}

static void go_on(struct ns_ask *a)
{
    if (ask_next(a) || any_waiting(a))
        plan(a);
    else
        ask_end(a, STR_NONE, WHY_DNS);
}

/* t is over.  Unless a later one is under way, the next server need not wait for its time. */
static void after_try(struct ns_try *t)
{
    struct ns_ask *a = t->ask;
    bool last = t == &a->tries[a->ntries - 1];
    ns_try_over(t);
    if (last || !any_waiting(a))
        go_on(a);
}

void ns_try_failed(struct ns_try *t)
{
    struct ns_server *s = t->server;
    if (!t->ask && s->set->watch_every_ms) {
        probe_silent(s);
        return;
    }
    server_missed(s, t->sent);
    if (t->ask)
        after_try(t);
    else
        ns_try_over(t);
}

static bool too_long_for_udp(struct str reply)
{
    struct dns_reader r;
    return dns_read(&r, reply.p, reply.n) && r.flags & DNS_TC;
}

static bool knows_no_edns(int rcode)
{
    return rcode == DNS_FORMERR || rcode == DNS_NOTIMP || rcode == DNS_BADVERS;
}

/* The same server once more, without EDNS. */
static bool again_without_edns(struct ns_try *t)
{
    struct ns_server *server = t->server;
    server->no_edns = true;
    ns_try_over(t);
    try_init(t, server, t->ask);
    return ns_try_udp(t);
}

static void take_reply(struct ns_ask *a, struct ns_try *t, struct str reply)
{
    int rcode = dns_reply_rcode(reply.p, reply.n);
    if (rcode == DNS_NOERROR || rcode == DNS_NXDOMAIN) {
        ask_end(a, reply, WHY_OK);
        return;
    }
    if (t->edns && knows_no_edns(rcode) && again_without_edns(t)) {
        plan(a);
        return;
    }
    a->answered |= 1u << (t->server - a->set->server);
    after_try(t);
}

void ns_try_replied(struct ns_try *t, struct str reply, bool over_tcp)
{
    struct ns_ask *a = t->ask;
    server_spoke(t->server); /* which ends a probe */
    if (!a)
        return;
    if (over_tcp || !too_long_for_udp(reply))
        take_reply(a, t, reply);
    else if (t->tcp || ns_try_tcp(t))
        plan(a);
    else
        after_try(t);
}

static void on_timer(struct timer *timer)
{
    struct ns_ask *a = container_of(timer, struct ns_ask, timer);
    struct ns_try *t = &a->tries[a->ntries - 1];
    if (t->server) {
        if (t->miscased && !t->tcp && ns_try_tcp(t)) {
            plan(a); /* a forger, or a server that folds case: TCP will tell */
            return;
        }
        server_missed(t->server, t->sent);
    }
    if (worker_now(a->set->w) >= a->deadline)
        ask_end(a, STR_NONE, WHY_DEADLINE);
    else
        go_on(a);
}

/* Those that answer first, each part in the order of the list; of watched ones the others only if
 * there is no first part.  Returns their number. */
static unsigned put_in_order(const struct nameservers *s, uint8_t order[NAMESERVERS_MAX])
{
    unsigned n = 0;
    for (int out = 0; out <= 1 && (n == 0 || !s->watch_every_ms); out++)
        for (unsigned i = 0; i < s->n; i++)
            if (s->server[i].out == out)
                order[n++] = (uint8_t)i;
    return n;
}

unsigned nameservers_active(const struct nameservers *s, unsigned *ret)
{
    uint8_t order[NAMESERVERS_MAX];
    unsigned n = put_in_order(s, order);
    *ret = 0;
    for (unsigned i = 0; i < n; i++)
        *ret |= 1u << order[i];
    return n;
}

/* 0x20: each letter's case is a bit that a forger has to guess. */
static void mix_case(struct dns_name *name)
{
    uint8_t bits[DNS_NAME_MAX / 8 + 1];
    digest_random(bits, sizeof bits);
    dns_name_lower(name);
    for (size_t i = 0; i < name->n; i++)
        if (name->b[i] >= 'a' && name->b[i] <= 'z' && bits[i / 8] >> i % 8 & 1)
            name->b[i] ^= 0x20;
}

struct ns_ask *nameserver_ask(struct nameservers *s, const struct dns_name *name, uint16_t type,
                              uint64_t budget_ms,
                              void (*done)(void *user, struct str reply, enum why why), void *user)
{
    struct ns_wish wish = {.question = {*name, type, DNS_IN}, .flags = DNS_RD};
    return nameserver_wish(s, &wish, budget_ms, done, user);
}

struct ns_ask *nameserver_wish(struct nameservers *s, const struct ns_wish *wish,
                               uint64_t budget_ms,
                               void (*done)(void *user, struct str reply, enum why why), void *user)
{
    struct ns_ask *a = mem_new(sizeof *a);
    a->set = s;
    a->deadline = worker_now(s->w) + budget_ms;
    a->question = wish->question;
    a->flags = wish->flags & (DNS_RD | DNS_AD | DNS_CD);
    a->dnssec_ok = wish->dnssec_ok;
    a->done = done;
    a->user = user;
    mix_case(&a->question.name);
    a->norder = put_in_order(s, a->order);
    timer_init(&a->timer, on_timer);
    list_push(&s->asks, &a->link);
    if (ask_next(a))
        plan(a);
    else
        timer_set(s->w, &a->timer, 0); /* down is quiet: the bad news comes from the loop */
    return a;
}

void nameserver_cancel(struct ns_ask *a)
{
    for (unsigned i = 0; i < a->ntries; i++)
        ns_try_over(&a->tries[i]);
    timer_clear(a->set->w, &a->timer);
    list_del(&a->link);
    worker_bury(a->set->w, mem_free, a);
}

static void server_init(struct nameservers *set, struct ns_server *s, const union addr *addr)
{
    s->set = set;
    s->addr = *addr;
    ns_try_init(&s->probing, NULL, NULL, NULL);
    timer_init(&s->probe, on_probe);
}

struct nameservers *nameservers_new(struct worker *w, const struct nameserver_list *list)
{
    assert(list->n > 0 && list->n <= NAMESERVERS_MAX && list->rounds > 0);
    struct nameservers *s = mem_new(sizeof *s);
    s->w = w;
    s->n = list->n;
    s->rounds = list->rounds;
    s->try_ms = list->try_ms;
    s->watch_every_ms = list->watch_every_ms;
    s->watch_ms = list->watch_ms;
    s->probe = list->probe;
    s->prepare = list->prepare;
    s->news = list->news;
    s->user = list->user;
    timer_init(&s->round, on_round);
    s->server = mem_new(list->n * sizeof *s->server);
    list_init(&s->asks);
    for (unsigned i = 0; i < list->n; i++)
        server_init(s, &s->server[i], &list->addr[i]);
    if (s->watch_every_ms)
        timer_set(w, &s->round, 0);
    return s;
}

static void server_done(struct ns_server *s)
{
    timer_clear(s->set->w, &s->probe);
    ns_try_over(&s->probing);
    ns_sockets_close(s);
}

void nameservers_free(struct nameservers *s)
{
    if (!s)
        return;
    assert(list_empty(&s->asks));
    timer_clear(s->w, &s->round);
    for (unsigned i = 0; i < s->n; i++)
        server_done(&s->server[i]);
    mem_free(s->server);
    mem_free(s);
}
