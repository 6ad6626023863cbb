/* dns_service_test.c — what clients of the sidecar's DNS see, and what of it reaches upstreams and
 * kernel. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>
#include <cmocka.h>

#include "harness/dns_rig.h"

/* Appends a query with its length in front. */
static size_t frame(uint8_t *out, uint16_t id, const char *name)
{
    size_t n = dns_rig_query(out + 2, id, name, DNS_A);
    out[0] = (uint8_t)(n >> 8);
    out[1] = (uint8_t)n;
    return n + 2;
}

/* Reads replies until there are n, or nothing comes; returns how many. */
static unsigned hear_tcp(struct dns_rig *rig, int fd, unsigned n, struct dns_got *ret)
{
    static uint8_t p[1 << 16];
    size_t len = 0, at = 0;
    unsigned count = 0;
    for (int i = 0; i < 40 && count < n; i++) {
        dns_rig_settle(rig);
        ssize_t more = recv(fd, p + len, sizeof p - len, MSG_DONTWAIT);
        len += more > 0 ? (size_t)more : 0;
        while (count < n && len - at >= 2 && len - at - 2 >= ((size_t)p[at] << 8 | p[at + 1])) {
            size_t m = (size_t)p[at] << 8 | p[at + 1];
            ret[count++] = dns_rig_read(p + at + 2, m);
            at += m + 2;
        }
    }
    return count;
}

static void a_denied_name_is_never_asked_for(void **state)
{
    (void)state;
    struct dns_rig *rig = dns_rig_new(DNS_RIG_OK, &dns_rig_limits);
    assert_int_equal(dns_rig_asked(rig, "evil.test").rcode, DNS_NXDOMAIN);
    assert_int_equal(dns_rig_asked(rig, "ok.test.evil.test").rcode, DNS_NXDOMAIN);
    assert_int_equal(rig->asked, 0);
    assert_int_equal(rig->denied, 2);
    dns_rig_free(rig);
}

static void every_type_of_a_denied_name_is_denied_over_udp_and_tcp(void **state)
{
    (void)state;
    static const uint16_t types[] = {DNS_A,     DNS_AAAA, DNS_TXT,  DNS_MX,       10 /* NULL */,
                                     DNS_HTTPS, DNS_ANY,  DNS_AXFR, 33 /* SRV */, 65280};
    struct dns_rig *rig = dns_rig_new(DNS_RIG_OK, &dns_rig_limits);
    int udp = dns_rig_client(rig, false), tcp = dns_rig_client(rig, true);
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        uint8_t p[DNS_WRITE_MIN + 2] = {0};
        struct dns_got got;
        size_t n = dns_rig_query(p + 2, (uint16_t)i, "c2VjcmV0.evil.test", types[i]);
        p[1] = (uint8_t)n;
        assert_int_equal(send(udp, p + 2, n, 0), n);
        dns_rig_settle(rig);
        assert_int_equal(dns_rig_hear(udp).rcode, DNS_NXDOMAIN);
        assert_int_equal(send(tcp, p, n + 2, 0), n + 2);
        assert_int_equal(hear_tcp(rig, tcp, 1, &got), 1);
        assert_int_equal(got.rcode, DNS_NXDOMAIN);
    }
    assert_int_equal(rig->asked, 0);
    close(udp);
    close(tcp);
    dns_rig_free(rig);
}

/* What the client says beside its question is between it and us (DNS-09). */
static void the_upstream_is_asked_in_our_own_words(void **state)
{
    (void)state;
    static const char options[] = "\0\10\0\7\0\1\30\0\300\0\2" /* client subnet */
                                  "\0\12\0\10cookie!!";
    struct dns_rig *rig = dns_rig_new(DNS_RIG_OK, &dns_rig_limits);
    int fd = dns_rig_client(rig, false);
    unsigned same = 0;
    rig->silent = true;
    for (unsigned i = 0; i < 8; i++) {
        char name[32];
        uint8_t p[DNS_WRITE_MIN];
        struct dns_writer w;
        struct dns_question q = {.type = DNS_A, .class = DNS_IN};
        snprintf(name, sizeof name, "n%u.ok.test", i);
        assert_true(dns_name_parse(str_of(name), &q.name));
        dns_write(&w, p, sizeof p, 7, DNS_RD);
        dns_write_question(&w, &q);
        dns_write_edns(
            &w, &(struct dns_edns){.udp_size = 4096, .options = {options, sizeof options - 1}});
        size_t n = dns_write_end(&w);
        assert_int_equal(send(fd, p, n, 0), n);
    }
    dns_rig_settle(rig);
    assert_int_equal(rig->nkept, 8);
    for (unsigned i = 0; i < 8; i++) {
        assert_int_equal(rig->kept[i].udp_size, 1232);
        assert_int_equal(rig->kept[i].options, 0);
        same += rig->kept[i].id == 7;
    }
    assert_true(same < 8);
    close(fd);
    dns_rig_free(rig);
}

static void an_answer_comes_from_the_cache_with_its_ttl_counted_down(void **state)
{
    (void)state;
    struct dns_rig *rig = dns_rig_new(DNS_RIG_OK, &dns_rig_limits);
    assert_int_equal(dns_rig_asked(rig, "ok.test").ttl, 60);
    dns_rig_pass(rig, 10000);
    struct dns_got got = dns_rig_asked(rig, "oK.tEsT");
    assert_int_equal(got.ttl, 50);
    assert_memory_equal(got.name.b, "\2oK\4tEsT", 9);
    assert_int_equal(rig->asked, 1);
    dns_rig_pass(rig, 51000);
    assert_int_equal(dns_rig_asked(rig, "ok.test").ttl, 60);
    assert_true(rig->asked >= 2); /* upkeep, whose rounds are jittered, may just have asked too */
    dns_rig_free(rig);
}

static void an_answer_with_ttl_0_is_not_kept(void **state)
{
    (void)state;
    struct dns_rig *rig = dns_rig_new(DNS_RIG_OK, &dns_rig_limits);
    rig->answer = " 0 A 192.0.2.1";
    dns_rig_asked(rig, "ok.test");
    dns_rig_asked(rig, "ok.test");
    assert_int_equal(rig->asked, 2);
    dns_rig_free(rig);
}

static void without_a_cache_each_question_is_asked(void **state)
{
    (void)state;
    struct dns_limits limits = dns_rig_limits;
    limits.cache_entries = 0;
    struct dns_rig *rig = dns_rig_new(DNS_RIG_OK, &limits);
    assert_int_equal(dns_rig_asked(rig, "ok.test").rcode, DNS_NOERROR);
    assert_int_equal(dns_rig_asked(rig, "ok.test").rcode, DNS_NOERROR);
    assert_int_equal(rig->asked, 2);
    dns_rig_free(rig);
}

/* One reply cannot answer it; that a denied name is denied comes first. */
static void a_zone_transfer_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        uint16_t type, class;
        int rcode;
    } rows[] = {{"ok.test", DNS_AXFR, DNS_IN, DNS_REFUSED},
                {"ok.test", DNS_IXFR, DNS_IN, DNS_REFUSED},
                {"ok.test", DNS_A, DNS_NONE, DNS_REFUSED},
                {"evil.test", DNS_AXFR, DNS_IN, DNS_NXDOMAIN},
                {"evil.test", DNS_A, DNS_NONE, DNS_NXDOMAIN}};
    struct dns_rig *rig = dns_rig_new(DNS_RIG_OK, &dns_rig_limits);
    int fd = dns_rig_client(rig, false);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        uint8_t p[DNS_WRITE_MIN];
        size_t n = dns_rig_query(p, 1, rows[i].name, rows[i].type);
        p[n - 1] = (uint8_t)rows[i].class;
        assert_int_equal(send(fd, p, n, 0), n);
        dns_rig_settle(rig);
        assert_int_equal(dns_rig_hear(fd).rcode, rows[i].rcode);
    }
    assert_int_equal(rig->asked, 0);
    assert_int_equal(rig->told, 5);
    close(fd);
    dns_rig_free(rig);
}

static void equal_questions_are_asked_once(void **state)
{
    (void)state;
    struct dns_rig *rig = dns_rig_new(DNS_RIG_OK, &dns_rig_limits);
    int fd[5];
    rig->silent = true;
    for (int i = 0; i < 5; i++) {
        fd[i] = dns_rig_client(rig, false);
        dns_rig_ask(fd[i], (uint16_t)(100 + i), i % 2 ? "ok.test" : "OK.test");
    }
    dns_rig_settle(rig);
    assert_int_equal(rig->asked, 1);
    dns_rig_answer(rig, &rig->kept[0]);
    dns_rig_settle(rig);
    for (int i = 0; i < 5; i++) {
        struct dns_got got = dns_rig_hear(fd[i]);
        assert_int_equal(got.id, 100 + i);
        assert_int_equal(got.answers, 1);
        assert_int_equal(got.name.b[1], i % 2 ? 'o' : 'O');
        close(fd[i]);
    }
    dns_rig_free(rig);
}

static void more_than_may_wait_are_told_servfail(void **state)
{
    (void)state;
    struct dns_limits limits = dns_rig_limits;
    limits.in_flight = 8;
    struct dns_rig *rig = dns_rig_new(DNS_RIG_OK, &limits);
    unsigned servfail = 0, silent = 0;
    int fd[12];
    rig->silent = true;
    for (int i = 0; i < 12; i++) {
        char name[32];
        snprintf(name, sizeof name, "n%d.ok.test", i);
        fd[i] = dns_rig_client(rig, false);
        dns_rig_ask(fd[i], 1, name);
    }
    dns_rig_settle(rig);
    assert_int_equal(dns_service_waiting(rig->dns), 8);
    for (int i = 0; i < 12; i++) {
        int rcode = dns_rig_hear(fd[i]).rcode;
        servfail += rcode == DNS_SERVFAIL;
        silent += rcode == -1;
        close(fd[i]);
    }
    assert_int_equal(servfail, 4);
    assert_int_equal(silent, 8);
    dns_rig_free(rig);
}

static void a_silent_upstream_means_servfail_in_time(void **state)
{
    (void)state;
    struct dns_rig *rig = dns_rig_new(DNS_RIG_OK, &dns_rig_limits);
    rig->silent = true;
    int fd = dns_rig_client(rig, false);
    dns_rig_ask(fd, 3, "ok.test");
    dns_rig_pass(rig, 4800);
    assert_int_equal(dns_rig_hear(fd).rcode, -1);
    dns_rig_pass(rig, 400);
    assert_int_equal(dns_rig_hear(fd).rcode, DNS_SERVFAIL);
    assert_int_equal(dns_service_waiting(rig->dns), 0);
    close(fd);
    dns_rig_free(rig);
}

static void names_below_one_domain_are_asked_for_at_a_rate(void **state)
{
    (void)state;
    struct dns_limits limits = dns_rig_limits;
    limits.domain_asks = (struct rate){10, 20};
    struct dns_rig *rig = dns_rig_new(DNS_RIG_OK, &limits);
    for (int i = 0; i < 30; i++) {
        char name[32];
        snprintf(name, sizeof name, "n%d.ok.test", i);
        dns_rig_asked(rig, name);
    }
    assert_int_equal(rig->asked, 20);
    assert_int_equal(dns_rig_asked(rig, "n0.ok.test").rcode, DNS_NOERROR); /* from the cache */
    dns_rig_pass(rig, 1000);
    assert_int_equal(dns_rig_asked(rig, "n29.ok.test").rcode, DNS_NOERROR);
    dns_rig_free(rig);
}

/* ---- the kernel */

static void a_reply_waits_for_the_kernel(void **state)
{
    (void)state;
    struct dns_rig *rig = dns_rig_new(DNS_RIG_OK, &dns_rig_limits);
    rig->kernel = KERNEL_IS_SLOW;
    int fd = dns_rig_client(rig, false);
    dns_rig_ask(fd, 3, "ok.test");
    dns_rig_pass(rig, 1000);
    assert_int_equal(dns_rig_hear(fd).rcode, -1);
    dns_rig_kernel_catches_up(rig);
    dns_rig_settle(rig);
    assert_int_equal(dns_rig_hear(fd).answers, 1);
    assert_int_equal(dns_rig_asked(rig, "ok.test").answers, 1); /* its lease runs */
    assert_int_equal(rig->norders, 0);
    close(fd);
    dns_rig_free(rig);
}

static void a_kernel_that_takes_too_long_means_servfail(void **state)
{
    (void)state;
    struct dns_rig *rig = dns_rig_new(DNS_RIG_OK, &dns_rig_limits);
    rig->kernel = KERNEL_IS_SLOW;
    int fd = dns_rig_client(rig, false);
    dns_rig_ask(fd, 3, "ok.test");
    dns_rig_pass(rig, 5200);
    struct dns_got got = dns_rig_hear(fd);
    assert_int_equal(got.rcode, DNS_SERVFAIL);
    assert_int_equal(got.answers, 0);
    dns_rig_kernel_catches_up(rig); /* nobody hears */
    dns_rig_settle(rig);
    assert_int_equal(dns_rig_hear(fd).rcode, -1);
    close(fd);
    dns_rig_free(rig);
}

static void a_kernel_that_refuses_means_servfail(void **state)
{
    (void)state;
    struct dns_rig *rig = dns_rig_new(DNS_RIG_OK, &dns_rig_limits);
    rig->kernel = KERNEL_REFUSES;
    assert_int_equal(dns_rig_asked(rig, "ok.test").rcode, DNS_SERVFAIL);
    assert_int_equal(leases_counts(rig->leases).leases, 0);
    assert_int_equal(leases_counts(rig->leases).failed, 1);
    rig->kernel = KERNEL_OBEYS;
    assert_int_equal(dns_rig_asked(rig, "ok.test").rcode, DNS_NOERROR);
    dns_rig_free(rig);
}

static void a_full_table_means_servfail_and_pushes_nobody_out(void **state)
{
    (void)state;
    struct dns_rig *rig = dns_rig_new(DNS_RIG_OK, &dns_rig_limits);
    struct ip ip;
    for (int i = 0; i < 130; i++) {
        char name[32], record[32];
        snprintf(name, sizeof name, "n%d.ok.test", i);
        snprintf(record, sizeof record, " 60 A 192.0.2.%d", i);
        rig->answer = record;
        assert_int_equal(dns_rig_asked(rig, name).rcode, i < 128 ? DNS_NOERROR : DNS_SERVFAIL);
    }
    assert_int_equal(leases_counts(rig->leases).full, 2);
    assert_true(ip_parse(STR("192.0.2.0"), &ip));
    assert_true(leases_covers(rig->leases, STR("n0.ok.test"), &ip, dns_rig_now()));
    dns_rig_free(rig);
}

/* ---- changes */

static void adopt(struct dns_rig *rig, const char *policy, struct gate_rules *rules)
{
    *rules = (struct gate_rules){.policy = dns_rig_policy(policy)};
    dns_service_adopt(rig->dns, rules, NULL);
}

static void what_waits_is_judged_by_the_rules_of_its_answer(void **state)
{
    (void)state;
    struct dns_rig *rig = dns_rig_new(DNS_RIG_OK, &dns_rig_limits);
    struct gate_rules fresh;
    rig->silent = true;
    int fd = dns_rig_client(rig, false);
    dns_rig_ask(fd, 3, "ok.test");
    dns_rig_settle(rig);
    adopt(rig, "{}", &fresh);
    dns_rig_answer(rig, &rig->kept[0]);
    dns_rig_settle(rig);
    assert_int_equal(dns_rig_hear(fd).rcode, DNS_NXDOMAIN);
    assert_int_equal(leases_counts(rig->leases).leases, 0);
    close(fd);
    dns_rig_free(rig);
    policy_free((struct policy *)fresh.policy);
}

static void a_lease_under_way_does_not_outlive_its_permission(void **state)
{
    (void)state;
    struct dns_rig *rig = dns_rig_new(DNS_RIG_OK, &dns_rig_limits);
    struct gate_rules fresh;
    rig->kernel = KERNEL_IS_SLOW;
    int fd = dns_rig_client(rig, false);
    dns_rig_ask(fd, 3, "ok.test");
    dns_rig_settle(rig);
    assert_int_equal(rig->norders, 1);
    adopt(rig, "{}", &fresh);
    assert_int_equal(rig->withdrawn, 1);
    dns_rig_kernel_catches_up(rig);
    dns_rig_settle(rig);
    assert_int_equal(dns_rig_hear(fd).rcode, DNS_NXDOMAIN);
    assert_int_equal(rig->withdrawn, 2); /* the order may have been carried out after it */
    close(fd);
    dns_rig_free(rig);
    policy_free((struct policy *)fresh.policy);
}

/* ---- TCP */

static bool is_closed(int fd)
{
    char c;
    ssize_t n = recv(fd, &c, 1, MSG_DONTWAIT);
    return n == 0 || (n < 0 && errno != EAGAIN);
}

static void tcp_answers_pipelined_queries(void **state)
{
    (void)state;
    struct dns_rig *rig = dns_rig_new(DNS_RIG_OK, &dns_rig_limits);
    struct dns_got got[12];
    uint8_t p[4096];
    size_t n = 0;
    int fd = dns_rig_client(rig, true);
    for (uint16_t i = 0; i < 12; i++) {
        char name[32];
        snprintf(name, sizeof name, "n%d.%s", i, i % 3 ? "ok.test" : "evil.test");
        n += frame(p + n, i, name);
    }
    assert_int_equal(send(fd, p, n, 0), n);
    assert_int_equal(hear_tcp(rig, fd, 12, got), 12);
    unsigned ids = 0;
    for (int i = 0; i < 12; i++) {
        ids |= 1u << got[i].id;
        assert_int_equal(got[i].rcode, got[i].id % 3 ? DNS_NOERROR : DNS_NXDOMAIN);
    }
    assert_int_equal(ids, 0xfff);
    close(fd);
    dns_rig_free(rig);
}

static void tcp_takes_a_query_in_single_bytes(void **state)
{
    (void)state;
    struct dns_rig *rig = dns_rig_new(DNS_RIG_OK, &dns_rig_limits);
    struct dns_got got;
    uint8_t p[DNS_WRITE_MIN + 2];
    size_t n = frame(p, 9, "ok.test");
    int fd = dns_rig_client(rig, true);
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(send(fd, p + i, 1, 0), 1);
        dns_rig_settle(rig);
    }
    assert_int_equal(hear_tcp(rig, fd, 1, &got), 1);
    assert_int_equal(got.id, 9);
    close(fd);
    dns_rig_free(rig);
}

static void tcp_that_drips_is_cut(void **state)
{
    (void)state;
    struct dns_rig *rig = dns_rig_new(DNS_RIG_OK, &dns_rig_limits);
    uint8_t p[DNS_WRITE_MIN + 2];
    frame(p, 9, "ok.test");
    int fd = dns_rig_client(rig, true);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(send(fd, p + i, 1, 0), 1);
        dns_rig_pass(rig, 500);
    }
    assert_false(is_closed(fd));
    dns_rig_pass(rig, 700);
    assert_true(is_closed(fd));
    close(fd);
    dns_rig_free(rig);
}

static void tcp_answers_before_it_ends_after_the_clients_fin(void **state)
{
    (void)state;
    struct dns_rig *rig = dns_rig_new(DNS_RIG_OK, &dns_rig_limits);
    struct dns_got got;
    uint8_t p[DNS_WRITE_MIN + 2];
    size_t n = frame(p, 9, "ok.test");
    int fd = dns_rig_client(rig, true);
    rig->silent = true;
    assert_int_equal(send(fd, p, n, 0), n);
    shutdown(fd, SHUT_WR);
    dns_rig_settle(rig);
    dns_rig_answer(rig, &rig->kept[0]);
    assert_int_equal(hear_tcp(rig, fd, 1, &got), 1);
    dns_rig_settle(rig);
    assert_true(is_closed(fd));
    close(fd);
    dns_rig_free(rig);
}

static void tcp_holds_back_a_client_that_asks_too_much_at_once(void **state)
{
    (void)state;
    struct dns_rig *rig = dns_rig_new(DNS_RIG_OK, &dns_rig_limits);
    struct dns_got got[10];
    uint8_t p[4096];
    size_t n = 0;
    int fd = dns_rig_client(rig, true);
    rig->silent = true;
    for (uint16_t i = 0; i < 10; i++) {
        char name[32];
        snprintf(name, sizeof name, "n%d.ok.test", i);
        n += frame(p + n, i, name);
    }
    assert_int_equal(send(fd, p, n, 0), n);
    dns_rig_settle(rig);
    assert_int_equal(rig->asked, 4);
    rig->silent = false;
    for (unsigned i = 0; i < rig->nkept; i++)
        dns_rig_answer(rig, &rig->kept[i]);
    assert_int_equal(hear_tcp(rig, fd, 10, got), 10);
    close(fd);
    dns_rig_free(rig);
}

static void tcp_ends_after_so_many_queries(void **state)
{
    (void)state;
    struct dns_rig *rig = dns_rig_new(DNS_RIG_OK, &dns_rig_limits);
    struct dns_got got[25];
    uint8_t p[4096];
    size_t n = 0;
    int fd = dns_rig_client(rig, true);
    for (uint16_t i = 0; i < 25; i++)
        n += frame(p + n, i, "evil.test");
    assert_int_equal(send(fd, p, n, 0), n);
    assert_int_equal(hear_tcp(rig, fd, 25, got), 20);
    dns_rig_pass(rig, 8200);
    assert_true(is_closed(fd));
    close(fd);
    dns_rig_free(rig);
}

static void tcp_connections_are_counted(void **state)
{
    (void)state;
    struct dns_rig *rig = dns_rig_new(DNS_RIG_OK, &dns_rig_limits);
    int fd[6];
    for (int i = 0; i < 6; i++) {
        fd[i] = dns_rig_client(rig, true);
        dns_rig_settle(rig);
    }
    for (int i = 0; i < 6; i++)
        assert_int_equal(is_closed(fd[i]), i >= 4);
    for (int i = 0; i < 6; i++)
        close(fd[i]);
    dns_rig_free(rig);
}

static void a_client_that_leaves_while_it_waits_is_forgotten(void **state)
{
    (void)state;
    struct dns_rig *rig = dns_rig_new(DNS_RIG_OK, &dns_rig_limits);
    uint8_t p[DNS_WRITE_MIN + 2];
    size_t n = frame(p, 9, "ok.test");
    int fd = dns_rig_client(rig, true);
    rig->silent = true;
    assert_int_equal(send(fd, p, n, 0), n);
    dns_rig_settle(rig);
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &(struct linger){1, 0}, sizeof(struct linger));
    close(fd);
    dns_rig_settle(rig);
    dns_rig_answer(rig, &rig->kept[0]);
    dns_rig_settle(rig);
    assert_int_equal(dns_service_waiting(rig->dns), 0);
    dns_rig_free(rig);
}

/* ---- upkeep */

static void a_name_in_use_is_looked_up_again_before_its_lease_ends(void **state)
{
    (void)state;
    struct dns_rig *rig = dns_rig_new(DNS_RIG_OK, &dns_rig_limits);
    struct ip ip;
    assert_true(ip_parse(STR("192.0.2.1"), &ip));
    dns_rig_asked(rig, "ok.test"); /* TTL 60: the lease runs for 120 s */
    for (int i = 0; i < 4; i++)
        dns_rig_pass(rig, 50000);
    assert_true(rig->asked >= 3);
    assert_true(leases_covers(rig->leases, STR("ok.test"), &ip, dns_rig_now()));
    dns_rig_free(rig);
}

static void a_name_that_lost_its_addresses_is_let_go(void **state)
{
    (void)state;
    struct dns_rig *rig = dns_rig_new(DNS_RIG_OK, &dns_rig_limits);
    dns_rig_asked(rig, "ok.test");
    rig->answer = " 60 A 192.0.2.99";
    for (int i = 0; i < 6; i++)
        dns_rig_pass(rig, 50000);
    assert_int_equal(leases_counts(rig->leases).leases, 0);
    assert_true(rig->asked <= 3);
    dns_rig_free(rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_denied_name_is_never_asked_for),
        cmocka_unit_test(every_type_of_a_denied_name_is_denied_over_udp_and_tcp),
        cmocka_unit_test(the_upstream_is_asked_in_our_own_words),
        cmocka_unit_test(an_answer_comes_from_the_cache_with_its_ttl_counted_down),
        cmocka_unit_test(an_answer_with_ttl_0_is_not_kept),
        cmocka_unit_test(without_a_cache_each_question_is_asked),
        cmocka_unit_test(a_zone_transfer_is_refused),
        cmocka_unit_test(equal_questions_are_asked_once),
        cmocka_unit_test(more_than_may_wait_are_told_servfail),
        cmocka_unit_test(a_silent_upstream_means_servfail_in_time),
        cmocka_unit_test(names_below_one_domain_are_asked_for_at_a_rate),
        cmocka_unit_test(a_reply_waits_for_the_kernel),
        cmocka_unit_test(a_kernel_that_takes_too_long_means_servfail),
        cmocka_unit_test(a_kernel_that_refuses_means_servfail),
        cmocka_unit_test(a_full_table_means_servfail_and_pushes_nobody_out),
        cmocka_unit_test(what_waits_is_judged_by_the_rules_of_its_answer),
        cmocka_unit_test(a_lease_under_way_does_not_outlive_its_permission),
        cmocka_unit_test(tcp_answers_pipelined_queries),
        cmocka_unit_test(tcp_takes_a_query_in_single_bytes),
        cmocka_unit_test(tcp_that_drips_is_cut),
        cmocka_unit_test(tcp_answers_before_it_ends_after_the_clients_fin),
        cmocka_unit_test(tcp_holds_back_a_client_that_asks_too_much_at_once),
        cmocka_unit_test(tcp_ends_after_so_many_queries),
        cmocka_unit_test(tcp_connections_are_counted),
        cmocka_unit_test(a_client_that_leaves_while_it_waits_is_forgotten),
        cmocka_unit_test(a_name_in_use_is_looked_up_again_before_its_lease_ends),
        cmocka_unit_test(a_name_that_lost_its_addresses_is_let_go),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
