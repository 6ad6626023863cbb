/* xdp_test.c — nobody else gets a queue that we hold, which is all there is against AF_XDP (K15).
 */
#include "egress/kernel/xdp.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>
#include <cmocka.h>

#include "egress/kernel/devices.h"
#include "harness/netns.h"

static struct netns ns;

static void hold(struct xdp *x)
{
    struct arena a;
    const struct str *devices;
    unsigned n;
    arena_init(&a, NULL, 0);
    netns_enter(ns.inside);
    assert_true(devices_read(&a, &devices, &n));
    xdp_hold(x, devices, n);
    netns_enter(ns.home);
    arena_done(&a);
}

/* The kernel lets go of a queue some time after its socket was closed. */
static void hold_all(struct xdp *x)
{
    for (unsigned i = 0; i < 1000; i++) {
        hold(x);
        if (x->unguarded == 0)
            return;
        usleep(10000);
    }
    fail_msg("%u queues remain free", x->unguarded);
}

static void devices_are_listed_in_order_without_lo(void **state)
{
    struct arena a;
    const struct str *devices;
    unsigned n;
    (void)state;
    arena_init(&a, NULL, 0);
    assert_true(netns_run(&ns, "ip link add d0 type veth peer name f0"));
    netns_enter(ns.inside);
    assert_true(devices_read(&a, &devices, &n));
    netns_enter(ns.home);
    assert_int_equal(n, 3);
    assert_true(str_eq(devices[0], STR("d0")) && str_eq(devices[1], STR("e0")) &&
                str_eq(devices[2], STR("f0")));
    assert_true(netns_run(&ns, "ip link del d0"));
    arena_done(&a);
}

static void a_queue_is_held_by_one(void **state)
{
    struct xdp ours, theirs;
    (void)state;
    xdp_init(&ours);
    xdp_init(&theirs);
    hold_all(&ours);
    if (ours.unknown)
        skip();
    assert_true(ours.n > 0 && ours.unguarded == 0 && ours.at[0].fresh);
    hold(&theirs);
    assert_int_equal(theirs.n, 0);
    assert_int_equal(theirs.unguarded, ours.n);
    hold(&ours);
    assert_int_equal(ours.unguarded, 0);
    xdp_done(&ours);
}

static void a_successor_goes_on_with_what_was_kept(void **state)
{
    struct xdp first, second;
    (void)state;
    xdp_init(&first);
    xdp_init(&second);
    hold_all(&first);
    if (first.unknown)
        skip();
    unsigned n = first.n;
    for (unsigned i = 0; i < n; i++) {
        int kept = fcntl(first.at[i].fd, F_DUPFD_CLOEXEC, 0);
        assert_true(xdp_take(&second, str_of(first.at[i].name), kept));
    }
    xdp_done(&first);
    hold(&second);
    assert_int_equal(second.n, n);
    assert_int_equal(second.unguarded, 0);
    assert_false(second.at[0].fresh);
    xdp_done(&second);
}

static void other_sockets_are_not_taken(void **state)
{
    struct xdp x;
    int fd = netns_listen(ns.inside, SOCK_DGRAM, "127.0.0.1", 0);
    (void)state;
    xdp_init(&x);
    assert_false(xdp_take(&x, STR("xdp:e0:2:0"), fd));
    assert_int_equal(x.n, 0);
    close(fd);
}

static void guards_of_a_device_that_went_are_given_up(void **state)
{
    struct xdp x;
    (void)state;
    xdp_init(&x);
    assert_true(netns_run(&ns, "ip link add d0 type veth peer name f0"));
    hold_all(&x);
    if (x.unknown)
        skip();
    unsigned all = x.n;
    assert_true(netns_run(&ns, "ip link del d0 && ip link add d0 type veth peer name f0"));
    hold_all(&x);
    assert_int_equal(x.n, all);
    assert_int_equal(x.unguarded, 0);
    assert_true(x.ngone == 2);
    xdp_done(&x);
    assert_true(netns_run(&ns, "ip link del d0"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(devices_are_listed_in_order_without_lo),
        cmocka_unit_test(a_queue_is_held_by_one),
        cmocka_unit_test(a_successor_goes_on_with_what_was_kept),
        cmocka_unit_test(other_sockets_are_not_taken),
        cmocka_unit_test(guards_of_a_device_that_went_are_given_up),
    };
    if (!netns_start(&ns))
        return 0;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    netns_stop(&ns);
    return failed;
}
