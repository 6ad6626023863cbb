/* splice_test.c — bulk through a kernel pipe, between two real connections: every byte once and in
 * order, whatever was read before, however slowly the far side takes. */
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

#include "net/conn_impl.h"
#include "net/splice.h"

struct end {
    struct worker *w;
    struct conn *c;
    int peer;
    size_t take; /* most that is taken in one event */
    size_t got, eofs, closeds;
    struct buf out;
};

struct pair {
    struct worker *w;
    struct end near, far;
    struct splice *s;
    int64_t told, done; /* done: -1 not yet */
    bool stop_at_moved;
    size_t received; /* by the far peer, checked against the pattern */
    size_t sent;     /* by the near peer */
};

static uint8_t pattern(size_t at)
{
    return (uint8_t)(at * 31 + at / 257);
}

static void on_bytes(void *user, struct buf *in)
{
    struct end *e = user;
    size_t n = in->len < e->take ? in->len : e->take;
    buf_drop(in, n);
    e->got += n;
}

static void on_eof(void *user)
{
    ((struct end *)user)->eofs++;
}

static void on_fill(void *user, struct buf *out, size_t max)
{
    struct end *e = user;
    buf_move(out, &e->out, e->out.len < max ? e->out.len : max);
}

static void on_closed(void *user, enum why why)
{
    (void)why;
    ((struct end *)user)->closeds++;
}

static const struct conn_events events = {NULL, on_bytes, on_eof, on_fill, on_closed};

static void on_moved(void *user, size_t n)
{
    struct pair *p = user;
    assert_int_equal(p->done, -1);
    p->told += (int64_t)n;
    if (p->stop_at_moved) {
        splice_stop(p->s);
        p->s = NULL;
    }
}

static void on_done(void *user, int64_t moved)
{
    struct pair *p = user;
    assert_int_equal(p->done, -1);
    p->done = moved;
    p->s = NULL;
}

static const struct splice_events splice_events = {on_moved, on_done};

static void end_init(struct end *e, struct worker *w)
{
    union addr to = {.v4 = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)}};
    socklen_t n = sizeof to;
    int l = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    *e = (struct end){.w = w};
    buf_init(&e->out, worker_pool(w));
    assert_int_equal(bind(l, &to.sa, sizeof to.v4), 0);
    assert_int_equal(listen(l, 1), 0);
    assert_int_equal(getsockname(l, &to.sa, &n), 0);
    e->peer = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(e->peer, &to.sa, sizeof to.v4), 0);
    fcntl(e->peer, F_SETFL, O_NONBLOCK);
    int fd = accept4(l, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    close(l);
    e->c = conn_accept(w, fd, &to.sa, 80, NULL, false);
    conn_attach(e->c, &events, e);
}

static void end_done(struct end *e)
{
    if (!e->closeds)
        conn_close(e->c, WHY_DRAIN);
    for (int i = 0; i < 1000 && !e->closeds; i++)
        worker_turn(e->w);
    assert_int_equal(e->closeds, 1);
    buf_clear(&e->out);
    close(e->peer);
}

static int setup(void **state)
{
    struct pair *p = mem_new(sizeof *p);
    p->w = worker_new(0);
    p->done = -1;
    end_init(&p->near, p->w);
    end_init(&p->far, p->w);
    *state = p;
    return 0;
}

static int teardown(void **state)
{
    struct pair *p = *state;
    if (p->s)
        splice_stop(p->s);
    end_done(&p->near);
    end_done(&p->far);
    for (int i = 0; i < 10; i++)
        worker_turn(p->w);
    worker_free(p->w);
    mem_free(p);
    return 0;
}

/* The near peer sends up to n bytes more of the pattern, as many as its kernel takes. */
static void send_pattern(struct pair *p, size_t n)
{
    uint8_t text[32768];
    while (n > 0) {
        size_t part = n < sizeof text ? n : sizeof text;
        for (size_t i = 0; i < part; i++)
            text[i] = pattern(p->sent + i);
        ssize_t k = send(p->near.peer, text, part, MSG_NOSIGNAL);
        if (k <= 0)
            return;
        p->sent += (size_t)k;
        n -= (size_t)k;
    }
}

/* The far peer reads up to n bytes and looks at each. */
static void receive_pattern(struct pair *p, size_t n)
{
    uint8_t text[32768];
    while (n > 0) {
        ssize_t k = recv(p->far.peer, text, n < sizeof text ? n : sizeof text, 0);
        if (k <= 0)
            return;
        for (ssize_t i = 0; i < k; i++)
            assert_int_equal(text[i], pattern(p->received + (size_t)i));
        p->received += (size_t)k;
        n -= (size_t)k;
    }
}

static void turn(struct pair *p)
{
    worker_turn(p->w);
    poll(NULL, 0, 1);
}

static void start(struct pair *p, int64_t n)
{
    p->s = splice_start(p->near.c, p->far.c, n, &splice_events, p);
    assert_non_null(p->s);
    assert_int_equal(p->told, 0); /* no event before it returns */
}

/* Sends and receives until the splice is over, or nothing happens for long. */
static void run(struct pair *p, size_t total, size_t gulp)
{
    for (int i = 0; i < 20000 && p->done < 0; i++) {
        if (p->sent < total)
            send_pattern(p, total - p->sent);
        turn(p);
        receive_pattern(p, gulp);
    }
}

static void drain(struct pair *p)
{
    for (int i = 0; i < 200; i++) {
        turn(p);
        receive_pattern(p, SIZE_MAX);
    }
}

enum { BIG = 8 * 1024 * 1024 };

static void all_of_n_arrives_in_order_and_no_byte_more(void **state)
{
    struct pair *p = *state;
    start(p, BIG);
    run(p, BIG + 100, SIZE_MAX);
    assert_int_equal(p->done, BIG);
    assert_int_equal(p->told, BIG);
    p->near.take = SIZE_MAX;
    conn_read(p->near.c, true);
    send_pattern(p, BIG + 100 - p->sent);
    drain(p);
    assert_int_equal(p->received, BIG);
    assert_int_equal(p->near.got, 100); /* what follows is the codec's */
}

static void what_was_read_before_goes_first(void **state)
{
    struct pair *p = *state;
    send_pattern(p, 10000);
    for (int i = 0; i < 20; i++)
        turn(p);
    assert_int_equal(conn_untaken(p->near.c), 10000);
    start(p, BIG);
    run(p, BIG, SIZE_MAX);
    drain(p);
    assert_int_equal(p->done, BIG);
    assert_int_equal(p->received, BIG);
}

static void what_is_queued_on_the_far_side_goes_first(void **state)
{
    struct pair *p = *state;
    char head[4000];
    for (size_t i = 0; i < sizeof head; i++)
        head[i] = (char)pattern(i);
    buf_write(&p->far.out, head, sizeof head);
    conn_wake(p->far.c);
    worker_turn(p->w);
    p->sent = sizeof head;
    start(p, BIG);
    run(p, BIG + sizeof head, SIZE_MAX);
    drain(p);
    assert_int_equal(p->done, BIG);
    assert_int_equal(p->received, BIG + sizeof head);
}

static void a_slow_reader_gets_everything_and_holds_the_sender_up(void **state)
{
    struct pair *p = *state;
    int small = 16384;
    setsockopt(p->far.peer, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
    start(p, -1);
    size_t stuck = 1;
    for (int still = 0; still < 50; still = p->sent == stuck ? still + 1 : 0) {
        stuck = p->sent; /* until the kernel takes no more, and nobody else does */
        send_pattern(p, SIZE_MAX / 2);
        turn(p);
    }
    assert_true(worker_held(p->w) < 65536);
    assert_int_equal(p->done, -1);
    size_t total = p->sent;
    shutdown(p->near.peer, SHUT_WR);
    for (int i = 0; i < 20000 && p->received < total; i++) {
        turn(p);
        receive_pattern(p, 20000);
    }
    assert_int_equal(p->received, total);
    assert_true(p->done >= 0);
    assert_int_equal(p->told, p->done);
}

static void eof_is_told_by_the_near_connection_afterwards(void **state)
{
    struct pair *p = *state;
    start(p, -1);
    send_pattern(p, 100000);
    shutdown(p->near.peer, SHUT_WR);
    for (int i = 0; i < 5000 && p->near.eofs == 0; i++) {
        turn(p);
        receive_pattern(p, SIZE_MAX);
    }
    assert_true(p->done >= 0);
    assert_int_equal(p->near.eofs, 1);
    assert_int_equal(p->received, p->sent);
}

static void drips_go_back_to_the_ordinary_way(void **state)
{
    struct pair *p = *state;
    start(p, -1);
    turn(p);
    send_pattern(p, 10);
    for (int i = 0; i < 5000 && p->done < 0; i++)
        turn(p);
    assert_int_equal(p->done, 10);
    drain(p);
    assert_int_equal(p->received, 10);
    assert_int_equal(p->near.eofs, 0);
}

static void a_lost_far_side_is_its_closed_and_no_done(void **state)
{
    struct pair *p = *state;
    start(p, BIG);
    send_pattern(p, 500000);
    turn(p);
    struct linger hard = {1, 0};
    setsockopt(p->far.peer, SOL_SOCKET, SO_LINGER, &hard, sizeof hard);
    close(p->far.peer);
    p->far.peer = socket(AF_INET, SOCK_STREAM, 0);
    for (int i = 0; i < 2000 && p->far.closeds == 0; i++) {
        send_pattern(p, 100000);
        turn(p);
    }
    assert_int_equal(p->far.closeds, 1);
    assert_int_equal(p->done, -1);
    assert_int_equal(p->near.closeds, 0);
}

static void a_lost_near_side_is_told_after_its_bytes(void **state)
{
    struct pair *p = *state;
    start(p, BIG);
    send_pattern(p, 50000);
    turn(p);
    struct linger hard = {1, 0};
    setsockopt(p->near.peer, SOL_SOCKET, SO_LINGER, &hard, sizeof hard);
    close(p->near.peer);
    p->near.peer = socket(AF_INET, SOCK_STREAM, 0);
    for (int i = 0; i < 2000 && p->near.closeds == 0; i++)
        turn(p);
    assert_int_equal(p->near.closeds, 1);
    assert_int_equal(p->done, -1);
}

static void stopping_inside_moved_is_safe(void **state)
{
    struct pair *p = *state;
    p->stop_at_moved = true;
    start(p, BIG);
    send_pattern(p, 200000);
    for (int i = 0; i < 100; i++)
        turn(p);
    assert_null(p->s);
    assert_int_equal(p->done, -1);
    assert_true(p->told > 0);
}

static void both_directions_may_be_spliced_at_once(void **state)
{
    struct pair *p = *state;
    struct pair back = {.done = -1};
    start(p, BIG);
    back.s = splice_start(p->far.c, p->near.c, BIG, &splice_events, &back);
    char junk[20000] = {0};
    size_t back_sent = 0, back_got = 0;
    for (int i = 0; i < 20000 && (p->done < 0 || back.done < 0); i++) {
        if (p->sent < BIG)
            send_pattern(p, BIG - p->sent);
        while (back_sent < BIG) {
            size_t n = BIG - back_sent < sizeof junk ? BIG - back_sent : sizeof junk;
            ssize_t k = send(p->far.peer, junk, n, MSG_NOSIGNAL);
            if (k <= 0)
                break;
            back_sent += (size_t)k;
        }
        turn(p);
        receive_pattern(p, SIZE_MAX);
        for (ssize_t k; (k = recv(p->near.peer, junk, sizeof junk, 0)) > 0;)
            back_got += (size_t)k;
        memset(junk, 0, sizeof junk);
    }
    drain(p);
    for (ssize_t k; (k = recv(p->near.peer, junk, sizeof junk, 0)) > 0;)
        back_got += (size_t)k;
    assert_int_equal(p->done, BIG);
    assert_int_equal(back.done, BIG);
    assert_int_equal(p->received, BIG);
    assert_int_equal(back_got, BIG);
}

static void pipes_are_few_and_used_again(void **state)
{
    struct pair *p = *state;
    for (int round = 0; round < 50; round++) {
        p->done = -1;
        p->told = 0;
        size_t total = p->sent + 300000;
        start(p, 300000);
        run(p, total, SIZE_MAX);
        assert_int_equal(p->done, 300000);
    }
    assert_int_equal(p->w->npipes, 0); /* an idle worker keeps none */
}

int main(void)
{
    signal(SIGPIPE, SIG_IGN);
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(all_of_n_arrives_in_order_and_no_byte_more),
        TEST(what_was_read_before_goes_first),
        TEST(what_is_queued_on_the_far_side_goes_first),
        TEST(a_slow_reader_gets_everything_and_holds_the_sender_up),
        TEST(eof_is_told_by_the_near_connection_afterwards),
        TEST(drips_go_back_to_the_ordinary_way),
        TEST(a_lost_far_side_is_its_closed_and_no_done),
        TEST(a_lost_near_side_is_told_after_its_bytes),
        TEST(stopping_inside_moved_is_safe),
        TEST(both_directions_may_be_spliced_at_once),
        TEST(pipes_are_few_and_used_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
