/* tunnel_test.c — CONNECT over real sockets: what the fake connections of tests/codec cannot show,
 * bulk through a kernel pipe after the look, and a connection that changes hands. */
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

#include "net/resolve.h"
#include "net/worker_impl.h"
#include "proxy/proxy.h"

enum { BULK_BYTES = 8 << 20, PIECE_BYTES = 60000, TURNS = 20000 };

/* ---- the gate: every CONNECT is looked at; "T" is taken, "P" passes */

static bool banned; /* cmocka runs one test after the other */

static void decide(const struct facts *f, struct arena *a, struct verdict *v)
{
    ptrdiff_t colon = str_rchr(f->head->authority, ':');
    uint64_t port = 0;
    *v = (struct verdict){.act = ACT_LOCAL,
                          .status = 200,
                          .content_type = STR("text/plain"),
                          .body = arena_cat(a, f->head->path, STR(" here"))};
    if (!str_eq(f->head->method, STR("CONNECT")))
        return;
    for (size_t i = (size_t)colon + 1; i < f->head->authority.n; i++)
        port = port * 10 + (uint64_t)(f->head->authority.p[i] - '0');
    *v = (struct verdict){
        .act = ACT_FORWARD,
        .head = f->head,
        .to = {.host = str_head(f->head->authority, (size_t)colon), .port = (uint16_t)port},
        .pool = STR("p"),
        .raw = true,
        .look = true};
}

static enum why allow_addr(const struct facts *f, const struct verdict *v,
                           const struct sockaddr *addr)
{
    (void)f;
    (void)v;
    (void)addr;
    return WHY_OK;
}

static void failed(const struct facts *f, enum why why, enum stage stage,
                   const struct http_fault *fault, struct arena *a, struct verdict *ret)
{
    (void)f;
    (void)why;
    (void)stage;
    (void)fault;
    (void)a;
    ret->status = 502;
    ret->code = ret->message = STR("failed");
}

static void describe(const struct facts *f, const struct verdict *v, struct log_line *l)
{
    (void)f;
    (void)v;
    (void)l;
}

static enum glance look(const struct facts *f, const struct verdict *v, const struct buf *bytes,
                        bool late, struct arena *a)
{
    (void)f;
    (void)v;
    (void)a;
    if (bytes->len < 4)
        return late ? GLANCE_REFUSE : GLANCE_MORE;
    return *bytes->head->p == 'P' ? GLANCE_PASS : GLANCE_TAKE;
}

static void take(struct worker *w, const struct facts *f, const struct verdict *v,
                 struct conn *conn)
{
    (void)f;
    (void)v;
    proxy_take(proxy_of(w), conn, PROXY_HTTP, STR(""));
}

static enum why recheck(const struct facts *f, const struct verdict *v)
{
    (void)f;
    (void)v;
    return banned ? WHY_REVOKED : WHY_OK;
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
                                 .failed = failed,
                                 .describe = describe,
                                 .look = look,
                                 .take = take,
                                 .recheck = recheck,
                                 .judged = judged,
                                 .dialled = dialled,
                                 .brand = {"test", 4},
                                 .access_msg = "asked"};

#define LIMITS                                                                              \
    {                                                                                       \
        .max_head_bytes = 8192, .window = 65536, .keep_alive_ms = 60000, .linger_ms = 3000, \
        .drain_idle_ms = 2000                                                               \
    }

static const struct proxy_rules rules = {
    .gate = &gate,
    .client = LIMITS,
    .origin = LIMITS,
    .pools = {.idle_ms = 50000, .idle_max = 4, .idle_cap = 8},
    .timeout_ms = {60000, 60000, 60000, 60000, 60000, 60000, 3000},
    .half_close_ms = 60000,
    .look_ms = 60000,
};

/* ---- the stage */

struct scene {
    struct worker *w;
    struct proxy *p;
    struct snapshot *snap;
    union addr at; /* of the proxy */
    int listening; /* the origin */
    uint16_t origin_port;
    int client, origin; /* plain sockets */
    unsigned splices;   /* the most that ran at a time */
    bool drained;
};

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

static void loopback(union addr *a)
{
    memset(a, 0, sizeof *a);
    a->sa.sa_family = AF_INET;
    a->v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
}

static void set_up(struct scene *s)
{
    static const struct maker maker = {make_nothing, drop_nothing};
    static const struct settings set;
    struct names_files files = {0};
    struct arena mem;
    struct str error;
    union addr any, origin;
    socklen_t n = sizeof origin;
    *s = (struct scene){.w = worker_new(0), .client = -1, .origin = -1};
    arena_init(&mem, NULL, 0);
    loopback(&any);
    banned = false;
    worker_set(s->w, SLOT_NAMES, names_new(s->w, &files));
    s->snap = snapshot_build(&set, &maker, NULL, NULL);
    worker_adopt(s->w, s->snap);
    s->p = proxy_new(s->w, &rules);
    int fd = listen_bind(&any.sa, &s->at, &mem, &error);
    assert_true(fd >= 0);
    proxy_add_listener(s->p, listener_start(s->w, fd, NULL, proxy_accept, s->p));
    s->listening = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(s->listening, &any.sa, sizeof any.v4), 0);
    assert_int_equal(listen(s->listening, 8), 0);
    assert_int_equal(getsockname(s->listening, &origin.sa, &n), 0);
    s->origin_port = ntohs(origin.v4.sin_port);
    arena_done(&mem);
}

static void turn(struct scene *s)
{
    worker_turn(s->w);
    if (s->w->nsplices > s->splices)
        s->splices = s->w->nsplices;
}

/* The condition may have effects: it is asked until it holds, and not again. */
#define until(s, condition)                                                       \
    do {                                                                          \
        bool holds_ = false;                                                      \
        for (int turns_ = 0; !(holds_ = (condition)) && turns_ < TURNS; turns_++) \
            turn(s), turns_ % 8 == 7 ? poll(NULL, 0, 1) : 0;                      \
        assert_true(holds_);                                                      \
    } while (0)

static void on_drained(void *user)
{
    ((struct scene *)user)->drained = true;
}

static void tear_down(struct scene *s)
{
    if (s->client >= 0)
        close(s->client);
    if (s->origin >= 0)
        close(s->origin);
    close(s->listening);
    proxy_drain(s->p, on_drained, s);
    proxy_cut(s->p);
    until(s, s->drained && origin_open(proxy_origins(s->p)) == 0);
    proxy_free(s->p);
    names_free(worker_get(s->w, SLOT_NAMES));
    worker_free(s->w);
    snapshot_unref(s->snap);
}

static bool accepted(struct scene *s)
{
    s->origin = accept4(s->listening, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    return s->origin >= 0;
}

static void say(int fd, const char *text)
{
    assert_int_equal(send(fd, text, strlen(text), MSG_NOSIGNAL), strlen(text));
}

/* Adds what has come; true: this is all of it so far. */
static bool heard(int fd, char *got, size_t room, const char *text)
{
    size_t n = strlen(got);
    ssize_t more = recv(fd, got + n, room - n - 1, MSG_DONTWAIT);
    if (more > 0)
        got[n + (size_t)more] = '\0';
    return strstr(got, text) != NULL;
}

static bool is_over(int fd)
{
    char c;
    ssize_t n = recv(fd, &c, 1, MSG_DONTWAIT | MSG_PEEK);
    return n == 0 || (n < 0 && errno == ECONNRESET);
}

static void connects(struct scene *s)
{
    char text[100], got[200] = "";
    s->client = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(s->client, &s->at.sa, sizeof s->at.v4), 0);
    fcntl(s->client, F_SETFL, O_NONBLOCK);
    snprintf(text, sizeof text, "CONNECT 127.0.0.1:%u HTTP/1.1\r\nhost: x\r\n\r\n", s->origin_port);
    say(s->client, text);
    until(s, accepted(s));
    until(s, heard(s->client, got, sizeof got, "HTTP/1.1 200 OK\r\n\r\n"));
}

static char byte_at(size_t i)
{
    return (char)(i % 251);
}

/* Writes the next bytes from *at on. */
static void pour(int fd, size_t *at, size_t all)
{
    char piece[PIECE_BYTES];
    size_t n = all - *at < sizeof piece ? all - *at : sizeof piece;
    for (size_t i = 0; i < n; i++)
        piece[i] = byte_at(*at + i);
    ssize_t sent = n > 0 ? send(fd, piece, n, MSG_DONTWAIT | MSG_NOSIGNAL) : 0;
    if (sent > 0)
        *at += (size_t)sent;
}

static void drink(int fd, size_t *at)
{
    char piece[PIECE_BYTES];
    ssize_t n = recv(fd, piece, sizeof piece, MSG_DONTWAIT);
    for (ssize_t i = 0; i < n; i++)
        assert_int_equal(piece[i], byte_at(*at + (size_t)i));
    if (n > 0)
        *at += (size_t)n;
}

static bool poured(int from, int to, size_t *said, size_t *got)
{
    pour(from, said, BULK_BYTES);
    drink(to, got);
    return *got == BULK_BYTES;
}

/* ---- the tests */

static void bulk_goes_through_a_pipe_after_the_look(void **state)
{
    (void)state;
    struct scene s;
    char got[100] = "";
    set_up(&s);
    connects(&s);
    say(s.client, "PASS");
    until(&s, heard(s.origin, got, sizeof got, "PASS"));
    for (int back = 0; back < 2; back++) {
        size_t said = 0, heard_n = 0;
        int from = back ? s.origin : s.client, to = back ? s.client : s.origin;
        s.splices = 0;
        until(&s, poured(from, to, &said, &heard_n));
        assert_true(s.splices > 0);
    }
    shutdown(s.client, SHUT_WR);
    until(&s, is_over(s.origin));
    say(s.origin, "last");
    shutdown(s.origin, SHUT_WR);
    got[0] = '\0';
    until(&s, heard(s.client, got, sizeof got, "last"));
    until(&s, is_over(s.client));
    tear_down(&s);
}

/* Much of the server's before the client's first byte: no pipe yet, or it could not be taken. */
static void no_pipe_is_laid_while_we_look(void **state)
{
    (void)state;
    struct scene s;
    size_t said = 0, heard_n = 0;
    char got[1000] = "";
    set_up(&s);
    connects(&s);
    until(&s, poured(s.origin, s.client, &said, &heard_n));
    assert_int_equal(s.splices, 0);
    say(s.client, "TAKE /it HTTP/1.1\r\nhost: x\r\n\r\n");
    until(&s, heard(s.client, got, sizeof got, "/it here"));
    assert_true(str_starts(str_of(got), STR("HTTP/1.1 200 OK\r\n")));
    tear_down(&s);
}

static void a_taken_connection_is_served_byte_by_byte_and_pipelined(void **state)
{
    (void)state;
    struct scene s;
    char got[2000] = "";
    set_up(&s);
    connects(&s);
    for (const char *at = "TAKE /a HTTP/1.1\r\nhost: x\r\n\r\nGET /b HTTP/1.1\r\nhost: x\r\n\r\n";
         *at; at++) {
        assert_int_equal(send(s.client, at, 1, MSG_NOSIGNAL), 1);
        turn(&s);
    }
    shutdown(s.client, SHUT_WR);
    until(&s, heard(s.client, got, sizeof got, "/b here"));
    assert_non_null(strstr(got, "/a here"));
    until(&s, is_over(s.client));
    until(&s, is_over(s.origin));
    assert_int_equal(proxy_clients(s.p), 0);
    tear_down(&s);
}

static void a_second_judgement_cuts_a_pipe(void **state)
{
    (void)state;
    struct scene s;
    size_t said = 0, heard_n = 0;
    set_up(&s);
    connects(&s);
    say(s.client, "PASS");
    until(&s, (pour(s.origin, &said, SIZE_MAX), drink(s.client, &heard_n), s.w->nsplices > 0));
    proxy_recheck(s.p);
    turn(&s);
    assert_true(s.w->nsplices > 0);
    banned = true;
    proxy_recheck(s.p);
    assert_int_equal(s.w->nsplices, 0);
    until(&s, (drink(s.client, &heard_n), is_over(s.client)));
    tear_down(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bulk_goes_through_a_pipe_after_the_look),
        cmocka_unit_test(no_pipe_is_laid_while_we_look),
        cmocka_unit_test(a_taken_connection_is_served_byte_by_byte_and_pipelined),
        cmocka_unit_test(a_second_judgement_cuts_a_pipe),
    };
    signal(SIGPIPE, SIG_IGN);
    log_set_level(LOG_FATAL);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
