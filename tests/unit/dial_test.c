/* dial_test.c — a real worker dials over loopback: whom it asks for names, what is done to its
 * sockets, and the way through a parent proxy, whose every answer but a clean yes is a no. */
#include "net/dial.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <cmocka.h>

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include "harness/name_list.h"
#include "harness/pki.h"
#include "harness/replier.h"
#include "harness/until.h"
#include "net/conn_impl.h"
#include "net/tls.h"

enum { LONG_MS = 60000 };

struct rig {
    struct worker *w;
    struct name_list list;
    struct names *names;
    struct replier parent;
    const char *answer; /* of the parent; NULL: none */
    bool hang_up;
    /* what came of it */
    struct dial *dial;
    struct conn *conn;
    bool told, closed, denies;
    enum why why;
    int status, error;
    unsigned allowed;
    char got[256];
    struct buf out;
};

static void on_call(void *user, struct call_in *c)
{
    struct rig *rig = user;
    if (rig->answer)
        replier_say(c, rig->answer);
    if (rig->hang_up)
        replier_hang_up(c);
}

static void rig_init(struct rig *r, SSL_CTX *ctx)
{
    *r = (struct rig){.w = worker_new(0)};
    r->list = (struct name_list){.w = r->w, .name = "origin.test", .ip = "127.0.0.1"};
    r->names = name_list_names(&r->list);
    buf_init(&r->out, worker_pool(r->w));
    replier_start(&r->parent, ctx, on_call, r);
}

static void turn(struct rig *r)
{
    worker_turn(r->w);
    replier_step(&r->parent);
    poll(NULL, 0, 1);
}

static void rig_done(struct rig *r)
{
    if (r->conn && !r->closed)
        conn_close(r->conn, WHY_DRAIN);
    for (int i = 0; i < 5; i++)
        turn(r);
    buf_clear(&r->out);
    replier_stop(&r->parent);
    names_free(r->names);
    worker_free(r->w);
}

/* ---- the connection's next owner */

static void on_ready(void *user)
{
    (void)user;
}

static void on_bytes(void *user, struct buf *in)
{
    struct rig *r = user;
    size_t at = strlen(r->got), n = in->len;
    assert_true(at + n < sizeof r->got);
    buf_peek(in, r->got + at, n);
    buf_drop(in, n);
}

static void on_eof(void *user)
{
    (void)user;
}

static void on_fill(void *user, struct buf *out, size_t max)
{
    struct rig *r = user;
    (void)max;
    buf_move_all(out, &r->out);
}

static void on_closed(void *user, enum why why)
{
    struct rig *r = user;
    (void)why;
    r->closed = true;
}

static const struct conn_events owner = {on_ready, on_bytes, on_eof, on_fill, on_closed};

static enum why allow(void *user, const struct sockaddr *addr)
{
    struct rig *r = user;
    (void)addr;
    r->allowed++;
    return r->denies ? WHY_DENIED : WHY_OK;
}

static void done(void *user, struct conn *c, enum why why)
{
    struct rig *r = user;
    assert_false(r->told);
    assert_int_equal(c != NULL, why == WHY_OK);
    r->told = true;
    r->why = why;
    r->conn = c;
    r->status = dial_status(r->dial);
    r->error = dial_errno(r->dial);
    if (c)
        conn_attach(c, &owner, r);
}

static void dial(struct rig *r, const struct dial_to *to)
{
    r->dial = dial_start(r->w, to, LONG_MS, allow, done, r);
    assert_false(r->told);
}

/* ---- names and sockets */

static void the_host_is_asked_of_the_names_that_are_given(void **state)
{
    struct rig r;
    (void)state;
    rig_init(&r, NULL);
    dial(&r, &(struct dial_to){STR("origin.test"), r.parent.port, r.names, NULL});
    until(&r, r.told);
    assert_int_equal(r.why, WHY_OK);
    assert_string_equal(r.list.asked, "origin.test ");
    assert_int_equal(r.allowed, 1);
    rig_done(&r);
}

static void without_names_of_its_own_the_workers_are_asked(void **state)
{
    struct rig r;
    (void)state;
    rig_init(&r, NULL);
    worker_set(r.w, SLOT_NAMES, r.names);
    dial(&r, &(struct dial_to){.host = STR("nowhere.test"), .port = 80});
    until(&r, r.told);
    assert_int_equal(r.why, WHY_DNS);
    assert_string_equal(r.list.asked, "nowhere.test ");
    rig_done(&r);
}

static void an_address_that_is_not_allowed_is_not_called(void **state)
{
    struct rig r;
    (void)state;
    rig_init(&r, NULL);
    r.denies = true;
    dial(&r, &(struct dial_to){STR("origin.test"), r.parent.port, r.names, NULL});
    until(&r, r.told);
    assert_int_equal(r.why, WHY_DENIED);
    for (int i = 0; i < 5; i++)
        turn(&r);
    assert_int_equal(r.parent.n, 0);
    rig_done(&r);
}

struct prepared {
    unsigned n;
    int result;
};

static int on_prepare(void *user, int fd, const struct sockaddr *to)
{
    struct prepared *p = user;
    socklen_t n = sizeof(int);
    int type;
    assert_int_equal(getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &n), 0);
    assert_int_equal(type, SOCK_STREAM);
    assert_int_equal(to->sa_family, AF_INET);
    p->n++;
    return p->result;
}

static void each_socket_is_prepared_and_without_that_there_is_no_connection(void **state)
{
    static const int results[] = {0, -EPERM};
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        struct prepared p = {.result = results[i]};
        struct rig r;
        rig_init(&r, NULL);
        dial_prepare(r.w, &(struct prepare){on_prepare, &p});
        dial(&r, &(struct dial_to){STR("127.0.0.1"), r.parent.port, r.names, NULL});
        until(&r, r.told);
        assert_int_equal(r.why, i ? WHY_DIAL : WHY_OK);
        assert_int_equal(r.error, -results[i]);
        assert_int_equal(p.n, 1);
        for (int k = 0; k < 5; k++)
            turn(&r);
        assert_int_equal(r.parent.n, i ? 0 : 1);
        rig_done(&r);
    }
}

/* ---- through a parent */

static void dial_through(struct rig *r, struct str host, uint16_t port, struct dial_parent *p)
{
    if (!p->host.p)
        p->host = STR("127.0.0.1");
    if (!p->port)
        p->port = r->parent.port;
    p->names = r->names;
    dial(r, &(struct dial_to){.host = host, .port = port, .parent = p});
}

static void a_parent_is_asked_for_the_host_as_it_stands(void **state)
{
    static const struct {
        const char *host;
        uint16_t port;
        const char *secret, *request;
    } rows[] = {
        {"name.test", 443, "", "CONNECT name.test:443 HTTP/1.1\r\nHost: name.test:443\r\n\r\n"},
        {"192.0.2.7", 80, "Basic eDp5",
         "CONNECT 192.0.2.7:80 HTTP/1.1\r\nHost: 192.0.2.7:80\r\n"
         "Proxy-Authorization: Basic eDp5\r\n\r\n"},
        {"2001:DB8:0::1", 65535, "",
         "CONNECT [2001:db8::1]:65535 HTTP/1.1\r\nHost: [2001:db8::1]:65535\r\n\r\n"},
        {"[2001:db8::2]", 1, "",
         "CONNECT [2001:db8::2]:1 HTTP/1.1\r\nHost: [2001:db8::2]:1\r\n\r\n"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct rig r;
        struct dial_parent p = {.authorization = str_of(rows[i].secret)};
        rig_init(&r, NULL);
        r.answer = "HTTP/1.1 200 OK\r\n\r\n";
        dial_through(&r, str_of(rows[i].host), rows[i].port, &p);
        until(&r, r.told);
        assert_int_equal(r.why, WHY_OK);
        assert_int_equal(r.status, 200);
        assert_string_equal(r.parent.calls[0]->text, rows[i].request);
        assert_string_equal(r.list.asked, ""); /* the target's name is the parent's matter */
        assert_int_equal(r.allowed, 0);
        rig_done(&r);
    }
}

static void the_parents_name_is_asked_of_its_own_names(void **state)
{
    struct rig r;
    struct dial_parent p = {.host = STR("origin.test")};
    (void)state;
    rig_init(&r, NULL);
    r.answer = "HTTP/1.1 200 OK\r\n\r\n";
    dial_through(&r, STR("name.test"), 443, &p);
    until(&r, r.told);
    assert_int_equal(r.why, WHY_OK);
    assert_string_equal(r.list.asked, "origin.test ");
    rig_done(&r);
}

static void what_follows_the_answer_is_the_next_owners_and_both_ways_work(void **state)
{
    struct rig r;
    struct dial_parent p = {0};
    (void)state;
    rig_init(&r, NULL);
    r.answer = "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n220 ready\r\n";
    dial_through(&r, STR("name.test"), 25, &p);
    until(&r, r.told && strcmp(r.got, "220 ready\r\n") == 0);
    r.parent.calls[0]->n = 0;
    buf_str(&r.out, STR("EHLO\r\n"));
    conn_wake(r.conn);
    until(&r, r.parent.calls[0]->n == 6);
    assert_memory_equal(r.parent.calls[0]->text, "EHLO\r\n", 6);
    rig_done(&r);
}

static void an_answer_in_pieces_is_an_answer(void **state)
{
    static const char answer[] = "HTTP/1.1 100 Wait\r\n\r\nHTTP/1.1 201 x\r\nA: b\r\n\r\nhello";
    struct rig r;
    struct dial_parent p = {0};
    (void)state;
    rig_init(&r, NULL);
    dial_through(&r, STR("name.test"), 25, &p);
    until(&r, r.parent.n == 1 && r.parent.calls[0]->whole);
    for (size_t i = 0; i < sizeof answer - 1; i++) {
        replier_say(r.parent.calls[0], (char[]){answer[i], '\0'});
        turn(&r);
    }
    until(&r, strcmp(r.got, "hello") == 0);
    assert_int_equal(r.why, WHY_OK);
    assert_int_equal(r.status, 201);
    rig_done(&r);
}

static void whatever_is_no_clean_yes_is_a_no(void **state)
{
    static const struct {
        const char *answer;
        bool hang_up;
        int status;
    } rows[] = {
        {"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 2\r\n\r\nno", false, 407},
        {"HTTP/1.1 502 Bad Gateway\r\n\r\n", true, 502},
        {"HTTP/1.1 302 Found\r\nLocation: http://x/\r\n\r\n", false, 302},
        {"HTTP/1.1 101 Switching\r\n\r\n", false, 0},
        {"HTTP/1.1 200 OK\n\n", false, 0},
        {"HTTP/1.1 200 OK\r\n bad\r\n\r\n", false, 0},
        {"SSH-2.0-x\r\n", false, 0},
        {"HTTP/1.1 200 OK\r\nA: b\r\n", true, 0},
        {NULL, true, 0},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct rig r;
        struct dial_parent p = {0};
        rig_init(&r, NULL);
        r.answer = rows[i].answer;
        r.hang_up = rows[i].hang_up;
        dial_through(&r, STR("name.test"), 443, &p);
        until(&r, r.told);
        assert_int_equal(r.why, WHY_DIAL);
        assert_int_equal(r.status, rows[i].status);
        until(&r, rows[i].hang_up || r.parent.calls[0]->closed);
        rig_done(&r);
    }
}

static void no_host_and_no_secret_smuggles_a_line_into_the_request(void **state)
{
    static const struct {
        const char *host, *secret;
        uint16_t port;
    } rows[] = {
        {"a.test HTTP/1.1\r\nX: y", "", 443},
        {"a.test:80", "", 443},
        {"a b", "", 443},
        {"", "", 443},
        {"127.1", "", 443},
        {"0x7f.1", "", 443},
        {"a.test/", "", 443},
        {"u@a.test", "", 443},
        {"a.test", "x\r\nY: z", 443},
        {"a.test", "x\n", 443},
        {"a.test", "", 0},
        {"[a.test]", "", 443},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct rig r;
        struct dial_parent p = {.authorization = str_of(rows[i].secret)};
        rig_init(&r, NULL);
        dial_through(&r, str_of(rows[i].host), rows[i].port, &p);
        until(&r, r.told);
        assert_int_equal(r.why, WHY_DIAL);
        for (int k = 0; k < 5; k++)
            turn(&r);
        assert_int_equal(r.parent.n, 0);
        rig_done(&r);
    }
}

static void a_silent_parent_is_waited_for_to_the_deadline(void **state)
{
    struct rig r;
    struct dial_parent p = {0};
    (void)state;
    rig_init(&r, NULL);
    p = (struct dial_parent){.host = STR("127.0.0.1"), .port = r.parent.port, .names = r.names};
    r.dial = dial_start(r.w, &(struct dial_to){.host = STR("a.test"), .port = 1, .parent = &p}, 300,
                        allow, done, &r);
    until(&r, r.told);
    assert_int_equal(r.why, WHY_DEADLINE);
    assert_int_equal(r.parent.n, 1);
    until(&r, r.parent.calls[0]->closed);
    rig_done(&r);
}

static void a_cancelled_dial_says_nothing_and_hangs_up(void **state)
{
    struct rig r;
    struct dial_parent p = {0};
    (void)state;
    rig_init(&r, NULL);
    dial_through(&r, STR("name.test"), 443, &p);
    until(&r, r.parent.n == 1 && r.parent.calls[0]->whole);
    dial_cancel(r.dial);
    until(&r, r.parent.calls[0]->closed);
    assert_false(r.told);
    rig_done(&r);
}

static void a_parent_that_is_not_there_is_told_as_such(void **state)
{
    struct rig r;
    struct dial_parent p = {0};
    (void)state;
    rig_init(&r, NULL);
    close(r.parent.fd);
    r.parent.fd = -1;
    p.port = r.parent.port;
    dial(&r, &(struct dial_to){.host = STR("a.test"),
                               .port = 1,
                               .parent = &(struct dial_parent){
                                   .host = STR("127.0.0.1"), .port = p.port, .names = r.names}});
    until(&r, r.told);
    assert_int_equal(r.why, WHY_DIAL);
    assert_int_equal(r.error, ECONNREFUSED);
    assert_int_equal(r.status, 0);
    rig_done(&r);
}

/* ---- TLS to the parent */

static void a_parent_over_tls_must_prove_itself(void **state)
{
    static const struct {
        const char *host;
        bool trusted;
        enum why why;
    } rows[] = {
        {"origin.test", true, WHY_OK},
        {"origin.test", false, WHY_TLS}, /* signed by somebody */
        {"127.0.0.1", true, WHY_TLS},    /* is somebody else */
    };
    struct pki_cert *root = pki_new(&(struct pki_wish){.cn = "root", .authority = true}, NULL);
    struct pki_cert *other = pki_new(&(struct pki_wish){.cn = "other", .authority = true}, NULL);
    struct pki_cert *leaf =
        pki_new(&(struct pki_wish){.cn = "p", .names = "DNS:origin.test"}, root);
    SSL_CTX *ctx = SSL_CTX_new(TLS_server_method());
    (void)state;
    assert_int_equal(SSL_CTX_use_certificate(ctx, leaf->cert), 1);
    assert_int_equal(SSL_CTX_use_PrivateKey(ctx, leaf->key), 1);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct rig r;
        struct arena a;
        struct str error;
        arena_init(&a, NULL, 0);
        struct tls_ctx *tls = tls_client_new(
            &(struct tls_client_rules){.roots_pem =
                                           str_of(rows[i].trusted ? root->pem : other->pem)},
            &a, &error);
        struct dial_parent p = {.host = str_of(rows[i].host), .tls = tls};
        rig_init(&r, ctx);
        r.answer = "HTTP/1.1 200 OK\r\n\r\nhello";
        dial_through(&r, STR("name.test"), 443, &p);
        until(&r, r.told);
        assert_int_equal(r.why, rows[i].why);
        if (r.why == WHY_OK) {
            until(&r, strcmp(r.got, "hello") == 0);
            assert_true(conn_info(r.conn)->tls);
            assert_string_equal(r.parent.calls[0]->text,
                                "CONNECT name.test:443 HTTP/1.1\r\nHost: name.test:443\r\n\r\n");
        } else {
            assert_int_equal(r.parent.calls[0]->n, 0);
        }
        rig_done(&r);
        tls_ctx_unref(tls);
        arena_done(&a);
    }
    SSL_CTX_free(ctx);
    pki_free(leaf);
    pki_free(other);
    pki_free(root);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_host_is_asked_of_the_names_that_are_given),
        cmocka_unit_test(without_names_of_its_own_the_workers_are_asked),
        cmocka_unit_test(an_address_that_is_not_allowed_is_not_called),
        cmocka_unit_test(each_socket_is_prepared_and_without_that_there_is_no_connection),
        cmocka_unit_test(a_parent_is_asked_for_the_host_as_it_stands),
        cmocka_unit_test(the_parents_name_is_asked_of_its_own_names),
        cmocka_unit_test(what_follows_the_answer_is_the_next_owners_and_both_ways_work),
        cmocka_unit_test(an_answer_in_pieces_is_an_answer),
        cmocka_unit_test(whatever_is_no_clean_yes_is_a_no),
        cmocka_unit_test(no_host_and_no_secret_smuggles_a_line_into_the_request),
        cmocka_unit_test(a_silent_parent_is_waited_for_to_the_deadline),
        cmocka_unit_test(a_cancelled_dial_says_nothing_and_hangs_up),
        cmocka_unit_test(a_parent_that_is_not_there_is_told_as_such),
        cmocka_unit_test(a_parent_over_tls_must_prove_itself),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
