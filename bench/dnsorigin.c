/* dnsorigin.c — the upstream for bench/dns.sh: every name has one address of 192.0.2.0/24, for an
 * hour, or for no time where it begins with a "u", and none of the other family. */
#include <stdio.h>

#include "dns/message.h"
#include "flags.h"
#include "net/udp.h"
#include "net/worker.h"

/* 1..250, whatever the case of its letters. */
static uint8_t last_byte(const struct dns_name *name)
{
    unsigned sum = 0;
    for (unsigned i = 0; i < name->n; i++)
        sum = sum * 31 + (name->b[i] | 0x20);
    return (uint8_t)(1 + sum % 250);
}

static void on_question(void *user, struct udp *u, struct str datagram, const struct sockaddr *from)
{
    static const struct dns_soa soa = {
        .primary = {.n = 1}, .mailbox = {.n = 1}, .serial = 1, .minimum = 3600};
    struct dns_reader r;
    struct dns_question q;
    struct dns_writer w;
    uint8_t p[DNS_WRITE_MIN];
    (void)user;
    if (!dns_read(&r, datagram.p, datagram.n) || !dns_next_question(&r, &q))
        return;
    uint32_t ttl = q.name.n > 1 && (q.name.b[1] | 0x20) == 'u' ? 0 : 3600;
    struct ip ip = {{[10] = 0xff, 0xff, 192, 0, 2, last_byte(&q.name)}};
    dns_write(&w, p, sizeof p, r.id, DNS_QR | DNS_RD | DNS_RA);
    dns_write_question(&w, &q);
    if (q.type == DNS_A)
        dns_write_ip(&w, DNS_ANSWER, &q.name, ttl, &ip);
    else
        dns_write_soa(&w, DNS_AUTHORITY, &q.name, 3600, &soa);
    udp_send(u, from, p, dns_write_end(&w));
}

static void on_signal(void *user, int signum)
{
    (void)signum;
    worker_stop(user);
}

int main(int argc, char **argv)
{
    struct str at = STR("127.0.0.1:0"), error;
    union addr addr, bound;
    struct arena a;
    const struct flag flags[] = {{"--at", FLAG_TEXT, &at, "ADDRESS:PORT"}, {0}};
    if (!flags_read(flags, argc, argv) || !addr_parse(at, &addr))
        return 2;
    arena_init(&a, NULL, 0);
    int fd = udp_bind(&addr.sa, &bound, &a, &error);
    if (fd < 0) {
        fprintf(stderr, "dnsorigin: %.*s\n", STR_ARG(error));
        return 2;
    }
    struct worker *w = worker_new(0);
    struct udp *u = udp_start(w, fd, on_question, NULL);
    worker_signals(w, on_signal, w);
    worker_run(w);
    udp_close(u);
    worker_free(w);
    arena_done(&a);
    return 0;
}
