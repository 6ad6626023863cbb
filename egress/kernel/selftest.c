/* selftest.c — does what a workload would do, from sockets without our mark.  The query has an
 * operation that no name server carries out, so it is answered at once, asks nobody, and is no
 * event; that it is answered at all, from an address where nobody is at home, shows that it came to
 * us. */
#include "egress/kernel/selftest.h"

#include <errno.h>
#include <netinet/in.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "net/addr.h"
#include "net/ready.h"
#include "net/worker.h"

enum { QUERY_BYTES = 12, STATUS_OPERATION = 2, RESPONSE = 0x80, TRIES = 4 };

static const struct probe_kind {
    const char *ip;
    uint16_t port;
    bool tcp, v6;
    const char *fault;
} kinds[] = {
    {"192.0.2.1", 53, false, false, "self test: a query over IPv4 does not come to our DNS"},
    {"2001:db8::1", 53, false, true, "self test: a query over IPv6 does not come to our DNS"},
    {"192.0.2.1", 853, true, false, "self test: a connection to port 853 over IPv4 is not refused"},
    {"2001:db8::1", 853, true, true,
     "self test: a connection to port 853 over IPv6 is not refused"},
};

enum { PROBES = sizeof kinds / sizeof *kinds };

enum probe_state { PROBE_NONE, PROBE_WAITS, PROBE_GOOD };

struct probe {
    struct selftest *test;
    const struct probe_kind *kind;
    enum probe_state state;
    int fd;
    uint16_t port; /* of ours; of TCP */
    struct ready *ready;
    uint8_t query[QUERY_BYTES];
};

struct selftest {
    struct worker *w;
    void (*done)(void *user, const char *fault);
    void *user;
    struct timer timer;
    unsigned tries;
    struct probe probe[PROBES];
};

static void end_probe(struct probe *p, enum probe_state state)
{
    ready_stop(p->ready);
    p->ready = NULL;
    if (p->fd >= 0)
        close(p->fd);
    p->fd = -1;
    p->state = state;
}

void selftest_stop(struct selftest *t)
{
    if (!t)
        return;
    timer_clear(t->w, &t->timer);
    for (unsigned i = 0; i < PROBES; i++)
        end_probe(&t->probe[i], PROBE_NONE);
    mem_free(t);
}

static void finish(struct selftest *t, const char *fault)
{
    void (*done)(void *user, const char *fault) = t->done;
    void *user = t->user;
    selftest_stop(t);
    done(user, fault);
}

static const struct probe *first_open(const struct selftest *t)
{
    for (unsigned i = 0; i < PROBES; i++) {
        if (t->probe[i].state == PROBE_WAITS)
            return &t->probe[i];
    }
    return NULL;
}

/* ---- one try */

static bool is_answer(const struct probe *p)
{
    uint8_t got[512];
    ssize_t n;
    while ((n = recv(p->fd, got, sizeof got, MSG_DONTWAIT)) >= 0 || errno == ECONNREFUSED) {
        if (n >= QUERY_BYTES && memcmp(got, p->query, 2) == 0 && got[2] & RESPONSE)
            return true;
    }
    return false;
}

static bool is_refused(const struct probe *p)
{
    int error = 0;
    socklen_t len = sizeof error;
    return getsockopt(p->fd, SOL_SOCKET, SO_ERROR, &error, &len) == 0 && error != 0;
}

static void on_ready(void *user)
{
    struct probe *p = user;
    if (!(p->kind->tcp ? is_refused(p) : is_answer(p)))
        return;
    struct selftest *t = p->test;
    end_probe(p, PROBE_GOOD);
    if (!first_open(t))
        finish(t, NULL);
}

static void ask(struct probe *p)
{
    if (!p->kind->tcp && p->state == PROBE_WAITS)
        (void)!send(p->fd, p->query, sizeof p->query, MSG_DONTWAIT | MSG_NOSIGNAL);
}

static void make_query(struct probe *p)
{
    if (getrandom(p->query, 2, 0) != 2)
        p->query[0] = 1;
    p->query[2] = STATUS_OPERATION << 3;
}

/* No route, no such family: nothing leaves that way. */
static bool is_no_way(int error)
{
    return error == ENETUNREACH || error == EAFNOSUPPORT || error == EADDRNOTAVAIL ||
           error == EHOSTUNREACH || error == EACCES;
}

/* Bound first: when it has been refused, nobody knows the port any more. */
static void take_port(struct probe *p)
{
    union addr any = {.sa.sa_family = p->kind->v6 ? AF_INET6 : AF_INET};
    socklen_t len = addr_len(&any.sa);
    if (p->kind->tcp && p->fd >= 0 && bind(p->fd, &any.sa, len) == 0 &&
        getsockname(p->fd, &any.sa, &len) == 0)
        p->port = addr_port(&any.sa);
}

void selftest_ports(const struct selftest *t, uint16_t ret[SELFTEST_PORTS])
{
    unsigned n = 0;
    for (unsigned i = 0; i < PROBES; i++) {
        if (kinds[i].tcp)
            ret[n++] = t->probe[i].port;
    }
}

static void start_probe(struct probe *p)
{
    struct ip ip;
    union addr to;
    if (!ip_parse(str_of(p->kind->ip), &ip))
        return;
    addr_make(&to, &ip, p->kind->port);
    p->state = PROBE_WAITS;
    p->fd = socket(to.sa.sa_family,
                   (p->kind->tcp ? SOCK_STREAM : SOCK_DGRAM) | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    take_port(p);
    int error = p->fd < 0 || connect(p->fd, &to.sa, addr_len(&to.sa)) != 0 ? errno : 0;
    if (error && error != EINPROGRESS) {
        end_probe(p, p->kind->tcp || is_no_way(error) ? PROBE_GOOD : PROBE_WAITS);
        return;
    }
    make_query(p);
    p->ready = ready_start(p->test->w, p->fd, on_ready, p);
    ask(p);
}

static void on_timer(struct timer *timer)
{
    struct selftest *t = container_of(timer, struct selftest, timer);
    const struct probe *open = first_open(t);
    if (!open) {
        finish(t, NULL);
        return;
    }
    if (++t->tries == TRIES) {
        finish(t, open->kind->fault);
        return;
    }
    for (unsigned i = 0; i < PROBES; i++)
        ask(&t->probe[i]);
    timer_set(t->w, &t->timer, SELFTEST_MS / TRIES);
}

struct selftest *selftest_start(struct worker *w, const struct selftest_rules *rules,
                                void (*done)(void *user, const char *fault), void *user)
{
    struct selftest *t = mem_new(sizeof *t);
    *t = (struct selftest){.w = w, .done = done, .user = user};
    timer_init(&t->timer, on_timer);
    for (unsigned i = 0; i < PROBES; i++) {
        t->probe[i] = (struct probe){.test = t, .kind = &kinds[i], .fd = -1};
        if (kinds[i].tcp ? rules->refuses : !kinds[i].v6 || rules->dns6)
            start_probe(&t->probe[i]);
    }
    timer_set(w, &t->timer, first_open(t) ? SELFTEST_MS / TRIES : 0);
    return t;
}
