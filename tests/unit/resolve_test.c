/* resolve_test.c — a real worker asks scripted DNS servers on loopback.  Time stands still unless a
 * test lets it pass, so nothing here waits, and nothing depends on how fast the machine is. */
#include "net/resolve.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "harness/dns_server.h"
#include "net/hostfiles.h"
#include "net/worker_impl.h"

static uint64_t now_ms;

uint64_t __wrap_uv_now(const uv_loop_t *loop);
uint64_t __wrap_uv_now(const uv_loop_t *loop)
{
    (void)loop;
    return now_ms;
}

struct rig {
    struct worker *w;
    struct names *names;
    struct dns_server *servers;
    void (*handle)(struct rig *rig, const struct dns_asked *a);
    char dir[64], resolv[96], hosts[96];
    char log[8192]; /* a line for each question: server, protocol, name, type */
    size_t log_n;
    struct dns_asked kept[8]; /* for replies that come late */
    unsigned nkept;
    uint16_t ports[512];
    unsigned nports;
};

/* What a resolve came to. */
struct outcome {
    bool told;
    enum why why;
    char ips[1024];
};

static void on_done(void *user, const struct ip *ips, unsigned n, enum why why)
{
    struct outcome *o = user;
    char text[IP_TEXT_BYTES];
    size_t len = 0;
    assert_false(o->told);
    assert_int_equal(why == WHY_OK, n > 0);
    o->told = true;
    o->why = why;
    for (unsigned i = 0; i < n; i++)
        len += (size_t)snprintf(o->ips + len, sizeof o->ips - len, "%s%.*s", i ? " " : "",
                                (int)ip_text(&ips[i], text), text);
}

/* ---- the rig ---- */

static void write_file(const char *path, const char *text)
{
    char other[128];
    snprintf(other, sizeof other, "%s.new", path);
    FILE *f = fopen(other, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
    assert_int_equal(rename(other, path), 0);
}

static void handle(void *user, const struct dns_asked *a)
{
    struct rig *rig = user;
    char name[DNS_NAME_TEXT_BYTES];
    struct dns_name lower = a->q.name;
    dns_name_lower(&lower);
    int n = (int)dns_name_text(&lower, name);
    rig->log_n +=
        (size_t)snprintf(rig->log + rig->log_n, sizeof rig->log - rig->log_n, "%u %s %.*s %s\n",
                         dns_server_index(a->server) + 1, a->tcp ? "tcp" : "udp", n, name,
                         a->q.type == DNS_A      ? "A"
                         : a->q.type == DNS_AAAA ? "AAAA"
                                                 : "NS");
    assert_true(rig->log_n < sizeof rig->log);
    rig->handle(rig, a);
}

static void silent(struct rig *rig, const struct dns_asked *a)
{
    (void)rig;
    (void)a;
}

static struct rig *rig_new(const char *resolv,
                           void (*on)(struct rig *rig, const struct dns_asked *a))
{
    struct rig *rig = mem_new(sizeof *rig);
    struct names_files files = {0};
    now_ms = 1000000;
    rig->handle = on;
    rig->servers = dns_servers_new(3, &files.dns_port, handle, rig);
    snprintf(rig->dir, sizeof rig->dir, "/tmp/resolve_test.XXXXXX");
    assert_non_null(mkdtemp(rig->dir));
    snprintf(rig->resolv, sizeof rig->resolv, "%s/resolv.conf", rig->dir);
    snprintf(rig->hosts, sizeof rig->hosts, "%s/hosts", rig->dir);
    write_file(rig->resolv, resolv);
    files.resolv_conf = rig->resolv;
    files.hosts = rig->hosts;
    rig->w = worker_new(0);
    rig->names = names_new(rig->w, &files);
    return rig;
}

static void rig_free(struct rig *rig)
{
    names_free(rig->names);
    worker_free(rig->w);
    dns_servers_free(rig->servers);
    unlink(rig->resolv);
    unlink(rig->hosts);
    rmdir(rig->dir);
    mem_free(rig);
}

/* Turns until nothing more comes of it. */
static void settle(struct rig *rig)
{
    for (int quiet = 0; quiet < 5; quiet++) {
        worker_turn(rig->w);
        wheel_turn(&rig->w->wheel, worker_now(rig->w));
        if (dns_servers_step(rig->servers) > 0)
            quiet = 0;
    }
}

static void pass(struct rig *rig, uint64_t ms)
{
    settle(rig);
    for (uint64_t step; ms > 0; ms -= step) {
        step = ms < WHEEL_SLOT_MS ? ms : WHEEL_SLOT_MS;
        now_ms += step;
        settle(rig);
    }
}

static struct resolve *start(struct rig *rig, const char *host, uint64_t timeout_ms,
                             struct outcome *o)
{
    *o = (struct outcome){0};
    struct resolve *r = resolve_start(rig->names, str_of(host), timeout_ms, on_done, o);
    assert_false(o->told); /* never before it returns */
    return r;
}

static void check(const char *host, const struct outcome *o, const char *want)
{
    if (!o->told)
        fail_msg("%s: nothing, not %s", host, want);
    const char *got = o->why == WHY_OK ? o->ips : why_text(o->why);
    if (strcmp(got, want) != 0)
        fail_msg("%s: %s, not %s", host, got, want);
}

/* Without any time passing. */
static void expect(struct rig *rig, const char *host, const char *want)
{
    struct outcome o;
    start(rig, host, 60000, &o);
    for (int i = 0; i < 200 && !o.told; i++) /* TCP on loopback takes a few turns */
        settle(rig);
    check(host, &o, want);
}

static void expect_log(struct rig *rig, const char *want)
{
    if (strcmp(rig->log, want) != 0)
        fail_msg("asked:\n%snot:\n%s", rig->log, want);
    rig->log[0] = 0;
    rig->log_n = 0;
}

static unsigned count(const char *log, const char *line)
{
    unsigned n = 0;
    for (const char *at = log; (at = strstr(at, line)); at++)
        n++;
    return n;
}

/* ---- answers ---- */

static bool asks(const struct dns_asked *a, const char *name)
{
    struct dns_name n;
    assert_true(dns_name_parse(str_of(name), &n));
    return dns_name_eq(&n, &a->q.name);
}

static const char *asked_name(const struct dns_asked *a)
{
    static char text[DNS_NAME_TEXT_BYTES];
    text[dns_name_text(&a->q.name, text)] = 0;
    return text;
}

static void answer_code(const struct dns_asked *a, unsigned flags)
{
    struct dns_reply r;
    dns_reply_begin(&r, a, flags);
    if ((flags & DNS_RCODE_MASK) == DNS_NXDOMAIN || flags == 0)
        dns_reply_soa(&r, "test", 30, 30);
    dns_reply_send(&r);
}

/* With the A or the AAAA, or with nothing if that is NULL. */
static void answer(const struct dns_asked *a, const char *four, const char *six, uint32_t ttl)
{
    struct dns_reply r;
    const char *ip = a->q.type == DNS_A ? four : a->q.type == DNS_AAAA ? six : NULL;
    if (!ip) {
        answer_code(a, 0);
        return;
    }
    dns_reply_begin(&r, a, 0);
    dns_reply_ip(&r, asked_name(a), ip, ttl);
    dns_reply_send(&r);
}

static void both(struct rig *rig, const struct dns_asked *a)
{
    (void)rig;
    answer(a, "192.0.2.1", "2001:db8::1", 30);
}

static void four_only(struct rig *rig, const struct dns_asked *a)
{
    (void)rig;
    answer(a, "192.0.2.1", NULL, 30);
}

/* ---- tests: answers ---- */

#define ONE "nameserver 127.0.0.1\n"
#define TWO "nameserver 127.0.0.1\nnameserver 127.0.0.2\n"

static void a_name_is_asked_for_in_both_families_and_ipv4_comes_first(void **state)
{
    (void)state;
    struct rig *rig = rig_new(ONE, both);
    expect(rig, "a.test", "192.0.2.1 2001:db8::1");
    expect_log(rig, "1 udp a.test A\n1 udp a.test AAAA\n");
    rig_free(rig);
}

static void many(struct rig *rig, const struct dns_asked *a)
{
    (void)rig;
    struct dns_reply r;
    char ip[32];
    dns_reply_begin(&r, a, 0);
    for (int i = 9; i >= 0; i--) {
        snprintf(ip, sizeof ip, a->q.type == DNS_A ? "192.0.2.%d" : "2001:db8::%d", i);
        dns_reply_ip(&r, "a.test", ip, 30);
    }
    dns_reply_send(&r);
}

static void at_most_sixteen_addresses_come_in_the_order_of_the_server(void **state)
{
    (void)state;
    struct rig *rig = rig_new(ONE, many);
    expect(rig, "a.test",
           "192.0.2.9 192.0.2.8 192.0.2.7 192.0.2.6 192.0.2.5 192.0.2.4 192.0.2.3 192.0.2.2 "
           "192.0.2.1 192.0.2.0 "
           "2001:db8::9 2001:db8::8 2001:db8::7 2001:db8::6 2001:db8::5 2001:db8::4");
    rig_free(rig);
}

static void literals_are_their_own_answer_in_the_next_turn(void **state)
{
    (void)state;
    static const char *const rows[][2] = {
        {"192.0.2.7", "192.0.2.7"},
        {"::1", "::1"},
        {"[::1]", "::1"},
        {"[2001:DB8::1]", "2001:db8::1"},
        {"[::ffff:192.0.2.7]", "192.0.2.7"},
    };
    struct rig *rig = rig_new(ONE, both);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        expect(rig, rows[i][0], rows[i][1]);
    expect_log(rig, "");
    rig_free(rig);
}

static void what_is_no_name_and_no_address_is_never_asked_for(void **state)
{
    (void)state;
    static const char *const rows[] = {
        "",           ".",        "a..b",           "a b",         "a/b",
        "a:80",       "[::1",     "::1]",           "[192.0.2.1]", "[a.test]",
        "10.0.0.256", "127.1",    "1.2.3.4.5",      "0x7f.0x1",    "a.0x7f",
        "5",          "1.2.3.4.", "b\xc3\xbc.test", "fe80::1%lo",
    };
    struct rig *rig = rig_new(ONE, both);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        expect(rig, rows[i], "dns");
    char longest[260];
    memset(longest, 'a', sizeof longest);
    longest[63] = longest[127] = longest[191] = '.';
    longest[254] = 0;
    expect(rig, longest, "dns");
    expect_log(rig, "");
    longest[253] = 0;
    expect(rig, longest, "192.0.2.1 2001:db8::1");
    rig_free(rig);
}

static void with_alias(struct rig *rig, const struct dns_asked *a)
{
    (void)rig;
    struct dns_reply r;
    dns_reply_begin(&r, a, 0);
    dns_reply_ip(&r, "evil.test", a->q.type == DNS_A ? "192.0.2.66" : "2001:db8::66", 30);
    dns_reply_alias(&r, "a.test", "b.test", 30);
    dns_reply_ip(&r, "b.test", a->q.type == DNS_A ? "192.0.2.2" : "2001:db8::2", 30);
    dns_reply_send(&r);
}

static void aliases_are_followed_and_other_records_left(void **state)
{
    (void)state;
    struct rig *rig = rig_new(ONE, with_alias);
    expect(rig, "a.test", "192.0.2.2 2001:db8::2");
    rig_free(rig);
}

static void one_family_is_enough(void **state)
{
    (void)state;
    struct rig *rig = rig_new(ONE, four_only);
    expect(rig, "a.test", "192.0.2.1");
    rig_free(rig);
}

static void no_such_name(struct rig *rig, const struct dns_asked *a)
{
    (void)rig;
    answer_code(a, DNS_NXDOMAIN);
}

static void a_name_that_is_not_there_is_remembered_as_its_soa_says(void **state)
{
    (void)state;
    struct rig *rig = rig_new(TWO, no_such_name);
    expect(rig, "a.test", "dns");
    expect_log(rig, "1 udp a.test A\n1 udp a.test AAAA\n"); /* and the second server is not asked */
    pass(rig, 29000);
    expect(rig, "a.test", "dns");
    expect_log(rig, "");
    pass(rig, 2000);
    rig->handle = both;
    expect(rig, "a.test", "192.0.2.1 2001:db8::1");
    rig_free(rig);
}

/* ---- tests: forgery ---- */

static void forge_then_answer(struct rig *rig, const struct dns_asked *a)
{
    struct dns_asked forged = *a;
    forged.id ^= 1;
    answer(&forged, "192.0.2.66", "2001:db8::66", 30);
    forged = *a;
    forged.q.type ^= DNS_A ^ DNS_AAAA;
    answer(&forged, "192.0.2.66", "2001:db8::66", 30);
    forged = *a;
    forged.q.class = 3;
    answer(&forged, "192.0.2.66", "2001:db8::66", 30);
    forged = *a;
    assert_true(dns_name_parse(STR("b.test"), &forged.q.name));
    answer(&forged, "192.0.2.66", "2001:db8::66", 30);
    sendto(a->fd, "\1\2\3", 3, 0, &a->from.sa, addr_len(&a->from.sa));
    struct dns_reply echo;
    dns_reply_begin(&echo, a, 0); /* all is right, but it is a question */
    dns_reply_ip(&echo, asked_name(a), a->q.type == DNS_A ? "192.0.2.66" : "2001:db8::66", 30);
    echo.p[2] &= 0x7f;
    dns_reply_send(&echo);
    dns_reply_begin(&echo, a, 0x2800); /* an update */
    dns_reply_ip(&echo, asked_name(a), a->q.type == DNS_A ? "192.0.2.66" : "2001:db8::66", 30);
    dns_reply_send(&echo);
    both(rig, a);
}

static void replies_with_another_id_or_question_are_ignored(void **state)
{
    (void)state;
    struct rig *rig = rig_new(ONE, forge_then_answer);
    expect(rig, "a.test", "192.0.2.1 2001:db8::1");
    expect_log(rig, "1 udp a.test A\n1 udp a.test AAAA\n");
    rig_free(rig);
}

static void respell_then_answer(struct rig *rig, const struct dns_asked *a)
{
    struct dns_asked forged = *a;
    forged.q.name.b[1] ^= 0x20;
    answer(&forged, "192.0.2.66", "2001:db8::66", 30);
    both(rig, a);
}

static void replies_in_another_spelling_are_ignored(void **state)
{
    (void)state;
    struct rig *rig = rig_new(ONE, respell_then_answer);
    expect(rig, "a.test", "192.0.2.1 2001:db8::1");
    rig_free(rig);
}

static void answer_from_elsewhere(struct rig *rig, const struct dns_asked *a)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct dns_asked other = *a;
    other.fd = socket(AF_INET, SOCK_DGRAM, 0);
    assert_true(other.fd >= 0 && bind(other.fd, (struct sockaddr *)&at, sizeof at) == 0);
    answer(&other, "192.0.2.66", "2001:db8::66", 30);
    close(other.fd);
    both(rig, a);
}

static void replies_from_another_address_are_ignored(void **state)
{
    (void)state;
    struct rig *rig = rig_new(ONE, answer_from_elsewhere);
    expect(rig, "a.test", "192.0.2.1 2001:db8::1");
    rig_free(rig);
}

static void note_port(struct rig *rig, const struct dns_asked *a)
{
    uint16_t port = addr_port(&a->from.sa);
    unsigned i = 0;
    while (i < rig->nports && rig->ports[i] != port)
        i++;
    rig->ports[i] = port;
    if (i == rig->nports)
        rig->nports++;
    assert_int_equal(a->udp_size, 1232);
    rig->log_n = 0;
    if (rig->nkept < 8)
        rig->kept[rig->nkept++] = *a;
    both(rig, a);
}

static void questions_differ_in_id_spelling_and_port(void **state)
{
    (void)state;
    struct rig *rig = rig_new(ONE, note_port);
    char name[96];
    for (int i = 0; i < 300; i++) {
        snprintf(name, sizeof name, "abcdefghijklmnopqrstuvwxyz.abcdefghijklmnopqrstuvwxyz.n%d", i);
        expect(rig, name, "192.0.2.1 2001:db8::1");
    }
    assert_true(rig->nports > 24 && rig->nports < 80); /* of 600 questions */
    for (unsigned i = 1; i < rig->nkept; i++) {
        assert_int_not_equal(memcmp(rig->kept[0].q.name.b, rig->kept[i].q.name.b, 50), 0);
        for (unsigned k = 0; k < i; k++)
            if (addr_port(&rig->kept[i].from.sa) == addr_port(&rig->kept[k].from.sa))
                assert_int_not_equal(rig->kept[k].id, rig->kept[i].id);
    }
    rig_free(rig);
}

/* ---- tests: servers ---- */

static void truncated(struct rig *rig, const struct dns_asked *a)
{
    if (a->tcp)
        many(rig, a);
    else
        answer_code(a, DNS_TC);
}

static void a_truncated_reply_is_asked_for_again_over_tcp(void **state)
{
    (void)state;
    struct rig *rig = rig_new(ONE, truncated);
    struct outcome o;
    start(rig, "a.test", 60000, &o);
    for (int i = 0; i < 200 && !o.told; i++)
        settle(rig);
    assert_true(o.told);
    assert_int_equal(o.why, WHY_OK);
    assert_int_equal(strncmp(o.ips, "192.0.2.9 192.0.2.8", 19), 0);
    assert_int_equal(count(rig->log, "1 udp a.test A\n"), 1);
    assert_int_equal(count(rig->log, "1 tcp a.test A\n"), 1);
    assert_int_equal(count(rig->log, "1 tcp a.test AAAA\n"), 1);
    rig_free(rig);
}

static void large_over_tcp(struct rig *rig, const struct dns_asked *a)
{
    (void)rig;
    struct dns_reply r;
    struct dns_name name;
    if (!a->tcp) {
        answer_code(a, DNS_TC);
        return;
    }
    static const char filler[1000];
    assert_true(dns_name_parse(STR("a.test"), &name));
    dns_reply_begin(&r, a, 0);
    for (int i = 0; i < 60; i++)
        dns_write_record(&r.w, DNS_ANSWER, &name, 16, DNS_IN, 1,
                         (struct str){filler, sizeof filler});
    dns_reply_ip(&r, "a.test", a->q.type == DNS_A ? "192.0.2.1" : "2001:db8::1", 30);
    dns_reply_send(&r);
}

static void replies_of_sixty_kilobytes_come_over_tcp(void **state)
{
    (void)state;
    struct rig *rig = rig_new(ONE, large_over_tcp);
    expect(rig, "a.test", "192.0.2.1 2001:db8::1");
    rig_free(rig);
}

static void truncated_then_closed(struct rig *rig, const struct dns_asked *a)
{
    if (a->tcp)
        shutdown(a->fd, SHUT_RDWR);
    else if (dns_server_index(a->server) == 0)
        answer_code(a, DNS_TC);
    else
        both(rig, a);
}

static void a_server_that_hangs_up_on_tcp_is_passed_over(void **state)
{
    (void)state;
    struct rig *rig = rig_new(TWO, truncated_then_closed);
    expect(rig, "a.test", "192.0.2.1 2001:db8::1");
    assert_int_equal(count(rig->log, "2 udp a.test A\n"), 1);
    rig_free(rig);
}

static void forged_over_tcp(struct rig *rig, const struct dns_asked *a)
{
    struct dns_asked forged = *a;
    forged.id ^= 1;
    if (a->tcp)
        answer(&forged, "192.0.2.66", "2001:db8::66", 30);
    else if (dns_server_index(a->server) == 0)
        answer_code(a, DNS_TC);
    else
        both(rig, a);
}

static void a_server_that_answers_something_else_over_tcp_is_passed_over(void **state)
{
    (void)state;
    struct rig *rig = rig_new(TWO, forged_over_tcp);
    expect(rig, "a.test", "192.0.2.1 2001:db8::1");
    assert_int_equal(count(rig->log, "1 tcp a.test A\n"), 1);
    assert_int_equal(count(rig->log, "2 udp a.test A\n"), 1);
    rig_free(rig);
}

static void first_fails(struct rig *rig, const struct dns_asked *a)
{
    if (dns_server_index(a->server) == 0)
        answer_code(a, DNS_SERVFAIL);
    else
        both(rig, a);
}

static void a_server_that_fails_is_passed_over_at_once(void **state)
{
    (void)state;
    struct rig *rig = rig_new(TWO, first_fails);
    expect(rig, "a.test", "192.0.2.1 2001:db8::1");
    assert_int_equal(count(rig->log, "1 udp"), 2);
    assert_int_equal(count(rig->log, "2 udp"), 2);
    rig_free(rig);
}

static void nonsense_from_first(struct rig *rig, const struct dns_asked *a)
{
    struct dns_reply r;
    if (dns_server_index(a->server) == 1) {
        both(rig, a);
        return;
    }
    dns_reply_begin(&r, a, 0);
    r.w.count[DNS_ANSWER] = 3; /* there are none */
    dns_reply_send(&r);
}

static void a_server_that_says_nonsense_is_passed_over_at_once(void **state)
{
    (void)state;
    struct rig *rig = rig_new(TWO, nonsense_from_first);
    expect(rig, "a.test", "192.0.2.1 2001:db8::1");
    rig_free(rig);
}

static void all_fail(struct rig *rig, const struct dns_asked *a)
{
    (void)rig;
    answer_code(a, DNS_REFUSED);
}

static void when_all_servers_fail_each_is_asked_once_and_a_second_is_waited(void **state)
{
    (void)state;
    struct rig *rig = rig_new(TWO, all_fail);
    expect(rig, "a.test", "dns");
    assert_int_equal(count(rig->log, "a.test A\n"), 2);
    expect_log(rig, rig->log);
    expect(rig, "a.test", "dns");
    expect_log(rig, "");
    pass(rig, 1100);
    rig->handle = both;
    expect(rig, "a.test", "192.0.2.1 2001:db8::1");
    rig_free(rig);
}

static void a_server_that_is_not_there_is_passed_over_at_once(void **state)
{
    (void)state;
    struct rig *rig = rig_new(TWO, both);
    dns_server_stop(dns_server_at(rig->servers, 0));
    expect(rig, "a.test", "192.0.2.1 2001:db8::1");
    expect_log(rig, "2 udp a.test A\n2 udp a.test AAAA\n");
    dns_server_stop(dns_server_at(rig->servers, 1));
    expect(rig, "b.test", "dns");
    rig_free(rig);
}

static void silent_first(struct rig *rig, const struct dns_asked *a)
{
    if (dns_server_index(a->server) == 0) {
        if (rig->nkept < 8)
            rig->kept[rig->nkept++] = *a;
        return;
    }
    both(rig, a);
}

static void a_silent_server_costs_its_share_of_the_time(void **state)
{
    (void)state;
    struct rig *rig = rig_new(TWO, silent_first);
    struct outcome o;
    start(rig, "a.test", 5000, &o);
    pass(rig, 1900);
    assert_false(o.told);
    pass(rig, 200);
    check("a.test", &o, "192.0.2.1 2001:db8::1");
    rig_free(rig);
}

static void silent_then_failing(struct rig *rig, const struct dns_asked *a)
{
    if (dns_server_index(a->server) == 1)
        answer_code(a, DNS_SERVFAIL);
    if (dns_server_index(a->server) == 2)
        both(rig, a);
}

static void a_failure_passes_on_at_once_though_another_server_may_still_answer(void **state)
{
    (void)state;
    struct rig *rig = rig_new(TWO "nameserver 127.0.0.3\n", silent_then_failing);
    struct outcome o;
    start(rig, "a.test", 60000, &o);
    pass(rig, 1800); /* the first one's share: timeout:5, attempts:2, six tries */
    check("a.test", &o, "192.0.2.1 2001:db8::1");
    rig_free(rig);
}

static void a_silent_server_is_asked_last_until_a_probe_reaches_it(void **state)
{
    (void)state;
    struct rig *rig = rig_new(TWO, silent_first);
    struct outcome o;
    start(rig, "a.test", 5000, &o);
    pass(rig, 2100);
    start(rig, "b.test", 5000, &o); /* four questions passed by now */
    pass(rig, 2100);
    check("b.test", &o, "192.0.2.1 2001:db8::1");
    expect_log(rig, rig->log);
    expect(rig, "c.test", "192.0.2.1 2001:db8::1");
    expect_log(rig, "2 udp c.test A\n2 udp c.test AAAA\n");
    pass(rig, 1100);
    assert_int_equal(count(rig->log, "1 udp . NS\n"), 1);
    pass(rig, 60000);
    assert_in_range(count(rig->log, "1 udp . NS\n"), 5, 8); /* 1, 2, 4, 8, 16, 30 s apart */
    expect_log(rig, rig->log);
    rig->handle = all_fail; /* any reply will do */
    pass(rig, 31000);
    rig->handle = both;
    expect_log(rig, "1 udp . NS\n");
    pass(rig, 60000);
    expect_log(rig, "");
    expect(rig, "d.test", "192.0.2.1 2001:db8::1");
    expect_log(rig, "1 udp d.test A\n1 udp d.test AAAA\n");
    rig_free(rig);
}

static void a_lost_question_is_sent_again(void **state)
{
    (void)state;
    struct rig *rig = rig_new(ONE, silent);
    struct outcome o;
    start(rig, "a.test", 5000, &o);
    settle(rig);
    rig->handle = both;
    pass(rig, 2100);
    check("a.test", &o, "192.0.2.1 2001:db8::1");
    expect_log(rig, "1 udp a.test A\n1 udp a.test AAAA\n1 udp a.test A\n1 udp a.test AAAA\n");
    rig_free(rig);
}

static void a_late_reply_is_still_welcome(void **state)
{
    (void)state;
    struct rig *rig = rig_new(TWO, silent_first);
    struct outcome o;
    rig->handle = silent_first;
    dns_server_stop(dns_server_at(rig->servers, 1));
    start(rig, "a.test", 60000, &o);
    pass(rig, 3000);
    assert_false(o.told);
    answer(&rig->kept[0], "192.0.2.8", "2001:db8::8", 30);
    answer(&rig->kept[1], "192.0.2.8", "2001:db8::8", 30);
    settle(rig);
    check("a.test", &o, "192.0.2.8 2001:db8::8");
    rig_free(rig);
}

static void silence_ends_with_the_waiters_own_time(void **state)
{
    (void)state;
    struct rig *rig = rig_new(TWO, silent);
    struct outcome shorter, longer;
    start(rig, "a.test", 3000, &shorter);
    start(rig, "a.test", 60000, &longer);
    pass(rig, 2900);
    assert_false(shorter.told);
    pass(rig, 200);
    check("a.test", &shorter, "deadline");
    assert_false(longer.told);
    pass(rig, 6800);
    assert_false(longer.told);
    pass(rig, 500); /* timeout:5, attempts:2 */
    check("a.test", &longer, "dns");
    assert_int_equal(count(rig->log, "a.test A\n"), 4);
    rig_free(rig);
}

static void no_edns(struct rig *rig, const struct dns_asked *a)
{
    if (a->udp_size)
        answer_code(a, DNS_FORMERR);
    else
        both(rig, a);
}

static void a_server_without_edns_is_asked_without_it(void **state)
{
    (void)state;
    struct rig *rig = rig_new(ONE, no_edns);
    expect(rig, "a.test", "192.0.2.1 2001:db8::1");
    assert_int_equal(count(rig->log, "a.test"), 4);
    expect_log(rig, rig->log);
    expect(rig, "b.test", "192.0.2.1 2001:db8::1");
    expect_log(rig, "1 udp b.test A\n1 udp b.test AAAA\n");
    rig_free(rig);
}

static void folds_case(struct rig *rig, const struct dns_asked *a)
{
    struct dns_asked lower = *a;
    dns_name_lower(&lower.q.name);
    both(rig, &lower);
}

static void a_server_that_folds_case_is_found_out_over_tcp(void **state)
{
    (void)state;
    struct rig *rig = rig_new(ONE, folds_case);
    struct outcome o;
    const char *name = "abcdefghijklmnopqrstuvwxyz.test";
    start(rig, name, 60000, &o);
    pass(rig, 1500);
    assert_false(o.told);
    pass(rig, 700);
    for (int i = 0; i < 200 && !o.told; i++)
        settle(rig);
    check(name, &o, "192.0.2.1 2001:db8::1");
    assert_int_equal(count(rig->log, "tcp"), 2);
    expect_log(rig, rig->log);
    expect(rig, "zyxwvutsrqponmlkjihgfedcba.test",
           "192.0.2.1 2001:db8::1"); /* asked in lower case */
    assert_int_equal(count(rig->log, "tcp"), 0);
    rig_free(rig);
}

static void four_answers_six_is_silent(struct rig *rig, const struct dns_asked *a)
{
    if (a->q.type == DNS_A)
        both(rig, a);
}

static void one_family_does_not_wait_long_for_the_other(void **state)
{
    (void)state;
    struct rig *rig = rig_new(ONE, four_answers_six_is_silent);
    struct outcome o;
    start(rig, "a.test", 5000, &o);
    pass(rig, 100);
    assert_false(o.told);
    pass(rig, 150);
    check("a.test", &o, "192.0.2.1");
    expect(rig, "a.test", "192.0.2.1"); /* while the question goes on */
    rig_free(rig);
}

/* ---- tests: files ---- */

static void the_hosts_file_comes_first(void **state)
{
    (void)state;
    struct rig *rig = rig_new(ONE, both);
    write_file(rig->hosts, "# names\n2001:db8::5 Box.test box # "
                           "here\n192.0.2.5\tbox.test\n192.0.2.6 BOX.test.x\nnonsense box.test\n");
    pass(rig, 1100);
    expect(rig, "box.test", "192.0.2.5 2001:db8::5");
    expect(rig, "BOX.TEST.", "192.0.2.5 2001:db8::5");
    expect(rig, "box", "2001:db8::5");
    expect(rig, "localhost", "127.0.0.1 ::1"); /* which needs no line */
    expect(rig, "x.localhost", "127.0.0.1 ::1");
    expect_log(rig, "");
    write_file(rig->hosts, "192.0.2.77 box.test\n");
    expect(rig, "box.test", "192.0.2.5 2001:db8::5"); /* not looked at again so soon */
    pass(rig, 1100);
    expect(rig, "box.test", "192.0.2.77");
    unlink(rig->hosts);
    pass(rig, 1100);
    expect(rig, "box.test", "192.0.2.1 2001:db8::1");
    rig_free(rig);
}

static void inside(struct rig *rig, const struct dns_asked *a)
{
    if (asks(a, "db.two.test") || asks(a, "a.b.c"))
        both(rig, a);
    else
        answer_code(a, DNS_NXDOMAIN);
}

static void short_names_are_searched_for(void **state)
{
    (void)state;
    struct rig *rig = rig_new(ONE "search one.test two.test.\noptions ndots:2\n", inside);
    expect(rig, "db", "192.0.2.1 2001:db8::1");
    expect_log(rig, "1 udp db.one.test A\n1 udp db.one.test AAAA\n1 udp db.two.test A\n1 udp "
                    "db.two.test AAAA\n");
    expect(rig, "db", "192.0.2.1 2001:db8::1");
    expect_log(rig, "");
    expect(rig, "a.b.c", "192.0.2.1 2001:db8::1"); /* enough dots: itself first */
    expect_log(rig, "1 udp a.b.c A\n1 udp a.b.c AAAA\n");
    expect(rig, "a.b", "dns");
    assert_int_equal(count(rig->log, "a.b A\n"), 1);
    expect_log(rig, "1 udp a.b.one.test A\n1 udp a.b.one.test AAAA\n1 udp a.b.two.test A\n1 udp "
                    "a.b.two.test AAAA\n"
                    "1 udp a.b A\n1 udp a.b AAAA\n");
    expect(rig, "db.", "dns"); /* a final dot: nothing but itself */
    expect_log(rig, "1 udp db A\n1 udp db AAAA\n");
    rig_free(rig);
}

static void broken_domain(struct rig *rig, const struct dns_asked *a)
{
    if (asks(a, "db.one.test"))
        answer_code(a, DNS_SERVFAIL);
    else
        inside(rig, a);
}

static void a_search_domain_that_fails_does_not_end_the_search_but_silence_does(void **state)
{
    (void)state;
    struct rig *rig = rig_new(ONE "search one.test two.test\n", broken_domain);
    struct outcome o;
    expect(rig, "db", "192.0.2.1 2001:db8::1");
    expect_log(rig, rig->log);
    rig->handle = silent;
    start(rig, "web", 60000, &o);
    pass(rig, 11000);
    check("web", &o, "dns");
    assert_int_equal(count(rig->log, "web.one.test A\n"), 2);
    assert_int_equal(count(rig->log, "web.two.test"), 0);
    rig_free(rig);
}

static void by_server(struct rig *rig, const struct dns_asked *a)
{
    static const char *const four[] = {"192.0.2.1", "192.0.2.2", "192.0.2.3"};
    (void)rig;
    answer(a, four[dns_server_index(a->server)], NULL, 30);
}

static void resolv_conf_is_read_again_when_it_changes(void **state)
{
    (void)state;
    struct rig *rig = rig_new(ONE, by_server);
    struct outcome slow, o;
    expect(rig, "a.test", "192.0.2.1");
    rig->handle = silent;
    start(rig, "slow.test", 60000, &slow);
    start(rig, "b.test", 60000, &o);
    settle(rig);
    rig->handle = by_server;
    expect_log(rig, rig->log);
    write_file(rig->resolv, "nameserver 127.0.0.2\n");
    pass(rig, 1100);
    expect(rig, "a.test", "192.0.2.2");    /* asked anew: other servers, other answers */
    expect(rig, "slow.test", "192.0.2.2"); /* not joined to the old question */
    expect_log(rig, "2 udp a.test A\n2 udp a.test AAAA\n2 udp slow.test A\n2 udp slow.test AAAA\n");
    pass(rig, 1100);
    check("slow.test", &slow, "192.0.2.1");
    check("b.test", &o, "192.0.2.1"); /* what is under way keeps its servers ... */
    expect_log(rig, "1 udp slow.test A\n1 udp slow.test AAAA\n1 udp b.test A\n1 udp b.test AAAA\n");
    expect(rig, "slow.test", "192.0.2.2"); /* ... and tells nobody else what they said */
    expect(rig, "b.test", "192.0.2.2");
    rig_free(rig);
}

static void a_resolv_conf_without_servers_is_being_written(void **state)
{
    (void)state;
    struct rig *rig = rig_new("nameserver 127.0.0.2\n", by_server);
    struct outcome o;
    write_file(rig->resolv, "# ours\n");
    pass(rig, 1100);
    expect(rig, "a.test", "192.0.2.2");
    unlink(rig->resolv);
    pass(rig, 1100);
    expect(rig, "b.test", "192.0.2.2");
    write_file(rig->resolv, "nameserver 127.0.0.3\noptions timeout:1 attempts:1\n");
    pass(rig, 1100);
    expect(rig, "c.test", "192.0.2.3");
    rig->handle = silent;
    start(rig, "d.test", 60000, &o);
    pass(rig, 1100);
    check("d.test", &o, "dns");
    rig_free(rig);
}

static void without_resolv_conf_the_server_is_this_machine(void **state)
{
    (void)state;
    struct rig *rig = rig_new("", both);
    expect(rig, "a.test", "192.0.2.1 2001:db8::1");
    expect_log(rig, "1 udp a.test A\n1 udp a.test AAAA\n");
    rig_free(rig);
}

/* ---- tests: cache ---- */

static void an_answer_is_kept_for_its_ttl(void **state)
{
    (void)state;
    struct rig *rig = rig_new(ONE, both);
    expect(rig, "a.test", "192.0.2.1 2001:db8::1");
    expect_log(rig, rig->log);
    pass(rig, 29000);
    expect(rig, "A.Test", "192.0.2.1 2001:db8::1");
    expect_log(rig, "");
    pass(rig, 1500);
    expect(rig, "a.test", "192.0.2.1 2001:db8::1");
    expect_log(rig, "1 udp a.test A\n1 udp a.test AAAA\n");
    rig_free(rig);
}

static void for_a_week(struct rig *rig, const struct dns_asked *a)
{
    struct dns_reply r;
    (void)rig;
    if (asks(a, "there.test")) {
        answer(a, "192.0.2.1", "2001:db8::1", 7 * 86400);
        return;
    }
    dns_reply_begin(&r, a, DNS_NXDOMAIN);
    dns_reply_soa(&r, "test", 7 * 86400, 7 * 86400);
    dns_reply_send(&r);
}

static void nothing_counts_as_fresh_for_longer_than_an_hour_or_a_minute(void **state)
{
    (void)state;
    struct rig *rig = rig_new(ONE, for_a_week);
    expect(rig, "there.test", "192.0.2.1 2001:db8::1");
    expect(rig, "gone.test", "dns");
    rig->handle = four_only;
    pass(rig, 59000);
    expect(rig, "gone.test", "dns");
    pass(rig, 2000);
    expect(rig, "gone.test", "192.0.2.1");
    now_ms += 3535 * 1000;
    expect(rig, "there.test", "192.0.2.1 2001:db8::1");
    now_ms += 5 * 1000;
    expect(rig, "there.test", "192.0.2.1");
    rig_free(rig);
}

static void an_answer_without_ttl_is_used_once(void **state)
{
    (void)state;
    struct rig *rig = rig_new(ONE, all_fail);
    expect(rig, "b.test", "dns");
    for (int i = 0; i < 2; i++) {
        struct outcome o;
        rig->handle = silent_first;
        rig->nkept = 0;
        start(rig, "a.test", 5000, &o);
        settle(rig);
        assert_int_equal(rig->nkept, 2);
        answer(&rig->kept[0], "192.0.2.1", "2001:db8::1", 0);
        answer(&rig->kept[1], "192.0.2.1", "2001:db8::1", 0);
        settle(rig);
        check("a.test", &o, "192.0.2.1 2001:db8::1");
    }
    rig_free(rig);
}

static void a_stale_answer_serves_when_the_servers_fail(void **state)
{
    (void)state;
    struct rig *rig = rig_new(TWO, both);
    expect(rig, "a.test", "192.0.2.1 2001:db8::1");
    pass(rig, 31000);
    rig->handle = all_fail;
    expect_log(rig, rig->log);
    expect(rig, "a.test", "192.0.2.1 2001:db8::1");
    assert_int_equal(count(rig->log, "a.test A\n"), 2);
    expect_log(rig, rig->log);
    expect(rig, "a.test", "192.0.2.1 2001:db8::1"); /* for a while without asking */
    expect_log(rig, "");
    pass(rig, 5100);
    rig->handle = four_only;
    expect(rig, "a.test", "192.0.2.1");
    rig_free(rig);
}

static void a_stale_answer_serves_after_a_second_when_the_servers_are_silent(void **state)
{
    (void)state;
    struct rig *rig = rig_new(ONE "search one.test two.test\n", inside);
    struct outcome o;
    expect(rig, "db", "192.0.2.1 2001:db8::1");
    pass(rig, 31000);
    rig->handle = silent;
    start(rig, "db", 60000, &o); /* what it remembers of the first domain leads to the second */
    pass(rig, 900);
    assert_false(o.told);
    pass(rig, 200);
    check("db", &o, "192.0.2.1 2001:db8::1");
    expect(rig, "db", "192.0.2.1 2001:db8::1");
    pass(rig, 20000);
    start(rig, "db", 500, &o); /* and at the waiter's own end */
    pass(rig, 600);
    check("db", &o, "192.0.2.1 2001:db8::1");
    rig_free(rig);
}

static void a_stale_answer_is_not_kept_for_ever(void **state)
{
    (void)state;
    struct rig *rig = rig_new(ONE, both);
    expect(rig, "a.test", "192.0.2.1 2001:db8::1");
    now_ms += 30000 + 600000 + 1000;
    rig->handle = all_fail;
    expect(rig, "a.test", "dns");
    rig_free(rig);
}

static void a_fresh_answer_is_preferred_to_a_stale_one(void **state)
{
    (void)state;
    struct rig *rig = rig_new(ONE, both);
    expect(rig, "a.test", "192.0.2.1 2001:db8::1");
    pass(rig, 31000);
    rig->handle = no_such_name;
    expect(rig, "a.test", "dns");
    rig_free(rig);
}

/* ---- tests: waiters ---- */

static void ten_waiters_ask_one_question(void **state)
{
    (void)state;
    struct rig *rig = rig_new(ONE, both);
    struct outcome o[10];
    for (int i = 0; i < 10; i++)
        start(rig, i % 2 ? "a.test" : "A.TEST", 5000, &o[i]);
    settle(rig);
    for (int i = 0; i < 10; i++)
        check("a.test", &o[i], "192.0.2.1 2001:db8::1");
    expect_log(rig, "1 udp a.test A\n1 udp a.test AAAA\n");
    rig_free(rig);
}

static void who_cancels_hears_nothing_and_the_others_do(void **state)
{
    (void)state;
    struct rig *rig = rig_new(ONE, silent_first);
    struct outcome o[3], literal;
    struct resolve *r[3];
    for (int i = 0; i < 3; i++)
        r[i] = start(rig, "a.test", 5000, &o[i]);
    settle(rig);
    resolve_cancel(r[1]);
    resolve_cancel(start(rig, "192.0.2.1", 5000, &literal));
    answer(&rig->kept[0], "192.0.2.1", NULL, 30);
    answer(&rig->kept[1], "192.0.2.1", NULL, 30);
    settle(rig);
    check("a.test", &o[0], "192.0.2.1");
    check("a.test", &o[2], "192.0.2.1");
    assert_false(o[1].told);
    assert_false(literal.told);
    pass(rig, 6000);
    assert_false(o[1].told);
    rig_free(rig);
}

static void when_all_have_cancelled_the_answer_is_still_kept(void **state)
{
    (void)state;
    struct rig *rig = rig_new(ONE, both);
    struct outcome o;
    resolve_cancel(start(rig, "a.test", 5000, &o));
    settle(rig);
    assert_false(o.told);
    expect_log(rig, rig->log);
    expect(rig, "a.test", "192.0.2.1 2001:db8::1");
    expect_log(rig, "");
    rig_free(rig);
}

struct meddler {
    struct rig *rig;
    struct resolve *victim;
    struct outcome again, other;
    bool told;
};

static void on_meddle(void *user, const struct ip *ips, unsigned n, enum why why)
{
    struct meddler *m = user;
    (void)ips;
    assert_int_equal(why, WHY_OK);
    assert_true(n > 0);
    m->told = true;
    resolve_cancel(m->victim);
    start(m->rig, "a.test", 5000, &m->again);
    start(m->rig, "b.test", 5000, &m->other);
}

static void within_done_one_may_start_and_cancel(void **state)
{
    (void)state;
    struct rig *rig = rig_new(ONE, both);
    struct outcome victim;
    struct meddler m = {.rig = rig};
    resolve_start(rig->names, STR("a.test"), 5000, on_meddle, &m);
    m.victim = start(rig, "a.test", 5000, &victim);
    settle(rig);
    assert_true(m.told);
    assert_false(victim.told);
    check("a.test", &m.again, "192.0.2.1 2001:db8::1");
    check("b.test", &m.other, "192.0.2.1 2001:db8::1");
    m = (struct meddler){.rig = rig};
    resolve_start(rig->names, STR("192.0.2.1"), 5000, on_meddle,
                  &m); /* the same out of the next turn */
    m.victim = start(rig, "192.0.2.2", 5000, &victim);
    settle(rig);
    assert_true(m.told);
    assert_false(victim.told);
    rig_free(rig);
}

static void names_can_be_freed_with_everything_under_way(void **state)
{
    (void)state;
    struct rig *rig = rig_new(TWO, truncated);
    struct outcome o[3];
    start(rig, "a.test", 5000, &o[0]);
    worker_turn(rig->w);
    dns_servers_step(rig->servers);
    worker_turn(rig->w); /* TCP has begun */
    start(rig, "b.test", 5000, &o[1]);
    start(rig, "192.0.2.1", 5000, &o[2]);
    rig_free(rig);
    for (int i = 0; i < 3; i++)
        assert_false(o[i].told);
}

static void forgetful(struct rig *rig, const struct dns_asked *a)
{
    (void)a;
    rig->log_n = 0;
}

static void too_many_names_at_once_are_refused(void **state)
{
    (void)state;
    struct rig *rig = rig_new(ONE, forgetful);
    static struct outcome o[1024];
    struct outcome more;
    char name[32];
    for (int i = 0; i < 1024; i++) {
        snprintf(name, sizeof name, "n%d.test", i);
        start(rig, name, 2000, &o[i]);
        if (i % 64 == 0)
            settle(rig);
    }
    expect(rig, "more.test", "overload");
    start(rig, "n7.test", 2000, &more); /* joins */
    settle(rig);
    assert_false(more.told);
    expect(rig, "192.0.2.1", "192.0.2.1");
    pass(rig, 11000);
    for (int i = 0; i < 1024; i++)
        check("n", &o[i], "deadline");
    rig->handle = both;
    expect(rig, "more.test", "192.0.2.1 2001:db8::1");
    rig_free(rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_name_is_asked_for_in_both_families_and_ipv4_comes_first),
        cmocka_unit_test(at_most_sixteen_addresses_come_in_the_order_of_the_server),
        cmocka_unit_test(literals_are_their_own_answer_in_the_next_turn),
        cmocka_unit_test(what_is_no_name_and_no_address_is_never_asked_for),
        cmocka_unit_test(aliases_are_followed_and_other_records_left),
        cmocka_unit_test(one_family_is_enough),
        cmocka_unit_test(a_name_that_is_not_there_is_remembered_as_its_soa_says),
        cmocka_unit_test(replies_with_another_id_or_question_are_ignored),
        cmocka_unit_test(replies_in_another_spelling_are_ignored),
        cmocka_unit_test(replies_from_another_address_are_ignored),
        cmocka_unit_test(questions_differ_in_id_spelling_and_port),
        cmocka_unit_test(a_truncated_reply_is_asked_for_again_over_tcp),
        cmocka_unit_test(replies_of_sixty_kilobytes_come_over_tcp),
        cmocka_unit_test(a_server_that_hangs_up_on_tcp_is_passed_over),
        cmocka_unit_test(a_server_that_answers_something_else_over_tcp_is_passed_over),
        cmocka_unit_test(a_server_that_fails_is_passed_over_at_once),
        cmocka_unit_test(a_server_that_says_nonsense_is_passed_over_at_once),
        cmocka_unit_test(when_all_servers_fail_each_is_asked_once_and_a_second_is_waited),
        cmocka_unit_test(a_server_that_is_not_there_is_passed_over_at_once),
        cmocka_unit_test(a_silent_server_costs_its_share_of_the_time),
        cmocka_unit_test(a_failure_passes_on_at_once_though_another_server_may_still_answer),
        cmocka_unit_test(a_silent_server_is_asked_last_until_a_probe_reaches_it),
        cmocka_unit_test(a_lost_question_is_sent_again),
        cmocka_unit_test(a_late_reply_is_still_welcome),
        cmocka_unit_test(silence_ends_with_the_waiters_own_time),
        cmocka_unit_test(a_server_without_edns_is_asked_without_it),
        cmocka_unit_test(a_server_that_folds_case_is_found_out_over_tcp),
        cmocka_unit_test(one_family_does_not_wait_long_for_the_other),
        cmocka_unit_test(the_hosts_file_comes_first),
        cmocka_unit_test(short_names_are_searched_for),
        cmocka_unit_test(a_search_domain_that_fails_does_not_end_the_search_but_silence_does),
        cmocka_unit_test(resolv_conf_is_read_again_when_it_changes),
        cmocka_unit_test(a_resolv_conf_without_servers_is_being_written),
        cmocka_unit_test(without_resolv_conf_the_server_is_this_machine),
        cmocka_unit_test(an_answer_is_kept_for_its_ttl),
        cmocka_unit_test(nothing_counts_as_fresh_for_longer_than_an_hour_or_a_minute),
        cmocka_unit_test(an_answer_without_ttl_is_used_once),
        cmocka_unit_test(a_stale_answer_serves_when_the_servers_fail),
        cmocka_unit_test(a_stale_answer_serves_after_a_second_when_the_servers_are_silent),
        cmocka_unit_test(a_stale_answer_is_not_kept_for_ever),
        cmocka_unit_test(a_fresh_answer_is_preferred_to_a_stale_one),
        cmocka_unit_test(ten_waiters_ask_one_question),
        cmocka_unit_test(who_cancels_hears_nothing_and_the_others_do),
        cmocka_unit_test(when_all_have_cancelled_the_answer_is_still_kept),
        cmocka_unit_test(within_done_one_may_start_and_cancel),
        cmocka_unit_test(names_can_be_freed_with_everything_under_way),
        cmocka_unit_test(too_many_names_at_once_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
