/* dnsload.c — a DNS client in a closed loop: so many sockets, one question at a time on each, A
 * records over UDP, names "w.bench.nK.test" for K below a number in random order.  An answer counts
 * if it has an address.  The figures come as JSON. */
#include <errno.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

#include "base/text.h"
#include "dns/message.h"
#include "flags.h"
#include "histogram.h"
#include "net/addr.h"

enum { LANES = 256, LOST_MS = 1000, READY = 64 };

struct options {
    struct str to;
    uint64_t lanes, names, seconds, pause_us;
    bool unkept, denied;
};

struct lane {
    int fd;
    uint16_t id;
    bool asked;
    uint64_t sent_us;
};

struct load {
    struct options o;
    int epoll;
    struct lane lane[LANES];
    uint64_t random, count, lost, wrong;
    struct latencies times;
};

static uint64_t now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

/* xorshift64* */
static uint64_t random64(struct load *l)
{
    l->random ^= l->random >> 12;
    l->random ^= l->random << 25;
    l->random ^= l->random >> 27;
    return l->random * 0x2545f4914f6cdd1d;
}

static void ask(struct load *l, struct lane *lane)
{
    char text[64];
    uint8_t p[DNS_WRITE_MIN];
    struct dns_writer w;
    struct dns_question q = {.type = DNS_A, .class = DNS_IN};
    uint64_t r = random64(l);
    int n = snprintf(text, sizeof text, "%c.%s.n%u.test", l->o.unkept ? 'u' : 'w',
                     l->o.denied ? "denied" : "bench", (unsigned)(r % l->o.names));
    if (!dns_name_parse((struct str){text, (size_t)n}, &q.name))
        return;
    lane->id = (uint16_t)(r >> 48);
    dns_write(&w, p, sizeof p, lane->id, DNS_RD);
    dns_write_question(&w, &q);
    lane->sent_us = now_us();
    lane->asked = send(lane->fd, p, dns_write_end(&w), 0) > 0;
}

static bool is_answer(const struct load *l, const struct lane *lane, const uint8_t *p, size_t n)
{
    struct dns_reader r;
    if (!dns_read(&r, p, n) || r.id != lane->id)
        return false;
    int rcode = r.flags & DNS_RCODE_MASK;
    return l->o.denied ? rcode == DNS_NXDOMAIN : rcode == DNS_NOERROR && r.count[DNS_ANSWER] > 0;
}

static void hear(struct load *l, struct lane *lane)
{
    uint8_t p[4096];
    ssize_t n;
    while ((n = recv(lane->fd, p, sizeof p, MSG_DONTWAIT)) >= 0) {
        if (!lane->asked)
            continue;
        lane->asked = false;
        l->wrong += !is_answer(l, lane, p, (size_t)n);
        l->count++;
        latencies_add(&l->times, now_us() - lane->sent_us);
        if (l->o.pause_us)
            usleep((useconds_t)l->o.pause_us);
        ask(l, lane);
    }
}

static void ask_again(struct load *l)
{
    uint64_t now = now_us();
    for (uint64_t i = 0; i < l->o.lanes; i++)
        if (!l->lane[i].asked || now - l->lane[i].sent_us > LOST_MS * 1000) {
            l->lost++;
            ask(l, &l->lane[i]);
        }
}

static bool open_lanes(struct load *l, const union addr *to)
{
    l->epoll = epoll_create1(EPOLL_CLOEXEC);
    for (uint64_t i = 0; i < l->o.lanes; i++) {
        struct epoll_event e = {.events = EPOLLIN, .data.u64 = i};
        int fd = socket(to->sa.sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
        if (fd < 0 || connect(fd, &to->sa, addr_len(&to->sa)) < 0)
            return false;
        l->lane[i].fd = fd;
        epoll_ctl(l->epoll, EPOLL_CTL_ADD, fd, &e);
        ask(l, &l->lane[i]);
    }
    return true;
}

static void run(struct load *l)
{
    struct epoll_event ready[READY];
    uint64_t end = now_us() + l->o.seconds * 1000000;
    while (now_us() < end) {
        int n = epoll_wait(l->epoll, ready, READY, 100);
        for (int i = 0; i < n; i++)
            hear(l, &l->lane[ready[i].data.u64]);
        if (n == 0)
            ask_again(l);
    }
}

static void report(const struct load *l)
{
    typedef unsigned long long number;
    number p50 = latencies_at(&l->times, 0.5), p99 = latencies_at(&l->times, 0.99);
    printf("{\"requests\":%llu,\"rate\":%llu,\"p50_us\":%llu,\"p99_us\":%llu,\"lost\":%llu,"
           "\"wrong\":%llu}\n",
           (number)l->count, (number)(l->count / l->o.seconds), p50, p99, (number)l->lost,
           (number)l->wrong);
}

int main(int argc, char **argv)
{
    struct load *l = mem_new(sizeof *l);
    union addr to;
    l->o = (struct options){.to = STR("127.0.0.1:53"), .lanes = 16, .names = 4096, .seconds = 1};
    const struct flag flags[] = {
        {"--to", FLAG_TEXT, &l->o.to, "server, ADDRESS:PORT"},
        {"--lanes", FLAG_NUMBER, &l->o.lanes, "questions at a time"},
        {"--names", FLAG_NUMBER, &l->o.names, "how many different ones"},
        {"--seconds", FLAG_NUMBER, &l->o.seconds, "how long"},
        {"--pause-us", FLAG_NUMBER, &l->o.pause_us, "before each question"},
        {"--unkept", FLAG_SWITCH, &l->o.unkept, "names whose answers bench-dnsorigin gives TTL 0"},
        {"--denied", FLAG_SWITCH, &l->o.denied, "w.denied.nK.test, which must not exist"},
        {0}};
    if (!flags_read(flags, argc, argv))
        return 2;
    l->random = now_us() | 1;
    if (!addr_parse(l->o.to, &to) || l->o.lanes == 0 || l->o.lanes > LANES || l->o.names == 0 ||
        l->o.seconds == 0 || !open_lanes(l, &to)) {
        fprintf(stderr, "dnsload: a number is wrong, or %.*s is no address\n", STR_ARG(l->o.to));
        return 2;
    }
    run(l);
    report(l);
    bool good = l->wrong == 0 && l->count > 0;
    mem_free(l);
    return good ? 0 : 1;
}
