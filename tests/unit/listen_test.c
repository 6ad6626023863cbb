/* listen_test.c — listening sockets of both kinds, and what a connection that came in by one can be
 * told of itself: where it was on its way to, and what the product knows of it. */
#include "net/listen.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "net/worker.h"

/* ---- sockets */

static union addr anywhere(const char *text)
{
    union addr a;
    assert_true(addr_parse(str_of(text), &a));
    return a;
}

static int call(const union addr *to)
{
    int fd = socket(to->sa.sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connect(fd, &to->sa, addr_len(&to->sa)) == 0)
        return fd;
    close(fd);
    return -1;
}

static void a_shared_port_is_had_by_many_and_one_alone_by_nobody_else(void **state)
{
    int (*const binds[])(const struct sockaddr *, union addr *, struct arena *,
                         struct str *) = {listen_bind, listen_bind_alone};
    static const char *const places[] = {"127.0.0.1:0", ":0"};
    (void)state;
    for (int place = 0; place < 2; place++)
        for (int first = 0; first < 2; first++)
            for (int second = 0; second < 2; second++) {
                struct arena a;
                struct str error = STR_NONE;
                union addr at = anywhere(places[place]), bound, again;
                arena_init(&a, NULL, 0);
                int one = binds[first](&at.sa, &bound, &a, &error);
                assert_true(one >= 0);
                int other = binds[second](&bound.sa, &again, &a, &error);
                assert_int_equal(other >= 0, !first);
                if (second && other >= 0) { /* who had only bound it cannot listen any more */
                    assert_int_equal(listen(one, 1), -1);
                    assert_int_equal(errno, EADDRINUSE);
                }
                if (other < 0) {
                    assert_int_equal(errno, EADDRINUSE);
                    assert_true(error.n > 0);
                } else {
                    close(other);
                }
                close(one);
                arena_done(&a);
            }
}

/* A listener on one address of the port would take its connections away from one on all. */
static void nobody_gets_one_address_of_a_port_that_is_had_alone(void **state)
{
    struct arena a;
    struct str error;
    union addr all = anywhere(":0"), bound, one;
    char text[ADDR_TEXT_BYTES];
    (void)state;
    arena_init(&a, NULL, 0);
    int fd = listen_bind_alone(&all.sa, &bound, &a, &error);
    assert_true(fd >= 0);
    struct ip ip;
    assert_true(ip_parse(STR("127.0.0.1"), &ip));
    addr_make(&one, &ip, addr_port(&bound.sa));
    assert_int_equal(listen_bind(&one.sa, &bound, &a, &error), -1);
    assert_int_equal(errno, EADDRINUSE);
    assert_true(addr_text(&one.sa, text) > 0);
    close(fd);
    arena_done(&a);
}

/* ---- connections */

struct rig {
    struct worker *w;
    struct listener *l;
    union addr bound;
    struct conn *conn;
    unsigned accepted, closed;
};

static void on_bytes(void *user, struct buf *in)
{
    (void)user;
    buf_clear(in);
}

static void on_closed(void *user, enum why why)
{
    struct rig *r = user;
    (void)why;
    r->closed++;
}

static const struct conn_events events = {.bytes = on_bytes, .closed = on_closed};

static void on_accept(void *user, struct conn *c)
{
    struct rig *r = user;
    r->accepted++;
    r->conn = c;
    conn_attach(c, &events, r);
}

static void turns(struct rig *r, const unsigned *what, unsigned n)
{
    for (int i = 0; i < 20000 && *what < n; i++) {
        worker_turn(r->w);
        poll(NULL, 0, 1);
    }
    assert_int_equal(*what, n);
}

static void rig_init(struct rig *r)
{
    struct arena a;
    struct str error;
    union addr at = anywhere("127.0.0.1:0");
    *r = (struct rig){.w = worker_new(0)};
    arena_init(&a, NULL, 0);
    int fd = listen_bind_alone(&at.sa, &r->bound, &a, &error);
    assert_true(fd >= 0);
    int early = call(&r->bound); /* it listens, though nobody accepts yet */
    assert_true(early >= 0);
    r->l = listener_start(r->w, fd, NULL, on_accept, r);
    turns(r, &r->accepted, 1);
    close(early);
    arena_done(&a);
}

static void rig_done(struct rig *r)
{
    listener_stop(r->l);
    if (!r->closed)
        conn_close(r->conn, WHY_DRAIN);
    turns(r, &r->closed, 1);
    worker_free(r->w);
}

static void who_comes_early_is_accepted_when_there_is_a_listener(void **state)
{
    struct rig r;
    (void)state;
    rig_init(&r);
    rig_done(&r);
}

static void a_target_is_told_as_it_was_set(void **state)
{
    static const char *const targets[] = {"192.0.2.1:443", "[2001:db8::1]:80"};
    struct rig r;
    (void)state;
    rig_init(&r);
    assert_null(conn_info(r.conn)->target);
    for (size_t i = 0; i < 2; i++) {
        union addr was, t = anywhere(targets[i]);
        was = t;
        conn_set_target(r.conn, &t.sa);
        memset(&t, 0, sizeof t); /* copied */
        assert_true(addr_eq(conn_info(r.conn)->target, &was.sa));
    }
    rig_done(&r);
}

struct note {
    struct rig *r;
    unsigned dropped, closed_before;
};

static void on_drop(void *p)
{
    struct note *n = p;
    n->dropped++;
    n->closed_before = n->r->closed;
}

static void a_note_is_dropped_once_when_another_is_set_or_the_connection_is_no_more(void **state)
{
    struct rig r;
    struct note one = {.r = &r}, two = {.r = &r};
    (void)state;
    rig_init(&r);
    assert_null(conn_info(r.conn)->note);
    conn_set_note(r.conn, &one, on_drop);
    assert_ptr_equal(conn_info(r.conn)->note, &one);
    conn_set_note(r.conn, &two, on_drop);
    assert_int_equal(one.dropped, 1);
    assert_ptr_equal(conn_info(r.conn)->note, &two);
    conn_close(r.conn, WHY_DRAIN);
    assert_int_equal(two.dropped, 0); /* closed() may still want it */
    rig_done(&r);
    assert_int_equal(one.dropped, 1);
    assert_int_equal(two.dropped, 1);
    assert_int_equal(two.closed_before, 1);
}

static void a_note_without_drop_is_only_forgotten(void **state)
{
    struct rig r;
    int mine = 0;
    (void)state;
    rig_init(&r);
    conn_set_note(r.conn, &mine, NULL);
    assert_ptr_equal(conn_info(r.conn)->note, &mine);
    conn_set_note(r.conn, NULL, NULL);
    assert_null(conn_info(r.conn)->note);
    rig_done(&r);
}

/* With connection tracking it is our own address, without it nothing is known. */
static void what_was_not_redirected_was_on_its_way_to_us(void **state)
{
    struct rig r;
    union addr was;
    (void)state;
    rig_init(&r);
    int err = conn_original(r.conn, &was);
    assert_true(err == -ENOENT || err == -ENOPROTOOPT ||
                (err == 0 && addr_eq(&was.sa, &r.bound.sa)));
    rig_done(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_shared_port_is_had_by_many_and_one_alone_by_nobody_else),
        cmocka_unit_test(nobody_gets_one_address_of_a_port_that_is_had_alone),
        cmocka_unit_test(who_comes_early_is_accepted_when_there_is_a_listener),
        cmocka_unit_test(a_target_is_told_as_it_was_set),
        cmocka_unit_test(a_note_is_dropped_once_when_another_is_set_or_the_connection_is_no_more),
        cmocka_unit_test(a_note_without_drop_is_only_forgotten),
        cmocka_unit_test(what_was_not_redirected_was_on_its_way_to_us),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
