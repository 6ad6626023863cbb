/* opening_test.c — from the first byte of an accepted connection to the one that is handed over:
 * PROXY header in any pieces, TLS behind it, and every way it can fail; over loopback. */
#include "net/opening.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include "harness/pems.h"
#include "net/conn_impl.h"
#include "net/tls.h"

#define LINE "PROXY TCP4 192.0.2.1 198.51.100.7 56324 443\r\n"

enum { LONG_MS = 60000 };

/* The opening and whoever takes the connection over. */
static struct {
    struct worker *w;
    int peer;
    struct opening *o;
    struct conn *conn; /* handed over */
    unsigned dones, closeds;
    enum why why;
    bool in_start;
    char got[256], peer_text[ADDR_TEXT_BYTES + 1];
    size_t got_n;
    struct accept_gate gate;
} t;

static void on_ready(void *user)
{
    (void)user;
    fail_msg("ready() after the connection was handed over");
}

static void on_bytes(void *user, struct buf *in)
{
    (void)user;
    size_t n = in->len;
    assert_true(t.got_n + n < sizeof t.got);
    buf_peek(in, t.got + t.got_n, n);
    buf_drop(in, n);
    t.got_n += n;
}

static void on_closed(void *user, enum why why)
{
    (void)user;
    (void)why;
    t.closeds++;
}

static const struct conn_events session = {
    .ready = on_ready, .bytes = on_bytes, .closed = on_closed};

static void on_done(void *user, struct conn *conn, enum why why)
{
    assert_ptr_equal(user, &t);
    assert_false(t.in_start);
    assert_int_equal(conn == NULL, why != WHY_OK);
    t.dones++;
    t.why = why;
    t.conn = conn;
    t.o = NULL;
    if (!conn)
        return;
    t.peer_text[addr_text(conn_info(conn)->peer, t.peer_text)] = '\0';
    conn_attach(conn, &session, &t);
}

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

static void start(bool header, struct tls_ctx *tls, uint64_t timeout_ms, bool surplus)
{
    union addr to, from;
    socklen_t n = sizeof from;
    int l = listening(&to);
    memset(&t, 0, sizeof t);
    t.w = worker_new(0);
    accept_gate_init(&t.gate, 10, 0);
    atomic_store(&t.gate.open, 1);
    t.peer = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(t.peer, &to.sa, sizeof to.v4), 0);
    fcntl(t.peer, F_SETFL, O_NONBLOCK);
    int fd = accept4(l, &from.sa, &n, SOCK_NONBLOCK | SOCK_CLOEXEC);
    assert_true(fd >= 0);
    close(l);
    struct conn *c = conn_accept(t.w, fd, &from.sa, 80, &t.gate, surplus);
    assert_non_null(c);
    t.in_start = true;
    t.o = opening_start(
        t.w, c,
        &(struct opening_rules){.proxy_header = header, .tls = tls, .timeout_ms = timeout_ms},
        on_done, &t);
    t.in_start = false;
}

static void turn(void)
{
    worker_turn(t.w);
    poll(NULL, 0, 1);
}

static void turns(int n)
{
    for (int i = 0; i < n; i++)
        turn();
}

#define until(condition)                                   \
    do {                                                   \
        for (int i_ = 0; !(condition) && i_ < 10000; i_++) \
            turn();                                        \
        assert_true(condition);                            \
    } while (0)

static void say(const char *p, size_t n)
{
    assert_int_equal(send(t.peer, p, n, MSG_NOSIGNAL), n);
}

/* What the peer sees next: a byte, 0 for FIN, −1 for a reset, −2 for nothing. */
static int hears(void)
{
    char c;
    ssize_t n = recv(t.peer, &c, 1, 0);
    return n < 0 ? (errno == EAGAIN ? -2 : -1) : n == 0 ? 0 : 1;
}

static void stop(void)
{
    if (t.o)
        opening_cancel(t.o);
    if (t.conn && !t.closeds)
        conn_close(t.conn, WHY_DRAIN);
    until(atomic_load(&t.gate.open) == 0);
    turns(3);
    if (t.peer >= 0)
        close(t.peer);
    worker_free(t.w);
}

static void the_header_is_taken_and_no_byte_more(void **state)
{
    (void)state;
    static const char bytes[] = LINE "GET / HTTP/1.1\r\n";
    start(true, NULL, LONG_MS, false);
    say(bytes, sizeof bytes - 1);
    until(t.got_n == 16);
    assert_int_equal(t.dones, 1);
    assert_int_equal(t.why, WHY_OK);
    assert_memory_equal(t.got, "GET / HTTP/1.1\r\n", 16);
    assert_string_equal(t.peer_text, "192.0.2.1:56324");
    stop();
}

static void the_header_may_come_in_two_pieces_cut_anywhere(void **state)
{
    (void)state;
    static const char bytes[] = LINE "X";
    for (size_t cut = 1; cut < sizeof bytes - 1; cut++) {
        start(true, NULL, LONG_MS, false);
        say(bytes, cut);
        turns(2);
        assert_int_equal(t.dones, cut >= sizeof LINE - 1);
        say(bytes + cut, sizeof bytes - 1 - cut);
        until(t.got_n == 1);
        assert_string_equal(t.peer_text, "192.0.2.1:56324");
        stop();
    }
}

static void a_header_that_names_no_source_leaves_the_sockets(void **state)
{
    (void)state;
    static const char line[] = "PROXY UNKNOWN\r\n";
    static const char local[] = "\r\n\r\n\0\r\nQUIT\n\x20\0\0\0";
    for (int i = 0; i < 2; i++) {
        start(true, NULL, LONG_MS, false);
        say(i ? local : line, i ? sizeof local - 1 : sizeof line - 1);
        until(t.dones == 1);
        assert_int_equal(strncmp(t.peer_text, "127.0.0.1:", 10), 0);
        stop();
    }
}

static void a_broken_header_closes_the_connection(void **state)
{
    (void)state;
    static const char *const heads[] = {"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "PROXY TCP4 1\r\n",
                                        "\x16\x03\x01\x02"};
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++) {
        start(true, NULL, LONG_MS, false);
        say(heads[i], strlen(heads[i]));
        until(t.dones == 1);
        assert_int_equal(t.why, WHY_CLIENT_PROTOCOL);
        until(hears() != -2);
        assert_true(hears() <= 0); /* not a byte of an answer */
        stop();
    }
}

static void a_peer_that_leaves_or_is_silent_is_told_apart(void **state)
{
    (void)state;
    start(true, NULL, LONG_MS, false);
    say("PROXY", 5);
    turns(3);
    close(t.peer);
    t.peer = -1;
    until(t.dones == 1);
    assert_int_equal(t.why, WHY_CLIENT_GONE);
    stop();
    start(true, NULL, 1, false);
    say("PROXY", 5);
    until(t.dones == 1);
    assert_int_equal(t.why, WHY_DEADLINE);
    stop();
}

static void cancelled_it_says_nothing_more(void **state)
{
    (void)state;
    start(true, NULL, LONG_MS, false);
    say("PROXY", 5);
    turns(2);
    opening_cancel(t.o);
    t.o = NULL;
    until(atomic_load(&t.gate.open) == 0);
    turns(3);
    assert_int_equal(t.dones, 0);
    stop();
}

static void a_surplus_connection_goes_through_as_such(void **state)
{
    (void)state;
    start(true, NULL, LONG_MS, true);
    say(LINE, sizeof LINE - 1);
    until(t.dones == 1);
    assert_true(conn_info(t.conn)->surplus);
    stop();
}

/* ---- TLS */

static struct tls_leaf *the_leaf(void *user, struct str sni)
{
    (void)sni;
    return user;
}

static void drop_leaf(void *user)
{
    tls_leaf_unref(user);
}

static struct tls_ctx *server(void)
{
    struct arena a;
    struct str error;
    arena_init(&a, NULL, 0);
    struct tls_leaf *leaf = tls_leaf_new(STR(PEM_ONE_CRT), STR(PEM_ONE_KEY), &a, &error);
    assert_non_null(leaf);
    struct tls_server_rules rules = {.names = {the_leaf, drop_leaf, leaf}, .h2 = true};
    struct tls_ctx *ctx = tls_server_new(&rules, &a, &error);
    assert_non_null(ctx);
    arena_done(&a);
    return ctx;
}

/* A TLS client over the other end of the same connection, on the same worker. */
static struct {
    struct conn *c;
    unsigned readies, closeds;
    struct buf out;
} cl;

static void cl_ready(void *user)
{
    (void)user;
    cl.readies++;
}

static void cl_bytes(void *user, struct buf *in)
{
    (void)user;
    buf_clear(in);
}

static void cl_fill(void *user, struct buf *out, size_t max)
{
    (void)user;
    (void)max;
    buf_move_all(out, &cl.out);
}

static void cl_closed(void *user, enum why why)
{
    (void)user;
    (void)why;
    cl.closeds++;
}

static const struct conn_events client_events = {cl_ready, cl_bytes, NULL, cl_fill, cl_closed};

/* Takes the peer's socket over. */
static void client_begins(void)
{
    struct arena a;
    struct str error;
    union addr none = {.v4 = {.sin_family = AF_INET}};
    arena_init(&a, NULL, 0);
    struct tls_ctx *ctx = tls_client_new(&(struct tls_client_rules){.insecure = true}, &a, &error);
    assert_non_null(ctx);
    memset(&cl, 0, sizeof cl);
    buf_init(&cl.out, worker_pool(t.w));
    cl.c = conn_accept(t.w, t.peer, &none.sa, 0, NULL, false);
    t.peer = -1;
    conn_attach(cl.c, &client_events, &cl);
    struct tls_to to = {.name = STR("One.test"), .alpn = {"h2", NULL}};
    conn_secure(cl.c, ctx, &to);
    tls_ctx_unref(ctx);
    arena_done(&a);
}

static void client_says(const char *text)
{
    buf_str(&cl.out, str_of(text));
    conn_wake(cl.c);
}

static void client_ends(void)
{
    if (!cl.closeds)
        conn_close(cl.c, WHY_DRAIN);
    until(cl.closeds);
    buf_clear(&cl.out);
}

static void handshake(bool header)
{
    struct tls_ctx *ctx = server();
    start(header, ctx, LONG_MS, false);
    tls_ctx_unref(ctx); /* the opening has its own */
    if (header)
        say(LINE, sizeof LINE - 1);
    client_begins();
    client_says("hello");
    until(t.got_n == 5);
    assert_int_equal(t.dones, 1);
    assert_true(conn_info(t.conn)->tls);
    assert_true(str_eq(conn_info(t.conn)->alpn, STR("h2")));
    assert_true(str_eq(conn_info(t.conn)->sni, STR("one.test")));
    if (header)
        assert_string_equal(t.peer_text, "192.0.2.1:56324");
    assert_memory_equal(t.got, "hello", 5);
    client_ends();
    stop();
}

static void tls_is_up_when_the_connection_is_handed_over(void **state)
{
    (void)state;
    handshake(false);
}

static void the_header_comes_before_tls(void **state)
{
    (void)state;
    handshake(true);
}

static void what_is_no_handshake_ends_as_tls_failure(void **state)
{
    (void)state;
    for (int header = 0; header < 2; header++) {
        struct tls_ctx *ctx = server();
        start(header, ctx, LONG_MS, false);
        tls_ctx_unref(ctx);
        if (header)
            say(LINE, sizeof LINE - 1);
        say("GET / HTTP/1.1\r\nHost: x\r\n\r\n", 27);
        until(t.dones == 1);
        assert_int_equal(t.why, WHY_TLS);
        stop();
    }
}

static void one_deadline_lies_over_header_and_handshake(void **state)
{
    (void)state;
    struct tls_ctx *ctx = server();
    start(true, ctx, 1, false);
    say(LINE "\x16\x03\x01", sizeof LINE + 2);
    until(t.dones == 1);
    assert_int_equal(t.why, WHY_DEADLINE);
    stop();
    start(false, ctx, LONG_MS, false);
    turns(2);
    opening_cancel(t.o); /* in the handshake */
    t.o = NULL;
    until(atomic_load(&t.gate.open) == 0);
    turns(3);
    assert_int_equal(t.dones, 0);
    stop();
    tls_ctx_unref(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_header_is_taken_and_no_byte_more),
        cmocka_unit_test(the_header_may_come_in_two_pieces_cut_anywhere),
        cmocka_unit_test(a_header_that_names_no_source_leaves_the_sockets),
        cmocka_unit_test(a_broken_header_closes_the_connection),
        cmocka_unit_test(a_peer_that_leaves_or_is_silent_is_told_apart),
        cmocka_unit_test(cancelled_it_says_nothing_more),
        cmocka_unit_test(a_surplus_connection_goes_through_as_such),
        cmocka_unit_test(tls_is_up_when_the_connection_is_handed_over),
        cmocka_unit_test(the_header_comes_before_tls),
        cmocka_unit_test(what_is_no_handshake_ends_as_tls_failure),
        cmocka_unit_test(one_deadline_lies_over_header_and_handshake),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
