/* drops_test.c — who is refused shows up, once, with address and port; a flood does not. */
#include "egress/kernel/drops.h"

#include <errno.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>
#include <cmocka.h>

#include "egress/kernel/sets.h"
#include "kernel/fixture.h"

static struct netns ns;
static struct drops *drops;

struct seen {
    struct drop last;
    unsigned n;
};

static void note(void *user, const struct drop *d)
{
    struct seen *s = user;
    s->last = *d;
    s->n++;
}

static struct seen read_all(void)
{
    struct seen s = {.n = 0};
    while (netns_readable(drops_fd(drops), 150))
        assert_true(drops_read(drops, 64, note, &s) >= 0);
    return s;
}

static int fresh(void **state)
{
    struct ruleset r = fixture_settings();
    (void)state;
    fixture_apply(&ns, &r);
    read_all();
    return 0;
}

static void a_refused_packet_is_an_event(void **state)
{
    static const struct {
        int type;
        const char *ip;
        uint8_t protocol;
    } rows[] = {{SOCK_STREAM, "198.51.100.1", IPPROTO_TCP},
                {SOCK_DGRAM, "198.51.100.1", IPPROTO_UDP},
                {SOCK_STREAM, "2001:db8::1", IPPROTO_TCP}};
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct ip dst;
        int fd = fixture_connect(&ns, rows[i].type, rows[i].ip, 5432);
        if (fd >= 0)
            assert_true(send(fd, "x", 1, 0) < 0);
        close(fd);
        struct seen s = read_all();
        assert_int_equal(s.n, 1);
        assert_true(ip_parse(str_of(rows[i].ip), &dst) && ip_eq(&dst, &s.last.dst));
        assert_int_equal(s.last.dst_port, 5432);
        assert_int_equal(s.last.protocol, rows[i].protocol);
        assert_true(s.last.has_uid);
        assert_int_equal(s.last.uid, 65534);
    }
}

static void a_flood_is_limited_and_counted(void **state)
{
    struct sets *sets;
    struct sets_counts counts;
    union addr to = netns_addr("198.51.100.1", 9);
    (void)state;
    netns_enter(ns.inside);
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    assert_int_equal(sets_open(&sets), 0);
    netns_enter(ns.home);
    for (unsigned i = 0; i < 5000; i++)
        sendto(fd, "x", 1, 0, &to.sa, sizeof to.v4);
    struct seen s = read_all();
    assert_true(s.n >= 50 && s.n <= 150);
    assert_int_equal(sets_counts(sets, &counts), 0);
    assert_true(counts.refused >= 5000);
    sets_close(sets);
    close(fd);
}

static void one_reading_is_bounded(void **state)
{
    union addr to = netns_addr("198.51.100.1", 9);
    struct seen s = {.n = 0};
    (void)state;
    netns_enter(ns.inside);
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    netns_enter(ns.home);
    for (unsigned i = 0; i < 60; i++)
        sendto(fd, "x", 1, 0, &to.sa, sizeof to.v4);
    usleep(150000);
    int n = drops_read(drops, 3, note, &s);
    assert_true(n >= 3 && (unsigned)n == s.n);
    read_all();
    close(fd);
}

static void a_second_listener_is_told_so(void **state)
{
    struct drops *second;
    (void)state;
    netns_enter(ns.inside);
    int error = drops_open(&second);
    netns_enter(ns.home);
    assert_int_equal(error, -EPERM);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(a_refused_packet_is_an_event, fresh),
        cmocka_unit_test_setup(a_flood_is_limited_and_counted, fresh),
        cmocka_unit_test_setup(one_reading_is_bounded, fresh),
        cmocka_unit_test_setup(a_second_listener_is_told_so, fresh),
    };
    if (!netns_start(&ns))
        return 0;
    netns_enter(ns.inside);
    int error = drops_open(&drops);
    netns_enter(ns.home);
    if (error != 0) {
        fprintf(stderr, "drops_open: %d\n", error);
        return 1;
    }
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    drops_close(drops);
    netns_stop(&ns);
    return failed;
}
