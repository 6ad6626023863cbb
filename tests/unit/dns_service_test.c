/* dns_service_test.c — clients' sockets, the whole DNS of the sidecar, scripted upstreams, a kernel
 * that acknowledges when it is told to.  Time stands still unless a test lets it pass. */
#include "egress/dns/service.h"

#include <arpa/inet.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>
#include <cmocka.h>

#include "harness/dns_server.h"
#include "harness/dns_text.h"
#include "net/listen.h"
#include "net/udp.h"
#include "net/worker_impl.h"
#include "policies/document.h"

/* The clock of the tests. */
static uint64_t now_ms;

uint64_t __wrap_uv_now(const uv_loop_t *loop);
uint64_t __wrap_uv_now(const uv_loop_t *loop)
{
    (void)loop;
    return now_ms;
}

enum kernel_does { KERNEL_OBEYS, KERNEL_REFUSES, KERNEL_IS_SLOW };
enum { ORDERS = 64 };

struct order {
    void (*done)(void *arg, bool ok);
    void *arg;
};

struct rig {
    struct worker *w;
    struct dns_server *servers;
    struct policy *policy;
    struct gate_rules rules;
    struct nameservers *ns;
    struct leases *leases;
    struct upkeep *upkeep;
    struct dns_service *dns;
    union addr udp, tcp;
    enum kernel_does kernel;
    struct order order[ORDERS];
    unsigned norders, withdrawn;
    unsigned asked; /* questions that came to the upstream */
    struct dns_asked kept[64];
    unsigned nkept;
    bool silent;        /* the upstream keeps what it is asked */
    const char *answer; /* its records, one a line; %s in them is the name asked for */
    unsigned denied, told;
};

static struct policy *policy_of(const char *json)
{
    struct document d;
    struct json_fault fault;
    assert_true(document_parse(str_of(json), &d, &fault));
    struct policy *p = policy_new(NULL, NULL, &d);
    document_done(&d);
    return p;
}

#define ALLOW_OK                                                  \
    "{\"egress\":[{\"action\":\"allow\",\"target\":\"ok.test\"}," \
    "{\"action\":\"allow\",\"target\":\"*.ok.test\"}]}"

static void answer(struct rig *rig, const struct dns_asked *a)
{
    struct dns_reply *reply = mem_new(sizeof *reply);
    struct str rest = str_of(rig->answer), line;
    char text[1024], name[DNS_NAME_TEXT_BYTES];
    name[dns_name_text(&a->q.name, name)] = '\0';
    dns_reply_begin(reply, a, 0);
    while (rest.n && str_next(&rest, '\n', &line)) {
        int n = snprintf(text, sizeof text, "%s.%.*s", name, STR_ARG(line));
        assert_true(dns_text_write(&reply->w, DNS_ANSWER, (struct str){text, (size_t)n}));
    }
    dns_reply_send(reply);
    mem_free(reply);
}

static void on_asked(void *user, const struct dns_asked *a)
{
    struct rig *rig = user;
    rig->asked++;
    if (!rig->silent)
        answer(rig, a);
    else if (rig->nkept < 64)
        rig->kept[rig->nkept++] = *a;
}

static void on_learn(void *user, struct str name, const struct lease_address *list, size_t n,
                     unsigned kinds, void (*done)(void *arg, bool ok), void *arg)
{
    struct rig *rig = user;
    (void)name;
    (void)list;
    (void)kinds;
    assert_true(n > 0);
    if (rig->kernel == KERNEL_IS_SLOW) {
        assert_true(rig->norders < ORDERS);
        rig->order[rig->norders++] = (struct order){done, arg};
    } else {
        done(arg, rig->kernel == KERNEL_OBEYS);
    }
}

static void on_withdraw(void *user, const struct lease_gone *list, size_t n)
{
    struct rig *rig = user;
    (void)list;
    rig->withdrawn += (unsigned)n;
}

static void kernel_catches_up(struct rig *rig)
{
    for (unsigned i = 0; i < rig->norders; i++)
        rig->order[i].done(rig->order[i].arg, true);
    rig->norders = 0;
}

static void on_told(void *user, const struct dns_told *t)
{
    struct rig *rig = user;
    rig->told++;
    rig->denied += t->why == WHY_DENIED;
}

static const struct dns_limits usual = {.in_flight = 32,
                                        .cache_entries = 64,
                                        .tcp_clients = 4,
                                        .tcp_in_flight = 4,
                                        .tcp_queries = 20,
                                        .tcp_first_ms = 2000,
                                        .tcp_idle_ms = 8000,
                                        .upstream_ms = 5000,
                                        .kernel_ms = 5000};

static struct rig *rig_new(const char *policy, const struct dns_limits *limits)
{
    struct rig *rig = mem_new(sizeof *rig);
    uint16_t port;
    struct arena a;
    struct str error;
    union addr any = {.v4 = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)}};
    now_ms = 1000000;
    arena_init(&a, NULL, 0);
    rig->answer = " 60 A 192.0.2.1";
    rig->w = worker_new(0);
    rig->servers = dns_servers_new(1, &port, on_asked, rig);
    struct nameserver_list list = {.n = 1, .rounds = 1, .try_ms = 5000, .addr[0] = any};
    list.addr[0].v4.sin_port = htons(port);
    rig->ns = nameservers_new(rig->w, &list);
    rig->leases = leases_new(&(struct leases_limits){64, 128},
                             &(struct leases_kernel){on_learn, on_withdraw, rig});
    rig->policy = policy_of(policy);
    rig->rules = (struct gate_rules){.policy = rig->policy};
    rig->upkeep = upkeep_new(&(struct upkeep_setup){
        .w = rig->w, .servers = rig->ns, .leases = rig->leases, .rules = &rig->rules});
    rig->dns = dns_service_new(&(struct dns_setup){.w = rig->w,
                                                   .servers = rig->ns,
                                                   .leases = rig->leases,
                                                   .upkeep = rig->upkeep,
                                                   .rules = &rig->rules,
                                                   .limits = *limits,
                                                   .told = on_told,
                                                   .user = rig});
    dns_service_udp(rig->dns, udp_bind(&any.sa, &rig->udp, &a, &error));
    dns_service_tcp(rig->dns, listen_bind(&any.sa, &rig->tcp, &a, &error));
    arena_done(&a);
    return rig;
}

static void settle(struct rig *rig)
{
    for (int quiet = 0; quiet < 6; quiet++) {
        usleep(100);
        worker_turn(rig->w);
        wheel_turn(&rig->w->wheel, worker_now(rig->w));
        if (dns_servers_step(rig->servers) > 0)
            quiet = 0;
    }
}

static void rig_free(struct rig *rig)
{
    settle(rig);
    dns_service_free(rig->dns);
    upkeep_free(rig->upkeep);
    nameservers_free(rig->ns);
    worker_turn(rig->w);
    leases_free(rig->leases);
    worker_free(rig->w);
    dns_servers_free(rig->servers);
    policy_free(rig->policy);
    mem_free(rig);
}

static void pass(struct rig *rig, uint64_t ms)
{
    settle(rig);
    for (uint64_t step; ms > 0; ms -= step) {
        step = ms < WHEEL_SLOT_MS ? ms : WHEEL_SLOT_MS;
        now_ms += step;
        worker_turn(rig->w);
        wheel_turn(&rig->w->wheel, now_ms);
        dns_servers_step(rig->servers);
    }
    settle(rig);
}

/* ---- clients */

static int client(const struct rig *rig, bool tcp)
{
    const union addr *to = tcp ? &rig->tcp : &rig->udp;
    int fd = socket(AF_INET, (tcp ? SOCK_STREAM : SOCK_DGRAM) | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(fd, &to->sa, addr_len(&to->sa)), 0);
    return fd;
}

static size_t make(uint8_t out[DNS_WRITE_MIN], uint16_t id, const char *name, uint16_t type)
{
    struct dns_question q = {.type = type, .class = DNS_IN};
    struct dns_writer w;
    assert_true(dns_name_parse(str_of(name), &q.name));
    dns_write(&w, out, DNS_WRITE_MIN, id, DNS_RD);
    dns_write_question(&w, &q);
    return dns_write_end(&w);
}

static void ask(int fd, uint16_t id, const char *name)
{
    uint8_t p[DNS_WRITE_MIN];
    size_t n = make(p, id, name, DNS_A);
    assert_int_equal(send(fd, p, n, 0), n);
}

/* Appends a query with its length in front. */
static size_t frame(uint8_t *out, uint16_t id, const char *name)
{
    size_t n = make(out + 2, id, name, DNS_A);
    out[0] = (uint8_t)(n >> 8);
    out[1] = (uint8_t)n;
    return n + 2;
}

struct got {
    int id, rcode; /* -1: nothing came */
    unsigned answers;
    uint32_t ttl;
    struct dns_name name;
};

static struct got read_reply(const uint8_t *p, size_t n)
{
    struct dns_reader r;
    struct dns_question q;
    struct dns_record rec;
    assert_true(dns_read(&r, p, n));
    struct got got = {.id = r.id, .rcode = r.flags & DNS_RCODE_MASK};
    if (dns_next_question(&r, &q))
        got.name = q.name;
    while (dns_next_record(&r, &rec)) {
        got.answers += rec.section == DNS_ANSWER;
        got.ttl = rec.ttl;
    }
    return got;
}

static struct got hear(int fd)
{
    uint8_t p[4096];
    ssize_t n = recv(fd, p, sizeof p, MSG_DONTWAIT);
    return n < 0 ? (struct got){.id = -1, .rcode = -1} : read_reply(p, (size_t)n);
}

static struct got asked(struct rig *rig, const char *name)
{
    int fd = client(rig, false);
    ask(fd, 7, name);
    settle(rig);
    struct got got = hear(fd);
    close(fd);
    return got;
}

/* ---- tests */

static void a_denied_name_is_never_asked_for(void **state)
{
    (void)state;
    struct rig *rig = rig_new(ALLOW_OK, &usual);
    assert_int_equal(asked(rig, "evil.test").rcode, DNS_NXDOMAIN);
    assert_int_equal(asked(rig, "ok.test.evil.test").rcode, DNS_NXDOMAIN);
    assert_int_equal(rig->asked, 0);
    assert_int_equal(rig->denied, 2);
    rig_free(rig);
}

static void an_answer_comes_from_the_cache_with_its_ttl_counted_down(void **state)
{
    (void)state;
    struct rig *rig = rig_new(ALLOW_OK, &usual);
    assert_int_equal(asked(rig, "ok.test").ttl, 60);
    pass(rig, 10000);
    struct got got = asked(rig, "oK.tEsT");
    assert_int_equal(got.ttl, 50);
    assert_memory_equal(got.name.b, "\2oK\4tEsT", 9);
    assert_int_equal(rig->asked, 1);
    pass(rig, 51000);
    assert_int_equal(asked(rig, "ok.test").ttl, 60);
    assert_true(rig->asked >= 2); /* upkeep, whose rounds are jittered, may just have asked too */
    rig_free(rig);
}

static void an_answer_with_ttl_0_is_not_kept(void **state)
{
    (void)state;
    struct rig *rig = rig_new(ALLOW_OK, &usual);
    rig->answer = " 0 A 192.0.2.1";
    asked(rig, "ok.test");
    asked(rig, "ok.test");
    assert_int_equal(rig->asked, 2);
    rig_free(rig);
}

static void equal_questions_are_asked_once(void **state)
{
    (void)state;
    struct rig *rig = rig_new(ALLOW_OK, &usual);
    int fd[5];
    rig->silent = true;
    for (int i = 0; i < 5; i++) {
        fd[i] = client(rig, false);
        ask(fd[i], (uint16_t)(100 + i), i % 2 ? "ok.test" : "OK.test");
    }
    settle(rig);
    assert_int_equal(rig->asked, 1);
    answer(rig, &rig->kept[0]);
    settle(rig);
    for (int i = 0; i < 5; i++) {
        struct got got = hear(fd[i]);
        assert_int_equal(got.id, 100 + i);
        assert_int_equal(got.answers, 1);
        assert_int_equal(got.name.b[1], i % 2 ? 'o' : 'O');
        close(fd[i]);
    }
    rig_free(rig);
}

static void more_than_may_wait_are_told_servfail(void **state)
{
    (void)state;
    struct dns_limits limits = usual;
    limits.in_flight = 8;
    struct rig *rig = rig_new(ALLOW_OK, &limits);
    unsigned servfail = 0, silent = 0;
    int fd[12];
    rig->silent = true;
    for (int i = 0; i < 12; i++) {
        char name[32];
        snprintf(name, sizeof name, "n%d.ok.test", i);
        fd[i] = client(rig, false);
        ask(fd[i], 1, name);
    }
    settle(rig);
    assert_int_equal(dns_service_waiting(rig->dns), 8);
    for (int i = 0; i < 12; i++) {
        int rcode = hear(fd[i]).rcode;
        servfail += rcode == DNS_SERVFAIL;
        silent += rcode == -1;
        close(fd[i]);
    }
    assert_int_equal(servfail, 4);
    assert_int_equal(silent, 8);
    rig_free(rig);
}

static void a_silent_upstream_means_servfail_in_time(void **state)
{
    (void)state;
    struct rig *rig = rig_new(ALLOW_OK, &usual);
    rig->silent = true;
    int fd = client(rig, false);
    ask(fd, 3, "ok.test");
    pass(rig, 4800);
    assert_int_equal(hear(fd).rcode, -1);
    pass(rig, 400);
    assert_int_equal(hear(fd).rcode, DNS_SERVFAIL);
    assert_int_equal(dns_service_waiting(rig->dns), 0);
    close(fd);
    rig_free(rig);
}

static void names_below_one_domain_are_asked_for_at_a_rate(void **state)
{
    (void)state;
    struct dns_limits limits = usual;
    limits.domain_asks = (struct rate){10, 20};
    struct rig *rig = rig_new(ALLOW_OK, &limits);
    for (int i = 0; i < 30; i++) {
        char name[32];
        snprintf(name, sizeof name, "n%d.ok.test", i);
        asked(rig, name);
    }
    assert_int_equal(rig->asked, 20);
    assert_int_equal(asked(rig, "n0.ok.test").rcode, DNS_NOERROR); /* from the cache */
    pass(rig, 1000);
    assert_int_equal(asked(rig, "n29.ok.test").rcode, DNS_NOERROR);
    rig_free(rig);
}

/* ---- the kernel */

static void a_reply_waits_for_the_kernel(void **state)
{
    (void)state;
    struct rig *rig = rig_new(ALLOW_OK, &usual);
    rig->kernel = KERNEL_IS_SLOW;
    int fd = client(rig, false);
    ask(fd, 3, "ok.test");
    pass(rig, 1000);
    assert_int_equal(hear(fd).rcode, -1);
    kernel_catches_up(rig);
    settle(rig);
    assert_int_equal(hear(fd).answers, 1);
    assert_int_equal(asked(rig, "ok.test").answers, 1); /* its lease runs */
    assert_int_equal(rig->norders, 0);
    close(fd);
    rig_free(rig);
}

static void a_kernel_that_takes_too_long_means_servfail(void **state)
{
    (void)state;
    struct rig *rig = rig_new(ALLOW_OK, &usual);
    rig->kernel = KERNEL_IS_SLOW;
    int fd = client(rig, false);
    ask(fd, 3, "ok.test");
    pass(rig, 5200);
    struct got got = hear(fd);
    assert_int_equal(got.rcode, DNS_SERVFAIL);
    assert_int_equal(got.answers, 0);
    kernel_catches_up(rig); /* nobody hears */
    settle(rig);
    assert_int_equal(hear(fd).rcode, -1);
    close(fd);
    rig_free(rig);
}

static void a_kernel_that_refuses_means_servfail(void **state)
{
    (void)state;
    struct rig *rig = rig_new(ALLOW_OK, &usual);
    rig->kernel = KERNEL_REFUSES;
    assert_int_equal(asked(rig, "ok.test").rcode, DNS_SERVFAIL);
    assert_int_equal(leases_counts(rig->leases).leases, 0);
    assert_int_equal(leases_counts(rig->leases).failed, 1);
    rig->kernel = KERNEL_OBEYS;
    assert_int_equal(asked(rig, "ok.test").rcode, DNS_NOERROR);
    rig_free(rig);
}

static void a_full_table_means_servfail_and_pushes_nobody_out(void **state)
{
    (void)state;
    struct rig *rig = rig_new(ALLOW_OK, &usual);
    struct ip ip;
    for (int i = 0; i < 130; i++) {
        char name[32], record[32];
        snprintf(name, sizeof name, "n%d.ok.test", i);
        snprintf(record, sizeof record, " 60 A 192.0.2.%d", i);
        rig->answer = record;
        assert_int_equal(asked(rig, name).rcode, i < 128 ? DNS_NOERROR : DNS_SERVFAIL);
    }
    assert_int_equal(leases_counts(rig->leases).full, 2);
    assert_true(ip_parse(STR("192.0.2.0"), &ip));
    assert_true(leases_covers(rig->leases, STR("n0.ok.test"), &ip, now_ms));
    rig_free(rig);
}

/* ---- changes */

static void adopt(struct rig *rig, const char *policy, struct gate_rules *rules)
{
    *rules = (struct gate_rules){.policy = policy_of(policy)};
    dns_service_adopt(rig->dns, rules, NULL);
}

static void what_waits_is_judged_by_the_rules_of_its_answer(void **state)
{
    (void)state;
    struct rig *rig = rig_new(ALLOW_OK, &usual);
    struct gate_rules fresh;
    rig->silent = true;
    int fd = client(rig, false);
    ask(fd, 3, "ok.test");
    settle(rig);
    adopt(rig, "{}", &fresh);
    answer(rig, &rig->kept[0]);
    settle(rig);
    assert_int_equal(hear(fd).rcode, DNS_NXDOMAIN);
    assert_int_equal(leases_counts(rig->leases).leases, 0);
    close(fd);
    rig_free(rig);
    policy_free((struct policy *)fresh.policy);
}

static void a_lease_under_way_does_not_outlive_its_permission(void **state)
{
    (void)state;
    struct rig *rig = rig_new(ALLOW_OK, &usual);
    struct gate_rules fresh;
    rig->kernel = KERNEL_IS_SLOW;
    int fd = client(rig, false);
    ask(fd, 3, "ok.test");
    settle(rig);
    assert_int_equal(rig->norders, 1);
    adopt(rig, "{}", &fresh);
    assert_int_equal(rig->withdrawn, 1);
    kernel_catches_up(rig);
    settle(rig);
    assert_int_equal(hear(fd).rcode, DNS_NXDOMAIN);
    assert_int_equal(rig->withdrawn, 2); /* the order may have been carried out after it */
    close(fd);
    rig_free(rig);
    policy_free((struct policy *)fresh.policy);
}

/* ---- TCP */

/* Reads replies until there are n, or nothing comes; returns how many. */
static unsigned hear_tcp(struct rig *rig, int fd, unsigned n, struct got *ret)
{
    static uint8_t p[1 << 16];
    size_t len = 0, at = 0;
    unsigned count = 0;
    for (int i = 0; i < 40 && count < n; i++) {
        settle(rig);
        ssize_t more = recv(fd, p + len, sizeof p - len, MSG_DONTWAIT);
        len += more > 0 ? (size_t)more : 0;
        while (count < n && len - at >= 2 && len - at - 2 >= ((size_t)p[at] << 8 | p[at + 1])) {
            size_t m = (size_t)p[at] << 8 | p[at + 1];
            ret[count++] = read_reply(p + at + 2, m);
            at += m + 2;
        }
    }
    return count;
}

static bool is_closed(int fd)
{
    char c;
    ssize_t n = recv(fd, &c, 1, MSG_DONTWAIT);
    return n == 0 || (n < 0 && errno != EAGAIN);
}

static void tcp_answers_pipelined_queries(void **state)
{
    (void)state;
    struct rig *rig = rig_new(ALLOW_OK, &usual);
    struct got got[12];
    uint8_t p[4096];
    size_t n = 0;
    int fd = client(rig, true);
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
    rig_free(rig);
}

static void tcp_takes_a_query_in_single_bytes(void **state)
{
    (void)state;
    struct rig *rig = rig_new(ALLOW_OK, &usual);
    struct got got;
    uint8_t p[DNS_WRITE_MIN + 2];
    size_t n = frame(p, 9, "ok.test");
    int fd = client(rig, true);
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(send(fd, p + i, 1, 0), 1);
        settle(rig);
    }
    assert_int_equal(hear_tcp(rig, fd, 1, &got), 1);
    assert_int_equal(got.id, 9);
    close(fd);
    rig_free(rig);
}

static void tcp_that_drips_is_cut(void **state)
{
    (void)state;
    struct rig *rig = rig_new(ALLOW_OK, &usual);
    uint8_t p[DNS_WRITE_MIN + 2];
    frame(p, 9, "ok.test");
    int fd = client(rig, true);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(send(fd, p + i, 1, 0), 1);
        pass(rig, 500);
    }
    assert_false(is_closed(fd));
    pass(rig, 700);
    assert_true(is_closed(fd));
    close(fd);
    rig_free(rig);
}

static void tcp_answers_before_it_ends_after_the_clients_fin(void **state)
{
    (void)state;
    struct rig *rig = rig_new(ALLOW_OK, &usual);
    struct got got;
    uint8_t p[DNS_WRITE_MIN + 2];
    size_t n = frame(p, 9, "ok.test");
    int fd = client(rig, true);
    rig->silent = true;
    assert_int_equal(send(fd, p, n, 0), n);
    shutdown(fd, SHUT_WR);
    settle(rig);
    answer(rig, &rig->kept[0]);
    assert_int_equal(hear_tcp(rig, fd, 1, &got), 1);
    settle(rig);
    assert_true(is_closed(fd));
    close(fd);
    rig_free(rig);
}

static void tcp_holds_back_a_client_that_asks_too_much_at_once(void **state)
{
    (void)state;
    struct rig *rig = rig_new(ALLOW_OK, &usual);
    struct got got[10];
    uint8_t p[4096];
    size_t n = 0;
    int fd = client(rig, true);
    rig->silent = true;
    for (uint16_t i = 0; i < 10; i++) {
        char name[32];
        snprintf(name, sizeof name, "n%d.ok.test", i);
        n += frame(p + n, i, name);
    }
    assert_int_equal(send(fd, p, n, 0), n);
    settle(rig);
    assert_int_equal(rig->asked, 4);
    rig->silent = false;
    for (unsigned i = 0; i < rig->nkept; i++)
        answer(rig, &rig->kept[i]);
    assert_int_equal(hear_tcp(rig, fd, 10, got), 10);
    close(fd);
    rig_free(rig);
}

static void tcp_ends_after_so_many_queries(void **state)
{
    (void)state;
    struct rig *rig = rig_new(ALLOW_OK, &usual);
    struct got got[25];
    uint8_t p[4096];
    size_t n = 0;
    int fd = client(rig, true);
    for (uint16_t i = 0; i < 25; i++)
        n += frame(p + n, i, "evil.test");
    assert_int_equal(send(fd, p, n, 0), n);
    assert_int_equal(hear_tcp(rig, fd, 25, got), 20);
    pass(rig, 8200);
    assert_true(is_closed(fd));
    close(fd);
    rig_free(rig);
}

static void tcp_connections_are_counted(void **state)
{
    (void)state;
    struct rig *rig = rig_new(ALLOW_OK, &usual);
    int fd[6];
    for (int i = 0; i < 6; i++) {
        fd[i] = client(rig, true);
        settle(rig);
    }
    for (int i = 0; i < 6; i++)
        assert_int_equal(is_closed(fd[i]), i >= 4);
    for (int i = 0; i < 6; i++)
        close(fd[i]);
    rig_free(rig);
}

static void a_client_that_leaves_while_it_waits_is_forgotten(void **state)
{
    (void)state;
    struct rig *rig = rig_new(ALLOW_OK, &usual);
    uint8_t p[DNS_WRITE_MIN + 2];
    size_t n = frame(p, 9, "ok.test");
    int fd = client(rig, true);
    rig->silent = true;
    assert_int_equal(send(fd, p, n, 0), n);
    settle(rig);
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &(struct linger){1, 0}, sizeof(struct linger));
    close(fd);
    settle(rig);
    answer(rig, &rig->kept[0]);
    settle(rig);
    assert_int_equal(dns_service_waiting(rig->dns), 0);
    rig_free(rig);
}

/* ---- upkeep */

static void a_name_in_use_is_looked_up_again_before_its_lease_ends(void **state)
{
    (void)state;
    struct rig *rig = rig_new(ALLOW_OK, &usual);
    struct ip ip;
    assert_true(ip_parse(STR("192.0.2.1"), &ip));
    asked(rig, "ok.test"); /* TTL 60: the lease runs for 120 s */
    for (int i = 0; i < 4; i++)
        pass(rig, 50000);
    assert_true(rig->asked >= 3);
    assert_true(leases_covers(rig->leases, STR("ok.test"), &ip, now_ms));
    rig_free(rig);
}

static void a_name_that_lost_its_addresses_is_let_go(void **state)
{
    (void)state;
    struct rig *rig = rig_new(ALLOW_OK, &usual);
    asked(rig, "ok.test");
    rig->answer = " 60 A 192.0.2.99";
    for (int i = 0; i < 6; i++)
        pass(rig, 50000);
    assert_int_equal(leases_counts(rig->leases).leases, 0);
    assert_true(rig->asked <= 3);
    rig_free(rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_denied_name_is_never_asked_for),
        cmocka_unit_test(an_answer_comes_from_the_cache_with_its_ttl_counted_down),
        cmocka_unit_test(an_answer_with_ttl_0_is_not_kept),
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
