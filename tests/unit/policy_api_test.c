/* policy_api_test.c — the policy API over real loopback sockets: access, limits, deadlines, and
 * that an answer is given when all is in force or nothing is (contract egress-policy 2). */
#include "harness/policy_rig.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>

#define ALLOW_A "{\"egress\":[{\"action\":\"allow\",\"target\":\"a.test\"}]}"

struct fixture {
    struct policy_rig rig;
    struct arena a;
};

static const char *plain(const char *name)
{
    return strcmp(name, "OPENSANDBOX_EGRESS_MODE") == 0 ? "dns+nft" : NULL;
}

static const char *with_token(const char *name)
{
    return strcmp(name, "OPENSANDBOX_EGRESS_TOKEN") == 0 ? "s3cret" : plain(name);
}

/* Small limits, so that a test can reach them. */
static const char *narrow(const char *name)
{
    static const char *const given[][2] = {
        {"API_MAX_CONNECTIONS", "3"}, {"API_HEAD_TIMEOUT", "1"}, {"API_BODY_TIMEOUT", "1"},
        {"API_IDLE_TIMEOUT", "1"},    {"KERNEL_TIMEOUT", "1"},   {"MAX_BODIES_BYTES", "64KiB"},
        {"TOKEN", "s3cret"}};
    for (size_t i = 0; i < sizeof given / sizeof *given; i++)
        if (str_starts(str_of(name), STR(EGRESS_VARIABLE)) &&
            strcmp(name + strlen(EGRESS_VARIABLE), given[i][0]) == 0)
            return given[i][1];
    return plain(name);
}

static int begin(void **state, const char *(*getenv_of)(const char *))
{
    static struct fixture f;
    struct document deny = document_deny();
    struct str error = STR("");
    arena_init(&f.a, NULL, 0);
    rig_init(&f.rig, getenv_of);
    f.rig.set.policy_file = str_of(f.rig.file);
    if (!rig_start(&f.rig, &deny, &error))
        fail_msg("%.*s", STR_ARG(error));
    document_done(&deny);
    *state = &f;
    return 0;
}

static int setup(void **state)
{
    return begin(state, plain);
}

static int setup_token(void **state)
{
    return begin(state, with_token);
}

static int setup_narrow(void **state)
{
    return begin(state, narrow);
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    rig_stop(&f->rig);
    arena_done(&f->a);
    return 0;
}

static struct rig_answer ask(struct fixture *f, const char *method, const char *path,
                             const char *more, const char *body)
{
    struct str b = body ? str_of(body) : STR_NONE;
    return rig_ask(&f->rig, NULL, rig_request(method, path, more, b, &f->a), &f->a);
}

static void is_answer(const struct rig_answer *got, int status, const char *body)
{
    if (got->status != status || !str_eq(got->body, str_of(body)))
        fail_msg("%d %.*s", got->status, STR_ARG(got->body));
}

static const struct document *user(struct fixture *f)
{
    return &changes_now(f->rig.changes)->user;
}

/* ---- access */

static void the_token_is_asked_for_before_all_else(void **state)
{
    static const struct {
        const char *method, *path, *more;
        int status;
    } rows[] = {
        {"GET", "/policy", "", 401},
        {"PURGE", "/policy", "", 401},
        {"GET", "/policy", "OPENSANDBOX-EGRESS-AUTH: s3cre\r\n", 401},
        {"GET", "/policy", "OPENSANDBOX-EGRESS-AUTH: s3cret1\r\n", 401},
        {"GET", "/policy", "OPENSANDBOX-EGRESS-AUTH: S3CRET\r\n", 401},
        {"GET", "/policy", "OPENSANDBOX-EGRESS-AUTH: s3cret\r\nOPENSANDBOX-EGRESS-AUTH: x\r\n",
         401},
        {"GET", "/policy", "opensandbox-egress-auth: s3cret\r\nOrigin: http://x.test\r\n", 200},
        {"POST", "/policy/check", "", 401},
        {"GET", "/policy/log", "", 401},
        {"GET", "/nothing", "", 404},
        {"GET", "/policy/", "", 404},
        {"GET", "/policyx", "", 404},
        {"GET", "/healthz", "", 200},
        {"GET", "/healthz?x=1", "OPENSANDBOX-EGRESS-AUTH: no\r\n", 200},
        {"PURGE", "/policy", "OPENSANDBOX-EGRESS-AUTH: s3cret\r\n", 405},
        {"get", "/policy", "OPENSANDBOX-EGRESS-AUTH: s3cret\r\n", 405},
    };
    struct fixture *f = *state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct rig_answer got = ask(f, rows[i].method, rows[i].path, rows[i].more, NULL);
        if (got.status != rows[i].status)
            fail_msg("%zu: %d", i, got.status);
    }
}

static void without_a_token_web_pages_are_not_served(void **state)
{
    static const struct {
        const char *lines; /* all of them: Host too */
        int status;
    } rows[] = {
        {"Host: localhost\r\n", 200},
        {"Host: LOCALHOST:18080\r\n", 200},
        {"Host: 127.0.0.1:18080\r\n", 200},
        {"Host: [::1]:18080\r\n", 200},
        {"Host: 10.1.2.3\r\n", 200},
        {"Host: rebound.example\r\n", 403},
        {"Host: localhost.example:18080\r\n", 403},
        {"Host: 127.0.0.1.example\r\n", 403},
        {"Host: localhost:x\r\n", 400},
        {"Host: localhost\r\nOrigin: null\r\n", 403},
        {"Host: localhost\r\nSec-Fetch-Site: same-origin\r\n", 403},
    };
    struct fixture *f = *state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct str request = arena_printf(&f->a, "GET /policy HTTP/1.1\r\n%s\r\n", rows[i].lines);
        struct rig_answer got = rig_ask(&f->rig, NULL, request, &f->a);
        if (got.status != rows[i].status && !(rows[i].status == 400 && got.status == 403))
            fail_msg("%zu: %d", i, got.status);
        struct str health = arena_printf(&f->a, "GET /healthz HTTP/1.1\r\n%s\r\n", rows[i].lines);
        got = rig_ask(&f->rig, NULL, health, &f->a);
        assert_true(got.status == 200 || got.status == 400);
    }
}

static void a_wrong_token_waits_and_a_good_one_does_not(void **state)
{
    struct fixture *f = *state;
    int wrong = rig_connect(&f->rig, NULL);
    rig_send(&f->rig, wrong, rig_request("GET", "/policy", "", STR_NONE, &f->a));
    rig_run(&f->rig, 50);
    char byte;
    assert_true(recv(wrong, &byte, 1, MSG_DONTWAIT | MSG_PEEK) < 0 && errno == EAGAIN);
    struct rig_answer good = ask(f, "GET", "/policy", "OPENSANDBOX-EGRESS-AUTH: s3cret\r\n", NULL);
    assert_int_equal(good.status, 200);
    assert_true(recv(wrong, &byte, 1, MSG_DONTWAIT | MSG_PEEK) < 0 && errno == EAGAIN);
    struct rig_answer got = rig_read(&f->rig, wrong, false, &f->a);
    is_answer(&got, 401, "unauthorized\n");
    close(wrong);
}

/* ---- requests */

static void a_refused_method_names_those_there_are(void **state)
{
    static const char *const rows[][3] = {{"OPTIONS", "/policy", "GET, POST, PUT, PATCH, DELETE"},
                                          {"GET", "/policy/check", "POST"},
                                          {"POST", "/policy/log", "GET"}};
    struct fixture *f = *state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct rig_answer got = ask(f, rows[i][0], rows[i][1], "", NULL);
        is_answer(&got, 405, "method not allowed\n");
        assert_true(str_eq(rig_field(&got, "allow"), str_of(rows[i][2])));
        assert_true(str_eq(rig_field(&got, "x-content-type-options"), STR("nosniff")));
    }
    struct rig_answer head = ask(f, "HEAD", "/policy", "", NULL);
    assert_int_equal(head.status, 405);
    assert_int_equal(head.body.n, 0);
}

static void a_change_is_in_force_when_its_answer_comes(void **state)
{
    struct fixture *f = *state;
    int fd = rig_connect(&f->rig, NULL);
    f->rig.kernel.silent = true;
    rig_send(&f->rig, fd, rig_request("POST", "/policy", "", STR(ALLOW_A), &f->a));
    rig_run(&f->rig, 50);
    char byte;
    assert_true(recv(fd, &byte, 1, MSG_DONTWAIT | MSG_PEEK) < 0);
    assert_int_equal(user(f)->rules->n, 0);
    rig_kernel_speak(&f->rig, 0);
    struct rig_answer got = rig_read(&f->rig, fd, false, &f->a);
    is_answer(&got, 200,
              "{\"status\":\"ok\",\"mode\":\"enforcing\",\"enforcementMode\":\"dns+nft\"}\n");
    assert_int_equal(user(f)->rules->n, 1);
    assert_int_equal(f->rig.afters, 1);
    assert_ptr_equal(f->rig.kernel.holds, changes_now(f->rig.changes)->policy);
    struct pin *pin = pin_get(f->rig.w);
    assert_ptr_equal(view_of(pin->snap), changes_now(f->rig.changes));
    pin_put(f->rig.w, pin);
    close(fd);
}

static void a_client_that_leaves_does_not_stop_its_change(void **state)
{
    struct fixture *f = *state;
    int fd = rig_connect(&f->rig, NULL);
    f->rig.kernel.silent = true;
    rig_send(&f->rig, fd, rig_request("POST", "/policy", "", STR(ALLOW_A), &f->a));
    rig_run(&f->rig, 50);
    close(fd);
    rig_run(&f->rig, 20);
    f->rig.kernel.silent = false;
    rig_kernel_speak(&f->rig, 0);
    struct rig_answer got = ask(f, "GET", "/policy", "", NULL);
    assert_int_equal(got.status, 200);
    assert_int_equal(user(f)->rules->n, 1);
    assert_int_equal(f->rig.updates, 1);
}

static void changes_of_many_clients_come_one_after_the_other(void **state)
{
    enum { CLIENTS = 20 };
    struct fixture *f = *state;
    int fds[CLIENTS];
    for (int i = 0; i < CLIENTS; i++) {
        struct str body =
            arena_printf(&f->a, "[{\"action\":\"allow\",\"target\":\"h%d.test\"}]", i);
        fds[i] = rig_connect(&f->rig, NULL);
        assert_true(fds[i] >= 0);
        rig_send(&f->rig, fds[i], rig_request("PATCH", "/policy", "", body, &f->a));
    }
    for (int i = 0; i < CLIENTS; i++) {
        struct rig_answer got = rig_read(&f->rig, fds[i], false, &f->a);
        assert_int_equal(got.status, 200);
        close(fds[i]);
    }
    assert_int_equal(user(f)->rules->n, CLIENTS);
    assert_int_equal(f->rig.kernel.applies, CLIENTS);
    assert_int_equal(changes_now(f->rig.changes)->revision, 1 + CLIENTS);
}

static void a_slow_sender_holds_up_nobody(void **state)
{
    struct fixture *f = *state;
    int slow = rig_connect(&f->rig, NULL);
    rig_send(&f->rig, slow,
             STR("POST /policy HTTP/1.1\r\nHost: localhost\r\n"
                 "Content-Length: 100\r\n\r\n{"));
    rig_run(&f->rig, 20);
    struct rig_answer got = ask(f, "PUT", "/policy", "", ALLOW_A);
    assert_int_equal(got.status, 200);
    close(slow);
}

static void bodies_come_in_any_form(void **state)
{
    struct fixture *f = *state;
    static const char *const requests[] = {
        "POST /policy HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
        "2\r\n{\"\r\n39\r\negress\":[{\"action\":\"allow\",\"target\":\"a.test\"}           "
        "]\r\n1\r\n}\r\n0\r\n\r\n",
        "POST /policy?x=/y HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/html\r\n"
        "Content-Length: 53\r\n\r\n" ALLOW_A "    ",
        "POST http://127.0.0.1/policy HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n",
    };
    static const unsigned rules[] = {1, 1, 0};
    for (size_t i = 0; i < sizeof requests / sizeof *requests; i++) {
        struct rig_answer got = rig_ask(&f->rig, NULL, str_of(requests[i]), &f->a);
        if (got.status != 200)
            fail_msg("%zu: %d %.*s", i, got.status, STR_ARG(got.body));
        assert_int_equal(user(f)->rules->n, rules[i]);
    }
}

static void who_asks_first_is_told_to_go_on(void **state)
{
    struct fixture *f = *state;
    int fd = rig_connect(&f->rig, NULL);
    char line[26] = "";
    rig_send(&f->rig, fd,
             STR("POST /policy HTTP/1.1\r\nHost: localhost\r\n"
                 "Expect: 100-continue\r\nContent-Length: 2\r\n\r\n"));
    rig_run(&f->rig, 50);
    assert_true(recv(fd, line, sizeof line - 1, 0) > 0);
    assert_memory_equal(line, "HTTP/1.1 100", 12);
    rig_send(&f->rig, fd, STR("{}"));
    struct rig_answer got = rig_read(&f->rig, fd, false, &f->a);
    assert_int_equal(got.status, 200);
    close(fd);
}

static void a_connection_serves_many_requests(void **state)
{
    struct fixture *f = *state;
    int fd = rig_connect(&f->rig, NULL);
    for (int i = 0; i < 5; i++) {
        rig_send(&f->rig, fd, rig_request("PUT", "/policy", "", STR(ALLOW_A), &f->a));
        struct rig_answer got = rig_read(&f->rig, fd, false, &f->a);
        assert_int_equal(got.status, 200);
    }
    close(fd);
}

/* ---- limits */

static void a_body_over_the_limit_is_refused_however_it_comes(void **state)
{
    struct fixture *f = *state;
    size_t limit = 1 << 20;
    char *blanks = mem_new(limit + 2);
    memset(blanks, ' ', limit + 1);
    struct rig_answer got =
        rig_ask(&f->rig, NULL,
                rig_request("POST", "/policy", "", (struct str){blanks, limit + 1}, &f->a), &f->a);
    assert_int_equal(got.status, 413);
    struct str chunked = arena_cat(&f->a,
                                   arena_printf(&f->a,
                                                "POST /policy HTTP/1.1\r\nHost: localhost\r\n"
                                                "Transfer-Encoding: chunked\r\n\r\n%zx\r\n",
                                                limit + 1),
                                   (struct str){blanks, limit + 1});
    got = rig_ask(&f->rig, NULL, arena_cat(&f->a, chunked, STR("\r\n0\r\n\r\n")), &f->a);
    assert_int_equal(got.status, 413);
    got = rig_ask(&f->rig, NULL,
                  rig_request("POST", "/policy", "", (struct str){blanks, limit}, &f->a), &f->a);
    assert_int_equal(got.status, 200); /* a blank body */
    mem_free(blanks);
}

static void a_length_over_the_limit_is_refused_before_the_body(void **state)
{
    struct fixture *f = *state;
    struct rig_answer got =
        rig_ask(&f->rig, NULL,
                STR("PUT /policy HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\n"
                    "Content-Length: 1048577\r\n\r\n"),
                &f->a);
    assert_int_equal(got.status, 413);
}

static void bodies_are_bounded_together(void **state)
{
    struct fixture *f = *state;
    char blanks[40000];
    memset(blanks, ' ', sizeof blanks);
    int first = rig_connect(&f->rig, NULL);
    rig_send(&f->rig, first,
             STR("POST /policy HTTP/1.1\r\nHost: localhost\r\n"
                 "OPENSANDBOX-EGRESS-AUTH: s3cret\r\nContent-Length: 50000\r\n\r\n"));
    rig_send(&f->rig, first, (struct str){blanks, sizeof blanks});
    rig_run(&f->rig, 50);
    struct rig_answer got =
        rig_ask(&f->rig, NULL,
                rig_request("POST", "/policy", "OPENSANDBOX-EGRESS-AUTH: s3cret\r\n",
                            (struct str){blanks, sizeof blanks}, &f->a),
                &f->a);
    assert_int_equal(got.status, 503);
    close(first);
    rig_run(&f->rig, 20);
    got = rig_ask(&f->rig, NULL,
                  rig_request("POST", "/policy", "OPENSANDBOX-EGRESS-AUTH: s3cret\r\n",
                              (struct str){blanks, sizeof blanks}, &f->a),
                  &f->a);
    assert_int_equal(got.status, 200);
}

static void heads_and_bodies_have_deadlines(void **state)
{
    static const char *const begun[] = {
        "POST /pol",
        "POST /policy HTTP/1.1\r\nHost: localhost\r\nOPENSANDBOX-EGRESS-AUTH: s3cret\r\n"
        "Content-Length: 10\r\n\r\n{",
    };
    struct fixture *f = *state;
    for (size_t i = 0; i < sizeof begun / sizeof *begun; i++) {
        int fd = rig_connect(&f->rig, NULL);
        rig_send(&f->rig, fd, str_of(begun[i]));
        struct rig_answer got = rig_read(&f->rig, fd, false, &f->a);
        is_answer(&got, 408, "request not complete in time\n");
        close(fd);
    }
}

static bool is_over(int fd)
{
    char byte;
    ssize_t n = recv(fd, &byte, 1, MSG_DONTWAIT | MSG_PEEK);
    return n == 0 || (n < 0 && errno != EAGAIN);
}

static void an_idle_connection_ends(void **state)
{
    struct fixture *f = *state;
    int fd = rig_connect(&f->rig, NULL);
    rig_run(&f->rig, 100);
    assert_false(is_over(fd));
    rig_run(&f->rig, 1300);
    assert_true(is_over(fd));
    close(fd);
}

static void a_full_table_drops_the_oldest_without_a_token(void **state)
{
    struct fixture *f = *state;
    int good = rig_connect(&f->rig, NULL), others[5];
    rig_send(&f->rig, good,
             rig_request("GET", "/policy", "OPENSANDBOX-EGRESS-AUTH: s3cret\r\n", STR_NONE, &f->a));
    struct rig_answer got = rig_read(&f->rig, good, false, &f->a);
    assert_int_equal(got.status, 200);
    for (int i = 0; i < 5; i++) {
        others[i] = rig_connect(&f->rig, NULL);
        rig_run(&f->rig, 10);
    }
    assert_false(is_over(good));
    for (int i = 0; i < 5; i++)
        assert_int_equal(is_over(others[i]), i < 3);
    got = ask(f, "GET", "/healthz", "", NULL);
    is_answer(&got, 200, "ok");
    close(good);
    for (int i = 0; i < 5; i++)
        close(others[i]);
}

/* ---- what goes wrong behind it */

static void a_table_full_of_tokens_lets_nobody_in(void **state)
{
    struct fixture *f = *state;
    int good[3];
    for (int i = 0; i < 3; i++) {
        good[i] = rig_connect(&f->rig, NULL);
        rig_send(
            &f->rig, good[i],
            rig_request("GET", "/policy", "OPENSANDBOX-EGRESS-AUTH: s3cret\r\n", STR_NONE, &f->a));
        struct rig_answer got = rig_read(&f->rig, good[i], false, &f->a);
        assert_int_equal(got.status, 200);
    }
    int late = rig_connect(&f->rig, NULL);
    rig_run(&f->rig, 50);
    assert_true(is_over(late));
    for (int i = 0; i < 3; i++) {
        assert_false(is_over(good[i]));
        close(good[i]);
    }
    close(late);
}

static void a_kernel_that_does_not_answer_is_answered_for(void **state)
{
    struct fixture *f = *state;
    f->rig.kernel.silent = true;
    const char *auth = "OPENSANDBOX-EGRESS-AUTH: s3cret\r\n";
    struct rig_answer got = ask(f, "POST", "/policy", auth, ALLOW_A);
    is_answer(&got, 500, "failed to apply nftables policy: no answer in time\n");
    assert_int_equal(user(f)->rules->n, 0);
    assert_true(access(f->rig.file, F_OK) < 0);
    assert_true(f->rig.unsure);
    got = ask(f, "POST", "/policy", auth, ALLOW_A);
    assert_int_equal(got.status, 500); /* at once: nobody knows what the kernel does */
    f->rig.kernel.silent = false;
    rig_kernel_speak(&f->rig, 0); /* late: the rules that nobody wants any more are there */
    rig_run(&f->rig, 20);
    assert_true(f->rig.kernel.asked_blind);
    assert_false(f->rig.unsure);
    assert_ptr_equal(f->rig.kernel.holds, changes_now(f->rig.changes)->policy);
    got = ask(f, "POST", "/policy", auth, ALLOW_A);
    assert_int_equal(got.status, 200);
}

static void health_tells_the_reason(void **state)
{
    struct fixture *f = *state;
    f->rig.not_enforced = "no NET_ADMIN";
    struct rig_answer got = ask(f, "GET", "/healthz", "", NULL);
    is_answer(&got, 503, "not enforced: no NET_ADMIN\n");
    f->rig.set.allow_unenforced = true;
    got = ask(f, "DELETE", "/healthz", "", "x");
    is_answer(&got, 200, "ok");
    f->rig.set.mitm = true;
    f->rig.interception_ready = false;
    got = ask(f, "GET", "/healthz", "", NULL);
    is_answer(&got, 503, "mitmproxy not ready\n");
}

static void draining_lets_changes_end(void **state)
{
    struct fixture *f = *state;
    int fd = rig_connect(&f->rig, NULL), idle = rig_connect(&f->rig, NULL);
    f->rig.kernel.silent = true;
    rig_send(&f->rig, fd, rig_request("POST", "/policy", "", STR(ALLOW_A), &f->a));
    rig_run(&f->rig, 50);
    api_drain(f->rig.api);
    rig_run(&f->rig, 150);
    assert_true(is_over(idle));
    assert_false(is_over(fd));
    rig_kernel_speak(&f->rig, 0);
    struct rig_answer got = rig_read(&f->rig, fd, false, &f->a);
    assert_int_equal(got.status, 200);
    assert_true(str_ieq(rig_field(&got, "connection"), STR("close")));
    assert_true(rig_connect(&f->rig, NULL) < 0);
    close(fd);
    close(idle);
}

/* ---- /policy/check, /policy/log */

static void check_says_what_would_be_decided(void **state)
{
    static const struct {
        const char *body, *answer;
        int status;
    } rows[] = {
        {"{\"name\":\"a.test\"}",
         "{\"verdict\":\"allow\",\"rule\":\"user:0\",\"target\":\"a.test\"}", 200},
        {"{\"name\":\"A.Test.\",\"port\":443}",
         "{\"verdict\":\"allow\",\"rule\":\"user:0\",\"target\":\"a.test\"}", 200},
        {"{\"name\":\"a.test\",\"port\":853}", "{\"verdict\":\"deny\",\"rule\":\"port853\"}", 200},
        {"{\"name\":\"a.test\",\"port\":53,\"proto\":\"udp\"}",
         "{\"verdict\":\"allow\",\"rule\":\"dns53\"}", 200},
        {"{\"name\":\"b.test\",\"port\":853}", "{\"verdict\":\"deny\",\"rule\":\"default\"}", 200},
        {"{\"address\":\"10.1.2.3\"}",
         "{\"verdict\":\"allow\",\"rule\":\"user:1\",\"target\":\"10.0.0.0/8\"}", 200},
        {"{\"address\":\"192.0.2.1\",\"port\":443}", "{\"verdict\":\"deny\",\"rule\":\"default\"}",
         200},
        {"{\"address\":\"10.1.2.3\",\"port\":853,\"proto\":\"tcp\"}",
         "{\"verdict\":\"deny\",\"rule\":\"port853\"}", 200},
        {"{\"address\":\"2001:db8::1\",\"proto\":\"icmp\"}",
         "{\"verdict\":\"deny\",\"rule\":\"default\"}", 200},
        {"{\"address\":\"127.0.0.1\",\"port\":80}", "{\"verdict\":\"allow\",\"rule\":\"loopback\"}",
         200},
        {"", "", 400},
        {"[]", "", 400},
        {"{}", "", 400},
        {"{\"name\":\"a.test\",\"address\":\"10.1.2.3\"}", "", 400},
        {"{\"name\":\"a.test\",\"name\":\"b.test\"}", "", 400},
        {"{\"name\":\"a.test\",\"more\":1}", "", 400},
        {"{\"name\":7}", "", 400},
        {"{\"name\":\"\"}", "", 400},
        {"{\"name\":\"http://a.test/\"}", "", 400},
        {"{\"name\":\"10.1.2.3\"}", "", 400},
        {"{\"address\":\"a.test\"}", "", 400},
        {"{\"address\":\"10.0.0.0/8\"}", "", 400},
        {"{\"address\":\"10.1.2.3\",\"port\":0}", "", 400},
        {"{\"address\":\"10.1.2.3\",\"port\":65536}", "", 400},
        {"{\"address\":\"10.1.2.3\",\"port\":\"80\"}", "", 400},
        {"{\"address\":\"10.1.2.3\",\"proto\":\"sctp\"}", "", 400},
    };
    struct fixture *f = *state;
    struct rig_answer got = ask(f, "POST", "/policy", "",
                                "{\"egress\":[{\"action\":\"allow\",\"target\":\"a.test\"},"
                                "{\"action\":\"allow\",\"target\":\"10.0.0.0/8\"}]}");
    assert_int_equal(got.status, 200);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        got = ask(f, "POST", "/policy/check", "", rows[i].body);
        bool good = got.status == rows[i].status &&
                    (got.status == 400
                         ? str_starts(got.body, STR("invalid check: "))
                         : str_eq(got.body, arena_cat(&f->a, str_of(rows[i].answer), STR("\n"))));
        if (!good)
            fail_msg("%s: %d %.*s", rows[i].body, got.status, STR_ARG(got.body));
    }
    assert_int_equal(f->rig.kernel.applies, 1);
}

static void the_log_tells_what_is_new(void **state)
{
    struct fixture *f = *state;
    struct decision d = {
        .kind = DECISION_DNS, .name = STR("a.test"), .rule = STR("user:0"), .allow = true};
    decisions_note(f->rig.decisions, &d, 1700000000123);
    struct rig_answer got = ask(f, "GET", "/policy/log", "", NULL);
    is_answer(&got, 200,
              "{\"entries\":[{\"id\":1,\"time\":\"2023-11-14T22:13:20.123Z\",\"kind\":\"dns\","
              "\"name\":\"a.test\",\"verdict\":\"allow\",\"rule\":\"user:0\",\"count\":1}],"
              "\"next\":1}\n");
    got = ask(f, "GET", "/policy/log?since=1", "", NULL);
    is_answer(&got, 200, "{\"entries\":[],\"next\":1}\n");
    got = ask(f, "GET", "/policy/log?a=b&since=x", "", NULL);
    assert_int_equal(got.status, 400);
}

/* ---- figures, on the way */

static void four_thousand_rules_come_into_force(void **state)
{
    struct fixture *f = *state;
    struct json_out o;
    char name[32];
    json_out_init(&o);
    json_open(&o, '{');
    json_key(&o, "egress");
    json_open(&o, '[');
    for (int i = 0; i < 4096; i++) {
        json_open(&o, '{');
        json_key(&o, "action");
        json_put_str(&o, STR("allow"));
        json_key(&o, "target");
        int n = i % 2 ? snprintf(name, sizeof name, "h%d.example.org", i)
                      : snprintf(name, sizeof name, "198.51.%d.%d", i / 256, i % 256);
        json_put_str(&o, (struct str){name, (size_t)n});
        json_close(&o, '}');
    }
    json_close(&o, ']');
    json_close(&o, '}');
    uint64_t start = worker_now_us(f->rig.w);
    struct rig_answer got = rig_ask(
        &f->rig, NULL, rig_request("PUT", "/policy", "", (struct str){o.p, o.n}, &f->a), &f->a);
    print_message("4,096 rules: %u ms\n", (unsigned)((worker_now_us(f->rig.w) - start) / 1000));
    assert_int_equal(got.status, 200);
    assert_int_equal(user(f)->rules->n, 4096);
    got = ask(f, "GET", "/policy", "", NULL);
    assert_int_equal(got.status, 200);
    assert_true(got.body.n > 100000);
    json_out_done(&o);
}

#define T(test) cmocka_unit_test_setup_teardown(test, setup, teardown)
#define TOKEN(test) cmocka_unit_test_setup_teardown(test, setup_token, teardown)
#define NARROW(test) cmocka_unit_test_setup_teardown(test, setup_narrow, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TOKEN(the_token_is_asked_for_before_all_else),
        T(without_a_token_web_pages_are_not_served),
        TOKEN(a_wrong_token_waits_and_a_good_one_does_not),
        T(a_refused_method_names_those_there_are),
        T(a_change_is_in_force_when_its_answer_comes),
        T(a_client_that_leaves_does_not_stop_its_change),
        T(changes_of_many_clients_come_one_after_the_other),
        T(a_slow_sender_holds_up_nobody),
        T(bodies_come_in_any_form),
        T(who_asks_first_is_told_to_go_on),
        T(a_connection_serves_many_requests),
        T(a_body_over_the_limit_is_refused_however_it_comes),
        T(a_length_over_the_limit_is_refused_before_the_body),
        NARROW(bodies_are_bounded_together),
        NARROW(heads_and_bodies_have_deadlines),
        NARROW(an_idle_connection_ends),
        NARROW(a_full_table_drops_the_oldest_without_a_token),
        NARROW(a_table_full_of_tokens_lets_nobody_in),
        NARROW(a_kernel_that_does_not_answer_is_answered_for),
        T(health_tells_the_reason),
        T(draining_lets_changes_end),
        T(check_says_what_would_be_decided),
        T(the_log_tells_what_is_new),
        T(four_thousand_rules_come_into_force),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
