/* nameserver_test.c — watched servers: who is asked, and what is done to sockets first.  The course
 * of questions over servers that are not watched is in resolve_test.c.  Time stands still unless a
 * test lets it pass. */
#include "net/nameserver.h"

#include <arpa/inet.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <unistd.h>
#include <cmocka.h>

#include "harness/dns_server.h"
#include "net/worker_impl.h"

/* The clock of the tests. */
static uint64_t now_ms;

uint64_t __wrap_uv_now(const uv_loop_t *loop);
uint64_t __wrap_uv_now(const uv_loop_t *loop)
{
    (void)loop;
    return now_ms;
}

enum { SERVERS = 3 };

struct rig {
    struct worker *w;
    struct dns_server *servers;
    struct nameservers *ns;
    bool silent[SERVERS], cuts;
    unsigned asked[SERVERS]; /* questions, probes not counted */
    unsigned prepared, news[3];
    int prepare_says;
    bool told;
    enum why why;
    struct dns_name name; /* of the question in what was told */
    bool mixed;           /* a question had a capital letter */
};

static void on_asked(void *user, const struct dns_asked *a)
{
    struct rig *rig = user;
    unsigned i = dns_server_index(a->server);
    rig->asked[i] += a->q.type == DNS_A;
    rig->mixed |= memchr(a->q.name.b, 'A', a->q.name.n) != NULL;
    if (rig->silent[i])
        return;
    struct dns_reply *reply = mem_new(sizeof *reply);
    dns_reply_begin(reply, a, rig->cuts && !a->tcp ? DNS_TC : 0);
    if (a->q.type == DNS_A)
        dns_reply_ip(reply, "a.test", "192.0.2.1", 60);
    dns_reply_send(reply);
    mem_free(reply);
}

static int on_prepare(void *user, int fd, const struct sockaddr *to)
{
    struct rig *rig = user;
    assert_true(fd >= 0 && to->sa_family == AF_INET);
    rig->prepared++;
    return rig->prepare_says;
}

static void on_news(void *user, enum ns_news news, const union addr *addr)
{
    struct rig *rig = user;
    assert_int_equal(addr == NULL, news == NS_NONE_LEFT);
    rig->news[news]++;
}

static void settle(struct rig *rig)
{
    for (int quiet = 0; quiet < 6; quiet++) {
        usleep(100);
        worker_turn(rig->w);
        wheel_turn(&rig->w->wheel, now_ms);
        if (dns_servers_step(rig->servers) > 0)
            quiet = 0;
    }
}

static void pass(struct rig *rig, uint64_t ms)
{
    settle(rig);
    for (; ms >= WHEEL_SLOT_MS; ms -= WHEEL_SLOT_MS) {
        now_ms += WHEEL_SLOT_MS;
        settle(rig);
    }
}

static void rig_open(struct rig *rig)
{
    uint16_t port;
    now_ms = 1000000;
    rig->w = worker_new(0);
    rig->servers = dns_servers_new(SERVERS, &port, on_asked, rig);
    struct nameserver_list list = {.n = SERVERS,
                                   .rounds = 1,
                                   .try_ms = 2000,
                                   .watch_every_ms = 10000,
                                   .watch_ms = 2000,
                                   .probe = {.name = {.n = 1}, .type = DNS_NS, .class = DNS_IN},
                                   .prepare = {on_prepare, rig},
                                   .news = on_news,
                                   .user = rig};
    for (unsigned i = 0; i < SERVERS; i++)
        list.addr[i].v4 = (struct sockaddr_in){.sin_family = AF_INET,
                                               .sin_port = htons(port),
                                               .sin_addr.s_addr = htonl(INADDR_LOOPBACK + i)};
    rig->ns = nameservers_new(rig->w, &list);
}

static void rig_close(struct rig *rig)
{
    nameservers_free(rig->ns);
    worker_turn(rig->w);
    worker_free(rig->w);
    dns_servers_free(rig->servers);
}

static void on_done(void *user, struct str reply, enum why why)
{
    struct rig *rig = user;
    struct dns_reader r;
    struct dns_question q;
    if (dns_read(&r, reply.p, reply.n) && dns_next_question(&r, &q))
        rig->name = q.name;
    rig->told = true;
    rig->why = why;
}

static void ask(struct rig *rig)
{
    struct dns_name name;
    assert_true(dns_name_parse(STR("a.test"), &name));
    rig->told = false;
    nameserver_ask(rig->ns, &name, DNS_A, SERVERS * 2000, on_done, rig);
    settle(rig);
}

static void a_silent_first_server_costs_its_time_until_it_is_out(void **state)
{
    (void)state;
    struct rig rig = {.silent = {true}};
    rig_open(&rig);
    ask(&rig);
    pass(&rig, 1500);
    assert_false(rig.told);
    pass(&rig, 700);
    assert_true(rig.told && rig.why == WHY_OK);
    assert_int_equal(rig.news[NS_PROBE_SILENT], 1);
    ask(&rig);
    assert_true(rig.told && rig.why == WHY_OK);
    assert_int_equal(rig.asked[0], 1);
    assert_int_equal(rig.asked[1], 2);
    assert_int_equal(rig.asked[2], 0);
    rig_close(&rig);
}

static void a_server_that_speaks_again_is_asked_first_again(void **state)
{
    (void)state;
    struct rig rig = {.silent = {true}};
    unsigned active;
    rig_open(&rig);
    pass(&rig, 2200);
    assert_int_equal(nameservers_active(rig.ns, &active), 2);
    assert_int_equal(active, 6);
    rig.silent[0] = false;
    pass(&rig, 8000);
    assert_int_equal(nameservers_active(rig.ns, &active), 3);
    ask(&rig);
    assert_int_equal(rig.asked[0], 1);
    rig_close(&rig);
}

static void with_none_left_all_are_asked(void **state)
{
    (void)state;
    struct rig rig = {.silent = {true, true, true}};
    unsigned active;
    rig_open(&rig);
    pass(&rig, 2200);
    assert_int_equal(nameservers_active(rig.ns, &active), 3);
    assert_int_equal(rig.news[NS_NONE_LEFT], 1);
    ask(&rig);
    pass(&rig, 6200);
    assert_true(rig.told && rig.why != WHY_OK);
    for (int i = 0; i < SERVERS; i++)
        assert_int_equal(rig.asked[i], 1);
    rig_close(&rig);
}

static void every_socket_is_prepared(void **state)
{
    (void)state;
    struct rig rig = {.cuts = true};
    rig_open(&rig);
    settle(&rig);
    unsigned before = rig.prepared;
    assert_true(before >= SERVERS); /* for the probes */
    ask(&rig);
    assert_true(rig.told && rig.why == WHY_OK);
    assert_true(rig.prepared > before); /* over TCP */
    rig_close(&rig);
}

static void a_socket_that_cannot_be_prepared_is_not_used(void **state)
{
    (void)state;
    struct rig rig = {.prepare_says = -1};
    rig_open(&rig);
    ask(&rig);
    pass(&rig, 200);
    assert_true(rig.told && rig.why == WHY_DNS);
    for (int i = 0; i < SERVERS; i++)
        assert_int_equal(rig.asked[i], 0);
    rig_close(&rig);
}

/* 0x20 is between us and the server. */
static void a_reply_tells_nothing_of_how_its_question_was_spelt(void **state)
{
    (void)state;
    for (int cuts = 0; cuts < 2; cuts++) {
        struct rig rig = {.cuts = cuts};
        rig_open(&rig);
        for (int i = 0; i < 64 && !rig.mixed; i++) {
            ask(&rig);
            assert_true(rig.told && rig.why == WHY_OK);
            assert_memory_equal(rig.name.b, "\1a\4test", 8);
        }
        assert_true(rig.mixed);
        rig_close(&rig);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_silent_first_server_costs_its_time_until_it_is_out),
        cmocka_unit_test(a_server_that_speaks_again_is_asked_first_again),
        cmocka_unit_test(with_none_left_all_are_asked),
        cmocka_unit_test(every_socket_is_prepared),
        cmocka_unit_test(a_socket_that_cannot_be_prepared_is_not_used),
        cmocka_unit_test(a_reply_tells_nothing_of_how_its_question_was_spelt),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
