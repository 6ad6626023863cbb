/* local_test.c — a real worker and Unix sockets: bytes go both ways, the end is told, and what
 * cannot be connected to is said at once. */
#include "net/local.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <cmocka.h>

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "harness/until.h"
#include "net/worker.h"

struct rig {
    struct worker *w;
    char path[64], got[16];
    bool said, eof, closed;
    enum why why;
};

static void turn(struct rig *r)
{
    worker_turn(r->w);
    poll(NULL, 0, 1);
}

static void on_bytes(void *user, struct buf *in)
{
    struct rig *r = user;
    size_t n = in->len;
    assert_true(n < sizeof r->got);
    buf_peek(in, r->got, n);
    buf_drop(in, n);
}

static void on_eof(void *user)
{
    struct rig *r = user;
    r->eof = true;
}

static void on_fill(void *user, struct buf *out, size_t max)
{
    struct rig *r = user;
    (void)max;
    if (!r->said)
        buf_str(out, STR("hello"));
    r->said = true;
}

static void on_closed(void *user, enum why why)
{
    struct rig *r = user;
    r->closed = true;
    r->why = why;
}

static const struct conn_events events = {NULL, on_bytes, on_eof, on_fill, on_closed};

static int listens(struct rig *r, int backlog)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    *r = (struct rig){.w = worker_new(0)};
    snprintf(r->path, sizeof r->path, "/tmp/local_test.%d", (int)getpid());
    snprintf(a.sun_path, sizeof a.sun_path, "%s", r->path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof a), 0);
    assert_int_equal(listen(fd, backlog), 0);
    return fd;
}

static void bytes_go_both_ways_and_the_end_is_told(void **state)
{
    (void)state;
    struct rig r;
    char got[8] = "";
    int err = 0, listener = listens(&r, 4);
    struct conn *c = conn_local(r.w, str_of(r.path), &err);
    assert_non_null(c);
    conn_attach(c, &events, &r);
    conn_wake(c);
    int fd = accept(listener, NULL, NULL);
    until(&r, r.said);
    assert_int_equal(recv(fd, got, sizeof got, 0), 5);
    assert_string_equal(got, "hello");
    assert_int_equal(send(fd, "there", 5, 0), 5);
    until(&r, strcmp(r.got, "there") == 0);
    close(fd);
    until(&r, r.eof);
    conn_close(c, WHY_ORIGIN_GONE);
    until(&r, r.closed);
    assert_int_equal(r.why, WHY_ORIGIN_GONE);
    close(listener);
    unlink(r.path);
    worker_free(r.w);
}

static void what_cannot_be_connected_to_is_said_at_once(void **state)
{
    (void)state;
    struct rig r;
    char longest[LOCAL_PATH_BYTES + 1];
    int err = 0, listener = listens(&r, 4);
    memset(longest, 'x', sizeof longest);
    close(listener);
    assert_null(conn_local(r.w, str_of(r.path), &err));
    assert_int_equal(err, ECONNREFUSED);
    unlink(r.path);
    assert_null(conn_local(r.w, str_of(r.path), &err));
    assert_int_equal(err, ENOENT);
    assert_null(conn_local(r.w, (struct str){longest, sizeof longest}, &err));
    assert_int_equal(err, ENAMETOOLONG);
    assert_null(conn_local(r.w, STR("/tmp/a\0b"), &err));
    assert_int_equal(err, ENAMETOOLONG);
    assert_null(conn_local(r.w, STR_NONE, &err));
    worker_free(r.w);
}

static const struct conn_events nobody = {NULL};

static void a_full_queue_of_the_other_side_does_not_block(void **state)
{
    (void)state;
    struct rig r;
    enum { MANY = 8 };
    struct conn *all[MANY];
    int err = 0, n = 0, listener = listens(&r, 0);
    while (n < MANY && (all[n] = conn_local(r.w, str_of(r.path), &err)))
        conn_attach(all[n++], &nobody, NULL);
    assert_true(n > 0 && n < MANY);
    assert_int_equal(err, EAGAIN);
    for (int i = 0; i < n; i++)
        conn_close(all[i], WHY_DRAIN);
    for (int i = 0; i < 3; i++)
        turn(&r);
    close(listener);
    unlink(r.path);
    worker_free(r.w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_go_both_ways_and_the_end_is_told),
        cmocka_unit_test(what_cannot_be_connected_to_is_said_at_once),
        cmocka_unit_test(a_full_queue_of_the_other_side_does_not_block),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
