/* webhook_test.c — denied queries as calls of the webhook (contract egress-policy 6.1), against a
 * server on loopback that says what the test wants. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/log.h"
#include "base/text.h"
#include "egress/events/events_impl.h"
#include "harness/pki.h"
#include "harness/replier.h"
#include "net/resolve.h"
#include "net/worker.h"

#define CANARY "c4n4ry"
enum { WAIT_MS = 20000, TEXT_BYTES = 4096, KEPT = 320 };

struct fixture {
    struct arena a;
    char path[64], url[96];
    struct worker *w;
    struct names *names;
    struct egress_settings set;
    struct events_setup setup;
    struct events *e;
    struct replier server;
    const char *answer; /* NULL: silence */
    unsigned calls;
    char bodies[KEPT][256];
    char head[TEXT_BYTES]; /* of the last call */
    bool drained;
    char *text;
};

/* Looks a name of the test's own up: in nobody's policy. */
static void *start(void *user, struct str host, uint64_t timeout_ms,
                   void (*done)(void *arg, const struct ip *ips, unsigned count, enum why why),
                   void *arg);

struct asked {
    struct fixture *f;
    struct post post;
    bool known, over;
    void (*done)(void *arg, const struct ip *ips, unsigned count, enum why why);
    void *arg;
};

static void answer_name(struct worker *w, struct post *p)
{
    struct asked *a = container_of(p, struct asked, post);
    struct ip ip;
    (void)w;
    assert_true(ip_parse(STR("127.0.0.1"), &ip));
    if (!a->over)
        a->done(a->arg, a->known ? &ip : NULL, a->known, a->known ? WHY_OK : WHY_DNS);
    mem_free(a);
}

static void *start(void *user, struct str host, uint64_t timeout_ms,
                   void (*done)(void *arg, const struct ip *ips, unsigned count, enum why why),
                   void *arg)
{
    struct asked *a = mem_new(sizeof *a);
    (void)timeout_ms;
    a->f = user;
    a->known = str_eq(host, STR("hook.test"));
    a->done = done;
    a->arg = arg;
    a->post.run = answer_name;
    worker_post(a->f->w, &a->post);
    return a;
}

static void cancel(void *user, void *asked)
{
    (void)user;
    ((struct asked *)asked)->over = true;
}

static void on_call(void *user, struct call_in *c)
{
    struct fixture *f = user;
    const char *body = strstr(c->text, "\r\n\r\n");
    assert_non_null(body);
    assert_true(f->calls < KEPT);
    snprintf(f->bodies[f->calls++], sizeof f->bodies[0], "%s", body + 4);
    snprintf(f->head, sizeof f->head, "%.*s", (int)(body - c->text), c->text);
    if (!f->answer)
        return;
    replier_say(c, f->answer);
    replier_hang_up(c);
}

static int setup(void **state)
{
    struct fixture *f = mem_new(sizeof *f);
    char problem[256];
    arena_init(&f->a, NULL, 0);
    snprintf(f->path, sizeof f->path, "/tmp/webhook_test.XXXXXX");
    int fd = mkstemp(f->path);
    assert_true(fd >= 0);
    close(fd);
    assert_true(
        log_start("opensandbox.egress", str_of(f->path), LOG_DEBUG, problem, sizeof problem));
    f->w = worker_new(0);
    struct names_source source = {start, cancel, f};
    f->names = names_through(f->w, &source);
    f->set.sandbox_id = STR(" sb\"1");
    f->set.webhook_queue = 256;
    f->set.webhook_timeout = INT64_C(5000000000);
    f->set.core.drain_timeout = INT64_C(8000000000);
    f->setup = (struct events_setup){.w = f->w, .set = &f->set, .names = f->names};
    f->answer = "HTTP/1.1 204 No Content\r\n\r\n";
    *state = f;
    return 0;
}

static void begin(struct fixture *f, SSL_CTX *ctx)
{
    struct str error;
    replier_start(&f->server, ctx, on_call, f);
    snprintf(f->url, sizeof f->url, "%s://hook.test:%u/" CANARY "?x=1", ctx ? "https" : "http",
             f->server.port);
    f->set.deny_webhook = str_of(f->url);
    f->e = events_new(&f->setup, &f->a, &error);
    assert_non_null(f->e);
}

static const char *lines(struct fixture *f)
{
    struct stat st;
    events_free(f->e);
    f->e = NULL;
    log_stop();
    int fd = open(f->path, O_RDONLY);
    assert_true(fd >= 0 && fstat(fd, &st) == 0);
    f->text = mem_new((size_t)st.st_size + 1);
    assert_int_equal(read(fd, f->text, (size_t)st.st_size), st.st_size);
    close(fd);
    assert_null(strstr(f->text, CANARY)); /* of the URL */
    return f->text;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    events_free(f->e);
    for (int i = 0; i < 3; i++)
        worker_turn(f->w);
    names_free(f->names);
    worker_free(f->w);
    replier_stop(&f->server);
    log_stop();
    unlink(f->path);
    mem_free(f->text);
    arena_done(&f->a);
    mem_free(f);
    return 0;
}

static void deny(struct fixture *f, const char *name)
{
    static const struct gate_learned none;
    union addr from;
    assert_true(addr_parse(STR("127.0.0.1:40000"), &from));
    struct dns_told t = {.name = str_of(name),
                         .type = DNS_AAAA,
                         .judged = {.layer = LAYER_DEFAULT},
                         .rcode = DNS_NXDOMAIN,
                         .ips = &none,
                         .why = WHY_DENIED,
                         .client = &from.sa};
    events_dns(f->e, &t);
}

static void run_until(struct fixture *f, bool (*is_so)(const struct fixture *f))
{
    uint64_t end = worker_now_us(f->w) + UINT64_C(1000) * WAIT_MS;
    while (!is_so(f)) {
        if (worker_now_us(f->w) > end)
            fail_msg("nothing comes of it: %u calls", f->calls);
        worker_turn(f->w);
        replier_step(&f->server);
        usleep(500);
    }
}

static const struct event_counters *counters(const struct fixture *f)
{
    return &f->e->counters;
}

static unsigned count(const char *text, const char *piece)
{
    unsigned n = 0;
    for (; (text = strstr(text, piece)); text += strlen(piece))
        n++;
    return n;
}

static bool one_is_sent(const struct fixture *f)
{
    return counter_get(&counters(f)->webhook_sent) == 1;
}

/* {"hostname":HOST,"timestamp":…,"source":…,"sandboxId":…} with a time of now. */
static void is_body(const char *body, const char *host)
{
    char begin[128], time[21] = "";
    static const char end[] = ",\"source\":\"opensandbox-egress\",\"sandboxId\":\" sb\\\"1\"}";
    int64_t unix_s;
    uint32_t ns;
    int n = snprintf(begin, sizeof begin, "{\"hostname\":\"%s\",\"timestamp\":\"", host);
    assert_memory_equal(body, begin, (size_t)n);
    memcpy(time, body + n, 20);
    assert_int_equal(time[19], 'Z');
    assert_true(text_rfc3339(str_of(time), &unix_s, &ns));
    assert_string_equal(body + n + 21, end);
}

static void a_denied_query_is_one_call(void **state)
{
    struct fixture *f = *state;
    begin(f, NULL);
    deny(f, "evil.test");
    run_until(f, one_is_sent);
    is_body(f->bodies[0], "evil.test");
    assert_non_null(strstr(f->head, "POST /" CANARY "?x=1 HTTP/1.1\r\n"));
    assert_true(strcasestr(f->head, "\r\ncontent-type: application/json") != NULL);
    assert_int_equal(f->calls, 1);
    assert_int_equal(count(lines(f), "\n"), 1); /* the query's own */
}

static bool three_are_sent(const struct fixture *f)
{
    return counter_get(&counters(f)->webhook_sent) == 3;
}

static void repeats_are_calls_too_but_the_root_is_none(void **state)
{
    struct fixture *f = *state;
    begin(f, NULL);
    deny(f, ".");
    for (int i = 0; i < 3; i++)
        deny(f, "evil.test");
    run_until(f, three_are_sent);
    assert_int_equal(f->calls, 3);
}

static bool all_are_over(const struct fixture *f)
{
    return counter_get(&counters(f)->webhook_sent) == 44;
}

static void what_comes_faster_than_it_goes_is_dropped_and_told(void **state)
{
    struct fixture *f = *state;
    f->set.webhook_queue = 40;
    begin(f, NULL);
    for (int i = 0; i < 300; i++) {
        char name[32];
        snprintf(name, sizeof name, "evil%03d.test", i);
        deny(f, name);
    }
    assert_int_equal(counter_get(&counters(f)->webhook_dropped), 256); /* 40 wait, 4 run */
    run_until(f, all_are_over);
    assert_int_equal(f->calls, 44);
    const char *text = lines(f);
    assert_int_equal(
        count(text, "\"msg\":\"[events] blocked-event queue full; dropping hostname evil"), 100);
    assert_non_null(strstr(text, "dropping hostname evil044.test\"}"));
    assert_int_equal(
        count(text, "\"msg\":\"[events] blocked-event queue full, more\",\"repeated\":156}"), 1);
}

static bool one_is_given_up(const struct fixture *f)
{
    return counter_get(&counters(f)->webhook_given_up) == 1;
}

static void a_refusal_is_not_tried_again_and_told(void **state)
{
    struct fixture *f = *state;
    begin(f, NULL);
    f->answer = "HTTP/1.1 302 Found\r\nLocation: /" CANARY "\r\nContent-Length: 0\r\n\r\n";
    deny(f, "evil.test");
    run_until(f, one_is_given_up);
    assert_int_equal(f->calls, 1);
    assert_non_null(strstr(lines(f), "\"msg\":\"[events] blocked-event not delivered\","
                                     "\"target.host\":\"evil.test\",\"status\":302}"));
}

static void a_failure_is_tried_four_times_and_told(void **state)
{
    struct fixture *f = *state;
    begin(f, NULL);
    f->answer = "HTTP/1.1 500 Oops\r\nContent-Length: 0\r\n\r\n";
    deny(f, "evil.test");
    run_until(f, one_is_given_up);
    assert_int_equal(f->calls, 4);
    assert_non_null(strstr(lines(f), "\"target.host\":\"evil.test\",\"status\":500}"));
}

static void on_drained(void *user)
{
    ((struct fixture *)user)->drained = true;
}

static bool is_drained(const struct fixture *f)
{
    return f->drained;
}

static void a_drain_sends_what_waits_and_takes_no_more(void **state)
{
    struct fixture *f = *state;
    begin(f, NULL);
    for (int i = 0; i < 20; i++)
        deny(f, "evil.test");
    events_drain(f->e, on_drained, f);
    deny(f, "late.test");
    run_until(f, is_drained);
    assert_int_equal(counter_get(&counters(f)->webhook_sent), 20);
    assert_int_equal(counter_get(&counters(f)->webhook_dropped), 1);
}

static void without_a_webhook_a_drain_is_over_at_once(void **state)
{
    struct fixture *f = *state;
    struct str error;
    replier_start(&f->server, NULL, on_call, f);
    f->e = events_new(&f->setup, &f->a, &error);
    deny(f, "evil.test");
    events_drain(f->e, on_drained, f);
    assert_true(f->drained);
}

static void it_can_be_freed_with_everything_under_way(void **state)
{
    struct fixture *f = *state;
    begin(f, NULL);
    f->answer = NULL;
    for (int i = 0; i < 50; i++)
        deny(f, "evil.test");
    for (int i = 0; i < 50; i++) {
        worker_turn(f->w);
        replier_step(&f->server);
    }
    lines(f);
}

/* ---- TLS */

static SSL_CTX *server_ctx(const struct pki_cert *cert)
{
    SSL_CTX *ctx = SSL_CTX_new(TLS_server_method());
    assert_non_null(ctx);
    assert_int_equal(SSL_CTX_use_certificate(ctx, cert->cert), 1);
    assert_int_equal(SSL_CTX_use_PrivateKey(ctx, cert->key), 1);
    return ctx;
}

static void over_tls(struct fixture *f, const char *name, bool known_root)
{
    struct pki_wish root = {.cn = "root", .key = PKI_P256, .authority = true};
    struct pki_wish leaf = {.cn = "leaf", .names = name, .key = PKI_P256};
    struct pki_cert *ca = pki_new(&root, NULL), *other = pki_new(&root, NULL);
    struct pki_cert *cert = pki_new(&leaf, ca);
    SSL_CTX *ctx = server_ctx(cert);
    f->setup.roots_pem = arena_str(&f->a, str_of(known_root ? ca->pem : other->pem));
    begin(f, ctx);
    deny(f, "evil.test");
    pki_free(cert);
    pki_free(ca);
    pki_free(other);
}

static void https_is_verified_and_works(void **state)
{
    struct fixture *f = *state;
    over_tls(f, "DNS:hook.test", true);
    run_until(f, one_is_sent);
    is_body(f->bodies[0], "evil.test");
    SSL_CTX_free(f->server.ctx);
}

static void https_to_somebody_else_tells_nothing(void **state)
{
    struct fixture *f = *state;
    over_tls(f, "DNS:other.test", true);
    run_until(f, one_is_given_up);
    assert_int_equal(f->calls, 0);
    assert_non_null(strstr(lines(f), "\"why\":\"tls\"}"));
    SSL_CTX_free(f->server.ctx);
}

static void https_under_an_unknown_root_tells_nothing(void **state)
{
    struct fixture *f = *state;
    over_tls(f, "DNS:hook.test", false);
    run_until(f, one_is_given_up);
    assert_int_equal(f->calls, 0);
    SSL_CTX_free(f->server.ctx);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(a_denied_query_is_one_call),
        T(repeats_are_calls_too_but_the_root_is_none),
        T(what_comes_faster_than_it_goes_is_dropped_and_told),
        T(a_refusal_is_not_tried_again_and_told),
        T(a_failure_is_tried_four_times_and_told),
        T(a_drain_sends_what_waits_and_takes_no_more),
        T(without_a_webhook_a_drain_is_over_at_once),
        T(it_can_be_freed_with_everything_under_way),
        T(https_is_verified_and_works),
        T(https_to_somebody_else_tells_nothing),
        T(https_under_an_unknown_root_tells_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
