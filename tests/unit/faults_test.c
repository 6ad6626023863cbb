/* faults_test.c — a real worker over loopback while one of its calls fails, each call in turn: a
 * client may then get an error, but never a wrong answer and never silence; and the next one is
 * served as if nothing had been. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <cmocka.h>

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <semaphore.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "harness/faults.h"
#include "harness/wire.h"
#include "net/listen.h"
#include "net/resolve.h"
#include "net/worker.h"
#include "proxy/proxy.h"

enum { PATIENCE_MS = 10000, BODY = 300000, MOST_CALLS = 2000 };

/* ---- an origin: a thread for each connection, as plain as can be */

struct origin {
    int fd;
    uint16_t port;
    pthread_t thread;
    _Atomic int busy;
};

struct visit {
    struct origin *o;
    int fd;
};

static bool send_all(int fd, const char *p, size_t n)
{
    while (n > 0) {
        ssize_t k = send(fd, p, n, MSG_NOSIGNAL);
        if (k <= 0)
            return false;
        p += k;
        n -= (size_t)k;
    }
    return true;
}

static bool send_text(int fd, const char *text)
{
    return send_all(fd, text, strlen(text));
}

static void fill(char *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        p[i] = (char)('a' + i % 23);
}

/* A body without a length, broken off by a reset. */
static void break_off(int fd)
{
    struct linger hard = {1, 0};
    send_text(fd, "HTTP/1.1 200 OK\r\n\r\npart");
    usleep(5000);
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &hard, sizeof hard);
}

static void echo(int fd)
{
    char bytes[4096];
    send_text(fd, "HTTP/1.1 101 Switching\r\nupgrade: wire\r\nconnection: upgrade\r\n\r\n");
    for (ssize_t n; (n = read(fd, bytes, sizeof bytes)) > 0;)
        if (!send_all(fd, bytes, (size_t)n))
            return;
}

/* False: the connection is over. */
static bool serve(int fd, const struct wire_message *m)
{
    char head[128];
    if (memmem(m->start.p, m->start.n, "/cut", 4)) {
        break_off(fd);
        return false;
    }
    if (memmem(m->start.p, m->start.n, "/wire", 5)) {
        echo(fd);
        return false;
    }
    snprintf(head, sizeof head, "HTTP/1.1 200 OK\r\ncontent-length: %zu\r\n\r\n", m->body.n + 5);
    return send_text(fd, head) && send_all(fd, "hello", 5) &&
           send_all(fd, m->body.p ? m->body.p : "", m->body.n);
}

static void *visit_main(void *arg)
{
    struct visit *v = arg;
    size_t n = 0, room = BODY + 4096;
    char *bytes = malloc(room);
    for (ssize_t k; (k = read(v->fd, bytes + n, room - n)) > 0;) {
        struct arena a;
        struct wire_message m;
        n += (size_t)k;
        struct str rest = {bytes, n};
        arena_init(&a, NULL, 0);
        bool whole = wire_request(&rest, &a, &m) == WIRE_WHOLE, go_on = !whole || serve(v->fd, &m);
        if (whole) {
            memmove(bytes, rest.p, rest.n);
            n = rest.n;
        }
        arena_done(&a);
        if (!go_on)
            break;
    }
    free(bytes);
    close(v->fd);
    v->o->busy--;
    free(v);
    return NULL;
}

static void *origin_main(void *arg)
{
    struct origin *o = arg;
    const int one = 1;
    for (int fd; (fd = accept(o->fd, NULL, NULL)) >= 0;) {
        struct visit *v = malloc(sizeof *v);
        pthread_t t;
        *v = (struct visit){o, fd};
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        o->busy++;
        pthread_create(&t, NULL, visit_main, v);
        pthread_detach(t);
    }
    return NULL;
}

static uint16_t port_of(int fd)
{
    struct sockaddr_in a;
    socklen_t n = sizeof a;
    assert_int_equal(getsockname(fd, (struct sockaddr *)&a, &n), 0);
    return ntohs(a.sin_port);
}

static struct sockaddr_in loopback(uint16_t port)
{
    return (struct sockaddr_in){
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
}

static void origin_begin(struct origin *o)
{
    struct sockaddr_in a = loopback(0);
    o->busy = 0;
    o->fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(o->fd, (struct sockaddr *)&a, sizeof a), 0);
    assert_int_equal(listen(o->fd, 64), 0);
    o->port = port_of(o->fd);
    assert_int_equal(pthread_create(&o->thread, NULL, origin_main, o), 0);
}

static void origin_finish(struct origin *o)
{
    shutdown(o->fd, SHUT_RDWR);
    pthread_join(o->thread, NULL);
    close(o->fd);
    for (int i = 0; o->busy > 0 && i < PATIENCE_MS; i++)
        usleep(1000);
    assert_int_equal(o->busy, 0);
}

/* ---- the gate: everything goes to the origin, from a port of its own for each pool */

static uint16_t origin_port; /* set before the worker runs */

static void decide(const struct facts *f, struct arena *a, struct verdict *v)
{
    struct http_head *head = head_copy(f->head, 0, a);
    head->authority = STR("origin");
    *v = (struct verdict){
        .act = ACT_FORWARD, .head = head, .to = {STR("127.0.0.1"), origin_port}, .pool = STR("p")};
}

static enum why allow_addr(const struct facts *f, const struct verdict *v,
                           const struct sockaddr *addr)
{
    (void)f;
    (void)v;
    (void)addr;
    return WHY_OK;
}

static struct http_head *answer(const struct facts *f, const struct verdict *v,
                                const struct http_head *head, struct arena *a)
{
    (void)f;
    (void)v;
    return head_copy(head, 0, a);
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

static const struct gate gate = {.decide = decide,
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
        .drain_idle_ms = 100                                                              \
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
    struct listener *listener;
    struct snapshot *snap;
    pthread_t thread; /* the worker's */
    uint16_t port;
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

static void stage_begin(struct house *s)
{
    static const struct maker maker = {make_nothing, drop_nothing};
    static const struct settings set;
    struct sockaddr_in any = loopback(0);
    union addr bound;
    struct str error;
    struct arena a;
    arena_init(&a, NULL, 0);
    origin_begin(&s->origin);
    origin_port = s->origin.port;
    s->w = worker_new(0);
    worker_set(s->w, SLOT_NAMES,
               names_new(s->w, &(struct names_files){"/dev/null", "/dev/null", 0}));
    s->snap = snapshot_build(&set, &maker, NULL, NULL);
    worker_adopt(s->w, s->snap);
    s->p = proxy_new(s->w, &rules);
    accept_gate_init(&s->open, 64, 8);
    int fd = listen_bind((struct sockaddr *)&any, &bound, &a, &error);
    assert_true(fd >= 0);
    s->port = addr_port(&bound.sa);
    s->listener = listener_start(s->w, fd, &s->open, proxy_accept, s->p);
    proxy_add_listener(s->p, s->listener);
    worker_start(s->w);
    s->thread = ask(s, ask_thread).thread;
    arena_done(&a);
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
}

static void wait_until_quiet(struct house *s)
{
    unsigned n = 1;
    for (int i = 0; i < PATIENCE_MS / 2 && (n = ask(s, ask_busy).n) > 0; i++)
        usleep(2000);
    assert_int_equal(n, 0);
}

/* ---- clients.  Each says what it got: all that it should, something that is no answer, or nothing
 * for too long. */

enum got { GOT_ALL, GOT_ERROR, GOT_WRONG, GOT_SILENCE };

struct talk {
    int fd;
    char *bytes;
    size_t n, at;
    bool over, silent, reset;
};

static struct talk call(const struct house *s)
{
    struct sockaddr_in to = loopback(s->port);
    struct talk t = {.fd = socket(AF_INET, SOCK_STREAM, 0), .bytes = malloc(2 * BODY)};
    if (connect(t.fd, (struct sockaddr *)&to, sizeof to) != 0)
        t.over = true;
    return t;
}

static void hang_up(struct talk *t)
{
    close(t->fd);
    free(t->bytes);
}

/* Some more bytes; false: there are none. */
static bool hear(struct talk *t)
{
    struct pollfd p = {.fd = t->fd, .events = POLLIN};
    if (t->over)
        return false;
    int ready = poll(&p, 1, PATIENCE_MS);
    t->silent = ready == 0;
    ssize_t n = ready > 0 ? read(t->fd, t->bytes + t->n, 2 * (size_t)BODY - t->n) : 0;
    t->reset = n < 0;
    t->over = n <= 0;
    t->n += n > 0 ? (size_t)n : 0;
    return !t->over;
}

static enum got no_answer(const struct talk *t)
{
    return t->silent ? GOT_SILENCE : GOT_ERROR;
}

/* The next answer: 200 with this body (GOT_ALL), or an error. */
static enum got hear_answer(struct talk *t, const char *body, size_t n)
{
    struct arena a;
    struct wire_message m;
    enum wire w;
    arena_init(&a, NULL, 0);
    do {
        struct str rest = {t->bytes + t->at, t->n - t->at};
        w = wire_response(&rest, false, t->over, &a, &m);
        if (w == WIRE_WHOLE)
            t->at = t->n - rest.n;
    } while (w != WIRE_WHOLE && w != WIRE_BAD && hear(t));
    bool whole = w == WIRE_WHOLE && m.status == 200;
    bool right = whole && m.body.n == n && memcmp(m.body.p, body, n) == 0;
    int status = w == WIRE_WHOLE ? m.status : 0;
    arena_done(&a);
    if (w == WIRE_BAD || (whole && !right))
        return GOT_WRONG;
    return right ? GOT_ALL : status != 0 ? GOT_ERROR : no_answer(t);
}

static enum got two_in_a_row(const struct house *s)
{
    struct talk t = call(s);
    send_text(t.fd, "GET /1 HTTP/1.1\r\nhost: x\r\n\r\nGET /2 HTTP/1.1\r\nhost: x\r\n\r\n");
    enum got first = hear_answer(&t, "hello", 5), second = hear_answer(&t, "hello", 5);
    hang_up(&t);
    return first > second ? first : second;
}

static enum got a_body_there_and_back(const struct house *s)
{
    static char body[BODY + 5];
    char head[128];
    struct talk t = call(s);
    memcpy(body, "hello", 5);
    fill(body + 5, BODY);
    snprintf(head, sizeof head, "POST /3 HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n", BODY);
    send_text(t.fd, head);
    send_all(t.fd, body + 5, BODY);
    enum got got = hear_answer(&t, body, sizeof body);
    hang_up(&t);
    return got;
}

static enum got a_tunnel(const struct house *s)
{
    struct talk t = call(s);
    send_text(t.fd,
              "GET /wire HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: wire\r\n\r\n");
    while (!(t.n > 0 && memmem(t.bytes, t.n, "\r\n\r\n", 4)) && hear(&t))
        ;
    if (!memmem(t.bytes, t.n, " 101 ", 5)) {
        enum got got = no_answer(&t);
        hang_up(&t);
        return got;
    }
    t.n = 0;
    send_text(t.fd, "ping");
    while (t.n < 4 && hear(&t))
        ;
    enum got got = t.n >= 4 ? memcmp(t.bytes, "ping", 4) == 0 ? GOT_ALL : GOT_WRONG : no_answer(&t);
    shutdown(t.fd, SHUT_WR);
    while (hear(&t))
        ;
    if (t.silent)
        got = GOT_SILENCE;
    hang_up(&t);
    return got;
}

/* An old client cannot tell the end of a body from its being cut, but for a reset. */
static enum got a_body_that_breaks_off(const struct house *s)
{
    struct talk t = call(s);
    send_text(t.fd, "GET /cut HTTP/1.0\r\n\r\n");
    while (hear(&t))
        ;
    enum got got = t.silent ? GOT_SILENCE : t.reset ? GOT_ALL : GOT_ERROR;
    hang_up(&t);
    return got;
}

/* The worst of what came. */
static enum got scenario(struct house *s)
{
    enum got all[] = {two_in_a_row(s), a_body_there_and_back(s), a_tunnel(s),
                      a_body_that_breaks_off(s)},
             worst = GOT_ALL;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        worst = all[i] > worst ? all[i] : worst;
    wait_until_quiet(s);
    if (getenv("VERBOSE") && worst != GOT_ALL)
        print_message("%d %d %d %d\n", all[0], all[1], all[2], all[3]);
    return worst;
}

/* ---- the tests */

struct row {
    enum fault fault;
    int error;
    unsigned least; /* so many calls there are at least in a scenario: else this tests nothing */
};

static const struct row rows[] = {
    {FAULT_uv_tcp_init_ex, EMFILE, 1},
    {FAULT_uv_tcp_init_ex, ENOMEM, 1},
    {FAULT_uv_tcp_open, ENOMEM, 4},
    {FAULT_uv_tcp_connect, EADDRNOTAVAIL, 1},
    {FAULT_uv_tcp_connect, ENETUNREACH, 1},
    {FAULT_uv_tcp_close_reset, EINVAL, 1},
    {FAULT_uv_read_start, EINVAL, 6},
    {FAULT_uv_fileno, EBADF, 1},
    {FAULT_accept4, EMFILE, 4},
    {FAULT_accept4, ECONNABORTED, 4},
    {FAULT_accept4, EINTR, 4},
    {FAULT_accept4, ENOMEM, 4},
    {FAULT_recv, ECONNRESET, 8},
    {FAULT_recv, EAGAIN, 8},
    {FAULT_recv, EINTR, 8},
    {FAULT_send, EPIPE, 4},
    {FAULT_send, EAGAIN, 4},
    {FAULT_send, EINTR, 4},
    {FAULT_sendmsg, ECONNRESET, 1},
    {FAULT_sendmsg, EAGAIN, 1},
    {FAULT_sendmsg, EINTR, 1},
    {FAULT_setsockopt, EINVAL, 1},
    {FAULT_shutdown, ENOTCONN, 1},
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
        enum got got = scenario(&s);
        struck = faults_clear();
        if (got == GOT_WRONG || got == GOT_SILENCE || (!struck && got != GOT_ALL))
            print_error("%s, errno %d, call %u, %s: %d\n", fault_name(row->fault), row->error, n,
                        struck ? "struck" : "not reached", got);
        assert_true(got == GOT_ALL || got == GOT_ERROR);
        assert_true(struck || got == GOT_ALL); /* untouched: all is well */
    }
    if (n - 2 < row->least)
        print_error("%s: only %u calls\n", fault_name(row->fault), n - 2);
    assert_true(n - 2 >= row->least);
    assert_int_equal(scenario(&s), GOT_ALL);
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
    assert_int_equal(scenario(&s), GOT_ALL);
    faults_trickle(0, s.thread);
    stage_finish(&s);
}

static void a_taken_socket_is_told_in_one_line(void **state)
{
    (void)state;
    static const struct row calls[] = {
        {FAULT_socket, EMFILE, 1}, {FAULT_bind, EADDRINUSE, 1}, {FAULT_getsockname, ENOBUFS, 1}};
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
