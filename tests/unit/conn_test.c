/* conn_test.c — connections over loopback: the laws of conn.h that the codecs rely on, and that the
 * fake one of the codec tests keeps too. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include "harness/until.h"
#include "net/conn_impl.h"

struct end {
    struct worker *w;
    struct conn *c;
    int peer;    /* the other end, a plain socket */
    size_t take; /* most that is taken in one event */
    char *got;
    size_t got_n, got_room;
    struct buf out;
    unsigned eofs, closeds, readies;
    enum why why;
    bool in_op, close_at_bytes;
};

static void on_ready(void *user)
{
    ((struct end *)user)->readies++;
}

static void on_bytes(void *user, struct buf *in)
{
    struct end *e = user;
    assert_false(e->in_op || e->eofs || e->closeds);
    size_t n = in->len < e->take ? in->len : e->take;
    if (e->got_n + n > e->got_room)
        e->got = mem_renew(e->got, e->got_room = 2 * (e->got_n + n));
    buf_peek(in, e->got + e->got_n, n);
    buf_drop(in, n);
    e->got_n += n;
    if (e->close_at_bytes)
        conn_close(e->c, WHY_REFUSED);
}

static void on_eof(void *user)
{
    struct end *e = user;
    assert_false(e->in_op || e->eofs || e->closeds);
    e->eofs++;
}

static void on_fill(void *user, struct buf *out, size_t max)
{
    struct end *e = user;
    assert_false(e->in_op || e->closeds);
    assert_int_equal(out->len, 0); /* one batch at a time */
    buf_move(out, &e->out, e->out.len < max ? e->out.len : max);
}

static void on_closed(void *user, enum why why)
{
    struct end *e = user;
    assert_false(e->in_op);
    e->closeds++;
    e->why = why;
}

static const struct conn_events events = {on_ready, on_bytes, on_eof, on_fill, on_closed};

static int listening(union addr *ret)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    socklen_t n = sizeof *ret;
    memset(ret, 0, sizeof *ret);
    ret->sa.sa_family = AF_INET;
    ret->v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    assert_int_equal(bind(fd, &ret->sa, sizeof ret->v4), 0);
    assert_int_equal(listen(fd, 1), 0);
    assert_int_equal(getsockname(fd, &ret->sa, &n), 0);
    return fd;
}

static void end_init(struct end *e)
{
    union addr to;
    int l = listening(&to);
    *e = (struct end){.w = worker_new(0), .take = SIZE_MAX};
    buf_init(&e->out, worker_pool(e->w));
    e->peer = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(e->peer, &to.sa, sizeof to.v4), 0);
    fcntl(e->peer, F_SETFL, O_NONBLOCK);
    int fd = accept4(l, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    assert_true(fd >= 0);
    close(l);
    e->c = conn_accept(e->w, fd, &to.sa, 80, NULL, false);
    assert_non_null(e->c);
    conn_attach(e->c, &events, e);
}

static void turn(struct end *e)
{
    worker_turn(e->w);
    poll(NULL, 0, 1);
}

static void some_turns(struct end *e)
{
    for (int i = 0; i < 20; i++)
        turn(e);
}

static void end_done(struct end *e)
{
    if (!e->closeds)
        conn_close(e->c, WHY_DRAIN);
    until(e, e->closeds > 0);
    some_turns(e);
    assert_int_equal(e->closeds, 1);
    buf_clear(&e->out);
    mem_free(e->got);
    if (e->peer >= 0)
        close(e->peer);
    worker_free(e->w);
}

static void say(struct end *e, const void *p, size_t n)
{
    buf_write(&e->out, p, n);
    e->in_op = true;
    conn_wake(e->c);
    e->in_op = false;
}

/* Reads what there is; −1: nothing more will come, errno 0 for FIN. */
static ssize_t hear(struct end *e, char *to, size_t n)
{
    ssize_t got = recv(e->peer, to, n, 0);
    if (got == 0)
        errno = 0;
    if (got < 0 && errno == EAGAIN)
        return 0;
    return got == 0 ? -1 : got;
}

static void reset_by_peer(struct end *e)
{
    struct linger now = {1, 0};
    setsockopt(e->peer, SOL_SOCKET, SO_LINGER, &now, sizeof now);
    close(e->peer);
    e->peer = -1;
}

static void bytes_come_and_go(void **state)
{
    (void)state;
    struct end e;
    char text[16];
    end_init(&e);
    assert_int_equal(send(e.peer, "hello", 5, 0), 5);
    until(&e, e.got_n == 5);
    say(&e, "there", 5);
    ssize_t n = 0;
    until(&e, (n = hear(&e, text, sizeof text)) != 0);
    assert_int_equal(n, 5);
    assert_memory_equal(text, "there", 5);
    assert_int_equal(e.readies, 0); /* accepted ones are born ready */
    end_done(&e);
}

static void what_is_not_taken_comes_again(void **state)
{
    (void)state;
    struct end e;
    end_init(&e);
    e.take = 2;
    assert_int_equal(send(e.peer, "hello", 5, 0), 5);
    until(&e, e.got_n == 2);
    some_turns(&e);
    assert_int_equal(e.got_n, 2);
    assert_int_equal(conn_untaken(e.c), 3);
    e.in_op = true;
    conn_read(e.c, true);
    e.in_op = false;
    until(&e, e.got_n == 4);
    assert_int_equal(send(e.peer, "!", 1, 0), 1);
    until(&e, e.got_n == 6);
    assert_memory_equal(e.got, "hello!", 6);
    end_done(&e);
}

static void reading_stops_when_a_chunk_lies_untaken(void **state)
{
    (void)state;
    struct end e;
    static char block[65536];
    size_t sent = 0;
    end_init(&e);
    e.take = 0;
    for (int quiet = 0; quiet < 50;) { /* until neither side moves */
        ssize_t n = send(e.peer, block, sizeof block, 0);
        quiet = n > 0 ? 0 : quiet + 1;
        sent += n > 0 ? (size_t)n : 0;
        turn(&e);
    }
    assert_true(conn_untaken(e.c) >= CHUNK_BYTES && conn_untaken(e.c) <= 2 * CHUNK_BYTES);
    assert_true(sent > 2 * CHUNK_BYTES);
    e.take = SIZE_MAX;
    conn_read(e.c, true);
    until(&e, e.got_n == sent);
    end_done(&e);
}

static void the_end_is_told_after_the_last_byte_was_taken(void **state)
{
    (void)state;
    struct end e;
    end_init(&e);
    e.take = 0;
    assert_int_equal(send(e.peer, "hello", 5, 0), 5);
    shutdown(e.peer, SHUT_WR);
    until(&e, conn_untaken(e.c) == 5);
    some_turns(&e);
    assert_int_equal(e.eofs, 0);
    e.take = SIZE_MAX;
    conn_read(e.c, true);
    until(&e, e.eofs == 1);
    assert_int_equal(e.got_n, 5);
    say(&e, "bye", 3); /* our half goes on */
    char text[8];
    ssize_t n = 0;
    until(&e, (n = hear(&e, text, sizeof text)) != 0);
    assert_int_equal(n, 3);
    end_done(&e);
}

static void much_output_reaches_a_slow_reader_in_order(void **state)
{
    (void)state;
    enum { TOTAL = 8 << 20 };
    struct end e;
    static char block[50000];
    end_init(&e);
    for (uint32_t i = 0; i < TOTAL / 4; i++)
        buf_write(&e.out, &i, 4);
    conn_wake(e.c);
    conn_finish(e.c);
    some_turns(&e);
    assert_true(e.out.len > 0); /* pulled only as the kernel takes it */
    assert_true(conn_unsent(e.c) <= 12 * CHUNK_BYTES);
    uint32_t word = 0;
    size_t at = 0;
    for (ssize_t n; (n = hear(&e, block, sizeof block)) >= 0; turn(&e))
        for (ssize_t i = 0; i < n; i++, at++) {
            ((char *)&word)[at % 4] = block[i];
            if (at % 4 == 3)
                assert_int_equal(word, at / 4);
        }
    assert_int_equal(errno, 0); /* FIN, behind everything */
    assert_int_equal(at, TOTAL);
    end_done(&e);
}

static void many_small_slices_leave_too(void **state)
{
    (void)state;
    enum { SLICES = 5000 };
    struct end e;
    struct buf apart;
    static char text[2 * SLICES];
    size_t at = 0;
    end_init(&e);
    buf_init(&apart, worker_pool(e.w));
    for (int i = 0; i < SLICES; i++) { /* a byte between two slices keeps them apart */
        buf_write(&e.out, "x", 1);
        buf_write(&apart, "-", 1);
    }
    conn_wake(e.c);
    until(&e, (at += (size_t)hear(&e, text + at, sizeof text - at)) == SLICES);
    buf_clear(&apart);
    end_done(&e);
}

static void after_finish_reading_goes_on(void **state)
{
    (void)state;
    struct end e;
    char text[8];
    ssize_t n = 0;
    end_init(&e);
    conn_finish(e.c);
    until(&e, (n = hear(&e, text, sizeof text)) != 0);
    assert_int_equal(n, -1);
    assert_int_equal(errno, 0);
    assert_int_equal(send(e.peer, "hello", 5, 0), 5);
    until(&e, e.got_n == 5);
    shutdown(e.peer, SHUT_WR);
    until(&e, e.eofs == 1);
    some_turns(&e);
    assert_int_equal(e.closeds, 0); /* who is done with it closes it */
    end_done(&e);
}

static void closing_is_told_once_and_later(void **state)
{
    (void)state;
    struct end e;
    end_init(&e);
    e.in_op = true;
    conn_close(e.c, WHY_REFUSED);
    conn_close(e.c, WHY_OK);
    conn_reset(e.c, WHY_OK);
    conn_read(e.c, true);
    conn_wake(e.c);
    conn_finish(e.c);
    e.in_op = false;
    until(&e, e.closeds == 1);
    assert_int_equal(e.why, WHY_REFUSED);
    end_done(&e);
    end_init(&e);
    e.close_at_bytes = true;
    assert_int_equal(send(e.peer, "hello", 5, 0), 5);
    until(&e, e.closeds == 1);
    assert_int_equal(e.got_n, 5);
    end_done(&e);
}

static void close_is_an_end_and_reset_is_an_error(void **state)
{
    (void)state;
    for (int reset = 0; reset < 2; reset++) {
        for (int finished = 0; finished < 2; finished++) {
            struct end e;
            char text[8];
            ssize_t n = 0;
            end_init(&e);
            if (finished)
                conn_finish(e.c);
            some_turns(&e);
            if (reset)
                conn_reset(e.c, WHY_ORIGIN_GONE);
            else
                conn_close(e.c, WHY_ORIGIN_GONE);
            until(&e, e.closeds == 1);
            if (finished)
                hear(&e, text, sizeof text); /* the FIN */
            until(&e, (n = hear(&e, text, sizeof text)) != 0);
            assert_int_equal(n, -1);
            if (!finished)
                assert_int_equal(errno, reset ? ECONNRESET : 0);
            end_done(&e);
        }
    }
}

static void close_with_a_write_in_flight_is_clean(void **state)
{
    (void)state;
    for (int reset = 0; reset < 2; reset++) {
        struct end e;
        static char block[8 << 20];
        end_init(&e);
        say(&e, block, sizeof block);
        some_turns(&e);
        assert_true(conn_unsent(e.c) > 0);
        if (reset)
            conn_reset(e.c, WHY_ORIGIN_GONE);
        else
            conn_close(e.c, WHY_ORIGIN_GONE);
        end_done(&e);
    }
}

static void a_reset_of_the_peer_is_told(void **state)
{
    (void)state;
    struct end e;
    end_init(&e);
    some_turns(&e);
    reset_by_peer(&e);
    until(&e, e.closeds == 1);
    assert_int_equal(e.why, WHY_CLIENT_GONE);
    end_done(&e);
    end_init(&e); /* also where it is seen by a write only (U5, U6) */
    shutdown(e.peer, SHUT_WR);
    until(&e, e.eofs == 1);
    reset_by_peer(&e);
    some_turns(&e);
    say(&e, "x", 1);
    until(&e, e.closeds == 1);
    assert_int_equal(e.why, WHY_CLIENT_GONE);
    end_done(&e);
}

static void a_refused_connect_says_why(void **state)
{
    (void)state;
    struct end e = {.w = worker_new(0), .peer = -1};
    union addr to;
    int err = 0;
    close(listening(&to));
    buf_init(&e.out, worker_pool(e.w));
    e.c = conn_connect(e.w, &to.sa, &events, &e, &err);
    assert_non_null(e.c);
    until(&e, e.closeds == 1);
    assert_int_equal(e.why, WHY_DIAL);
    assert_int_equal(e.readies, 0);
    end_done(&e);
}

static void a_connect_becomes_ready_once(void **state)
{
    (void)state;
    struct end e = {.w = worker_new(0), .take = SIZE_MAX};
    union addr to;
    int err = 0, l = listening(&to);
    buf_init(&e.out, worker_pool(e.w));
    e.c = conn_connect(e.w, &to.sa, &events, &e, &err);
    assert_non_null(e.c);
    say(&e, "early", 5); /* waits for the connection */
    until(&e, e.readies == 1);
    e.peer = accept4(l, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    char text[8];
    ssize_t n = 0;
    until(&e, (n = hear(&e, text, sizeof text)) != 0);
    assert_int_equal(n, 5);
    close(l);
    end_done(&e);
}

static void bytes_before_an_owner_wait_for_the_next(void **state)
{
    (void)state;
    struct end e, next = {.take = SIZE_MAX};
    end_init(&e);
    e.take = 0;
    assert_int_equal(send(e.peer, "hello", 5, 0), 5);
    shutdown(e.peer, SHUT_WR);
    until(&e, conn_untaken(e.c) == 5);
    buf_init(&next.out, worker_pool(e.w));
    conn_attach(e.c, &events, &next);
    until(&e, next.eofs == 1);
    assert_int_equal(next.got_n, 5);
    assert_int_equal(e.got_n, 0);
    conn_close(e.c, WHY_OK);
    until(&e, next.closeds == 1);
    mem_free(next.got);
    close(e.peer);
    worker_free(e.w);
}

static void an_owner_need_not_have_every_event(void **state)
{
    static const struct conn_events nobody = {NULL};
    (void)state;
    struct end e;
    end_init(&e);
    conn_attach(e.c, &nobody, NULL);
    assert_int_equal(send(e.peer, "hello", 5, 0), 5);
    conn_wake(e.c);
    until(&e, conn_untaken(e.c) == 5);
    conn_attach(e.c, &events, &e);
    until(&e, e.got_n == 5);
    conn_attach(e.c, &nobody, NULL);
    shutdown(e.peer, SHUT_WR); /* no eof() */
    some_turns(&e);
    conn_close(e.c, WHY_DRAIN); /* no closed() */
    some_turns(&e);
    assert_int_equal(e.eofs + e.closeds, 0);
    e.closeds = 1;
    end_done(&e);
}

static void what_is_put_back_comes_again_before_the_rest(void **state)
{
    (void)state;
    struct end e;
    struct buf b;
    end_init(&e);
    buf_init(&b, worker_pool(e.w));
    e.take = 2;
    assert_int_equal(send(e.peer, "abcd", 4, 0), 4);
    until(&e, e.got_n > 0);
    buf_write(&b, e.got, e.got_n);
    e.got_n = 0;
    e.take = SIZE_MAX;
    conn_untake(e.c, &b);
    assert_int_equal(b.len, 0);
    until(&e, e.got_n == 4);
    assert_memory_equal(e.got, "abcd", 4);
    end_done(&e);
}

static void with_what_is_put_back_the_end_comes_again(void **state)
{
    (void)state;
    struct end e;
    struct buf b;
    end_init(&e);
    buf_init(&b, worker_pool(e.w));
    assert_int_equal(send(e.peer, "abcd", 4, 0), 4);
    shutdown(e.peer, SHUT_WR);
    until(&e, e.eofs == 1);
    e.eofs = 0;
    e.got_n = 0;
    buf_write(&b, "abcd", 4);
    conn_untake(e.c, &b);
    until(&e, e.eofs == 1);
    assert_int_equal(e.got_n, 4);
    some_turns(&e);
    assert_int_equal(e.eofs, 1);
    end_done(&e);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_come_and_go),
        cmocka_unit_test(what_is_not_taken_comes_again),
        cmocka_unit_test(reading_stops_when_a_chunk_lies_untaken),
        cmocka_unit_test(the_end_is_told_after_the_last_byte_was_taken),
        cmocka_unit_test(much_output_reaches_a_slow_reader_in_order),
        cmocka_unit_test(many_small_slices_leave_too),
        cmocka_unit_test(after_finish_reading_goes_on),
        cmocka_unit_test(closing_is_told_once_and_later),
        cmocka_unit_test(close_is_an_end_and_reset_is_an_error),
        cmocka_unit_test(close_with_a_write_in_flight_is_clean),
        cmocka_unit_test(a_reset_of_the_peer_is_told),
        cmocka_unit_test(a_refused_connect_says_why),
        cmocka_unit_test(a_connect_becomes_ready_once),
        cmocka_unit_test(bytes_before_an_owner_wait_for_the_next),
        cmocka_unit_test(an_owner_need_not_have_every_event),
        cmocka_unit_test(what_is_put_back_comes_again_before_the_rest),
        cmocka_unit_test(with_what_is_put_back_the_end_comes_again),
    };
    signal(SIGPIPE, SIG_IGN); /* as app_run() does (U6) */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
