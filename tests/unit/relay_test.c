/* relay_test.c — redirected connections and the explicit proxy over real sockets: what reaches the
 * origin, and what the client is told. */
#include "egress/relay/relay.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <cmocka.h>

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <unistd.h>

#include "harness/hello_bytes.h"
#include "harness/relay_rig.h"

enum { PATIENCE_MS = 20000, ROOM = 8192 };

#define USUAL "+ok.test +also.test +127.0.0.0/8"

/* ---- sockets that block */

static int dial(uint16_t port)
{
    struct sockaddr_in to = {
        .sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}, .sin_port = htons(port)};
    struct timeval patience = {PATIENCE_MS / 1000, 0};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;
    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof to), 0);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    return fd;
}

static void say(int fd, struct str s)
{
    assert_int_equal(send(fd, s.p, s.n, MSG_NOSIGNAL), s.n);
}

static void say_text(int fd, const char *text)
{
    say(fd, str_of(text));
}

/* A socket with a timeout may be interrupted by less than a signal (work that the kernel does for
 * the thread), and is not taken up again by itself. */
static ssize_t take(int fd, char *p, size_t n)
{
    ssize_t k;
    do
        k = recv(fd, p, n, 0);
    while (k < 0 && errno == EINTR);
    return k;
}

/* The next n bytes are these. */
static void hear(int fd, struct str want)
{
    char bytes[ROOM];
    size_t n = 0;
    assert_true(want.n < ROOM);
    while (n < want.n) {
        ssize_t k = take(fd, bytes + n, want.n - n);
        if (k <= 0)
            fail_msg("heard %zu of %zu bytes: \"%.*s\"", n, want.n, (int)n, bytes);
        n += (size_t)k;
    }
    if (memcmp(bytes, want.p, n) != 0)
        fail_msg("heard \"%.*s\", not \"%.*s\"", (int)n, bytes, STR_ARG(want));
}

/* All that comes until the end, as text; a reset is an end too. */
static const char *hear_all(int fd)
{
    static char bytes[ROOM];
    size_t n = 0;
    ssize_t k;
    while ((k = take(fd, bytes + n, sizeof bytes - 1 - n)) > 0)
        n += (size_t)k;
    if (k < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
        fail_msg("no end after \"%.*s\"", (int)n, bytes);
    bytes[n] = 0;
    return bytes;
}

static bool is_reset(int fd)
{
    char byte;
    return take(fd, &byte, 1) < 0 && errno == ECONNRESET;
}

static unsigned number(const char *at)
{
    unsigned n = 0;
    for (at += strspn(at, " "); *at >= '0' && *at <= '9'; at++)
        n = n * 10 + (unsigned)(*at - '0');
    return n;
}

/* An answer of HTTP/1.1 with a stated length: its status and body. */
static void hear_answer(int fd, int status, const char *body)
{
    static char bytes[ROOM];
    size_t n = 0, head = 0, length = 0;
    while (head == 0 || n < head + length) {
        ssize_t k = take(fd, bytes + n, 1);
        if (k <= 0)
            fail_msg("the answer ends: \"%.*s\"", (int)n, bytes);
        bytes[++n] = 0;
        if (head == 0 && strstr(bytes, "\r\n\r\n")) {
            const char *at = strcasestr(bytes, "\r\ncontent-length:");
            head = n;
            length = at ? number(at + 17) : 0;
        }
    }
    if ((unsigned)status != number(bytes + 9) || strcmp(bytes + head, body) != 0)
        fail_msg("not %d \"%s\": \"%s\"", status, body, bytes);
}

/* ---- an origin of bytes */

struct hearth {
    int fd;
    uint16_t port;
};

static struct hearth hearth_new(void)
{
    struct sockaddr_in any = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t n = sizeof any;
    struct hearth h = {.fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    assert_int_equal(bind(h.fd, (struct sockaddr *)&any, sizeof any), 0);
    assert_int_equal(listen(h.fd, 16), 0);
    getsockname(h.fd, (struct sockaddr *)&any, &n);
    h.port = ntohs(any.sin_port);
    return h;
}

static int hearth_accept(const struct hearth *h)
{
    struct pollfd p = {h->fd, POLLIN, 0};
    struct timeval patience = {PATIENCE_MS / 1000, 0};
    assert_int_equal(poll(&p, 1, PATIENCE_MS), 1);
    int fd = accept(h->fd, NULL, NULL);
    assert_true(fd >= 0);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    return fd;
}

static void nobody_came(const struct hearth *h)
{
    struct pollfd p = {h->fd, POLLIN, 0};
    assert_int_equal(poll(&p, 1, 0), 0);
}

/* Reads one request, which has no body, and answers. */
static void serve(int fd, const char *request_begins)
{
    char bytes[ROOM];
    size_t n = 0;
    for (bytes[0] = 0; !strstr(bytes, "\r\n\r\n"); bytes[n] = 0) {
        ssize_t k = take(fd, bytes + n, 1);
        if (k <= 0)
            fail_msg("the request ends: \"%.*s\"", (int)n, bytes);
        n += (size_t)k;
    }
    if (strncmp(bytes, request_begins, strlen(request_begins)) != 0)
        fail_msg("not \"%s\": \"%s\"", request_begins, bytes);
    say_text(fd, "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nyes\n");
}

/* ---- redirected */

static void what_came_straight_to_us_is_closed(void **state)
{
    struct relay_rig r;
    (void)state;
    relay_rig_begin(&r, "*", NULL);
    int fd = dial(r.redirected);
    assert_string_equal(hear_all(fd), "");
    close(fd);
    relay_rig_target("127.0.0.1", r.explicit); /* our own listener */
    fd = dial(r.redirected);
    assert_string_equal(hear_all(fd), "");
    close(fd);
    assert_int_equal(counter_get(&relay_counters(r.relay)->loops), 2);
    relay_rig_end(&r);
}

static void tls_of_an_allowed_name_reaches_the_origin_byte_for_byte(void **state)
{
    static const size_t pieces[] = {1, 7, 2000};
    char out[HELLO_TEST_BYTES];
    struct relay_rig r;
    (void)state;
    struct hearth h = hearth_new();
    relay_rig_begin(&r, USUAL, NULL);
    relay_rig_target("127.0.0.1", h.port);
    struct str hello = hello_bytes(STR("OK.test"), 50, out);
    for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++) {
        int fd = dial(r.redirected);
        for (size_t at = 0; at < hello.n; at += pieces[i])
            say(fd,
                str_head(str_skip(hello, at), hello.n - at < pieces[i] ? hello.n - at : pieces[i]));
        int origin = hearth_accept(&h);
        hear(origin, hello);
        say_text(origin, "\x16\x03\x03 and so on");
        hear(fd, STR("\x16\x03\x03 and so on"));
        close(fd);
        assert_string_equal(hear_all(origin), "");
        close(origin);
    }
    relay_rig_event(&r, "allow ok.test");
    relay_rig_end(&r);
    close(h.fd);
}

static void tls_of_a_denied_name_gets_an_alert_and_reaches_nobody(void **state)
{
    char out[HELLO_TEST_BYTES];
    struct relay_rig r;
    (void)state;
    struct hearth h = hearth_new();
    relay_rig_begin(&r, USUAL, NULL);
    relay_rig_target("127.0.0.1", h.port);
    int fd = dial(r.redirected);
    say(fd, hello_bytes(STR("no.test"), 2000, out));
    hear(fd, STR("\x15\x03\x03\x00\x02\x02\x31"));
    assert_string_equal(hear_all(fd), "");
    close(fd);
    relay_rig_event(&r, "refuse no.test");
    nobody_came(&h);
    relay_rig_end(&r);
    close(h.fd);
}

static void bytes_that_are_refused_get_a_reset(void **state)
{
    struct relay_rig r;
    (void)state;
    relay_rig_begin(&r, USUAL, NULL);
    relay_rig_target("198.51.100.1", 22);
    int fd = dial(r.redirected);
    say_text(fd, "SSH-2.0-x\r\n");
    assert_true(is_reset(fd));
    close(fd);
    relay_rig_event(&r, "refuse  22 default");
    relay_rig_end(&r);
}

static void malformed_tls_reaches_nobody(void **state)
{
    struct relay_rig r;
    (void)state;
    struct hearth h = hearth_new();
    relay_rig_begin(&r, "*", NULL);
    relay_rig_target("127.0.0.1", h.port);
    int fd = dial(r.redirected);
    say(fd, STR("\x16\x03\x01\x00\x05\x02\x00\x00\x01\x00"));
    assert_string_equal(hear_all(fd), "");
    close(fd);
    nobody_came(&h);
    relay_rig_end(&r);
    close(h.fd);
}

static void a_server_may_speak_first(void **state)
{
    struct relay_rig r;
    (void)state;
    struct hearth h = hearth_new();
    relay_rig_begin(&r, USUAL, NULL);
    relay_rig_target("127.0.0.1", h.port);
    int fd = dial(r.redirected), origin = hearth_accept(&h);
    say_text(origin, "220 ready\r\n");
    hear(fd, STR("220 ready\r\n"));
    say_text(fd, "EHLO\r\n");
    hear(origin, STR("EHLO\r\n"));
    close(origin);
    assert_string_equal(hear_all(fd), "");
    close(fd);
    relay_rig_end(&r);
    close(h.fd);
}

/* Two seconds of silence are no way around a name. */
static void who_was_silent_is_judged_by_what_it_says_then(void **state)
{
    char out[HELLO_TEST_BYTES];
    struct relay_rig r;
    (void)state;
    struct hearth h = hearth_new();
    relay_rig_begin(&r, USUAL, NULL);
    relay_rig_target("127.0.0.1", h.port);
    int fd = dial(r.redirected), origin = hearth_accept(&h);
    say(fd, hello_bytes(STR("no.test"), 2000, out));
    assert_string_equal(hear_all(origin), "");
    hear_all(fd);
    close(fd);
    close(origin);
    fd = dial(r.redirected);
    origin = hearth_accept(&h);
    say_text(fd, "GET /1 HTTP/1.1\r\nHost: no.test\r\n\r\n"
                 "GET /2 HTTP/1.1\r\nHost: ok.test\r\n\r\n");
    hear_answer(fd, 403, "host denied by egress policy: no.test (rule default)\n");
    assert_string_equal(hear_all(origin), "");
    int next = hearth_accept(&h);
    serve(next, "GET /2 ");
    hear_answer(fd, 200, "yes\n");
    close(fd);
    relay_rig_end(&r);
    close(origin);
    close(next);
    close(h.fd);
}

static void one_second(struct egress_settings *set)
{
    set->first_bytes_timeout = INT64_C(1000000000);
}

static void a_beginning_that_does_not_end_reaches_nobody(void **state)
{
    struct relay_rig r;
    (void)state;
    struct hearth h = hearth_new();
    relay_rig_begin(&r, "*", one_second);
    relay_rig_target("127.0.0.1", h.port);
    int fd = dial(r.redirected);
    say_text(fd, "GE");
    assert_string_equal(hear_all(fd), "");
    close(fd);
    assert_int_equal(counter_get(&relay_counters(r.relay)->unfinished), 1);
    nobody_came(&h);
    relay_rig_end(&r);
    close(h.fd);
}

static void each_request_of_a_connection_is_judged(void **state)
{
    struct relay_rig r;
    (void)state;
    struct hearth h = hearth_new();
    relay_rig_begin(&r, USUAL, NULL);
    relay_rig_target("127.0.0.1", h.port);
    int fd = dial(r.redirected);
    say_text(fd, "GET /1 HTTP/1.1\r\nHost: ok.test\r\n\r\n");
    int origin = hearth_accept(&h);
    serve(origin, "GET /1 HTTP/1.1\r\nhost: ok.test\r\n");
    hear_answer(fd, 200, "yes\n");
    say_text(fd, "GET /2 HTTP/1.1\r\nHost: no.test\r\n\r\n");
    hear_answer(fd, 403, "host denied by egress policy: no.test (rule default)\n");
    say_text(fd, "GET /3 HTTP/1.1\r\nHost: ok.test\r\n\r\n");
    serve(origin, "GET /3 ");
    hear_answer(fd, 200, "yes\n");
    say_text(fd, "GET /4 HTTP/1.1\r\nHost: also.test\r\n\r\n"); /* not over ok.test's */
    int other = hearth_accept(&h);
    serve(other, "GET /4 ");
    hear_answer(fd, 200, "yes\n");
    say_text(fd, "CONNECT ok.test:443 HTTP/1.1\r\nHost: ok.test\r\n\r\n");
    hear_answer(fd, 400, "CONNECT is for a proxy, and this is none\n");
    close(fd);
    relay_rig_end(&r);
    close(origin);
    close(other);
    close(h.fd);
}

static void two_connections(struct egress_settings *set)
{
    set->relay_max_connections = 2;
}

static void one_connection_too_many_is_closed_at_once(void **state)
{
    struct relay_rig r;
    (void)state;
    relay_rig_begin(&r, "*", two_connections);
    relay_rig_target("203.0.113.1", 80);
    int first = dial(r.redirected), second = dial(r.redirected), third;
    say_text(first, "G");
    say_text(second, "G");
    relay_rig_open(&r, 2);
    third = dial(r.redirected);
    assert_string_equal(hear_all(third), "");
    close(third);
    close(first);
    relay_rig_open(&r, 1);
    third = dial(r.redirected);
    say_text(third, "G");
    relay_rig_open(&r, 2);
    close(second);
    close(third);
    relay_rig_open(&r, 0);
    assert_int_equal(counter_get(&relay_counters(r.relay)->full), 1);
    relay_rig_end(&r);
}

static void another_policy_ends_what_it_does_not_allow(void **state)
{
    char out[HELLO_TEST_BYTES];
    struct relay_rig r;
    (void)state;
    struct hearth h = hearth_new();
    relay_rig_begin(&r, USUAL, NULL);
    relay_rig_target("127.0.0.1", h.port);
    int ok = dial(r.redirected), also;
    say(ok, hello_bytes(STR("ok.test"), 2000, out));
    int ok_origin = hearth_accept(&h);
    hear(ok_origin, hello_bytes(STR("ok.test"), 2000, out));
    also = dial(r.redirected);
    say(also, hello_bytes(STR("also.test"), 2000, out));
    int also_origin = hearth_accept(&h);
    hear(also_origin, hello_bytes(STR("also.test"), 2000, out));
    relay_rig_policy(&r, "+ok.test");
    assert_string_equal(hear_all(also), "");
    say_text(ok, "still");
    hear(ok_origin, STR("still"));
    relay_rig_policy(&r, "-127.0.0.1 +ok.test");
    assert_string_equal(hear_all(ok), "");
    close(ok);
    close(also);
    relay_rig_end(&r);
    close(ok_origin);
    close(also_origin);
    close(h.fd);
}

static void a_drain_closes_what_could_not_be_told(void **state)
{
    struct relay_rig r;
    (void)state;
    relay_rig_begin(&r, "*", NULL);
    relay_rig_target("203.0.113.1", 80);
    int fd = dial(r.redirected);
    say_text(fd, "G");
    relay_rig_open(&r, 1);
    relay_rig_drain(&r);
    assert_string_equal(hear_all(fd), "");
    close(fd);
    relay_rig_end(&r);
}

/* ---- asked */

static int connected(const struct relay_rig *r, const char *name, uint16_t port)
{
    char text[200];
    int fd = dial(r->explicit);
    snprintf(text, sizeof text, "CONNECT %s:%u HTTP/1.1\r\nHost: %s:%u\r\n\r\n", name, port, name,
             port);
    say_text(fd, text);
    return fd;
}

static void a_tunnel_carries_the_tls_it_was_asked_for(void **state)
{
    char out[HELLO_TEST_BYTES];
    struct relay_rig r;
    (void)state;
    struct hearth h = hearth_new();
    relay_rig_begin(&r, USUAL, NULL);
    int fd = connected(&r, "ok.test", h.port), origin = hearth_accept(&h);
    hear_answer(fd, 200, "");
    struct str hello = hello_bytes(STR("ok.test"), 30, out);
    for (size_t at = 0; at < hello.n; at++)
        say(fd, str_head(str_skip(hello, at), 1));
    hear(origin, hello);
    say_text(origin, "back");
    hear(fd, STR("back"));
    close(fd);
    close(origin);
    fd = connected(&r, "ok.test", h.port);
    origin = hearth_accept(&h);
    hear_answer(fd, 200, "");
    say(fd, hello_bytes(STR("also.test"), 2000, out));
    hear_all(fd);
    assert_string_equal(hear_all(origin), ""); /* not a byte of it */
    close(fd);
    close(origin);
    relay_rig_end(&r);
    close(h.fd);
}

static void a_tunnel_that_is_denied_dials_nobody(void **state)
{
    struct relay_rig r;
    (void)state;
    struct hearth h = hearth_new();
    relay_rig_begin(&r, "+ok.test +gone.test", NULL);
    int fd = connected(&r, "no.test", h.port);
    hear_answer(fd, 403, "host denied by egress policy: no.test (rule default)\n");
    close(fd);
    char text[200];
    fd = connected(&r, "ok.test", h.port); /* 127.0.0.1 is no address for it */
    snprintf(text, sizeof text,
             "host denied by egress policy (the name, or all of its addresses): ok.test:%u\n",
             h.port);
    hear_answer(fd, 403, text);
    close(fd);
    fd = connected(&r, "gone.test", 443);
    hear_answer(fd, 502, "no address was found: gone.test:443\n");
    close(fd);
    nobody_came(&h);
    relay_rig_end(&r);
    close(h.fd);
}

static void http_in_a_tunnel_is_judged_by_request(void **state)
{
    struct relay_rig r;
    (void)state;
    struct hearth h = hearth_new();
    relay_rig_begin(&r, USUAL, NULL);
    int fd = connected(&r, "ok.test", h.port), first = hearth_accept(&h);
    hear_answer(fd, 200, "");
    say_text(fd, "GET /1 HTTP/1.1\r\nHost: also.test\r\n\r\n"
                 "GET /2 HTTP/1.1\r\nHost: ok.test\r\n\r\n");
    hear_answer(fd, 421,
                "request authority does not match the intercepted destination: also.test\n");
    assert_string_equal(hear_all(first), "");
    int origin = hearth_accept(&h);
    serve(origin, "GET /2 HTTP/1.1\r\nhost: ok.test\r\n");
    hear_answer(fd, 200, "yes\n");
    close(fd);
    relay_rig_end(&r);
    close(first);
    close(origin);
    close(h.fd);
}

static void a_whole_url_is_fetched_by_its_path(void **state)
{
    char text[300];
    struct relay_rig r;
    (void)state;
    struct hearth h = hearth_new();
    relay_rig_begin(&r, USUAL, NULL);
    int fd = dial(r.explicit);
    snprintf(text, sizeof text,
             "GET http://ok.test:%u/a?b HTTP/1.1\r\nHost: ok.test:%u\r\n"
             "Proxy-Authorization: Basic c2VjcmV0\r\nProxy-Connection: keep-alive\r\n\r\n",
             h.port, h.port);
    say_text(fd, text);
    int origin = hearth_accept(&h);
    snprintf(text, sizeof text, "GET /a?b HTTP/1.1\r\nhost: ok.test:%u\r\n\r\n", h.port);
    serve(origin, text);
    hear_answer(fd, 200, "yes\n");
    say_text(fd, "GET http://no.test/ HTTP/1.1\r\nHost: no.test\r\n\r\n");
    hear_answer(fd, 403, "host denied by egress policy: no.test (rule default)\n");
    say_text(fd, "GET / HTTP/1.1\r\nHost: ok.test\r\n\r\n");
    hear_answer(fd, 400, "this is a proxy: ask for a whole URL, or by CONNECT\n");
    close(fd);
    relay_rig_end(&r);
    close(origin);
    close(h.fd);
}

static void a_server_may_speak_first_in_a_tunnel(void **state)
{
    struct relay_rig r;
    (void)state;
    struct hearth h = hearth_new();
    relay_rig_begin(&r, USUAL, NULL);
    int fd = connected(&r, "ok.test", h.port), origin = hearth_accept(&h);
    hear_answer(fd, 200, "");
    say_text(origin, "SSH-2.0-server\r\n");
    hear(fd, STR("SSH-2.0-server\r\n"));
    say_text(fd, "SSH-2.0-client\r\n");
    hear(origin, STR("SSH-2.0-client\r\n"));
    close(fd);
    close(origin);
    relay_rig_end(&r);
    close(h.fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_came_straight_to_us_is_closed),
        cmocka_unit_test(tls_of_an_allowed_name_reaches_the_origin_byte_for_byte),
        cmocka_unit_test(tls_of_a_denied_name_gets_an_alert_and_reaches_nobody),
        cmocka_unit_test(bytes_that_are_refused_get_a_reset),
        cmocka_unit_test(malformed_tls_reaches_nobody),
        cmocka_unit_test(a_server_may_speak_first),
        cmocka_unit_test(who_was_silent_is_judged_by_what_it_says_then),
        cmocka_unit_test(a_beginning_that_does_not_end_reaches_nobody),
        cmocka_unit_test(each_request_of_a_connection_is_judged),
        cmocka_unit_test(one_connection_too_many_is_closed_at_once),
        cmocka_unit_test(another_policy_ends_what_it_does_not_allow),
        cmocka_unit_test(a_drain_closes_what_could_not_be_told),
        cmocka_unit_test(a_tunnel_carries_the_tls_it_was_asked_for),
        cmocka_unit_test(a_tunnel_that_is_denied_dials_nobody),
        cmocka_unit_test(http_in_a_tunnel_is_judged_by_request),
        cmocka_unit_test(a_whole_url_is_fetched_by_its_path),
        cmocka_unit_test(a_server_may_speak_first_in_a_tunnel),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
