/* free_names_test.c — names outside of the policy: two questions straight to the upstream, one
 * answer, and nobody who hears of it after he has turned away. */
#include "egress/dns/free_names.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "harness/dns_server.h"
#include "net/worker.h"

enum { LONG_MS = 60000, SHORT_MS = 300, KEPT = 8 };

/* What the upstream does with questions for one type. */
enum does { ANSWERS, KEEPS, HAS_NONE, KNOWS_NO_NAME, FAILS };

struct rig {
    struct worker *w;
    struct dns_server *servers;
    struct nameservers *ns;
    struct free_names free_names;
    struct names *names;
    enum does a, aaaa;
    unsigned asked[2]; /* for A, for AAAA */
    struct dns_asked kept[KEPT];
    unsigned nkept;
};

struct heard {
    unsigned times, n;
    enum why why;
    struct ip ip[RESOLVE_ADDRESSES];
};

static void reply(const struct rig *rig, const struct dns_asked *a)
{
    static const unsigned codes[] = {[KNOWS_NO_NAME] = 3, [FAILS] = 2};
    enum does does = a->q.type == DNS_A ? rig->a : rig->aaaa;
    struct dns_reply *r = mem_new(sizeof *r);
    dns_reply_begin(r, a, does == KNOWS_NO_NAME || does == FAILS ? codes[does] : 0);
    if (does == ANSWERS || does == KEEPS) {
        dns_reply_ip(r, "hook.test", a->q.type == DNS_A ? "192.0.2.1" : "2001:db8::1", 60);
        dns_reply_ip(r, "hook.test", a->q.type == DNS_A ? "192.0.2.2" : "2001:db8::2", 60);
        dns_reply_ip(r, "else.test", a->q.type == DNS_A ? "192.0.2.9" : "2001:db8::9", 60);
    }
    dns_reply_send(r);
    mem_free(r);
}

static void on_asked(void *user, const struct dns_asked *a)
{
    struct rig *rig = user;
    bool six = a->q.type != DNS_A;
    rig->asked[six]++;
    if ((six ? rig->aaaa : rig->a) != KEEPS) {
        reply(rig, a);
        return;
    }
    if (rig->nkept < KEPT) /* it may be asked again */
        rig->kept[rig->nkept++] = *a;
}

static void rig_open(struct rig *rig, enum does a, enum does aaaa)
{
    uint16_t port;
    *rig = (struct rig){.w = worker_new(0), .a = a, .aaaa = aaaa};
    rig->servers = dns_servers_new(1, &port, on_asked, rig);
    struct nameserver_list list = {.n = 1, .rounds = 1, .try_ms = LONG_MS};
    struct ip loopback;
    assert_true(ip_parse(STR("127.0.0.1"), &loopback));
    addr_make(&list.addr[0], &loopback, port);
    rig->ns = nameservers_new(rig->w, &list);
    rig->free_names = (struct free_names){rig->w, rig->ns};
    rig->names = free_names_new(&rig->free_names);
}

static void step(struct rig *rig)
{
    worker_turn(rig->w);
    dns_servers_step(rig->servers);
    usleep(200);
}

/* So long that what is on its way has arrived. */
static void settle(struct rig *rig)
{
    for (int i = 0; i < 50; i++)
        step(rig);
}

static void rig_close(struct rig *rig)
{
    names_free(rig->names);
    nameservers_free(rig->ns);
    settle(rig);
    worker_free(rig->w);
    dns_servers_free(rig->servers);
}

static void on_heard(void *user, const struct ip *ips, unsigned n, enum why why)
{
    struct heard *h = user;
    h->times++;
    h->why = why;
    h->n = n;
    assert_int_equal(n > 0, why == WHY_OK);
    assert_int_equal(n > 0, ips != NULL);
    assert_true(n <= RESOLVE_ADDRESSES);
    for (unsigned i = 0; i < n; i++)
        h->ip[i] = ips[i];
}

static void wait_for(struct rig *rig, const struct heard *h)
{
    for (int i = 0; i < 100000 && h->times == 0; i++)
        step(rig);
    assert_int_equal(h->times, 1);
}

static struct heard resolved(struct rig *rig, const char *name, uint64_t ms)
{
    struct heard h = {0};
    assert_non_null(resolve_start(rig->names, str_of(name), ms, on_heard, &h));
    assert_int_equal(h.times, 0);
    wait_for(rig, &h);
    return h;
}

static void expect(const struct heard *h, unsigned n, const char *const *texts)
{
    assert_int_equal(h->why, WHY_OK);
    assert_int_equal(h->n, n);
    for (unsigned i = 0; i < n; i++) {
        struct ip want;
        assert_true(ip_parse(str_of(texts[i]), &want));
        assert_true(ip_eq(&h->ip[i], &want));
    }
}

static const char *const both[] = {"192.0.2.1", "192.0.2.2", "2001:db8::1", "2001:db8::2"};

/* ---- answers */

static void both_families_are_asked_for_once_and_ipv4_comes_first(void **state)
{
    struct rig rig;
    (void)state;
    rig_open(&rig, ANSWERS, ANSWERS);
    struct heard h = resolved(&rig, "hook.test", LONG_MS);
    expect(&h, 4, both);
    assert_int_equal(rig.asked[0], 1);
    assert_int_equal(rig.asked[1], 1);
    h = resolved(&rig, "Hook.TEST.", LONG_MS); /* nothing is kept */
    expect(&h, 4, both);
    assert_int_equal(rig.asked[0], 2);
    rig_close(&rig);
}

static void one_family_is_enough(void **state)
{
    static const enum does other[] = {HAS_NONE, KNOWS_NO_NAME, FAILS, KEEPS};
    (void)state;
    for (size_t i = 0; i < sizeof other / sizeof *other; i++) {
        struct rig rig;
        rig_open(&rig, ANSWERS, other[i]);
        struct heard h = resolved(&rig, "hook.test", other[i] == KEEPS ? SHORT_MS : LONG_MS);
        expect(&h, 2, both);
        rig_close(&rig);
        rig_open(&rig, other[i], ANSWERS);
        h = resolved(&rig, "hook.test", other[i] == KEEPS ? SHORT_MS : LONG_MS);
        expect(&h, 2, both + 2);
        rig_close(&rig);
    }
}

static void no_address_at_all_says_why(void **state)
{
    static const struct {
        enum does a, aaaa;
        enum why why;
    } rows[] = {
        {HAS_NONE, HAS_NONE, WHY_DNS}, {KNOWS_NO_NAME, KNOWS_NO_NAME, WHY_DNS},
        {FAILS, FAILS, WHY_DNS},       {HAS_NONE, FAILS, WHY_DNS},
        {KEEPS, KEEPS, WHY_DEADLINE},  {KEEPS, HAS_NONE, WHY_DEADLINE},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct rig rig;
        rig_open(&rig, rows[i].a, rows[i].aaaa);
        bool late = rows[i].why == WHY_DEADLINE;
        assert_int_equal(resolved(&rig, "hook.test", late ? SHORT_MS : LONG_MS).why, rows[i].why);
        rig_close(&rig);
    }
}

static void what_is_no_name_is_asked_of_nobody_and_told_later(void **state)
{
    static const char *const names[] = {"",      ".",      "a..b", "a b",
                                        "127.1", "0x7f.1", "a\\b", "hook.test/x"};
    struct rig rig;
    (void)state;
    rig_open(&rig, ANSWERS, ANSWERS);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        assert_int_equal(resolved(&rig, names[i], LONG_MS).why, WHY_DNS);
    assert_int_equal(rig.asked[0] + rig.asked[1], 0);
    rig_close(&rig);
}

static void an_address_is_its_own_answer(void **state)
{
    static const char *const six[] = {"2001:db8::7"}, *const four[] = {"192.0.2.7"};
    struct rig rig;
    (void)state;
    rig_open(&rig, ANSWERS, ANSWERS);
    struct heard h = resolved(&rig, "[2001:db8::7]", LONG_MS);
    expect(&h, 1, six);
    h = resolved(&rig, "192.0.2.7", LONG_MS);
    expect(&h, 1, four);
    assert_int_equal(rig.asked[0] + rig.asked[1], 0);
    rig_close(&rig);
}

/* ---- who turns away */

static void cancelled_at_any_moment_nothing_is_heard(void **state)
{
    static const struct {
        enum does a, aaaa;
        const char *name;
        bool later; /* what can be answered has been */
    } rows[] = {
        {ANSWERS, ANSWERS, "hook.test", false}, {KEEPS, KEEPS, "hook.test", true},
        {ANSWERS, KEEPS, "hook.test", true},    {KEEPS, ANSWERS, "hook.test", true},
        {KEEPS, FAILS, "hook.test", true},      {ANSWERS, ANSWERS, "a..b", false},
        {ANSWERS, ANSWERS, "192.0.2.7", false},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct rig rig;
        struct heard h = {0};
        rig_open(&rig, rows[i].a, rows[i].aaaa);
        struct resolve *r = resolve_start(rig.names, str_of(rows[i].name), LONG_MS, on_heard, &h);
        if (rows[i].later)
            settle(&rig);
        resolve_cancel(r);
        settle(&rig);
        for (unsigned k = 0; k < rig.nkept; k++)
            reply(&rig, &rig.kept[k]);
        settle(&rig);
        assert_int_equal(h.times, 0);
        rig_close(&rig);
    }
}

static void who_still_waits_at_the_end_hears_nothing(void **state)
{
    struct rig rig;
    struct heard h[3] = {{0}};
    (void)state;
    rig_open(&rig, KEEPS, ANSWERS);
    resolve_start(rig.names, STR("hook.test"), LONG_MS, on_heard, &h[0]);
    settle(&rig);
    resolve_start(rig.names, STR("hook.test"), LONG_MS, on_heard, &h[1]);
    resolve_start(rig.names, STR("a..b"), LONG_MS, on_heard, &h[2]);
    rig_close(&rig);
    assert_int_equal(h[0].times + h[1].times + h[2].times, 0);
}

static void the_source_itself_bears_a_name_that_is_none(void **state)
{
    /* resolve.c asks for no such name; who asks the source by itself may */
    struct rig rig;
    struct heard h = {0};
    char much[400];
    (void)state;
    memset(much, 'a', sizeof much);
    rig_open(&rig, ANSWERS, ANSWERS);
    resolve_start(rig.names, (struct str){much, sizeof much}, LONG_MS, on_heard, &h);
    wait_for(&rig, &h);
    assert_int_equal(h.why, WHY_DNS);
    h = (struct heard){0};
    resolve_start(rig.names, (struct str){much, 64}, LONG_MS, on_heard, &h); /* a label too long */
    wait_for(&rig, &h);
    assert_int_equal(h.why, WHY_DNS);
    resolve_cancel(resolve_start(rig.names, (struct str){much, 64}, LONG_MS, on_heard, &h));
    settle(&rig);
    assert_int_equal(h.times, 1);
    assert_int_equal(rig.asked[0] + rig.asked[1], 0);
    rig_close(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_families_are_asked_for_once_and_ipv4_comes_first),
        cmocka_unit_test(one_family_is_enough),
        cmocka_unit_test(no_address_at_all_says_why),
        cmocka_unit_test(what_is_no_name_is_asked_of_nobody_and_told_later),
        cmocka_unit_test(an_address_is_its_own_answer),
        cmocka_unit_test(cancelled_at_any_moment_nothing_is_heard),
        cmocka_unit_test(who_still_waits_at_the_end_hears_nothing),
        cmocka_unit_test(the_source_itself_bears_a_name_that_is_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
