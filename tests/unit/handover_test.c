/* handover_test.c — a worker, its crash and its successor, over the supervisor's own store on a
 * thread: what is taken over, what is made anew, and what it costs when nobody keeps anything. */
#include "egress/handover.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>

#include "egress/kernel/enforce.h"
#include "harness/keeper.h"

struct fixture {
    struct keeper keeper;
    struct arena a;
    struct handover *h; /* of the worker that runs */
};

static void start_worker(struct fixture *f)
{
    keeper_serve(&f->keeper);
    f->h = handover_open(&f->a);
    assert_true(handover_kept(f->h));
}

/* What it has not closed itself goes with it. */
static void end_worker(struct fixture *f)
{
    handover_close(f->h);
    keeper_wait(&f->keeper);
}

static void next_worker(struct fixture *f)
{
    end_worker(f);
    start_worker(f);
    assert_true(handover_succeeds(f->h));
}

static void begin(struct fixture *f)
{
    keeper_init(&f->keeper);
    arena_init(&f->a, NULL, 0);
    start_worker(f);
    assert_false(handover_succeeds(f->h));
}

static void end(struct fixture *f)
{
    end_worker(f);
    keeper_done(&f->keeper);
    arena_done(&f->a);
}

static int open_descriptors(void)
{
    int n = 0;
    for (int fd = 0; fd < 1024; fd++)
        n += fcntl(fd, F_GETFD) >= 0;
    return n;
}

/* ---- addresses */

static void address(union addr *ret, const char *text, uint16_t port)
{
    struct ip ip;
    memset(ret, 0, sizeof *ret);
    assert_true(ip_parse(str_of(text), &ip));
    addr_make(ret, &ip, port);
    if (strchr(text, ':') && !ret->v6.sin6_family)
        fail();
}

static uint16_t port_of(int fd)
{
    union addr now;
    socklen_t n = sizeof now;
    assert_int_equal(getsockname(fd, &now.sa, &n), 0);
    return addr_port(&now.sa);
}

static uint64_t inode_of(int fd)
{
    char path[64], name[64] = "";
    unsigned long long inode = 0;
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    assert_true(readlink(path, name, sizeof name - 1) > 0);
    assert_int_equal(sscanf(name, "socket:[%llu]", &inode), 1);
    return inode;
}

static int connected(const char *ip, uint16_t port, int kind)
{
    union addr to;
    address(&to, ip, port);
    int fd = socket(AF_INET, kind | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    if (connect(fd, &to.sa, sizeof to.v4) == 0)
        return fd;
    close(fd);
    return -1;
}

/* A listener of that name at a port that was free. */
static int listener(struct fixture *f, const char *name, const char *ip, uint16_t *port)
{
    union addr at;
    struct str error;
    address(&at, ip, *port);
    int fd = handover_listen(f->h, name, &at, &f->a, &error);
    assert_true(fd >= 0);
    *port = port_of(fd);
    return fd;
}

/* ---- without a supervisor */

static void without_a_supervisor_every_start_is_a_fresh_one(void **state)
{
    struct arena a;
    struct str text;
    union addr at;
    struct document d = document_deny();
    (void)state;
    int before = open_descriptors();
    arena_init(&a, NULL, 0);
    unsetenv(KEEP_VARIABLE);
    struct handover *h = handover_open(&a);
    assert_false(handover_kept(h));
    assert_false(handover_succeeds(h));
    address(&at, "127.0.0.1", 0);
    int tcp = handover_listen(h, "tcp", &at, &a, &text),
        udp = handover_udp(h, "udp", &at, &a, &text);
    assert_true(tcp >= 0 && udp >= 0);
    assert_false(handover_text(h, HANDOVER_POLICY, &text));
    assert_true(handover_leave_text(h, HANDOVER_UPSTREAMS, STR("#")));
    assert_true(handover_leave_policy(h, &d));
    handover_leave(h, "xdp:a", udp);
    handover_leave(h, "xdp:a", -1);
    struct enforce_guard guards[HANDOVER_GUARDS];
    assert_int_equal(handover_guards(h, "xdp:", guards), 0);
    close(tcp);
    close(udp);
    handover_close(h);
    document_done(&d);
    arena_done(&a);
    assert_int_equal(open_descriptors(), before);
}

static void a_supervisor_that_is_gone_stops_no_start(void **state)
{
    struct fixture f;
    struct str error;
    union addr at;
    (void)state;
    int before = open_descriptors();
    begin(&f);
    shutdown(f.keeper.server, SHUT_RDWR);
    keeper_wait(&f.keeper);
    address(&at, "127.0.0.1", 0);
    int fd = handover_listen(f.h, "tcp", &at, &f.a, &error);
    assert_true(fd >= 0);
    assert_true(handover_marks(f.h).own != 0);
    assert_false(handover_leave_text(f.h, HANDOVER_POLICY, STR("{}")));
    close(fd);
    handover_close(f.h);
    keeper_done(&f.keeper);
    arena_done(&f.a);
    assert_int_equal(open_descriptors(), before);
}

/* ---- marks */

static bool different(const uint32_t *list, size_t n)
{
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < i; j++)
            if (list[i] == list[j])
                return false;
    return true;
}

static void marks_are_not_zero_differ_and_are_the_successors_too(void **state)
{
    struct fixture f;
    (void)state;
    begin(&f);
    struct marks m = handover_marks(f.h);
    uint32_t all[] = {m.own, m.pass, m.group};
    assert_true(m.own && m.pass && m.group && different(all, 3));
    next_worker(&f);
    struct marks again = handover_marks(f.h);
    assert_memory_equal(&again, &m, sizeof m);
    end(&f);
    begin(&f);
    struct marks other = handover_marks(f.h);
    assert_memory_not_equal(&other, &m, sizeof m);
    end(&f);
}

/* As an older program would leave them. */
static void marks_of_another_shape_are_replaced(void **state)
{
    struct fixture f;
    (void)state;
    begin(&f);
    end_worker(&f);
    keeper_serve(&f.keeper);
    struct keep *older = keep_open(getenv(KEEP_VARIABLE));
    assert_int_equal(keep_put(older, STR("marks"), STR("12345678"), -1), WHY_OK);
    keep_close(older);
    keeper_wait(&f.keeper);
    start_worker(&f);
    assert_true(handover_succeeds(f.h));
    struct marks m = handover_marks(f.h);
    assert_true(m.own && m.pass && m.group);
    next_worker(&f);
    struct marks again = handover_marks(f.h);
    assert_memory_equal(&again, &m, sizeof m);
    end(&f);
}

/* ---- sockets */

static void who_came_while_nobody_was_there_is_served_by_the_successor(void **state)
{
    struct fixture f;
    uint16_t tcp_port = 0, udp_port;
    union addr at;
    struct str error;
    char c = 0;
    (void)state;
    int before = open_descriptors();
    begin(&f);
    int tcp = listener(&f, "tcp", "127.0.0.1", &tcp_port);
    address(&at, "127.0.0.1", 0);
    int udp = handover_udp(f.h, "udp", &at, &f.a, &error);
    udp_port = port_of(udp);
    uint64_t tcp_inode = inode_of(tcp), udp_inode = inode_of(udp);
    close(tcp);
    close(udp);
    int one = connected("127.0.0.1", tcp_port, SOCK_STREAM);
    int two = connected("127.0.0.1", udp_port, SOCK_DGRAM);
    assert_true(one >= 0 && two >= 0);
    assert_int_equal(send(one, "a", 1, 0), 1);
    assert_int_equal(send(two, "b", 1, 0), 1);
    next_worker(&f);
    tcp = listener(&f, "tcp", "127.0.0.1", &tcp_port);
    address(&at, "127.0.0.1", udp_port);
    udp = handover_udp(f.h, "udp", &at, &f.a, &error);
    assert_true(inode_of(tcp) == tcp_inode && inode_of(udp) == udp_inode);
    assert_int_equal(recv(udp, &c, 1, 0), 1);
    assert_int_equal(c, 'b');
    int conn = accept(tcp, NULL, NULL);
    assert_true(conn >= 0);
    assert_int_equal(recv(conn, &c, 1, 0), 1);
    assert_int_equal(c, 'a');
    close(conn);
    close(one);
    close(two);
    close(tcp);
    close(udp);
    end(&f);
    assert_int_equal(open_descriptors(), before);
}

static void a_socket_of_another_address_is_not_taken_and_is_closed(void **state)
{
    struct fixture f;
    uint16_t port = 0;
    (void)state;
    int before = open_descriptors();
    begin(&f);
    close(listener(&f, "tcp", "127.0.0.1", &port));
    next_worker(&f);
    int fd = listener(&f, "tcp", "127.0.0.2", &port);
    assert_int_equal(connected("127.0.0.1", port, SOCK_STREAM), -1);
    int c = connected("127.0.0.2", port, SOCK_STREAM);
    assert_true(c >= 0);
    close(c);
    close(fd);
    next_worker(&f);
    uint16_t other = 0;
    fd = listener(&f, "tcp", "127.0.0.2", &other); /* a port of its own */
    assert_int_equal(connected("127.0.0.2", port, SOCK_STREAM), -1);
    close(fd);
    end(&f);
    assert_int_equal(open_descriptors(), before);
}

/* A machine without IPv6 serves `::` by 0.0.0.0, and its successor goes on with that. */
static void all_addresses_of_ipv4_are_good_for_all_addresses(void **state)
{
    struct fixture f;
    uint16_t port = 0;
    union addr at;
    struct str error;
    (void)state;
    begin(&f);
    int fd = listener(&f, "api", "0.0.0.0", &port);
    uint64_t inode = inode_of(fd);
    close(fd);
    next_worker(&f);
    address(&at, "::", port);
    fd = handover_listen(f.h, "api", &at, &f.a, &error);
    assert_true(fd >= 0 && inode_of(fd) == inode);
    close(fd);
    next_worker(&f);
    fd = listener(&f, "api", "127.0.0.1", &port); /* but not for one of them */
    assert_true(inode_of(fd) != inode);
    close(fd);
    end(&f);
}

static void a_taken_port_is_a_line_and_nothing_is_left(void **state)
{
    struct fixture f;
    uint16_t port = 0;
    union addr at;
    struct str error;
    (void)state;
    begin(&f);
    int fd = listener(&f, "tcp", "127.0.0.1", &port);
    unsigned n = f.keeper.store.n;
    address(&at, "127.0.0.1", port);
    assert_int_equal(handover_listen(f.h, "other", &at, &f.a, &error), -1);
    assert_int_equal(errno, EADDRINUSE);
    assert_true(error.n > 0);
    int udp = handover_udp(f.h, "udp", &at, &f.a, &error);
    assert_true(udp >= 0);
    assert_int_equal(handover_udp(f.h, "udp other", &at, &f.a, &error), -1);
    assert_int_equal(errno, EADDRINUSE);
    assert_int_equal(f.keeper.store.n, n + 1);
    close(fd);
    close(udp);
    end(&f);
}

static void what_the_successor_does_not_want_is_closed(void **state)
{
    struct fixture f;
    uint16_t port = 0;
    (void)state;
    int before = open_descriptors();
    begin(&f);
    close(listener(&f, "proxy", "127.0.0.1", &port));
    next_worker(&f);
    handover_leave(f.h, "proxy", -1);
    end_worker(&f);
    assert_int_equal(connected("127.0.0.1", port, SOCK_STREAM), -1);
    assert_int_equal(f.keeper.store.n, 0);
    keeper_done(&f.keeper);
    arena_done(&f.a);
    assert_int_equal(open_descriptors(), before);
}

/* ---- guards */

static unsigned guards_of(struct fixture *f, struct enforce_guard *ret)
{
    unsigned n = handover_guards(f->h, ENFORCE_GUARD_PREFIX, ret);
    for (unsigned i = 0; i < n; i++) {
        assert_true(ret[i].fd >= 0);
        close(ret[i].fd);
    }
    return n;
}

static void guards_are_found_by_how_their_names_begin_once(void **state)
{
    struct fixture f;
    struct enforce_guard guards[HANDOVER_GUARDS];
    uint16_t port = 0;
    (void)state;
    int before = open_descriptors();
    begin(&f);
    close(listener(&f, "tcp", "127.0.0.1", &port));
    handover_leave(f.h, "xdp:e0:0", STDIN_FILENO);
    handover_leave(f.h, "xdp:e0:1", STDIN_FILENO);
    handover_leave(f.h, "xd", STDIN_FILENO);
    assert_int_equal(guards_of(&f, guards), 0); /* its own, not a predecessor's */
    next_worker(&f);
    assert_int_equal(guards_of(&f, guards), 2);
    assert_true(str_eq(guards[0].name, STR("xdp:e0:0")) && str_eq(guards[1].name, STR("xdp:e0:1")));
    assert_int_equal(guards_of(&f, guards), 0);
    handover_leave(f.h, "xdp:e0:0", -1);
    handover_leave(f.h, "xdp:none", -1);
    next_worker(&f);
    assert_int_equal(guards_of(&f, guards), 1);
    assert_true(str_eq(guards[0].name, STR("xdp:e0:1")));
    end(&f);
    assert_int_equal(open_descriptors(), before);
}

static void there_is_a_bound_to_guards(void **state)
{
    struct fixture f;
    struct enforce_guard guards[HANDOVER_GUARDS];
    char name[32];
    (void)state;
    int before = open_descriptors();
    begin(&f);
    for (int i = 0; i < HANDOVER_GUARDS + 10; i++) {
        snprintf(name, sizeof name, "xdp:%d", i);
        handover_leave(f.h, name, STDIN_FILENO);
    }
    next_worker(&f);
    assert_int_equal(guards_of(&f, guards), HANDOVER_GUARDS);
    end(&f);
    assert_int_equal(open_descriptors(), before);
}

/* ---- texts */

static void the_policy_comes_back_as_it_was_left(void **state)
{
    static const char text[] = "{\"defaultAction\":\"allow\",\"egress\":["
                               "{\"action\":\"deny\",\"target\":\"*.a.test\"},"
                               "{\"action\":\"allow\",\"target\":\"192.0.2.0/24\"}]}";
    struct fixture f;
    struct str kept;
    struct document d, back;
    struct json_fault fault;
    (void)state;
    begin(&f);
    assert_false(handover_text(f.h, HANDOVER_POLICY, &kept));
    assert_true(document_parse(STR(text), &d, &fault));
    assert_true(handover_leave_policy(f.h, &d));
    next_worker(&f);
    assert_true(handover_text(f.h, HANDOVER_POLICY, &kept));
    assert_true(handover_text(f.h, HANDOVER_POLICY, &kept)); /* as often as wanted */
    assert_true(document_parse(kept, &back, &fault));
    assert_true(back.allow && rules_same(back.rules, d.rules));
    assert_false(handover_text(f.h, HANDOVER_UPSTREAMS, &kept));
    document_done(&back);
    document_done(&d);
    d = document_deny(); /* an empty policy is one too */
    assert_true(handover_leave_policy(f.h, &d));
    next_worker(&f);
    assert_true(handover_text(f.h, HANDOVER_POLICY, &kept));
    assert_true(document_parse(kept, &back, &fault));
    assert_false(back.allow);
    assert_true(rules_same(back.rules, d.rules));
    document_done(&back);
    document_done(&d);
    end(&f);
}

static void a_text_may_be_long_and_the_last_one_counts(void **state)
{
    enum { MUCH = 20 << 20 };
    struct fixture f;
    struct str kept;
    char *much = mem_new(MUCH);
    (void)state;
    memset(much, 'p', MUCH);
    begin(&f);
    assert_true(handover_leave_text(f.h, HANDOVER_POLICY, STR("short")));
    assert_true(handover_leave_text(f.h, HANDOVER_POLICY, (struct str){much, MUCH}));
    next_worker(&f);
    assert_true(handover_text(f.h, HANDOVER_POLICY, &kept));
    assert_int_equal(kept.n, MUCH);
    assert_memory_equal(kept.p, much, MUCH);
    mem_free(much);
    end(&f);
}

/* ---- two threads */

static void *leave_texts(void *user)
{
    struct fixture *f = user;
    for (int i = 0; i < 200; i++)
        assert_true(handover_leave_text(f->h, HANDOVER_POLICY, STR("{}")));
    return NULL;
}

static void a_change_and_a_guard_may_be_left_at_the_same_time(void **state)
{
    struct fixture f;
    struct enforce_guard guards[HANDOVER_GUARDS];
    struct str kept;
    pthread_t pool;
    (void)state;
    begin(&f);
    assert_int_equal(pthread_create(&pool, NULL, leave_texts, &f), 0);
    for (int i = 0; i < 200; i++)
        handover_leave(f.h, "xdp:e0:0", i % 2 ? STDIN_FILENO : -1);
    pthread_join(pool, NULL);
    next_worker(&f);
    assert_int_equal(guards_of(&f, guards), 1);
    assert_true(handover_text(f.h, HANDOVER_POLICY, &kept) && str_eq(kept, STR("{}")));
    end(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_a_supervisor_every_start_is_a_fresh_one),
        cmocka_unit_test(a_supervisor_that_is_gone_stops_no_start),
        cmocka_unit_test(marks_are_not_zero_differ_and_are_the_successors_too),
        cmocka_unit_test(marks_of_another_shape_are_replaced),
        cmocka_unit_test(who_came_while_nobody_was_there_is_served_by_the_successor),
        cmocka_unit_test(a_socket_of_another_address_is_not_taken_and_is_closed),
        cmocka_unit_test(all_addresses_of_ipv4_are_good_for_all_addresses),
        cmocka_unit_test(a_taken_port_is_a_line_and_nothing_is_left),
        cmocka_unit_test(what_the_successor_does_not_want_is_closed),
        cmocka_unit_test(guards_are_found_by_how_their_names_begin_once),
        cmocka_unit_test(there_is_a_bound_to_guards),
        cmocka_unit_test(the_policy_comes_back_as_it_was_left),
        cmocka_unit_test(a_text_may_be_long_and_the_last_one_counts),
        cmocka_unit_test(a_change_and_a_guard_may_be_left_at_the_same_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
