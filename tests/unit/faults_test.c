/* faults_test.c — a real worker over loopback while one of its calls fails, each call in turn: a
 * client may then get an error, but never a wrong answer and never silence; and the next one is
 * served as if nothing had been. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <cmocka.h>

#include <errno.h>
#include <openssl/ssl.h>
#include <semaphore.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "harness/faults.h"
#include "harness/pems.h"
#include "harness/plain_origin.h"
#include "harness/talk.h"
#include "net/listen.h"
#include "net/resolve.h"
#include "net/tls.h"
#include "net/worker.h"
#include "proxy/proxy.h"

enum {
    PATIENCE_MS = 10000,
    BODY = 300000,
    LONG_BODY = ORIGIN_BODY_BYTES, /* goes through a pipe, there and back */
    MOST_CALLS = 2000
};

/* ---- the gate: everything goes to the origin, from a port of its own for each pool */

/* Set before the worker runs. */
static uint16_t origin_port, tls_port;
static struct tls_ctx *tls;

static struct begin begin(const struct snapshot *snap, const struct conn_info *client)
{
    (void)snap;
    return (struct begin){.tls = client->listener == tls_port ? tls : NULL};
}

static void decide(const struct facts *f, struct arena *a, struct verdict *v)
{
    struct http_head *head = head_copy(f->head, 0, a);
    head->authority = STR("origin");
    *v = (struct verdict){.act = ACT_FORWARD,
                          .head = head,
                          .to = {.host = STR("127.0.0.1"), .port = origin_port},
                          .pool = STR("p")};
}

static enum why allow_addr(const struct facts *f, const struct verdict *v,
                           const struct sockaddr *addr)
{
    (void)f;
    (void)v;
    (void)addr;
    return WHY_OK;
}

static enum why answer(const struct facts *f, const struct verdict *v, const struct http_head *head,
                       bool end, struct arena *a, struct answer *ret)
{
    (void)f;
    (void)v;
    (void)end;
    ret->head = head_copy(head, 0, a);
    return WHY_OK;
}

static void failed(const struct facts *f, enum why why, enum stage stage,
                   const struct http_fault *fault, struct arena *a, struct verdict *ret)
{
    (void)f;
    (void)stage;
    (void)a;
    ret->status = fault ? fault->status : 502;
    ret->code = ret->message = str_of(why_text(why));
}

static void describe(const struct facts *f, const struct verdict *v, struct log_line *l)
{
    (void)f;
    (void)v;
    (void)l;
}

static void judged(struct worker *w, const struct facts *f, const struct verdict *v,
                   uint64_t took_us)
{
    (void)w;
    (void)f;
    (void)v;
    (void)took_us;
}

static void dialled(struct worker *w, const struct verdict *v, enum why why, int error, bool tunnel,
                    uint64_t took_us)
{
    (void)w;
    (void)v;
    (void)why;
    (void)error;
    (void)tunnel;
    (void)took_us;
}

static const struct gate gate = {.begin = begin,
                                 .decide = decide,
                                 .allow_addr = allow_addr,
                                 .answer = answer,
                                 .failed = failed,
                                 .describe = describe,
                                 .judged = judged,
                                 .dialled = dialled,
                                 .brand = {"faults", 6},
                                 .access_msg = "asked"};

#define LIMITS                                                                            \
    {                                                                                     \
        .max_head_bytes = 8192, .window = 65536, .keep_alive_ms = 5000, .linger_ms = 500, \
        .drain_idle_ms = 100, .window_max = 65536, .max_streams = 10                      \
    }

static const struct proxy_rules rules = {
    .gate = &gate,
    .client = LIMITS,
    .origin = LIMITS,
    .pools = {.idle_ms = 5000, .idle_max = 8, .idle_cap = 8},
    .timeout_ms = {[X_HEAD] = 2000,
                   [X_DIAL] = 1000,
                   [X_WAIT] = 3000,
                   [X_BODY] = 3000,
                   [X_TUNNEL] = 3000,
                   [X_CLOSING] = 500},
    .half_close_ms = 1000,
};

/* ---- the proxy on a thread of its own */

struct house {
    struct origin origin;
    struct worker *w;
    struct proxy *p;
    struct accept_gate open;
    struct snapshot *snap;
    pthread_t thread; /* the worker's */
    uint16_t port;
    SSL_CTX *client;
};

/* Runs f on the worker's loop and waits for it. */
struct question {
    struct post post;
    struct house *s;
    void (*f)(struct question *q);
    sem_t done;
    pthread_t thread;
    unsigned n;
};

static void on_question(struct worker *w, struct post *p)
{
    struct question *q = (struct question *)p;
    (void)w;
    q->f(q);
    sem_post(&q->done);
}

static struct question ask(struct house *s, void (*f)(struct question *q))
{
    struct question q = {.post.run = on_question, .s = s, .f = f};
    sem_init(&q.done, 0, 0);
    worker_post(s->w, &q.post);
    while (sem_wait(&q.done) != 0)
        ;
    sem_destroy(&q.done);
    return q;
}

static void ask_thread(struct question *q)
{
    q->thread = pthread_self();
}

/* What of the last clients is still there. */
static void ask_busy(struct question *q)
{
    q->n = proxy_clients(q->s->p);
    for (int i = 0; i < XSTATES; i++)
        q->n += proxy_count(q->s->p, (enum xstate)i);
}

static void on_drained(void *user)
{
    struct house *s = user;
    worker_stop(s->w);
}

static void ask_drain(struct question *q)
{
    proxy_drain(q->s->p, on_drained, q->s);
}

static void *make_nothing(const struct settings *set, const void *old, struct arena *a,
                          struct str *ret_error)
{
    static const char view[] = "view";
    (void)set;
    (void)old;
    (void)a;
    (void)ret_error;
    return (void *)(uintptr_t)view;
}

static void drop_nothing(void *made)
{
    (void)made;
}

static uint16_t listen_somewhere(struct house *s)
{
    struct sockaddr_in any = loopback(0);
    union addr bound;
    struct str error;
    struct arena a;
    arena_init(&a, NULL, 0);
    int fd = listen_bind((struct sockaddr *)&any, &bound, &a, &error);
    assert_true(fd >= 0);
    proxy_add_listener(s->p, listener_start(s->w, fd, &s->open, proxy_accept, s->p));
    arena_done(&a);
    return addr_port(&bound.sa);
}

static struct tls_leaf *leaf_of(void *user, struct str sni)
{
    (void)sni;
    return user;
}

static void drop_leaf(void *user)
{
    tls_leaf_unref(user);
}

static void tls_begin(struct house *s)
{
    struct str error;
    struct arena a;
    arena_init(&a, NULL, 0);
    struct tls_leaf *leaf = tls_leaf_new(STR(PEM_ONE_CRT), STR(PEM_ONE_KEY), &a, &error);
    tls =
        tls_server_new(&(struct tls_server_rules){.names = {leaf_of, drop_leaf, leaf}}, &a, &error);
    assert_non_null(tls);
    s->client = SSL_CTX_new(TLS_client_method());
    arena_done(&a);
}

static void stage_begin(struct house *s)
{
    static const struct maker maker = {make_nothing, drop_nothing};
    static const struct settings set;
    tls_begin(s);
    origin_begin(&s->origin);
    origin_port = s->origin.port;
    s->w = worker_new(0);
    worker_set(
        s->w, SLOT_NAMES,
        names_new(s->w, &(struct names_files){.resolv_conf = "/dev/null", .hosts = "/dev/null"}));
    s->snap = snapshot_build(&set, &maker, NULL, NULL);
    worker_adopt(s->w, s->snap);
    s->p = proxy_new(s->w, &rules);
    accept_gate_init(&s->open, 64, 8);
    s->port = listen_somewhere(s);
    tls_port = listen_somewhere(s);
    worker_start(s->w);
    s->thread = ask(s, ask_thread).thread;
}

static void stage_finish(struct house *s)
{
    ask(s, ask_drain);
    worker_join(s->w);
    assert_int_equal(s->open.open, 0);
    proxy_free(s->p);
    names_free(worker_get(s->w, SLOT_NAMES));
    worker_set(s->w, SLOT_NAMES, NULL);
    worker_free(s->w);
    snapshot_unref(s->snap);
    origin_finish(&s->origin);
    tls_ctx_unref(tls);
    SSL_CTX_free(s->client);
}

static void wait_until_quiet(struct house *s)
{
    unsigned n = 1;
    for (int i = 0; i < PATIENCE_MS / 2 && (n = ask(s, ask_busy).n) > 0; i++)
        usleep(2000);
    assert_int_equal(n, 0);
}

/* ---- clients; each says what it got */

static enum got two_in_a_row(const struct house *s)
{
    struct talk t = talk_call(s->port);
    send_text(t.fd, "GET /1 HTTP/1.1\r\nhost: x\r\n\r\nGET /2 HTTP/1.1\r\nhost: x\r\n\r\n");
    enum got first = talk_answer(&t, "hello", 5), second = talk_answer(&t, "hello", 5);
    talk_done(&t);
    return first > second ? first : second;
}

static enum got there_and_back(struct talk t, size_t n)
{
    static char body[LONG_BODY + 5];
    char head[128];
    memcpy(body, "hello", 5);
    fill_body(body + 5, n);
    snprintf(head, sizeof head, "POST /3 HTTP/1.1\r\nhost: x\r\ncontent-length: %zu\r\n\r\n", n);
    talk_say(&t, head, strlen(head));
    talk_say(&t, body + 5, n);
    enum got got = talk_answer(&t, body, n + 5);
    talk_done(&t);
    return got;
}

static enum got a_body_there_and_back(const struct house *s)
{
    return there_and_back(talk_call(s->port), BODY);
}

static enum got a_long_body_there_and_back(const struct house *s)
{
    return there_and_back(talk_call(s->port), LONG_BODY);
}

static enum got a_body_there_and_back_in_tls(const struct house *s)
{
    return there_and_back(talk_call_tls(tls_port, s->client), BODY);
}

static enum got a_clean_end_in_tls(const struct house *s)
{
    static const char ask_last[] = "GET /1 HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
    struct talk t = talk_call_tls(tls_port, s->client);
    talk_say(&t, ask_last, sizeof ask_last - 1);
    enum got got = talk_answer(&t, "hello", 5);
    while (talk_hear(&t))
        ;
    if (t.silent)
        got = GOT_SILENCE;
    else if (got == GOT_ALL && !(SSL_get_shutdown(t.ssl) & SSL_RECEIVED_SHUTDOWN))
        got = GOT_ERROR;
    talk_done(&t);
    return got;
}

/* What two streams of a connection of HTTP/2 got. */
struct streams {
    unsigned over, good;
    bool wrong, status_200[2];
};

static void read_frame(struct streams *s, const uint8_t *f, size_t len)
{
    enum { HEAD = 9, DATA = 0, HEADERS = 1, RST_STREAM = 3, END = 1, STATUS_200 = 0x88 };
    bool *status_200 = &s->status_200[f[HEAD - 1] >> 1 & 1];
    if (f[3] == HEADERS && len > 0)
        *status_200 = f[HEAD] == STATUS_200;
    if (f[3] == RST_STREAM)
        s->over++;
    if (f[3] != DATA)
        return;
    bool hello = len == 5 && memcmp(f + HEAD, "hello", 5) == 0;
    s->wrong |= *status_200 && len > 0 && !hello;
    s->good += *status_200 && hello;
    s->over += f[4] & END;
}

static struct streams read_streams(const struct talk *t)
{
    enum { HEAD = 9 };
    struct streams s = {0};
    for (size_t at = 0; at + HEAD <= t->n;) {
        const uint8_t *f = (const uint8_t *)t->bytes + at;
        size_t len = (size_t)f[0] << 16 | (size_t)f[1] << 8 | f[2];
        if (at + HEAD + len > t->n)
            break;
        read_frame(&s, f, len);
        at += HEAD + len;
    }
    return s;
}

static enum got two_streams(const struct house *s)
{
    static const char bytes[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
                                "\0\0\0\4\0\0\0\0\0"
                                "\0\0\x09\1\5\0\0\0\1\x82\x86\x04\2/1\x41\1x"
                                "\0\0\x09\1\5\0\0\0\3\x82\x86\x04\2/2\x41\1x";
    struct talk t = talk_call(s->port);
    struct streams r = {0};
    send_all(t.fd, bytes, sizeof bytes - 1);
    while (r.over < 2 && !r.wrong && talk_hear(&t))
        r = read_streams(&t);
    enum got got = r.wrong ? GOT_WRONG : r.over < 2 ? talk_silence(&t) : GOT_ERROR;
    talk_done(&t);
    return r.good == 2 ? GOT_ALL : got;
}

static enum got a_tunnel(const struct house *s)
{
    struct talk t = talk_call(s->port);
    send_text(t.fd,
              "GET /wire HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: wire\r\n\r\n");
    while (!(t.n > 0 && memmem(t.bytes, t.n, "\r\n\r\n", 4)) && talk_hear(&t))
        ;
    if (!memmem(t.bytes, t.n, " 101 ", 5)) {
        enum got got = talk_silence(&t);
        talk_done(&t);
        return got;
    }
    t.n = 0;
    send_text(t.fd, "ping");
    while (t.n < 4 && talk_hear(&t))
        ;
    enum got got =
        t.n >= 4 ? memcmp(t.bytes, "ping", 4) == 0 ? GOT_ALL : GOT_WRONG : talk_silence(&t);
    shutdown(t.fd, SHUT_WR);
    while (talk_hear(&t))
        ;
    if (t.silent)
        got = GOT_SILENCE;
    talk_done(&t);
    return got;
}

/* An old client cannot tell the end of a body from its being cut, but for a reset. */
static enum got a_body_that_breaks_off(const struct house *s)
{
    struct talk t = talk_call(s->port);
    send_text(t.fd, "GET /cut HTTP/1.0\r\n\r\n");
    while (talk_hear(&t))
        ;
    enum got got = t.silent ? GOT_SILENCE : t.reset ? GOT_ALL : GOT_ERROR;
    talk_done(&t);
    return got;
}

enum topic { PLAIN, BULK, TLS, H2, TOPICS };

/* The worst of what came. */
static enum got scenario(struct house *s, enum topic topic)
{
    static enum got (*const all[TOPICS][5])(const struct house *s) = {
        [PLAIN] = {two_in_a_row, a_body_there_and_back, a_tunnel, a_body_that_breaks_off},
        [BULK] = {a_long_body_there_and_back},
        [TLS] = {a_body_there_and_back_in_tls, a_clean_end_in_tls},
        [H2] = {two_streams},
    };
    enum got worst = GOT_ALL;
    for (size_t i = 0; all[topic][i]; i++) {
        enum got got = all[topic][i](s);
        if (getenv("VERBOSE") && got != GOT_ALL)
            print_message("topic %d, %zu: %d\n", topic, i, got);
        worst = got > worst ? got : worst;
    }
    wait_until_quiet(s);
    return worst;
}

/* ---- the tests */

struct row {
    enum fault fault;
    int error;
    unsigned least; /* so many calls there are at least in a scenario: else this tests nothing */
    enum topic topic;
    bool unseen; /* clients notice nothing */
};

static const struct row rows[] = {
    {FAULT_uv_tcp_init_ex, EMFILE, 1, PLAIN, false},
    {FAULT_uv_tcp_init_ex, ENOMEM, 1, PLAIN, false},
    {FAULT_uv_tcp_open, ENOMEM, 4, PLAIN, false},
    {FAULT_uv_tcp_connect, EADDRNOTAVAIL, 1, PLAIN, false},
    {FAULT_uv_tcp_connect, ENETUNREACH, 1, PLAIN, false},
    {FAULT_uv_tcp_close_reset, EINVAL, 1, PLAIN, false},
    {FAULT_uv_read_start, EINVAL, 6, PLAIN, false},
    {FAULT_uv_fileno, EBADF, 1, PLAIN, false},
    {FAULT_accept4, EMFILE, 4, PLAIN, false},
    {FAULT_accept4, ECONNABORTED, 4, PLAIN, true},
    {FAULT_accept4, EINTR, 4, PLAIN, true},
    {FAULT_accept4, ENOMEM, 4, PLAIN, false},
    {FAULT_recv, ECONNRESET, 8, PLAIN, false},
    {FAULT_recv, EAGAIN, 8, PLAIN, true},
    {FAULT_recv, EINTR, 8, PLAIN, true},
    {FAULT_send, EPIPE, 4, PLAIN, false},
    {FAULT_send, EAGAIN, 4, PLAIN, true},
    {FAULT_send, EINTR, 4, PLAIN, true},
    {FAULT_sendmsg, ECONNRESET, 1, PLAIN, false},
    {FAULT_sendmsg, EAGAIN, 1, PLAIN, true},
    {FAULT_sendmsg, EINTR, 1, PLAIN, true},
    {FAULT_setsockopt, EINVAL, 1, PLAIN, false},
    {FAULT_shutdown, ENOTCONN, 1, PLAIN, false},
    {FAULT_splice, EAGAIN, 8, BULK, true},
    {FAULT_splice, EINTR, 8, BULK, true},
    {FAULT_splice, EINVAL, 8, BULK, true}, /* bulk that cannot be spliced goes as ever */
    {FAULT_splice, ENOMEM, 8, BULK, true},
    {FAULT_splice, ECONNRESET, 8, BULK, false},
    {FAULT_pipe2, EMFILE, 1, BULK, true},
    {FAULT_fcntl, EPERM, 1, BULK, true},
    {FAULT_recv, ECONNRESET, 8, BULK, false},
    {FAULT_send, EPIPE, 2, BULK, false},
    {FAULT_send, EAGAIN, 2, BULK, true},
    {FAULT_uv_read_start, EINVAL, 1, BULK, false},
    {FAULT_SSL_do_handshake, EIO, 2, TLS, false},
    {FAULT_SSL_read_ex, EIO, 8, TLS, false},
    {FAULT_SSL_write_ex, EIO, 8, TLS, false},
    {FAULT_SSL_shutdown, EIO, 1, TLS, false},
    {FAULT_recv, ECONNRESET, 8, TLS, false},
    {FAULT_recv, EAGAIN, 8, TLS, true},
    {FAULT_send, EPIPE, 4, TLS, false},
    {FAULT_send, EAGAIN, 4, TLS, false}, /* it may be that of close_notify */
    {FAULT_uv_read_start, EINVAL, 2, TLS, false},
    {FAULT_recv, ECONNRESET, 3, H2, false},
    {FAULT_recv, EAGAIN, 3, H2, true},
    {FAULT_send, EPIPE, 2, H2, false},
    {FAULT_send, EAGAIN, 2, H2, true},
    {FAULT_uv_read_start, EINVAL, 2, H2, false},
};

static void check_row(const struct row *row)
{
    static struct house s;
    unsigned n = 1;
    s = (struct house){0};
    stage_begin(&s);
    for (bool struck = true; struck; n++) {
        assert_true(n < MOST_CALLS);
        faults_set(row->fault, n, row->error, s.thread);
        enum got got = scenario(&s, row->topic);
        struck = faults_clear();
        if (got == GOT_WRONG || got == GOT_SILENCE || (!struck && got != GOT_ALL))
            print_error("%s, errno %d, call %u, %s: %d\n", fault_name(row->fault), row->error, n,
                        struck ? "struck" : "not reached", got);
        assert_true(got == GOT_ALL || got == GOT_ERROR);
        assert_true(struck || got == GOT_ALL); /* untouched: all is well */
        if (row->unseen && got != GOT_ALL)
            print_error("%s, errno %d, call %u: the client got %d\n", fault_name(row->fault),
                        row->error, n, got);
        assert_true(!row->unseen || got == GOT_ALL);
    }
    if (n - 2 < row->least)
        print_error("%s: only %u calls\n", fault_name(row->fault), n - 2);
    assert_true(n - 2 >= row->least);
    assert_int_equal(scenario(&s, row->topic), GOT_ALL);
    stage_finish(&s);
}

static void any_call_may_fail_and_the_next_client_is_served(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        check_row(&rows[i]);
}

static void a_kernel_that_takes_little_changes_nothing(void **state)
{
    (void)state;
    static struct house s;
    s = (struct house){0};
    stage_begin(&s);
    faults_trickle(1000, s.thread);
    for (enum topic t = 0; t < TOPICS; t++)
        assert_int_equal(scenario(&s, t), GOT_ALL);
    faults_trickle(0, s.thread);
    stage_finish(&s);
}

static void a_taken_socket_is_told_in_one_line(void **state)
{
    (void)state;
    static const struct row calls[] = {{FAULT_socket, EMFILE, 1, PLAIN, false},
                                       {FAULT_bind, EADDRINUSE, 1, PLAIN, false},
                                       {FAULT_getsockname, ENOBUFS, 1, PLAIN, false}};
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        struct sockaddr_in any = loopback(0);
        union addr bound;
        struct str error = STR("");
        struct arena a;
        arena_init(&a, NULL, 0);
        faults_set(calls[i].fault, 1, calls[i].error, pthread_self());
        assert_int_equal(listen_bind((struct sockaddr *)&any, &bound, &a, &error), -1);
        assert_int_equal(errno, calls[i].error);
        assert_true(faults_clear() && error.n > 0);
        arena_done(&a);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_call_may_fail_and_the_next_client_is_served),
        cmocka_unit_test(a_kernel_that_takes_little_changes_nothing),
        cmocka_unit_test(a_taken_socket_is_told_in_one_line),
    };
    signal(SIGPIPE, SIG_IGN);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
