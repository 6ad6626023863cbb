/* session_test.c — which codec a connection gets, however its first bytes come, and what may happen
 * before that is known: silence, the end, drain, close. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <cmocka.h>

#include "harness/side.h"

#define PREFACE "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
#define SETTINGS "\0\0\0\4\0\0\0\0\0"

/* Whoever starts sessions. */
struct scene {
    struct worker *w;
    struct conn *c;
    struct session *s; /* NULL after its closed() */
    struct http_limits limits;
    struct trace trace;
    struct tap taps[4];
    unsigned n;
    bool became, drain_at_once, close_at_once;
};

static const struct tap_user nobody = {0};

static void on_accept(void *user, struct session *s, struct http_stream *stream)
{
    struct scene *x = user;
    assert_ptr_equal(s, x->s);
    assert_true(x->n < sizeof x->taps / sizeof *x->taps);
    trace_line(&x->trace, "accept");
    struct tap *t = &x->taps[x->n++];
    tap_init(t, &x->trace, x->w, stream, x->limits.window, &nobody, NULL);
    t->server = true;
}

static void on_became(void *user, struct session *s)
{
    struct scene *x = user;
    assert_false(x->became);
    assert_ptr_not_equal(s, x->s);
    x->became = true;
    x->s = s;
    trace_line(&x->trace, s->many ? "h2" : "h1");
    if (x->drain_at_once)
        s->ops->drain(s);
    if (x->close_at_once)
        s->ops->close(s, WHY_DRAIN);
}

static void on_closed(void *user, struct session *s)
{
    struct scene *x = user;
    assert_ptr_equal(s, x->s);
    x->s = NULL;
    trace_line(&x->trace, "session closed");
}

static const struct session_events events = {on_accept, NULL, on_became, on_closed};

static void on_end(void *user, enum fake_end end, enum why why)
{
    struct scene *x = user;
    trace_line(&x->trace, end == FAKE_FIN ? "fin" : "conn closed %s", why_text(why));
}

static void start(struct scene *x)
{
    fake_watch(x->c, on_end, x);
    x->s = session_start(x->w, x->c, &x->limits, &events, x);
}

static void scene_init(struct scene *x)
{
    *x = (struct scene){.w = worker_new(0), .limits = side_limits};
    x->limits.max_streams = 10;
    x->limits.max_resets = x->limits.max_control = 100;
    x->limits.window_max = x->limits.window;
    trace_init(&x->trace);
    x->c = fake_new(x->w, true);
}

static void scene_done(struct scene *x)
{
    if (x->s)
        x->s->ops->close(x->s, WHY_DRAIN);
    fake_settle(x->w);
    assert_null(x->s);
    for (unsigned i = 0; i < x->n; i++)
        tap_done(&x->taps[i]);
    fake_free(x->c);
    trace_done(&x->trace);
    worker_free(x->w);
}

static void feed(struct scene *x, struct str bytes)
{
    fake_feed(x->c, bytes.p, bytes.n);
    fake_settle(x->w);
}

static void feed_cut(struct scene *x, struct str input, const struct cuts *cuts)
{
    for (size_t at = 0, i = 0, end; at < input.n; at = end) {
        end = cuts->every && at + cuts->every < input.n ? at + cuts->every : input.n;
        while (cuts->at && i < cuts->n && cuts->at[i] <= at)
            i++;
        if (cuts->at && i < cuts->n && cuts->at[i] < end)
            end = cuts->at[i];
        fake_feed(x->c, input.p + at, end - at);
        if (!cuts->together)
            fake_settle(x->w);
    }
    fake_settle(x->w);
}

/* ---- the first bytes */

struct opening {
    struct str input;
    const char *events;
};

#define TEXT(text)             \
    {                          \
        text, sizeof(text) - 1 \
    }

static void run_opening(const struct cuts *cuts, void *arg, struct outcome *ret)
{
    const struct opening *o = arg;
    struct scene x;
    scene_init(&x);
    start(&x);
    feed_cut(&x, o->input, cuts);
    trace_line(&ret->events, "%s", trace_text(&x.trace));
    scene_done(&x);
}

static void the_first_bytes_choose_the_codec_however_they_are_cut(void **state)
{
    (void)state;
    static const struct opening table[] = {
        {TEXT("GET / HTTP/1.1\r\nHost: a\r\n\r\n"), "h1\naccept\nGET / host=a end\n"},
        {TEXT("POST /p HTTP/1.0\r\n\r\n"), "h1\naccept\nPOST /p no host end\n"},
        {TEXT("PROPFIND / HTTP/1.1\r\nHost: a\r\n\r\n"), "h1\naccept\nPROPFIND / host=a end\n"},
        {TEXT("PRI /x HTTP/1.1\r\nHost: a\r\n\r\n"), "h1\naccept\nPRI /x host=a end\n"},
        {TEXT("PRI * HTTP/1.1\r\nHost: a\r\n\r\n"),
         "h1\naccept\nfault 400 malformed request target\n"},
        {TEXT("PRI * HTTP/2.0\r\n\r\nSM\r\n\n"),
         "h1\naccept\nfault 505 HTTP version not supported\n"},
        {TEXT("PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n"),
         "h1\naccept\nfault 505 HTTP version not supported\n"},
        {TEXT("\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n"), "h1\naccept\nGET / host=a end\n"},
        {TEXT("\r\n" PREFACE), "h1\naccept\nfault 505 HTTP version not supported\n"},
        {TEXT("P"), ""},
        {TEXT("PRI * HTTP/2.0\r\n\r\nSM\r\n\r"), ""},
        {TEXT(PREFACE), "h2\n"},
        {TEXT(PREFACE SETTINGS), "h2\n"},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        struct outcome o;
        char text[512];
        same_however_cut(run_opening, (void *)(uintptr_t)&table[i], table[i].input.n, &o);
        snprintf(text, sizeof text, "%s\n", table[i].events);
        assert_string_equal(trace_text(&o.events), text);
        outcome_done(&o);
    }
}

static void the_codec_gets_every_byte_in_the_same_turn(void **state)
{
    (void)state;
    struct scene x;
    scene_init(&x);
    start(&x);
    feed(&x, STR("G"));
    assert_string_equal(trace_text(&x.trace), "h1\naccept\n"); /* its head's deadline runs now */
    scene_done(&x);
    scene_init(&x);
    start(&x);
    feed(&x, str_head(STR(PREFACE), sizeof PREFACE - 2));
    assert_false(x.became);
    assert_int_equal(fake_written(x.c).n, 0);
    assert_int_equal(conn_untaken(x.c), sizeof PREFACE - 2);
    feed(&x, STR("\n" SETTINGS));
    assert_true(x.became && x.s->many && x.s->server);
    assert_int_equal(conn_untaken(x.c), 0);
    assert_true(fake_written(x.c).n > 9);
    assert_int_equal(fake_written(x.c).p[3], 4); /* SETTINGS */
    scene_done(&x);
}

static void tls_has_negotiated_it(void **state)
{
    static const struct {
        const char *alpn;
        bool h2;
    } rows[] = {{"h2", true}, {"http/1.1", false}, {NULL, false}, {"h2c", false}, {"H2", false}};
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct scene x;
        scene_init(&x);
        fake_tls(x.c, rows[i].alpn, NULL);
        start(&x);
        assert_int_equal(x.s->many, rows[i].h2);
        feed(&x, rows[i].h2 ? STR(PREFACE) : STR("GET / HTTP/1.1\r\nHost: a\r\n\r\n"));
        assert_string_equal(trace_text(&x.trace), rows[i].h2 ? "" : "accept\nGET / host=a end\n");
        scene_done(&x);
    }
}

static void a_preface_over_tls_that_negotiated_http1_is_a_broken_request(void **state)
{
    (void)state;
    struct scene x;
    scene_init(&x);
    fake_tls(x.c, "http/1.1", NULL);
    start(&x);
    feed(&x, STR(PREFACE));
    assert_string_equal(trace_text(&x.trace), "accept\nfault 505 HTTP version not supported\n");
    scene_done(&x);
}

static void nobody_need_ask_what_it_became(void **state)
{
    (void)state;
    struct scene x;
    static const struct session_events deaf = {on_accept, NULL, NULL, on_closed};
    scene_init(&x);
    struct session *first = session_start(x.w, x.c, &x.limits, &deaf, &x);
    assert_true(first->server && !first->many);
    struct http_stream *stream;
    assert_false(first->ops->open(first, &stream));
    fake_feed_error(x.c);
    x.s = first;
    fake_settle(x.w);
    assert_null(x.s);
    scene_done(&x);
}

/* ---- before it is known */

static void silence_has_a_deadline(void **state)
{
    static const struct {
        struct str bytes;
        const char *why;
    } rows[] = {{{"", 0}, "ok"}, {{"P", 1}, "deadline"}, {{PREFACE, 23}, "deadline"}};
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct scene x;
        char text[128];
        scene_init(&x);
        start(&x);
        if (rows[i].bytes.n > 0)
            feed(&x, rows[i].bytes);
        /* what has begun is a head, and has its deadline */
        fake_time(x.w, (rows[i].bytes.n > 0 ? x.limits.head_ms : x.limits.keep_alive_ms) - 1000);
        assert_string_equal(trace_text(&x.trace), "");
        fake_time(x.w, 3000);
        snprintf(text, sizeof text, "conn closed %s\nsession closed\n", rows[i].why);
        assert_string_equal(trace_text(&x.trace), text);
        scene_done(&x);
    }
}

static void more_bytes_of_a_preface_do_not_move_the_deadline(void **state)
{
    (void)state;
    struct scene x;
    scene_init(&x);
    start(&x);
    for (size_t i = 0; i < 20 && x.s; i++) {
        feed(&x, str_head(str_skip(STR(PREFACE), i), 1));
        fake_time(x.w, x.limits.head_ms / 10);
    }
    assert_null(x.s);
    assert_string_equal(trace_text(&x.trace), "conn closed deadline\nsession closed\n");
    scene_done(&x);
}

static void without_a_keep_alive_there_is_no_deadline(void **state)
{
    (void)state;
    struct scene x;
    scene_init(&x);
    x.limits.keep_alive_ms = 0;
    start(&x);
    fake_time(x.w, 1000000000);
    assert_string_equal(trace_text(&x.trace), "");
    scene_done(&x);
}

static void the_peers_end_ends_it(void **state)
{
    static const struct {
        struct str bytes;
        bool reset;
        const char *events;
    } rows[] = {
        {{"", 0}, false, "conn closed ok\nsession closed\n"},
        {{"", 0}, true, "conn closed client-gone\nsession closed\n"},
        {{"PRI", 3}, true, "conn closed client-gone\nsession closed\n"},
        /* half a request, as far as HTTP/1 is concerned */
        {{"PRI", 3},
         false,
         "h1\naccept\nconn closed client-gone\nclosed client-gone\nsession closed\n"},
        {{PREFACE, 23},
         false,
         "h1\naccept\nfault 505 HTTP version not supported\nconn closed client-gone\nclosed "
         "client-gone\nsession closed\n"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (int together = 0; together < 2; together++) {
            struct scene x;
            scene_init(&x);
            start(&x);
            if (rows[i].bytes.n > 0)
                fake_feed(x.c, rows[i].bytes.p, rows[i].bytes.n);
            if (!together)
                fake_settle(x.w);
            if (rows[i].reset)
                fake_feed_error(x.c);
            else
                fake_feed_eof(x.c);
            fake_settle(x.w);
            assert_string_equal(trace_text(&x.trace), rows[i].events);
            scene_done(&x);
        }
}

static void closing_is_quiet_and_told_later(void **state)
{
    (void)state;
    struct scene x;
    scene_init(&x);
    start(&x);
    feed(&x, STR("PR"));
    x.s->ops->close(x.s, WHY_OVERLOAD);
    x.s->ops->close(x.s, WHY_DRAIN);
    x.s->ops->drain(x.s);
    assert_string_equal(trace_text(&x.trace), "conn closed overload\n");
    fake_settle(x.w);
    assert_string_equal(trace_text(&x.trace), "conn closed overload\nsession closed\n");
    scene_done(&x);
}

static void draining_waits_a_moment_for_a_request_on_its_way(void **state)
{
    (void)state;
    struct scene x;
    scene_init(&x);
    start(&x);
    x.s->ops->drain(x.s);
    x.s->ops->drain(x.s);
    fake_time(x.w, 1000);
    feed(&x, STR("GET / HTTP/1.1\r\nHost: a\r\n\r\n"));
    assert_string_equal(trace_text(&x.trace), "h1\naccept\nGET / host=a end\n");
    tap_head(&x.taps[0], &(struct http_head){.status = 200, .length = 0}, true);
    fake_settle(x.w);
    assert_true(str_eq(fake_written(x.c),
                       STR("HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")));
    scene_done(&x);
    scene_init(&x);
    start(&x);
    fake_time(x.w, 50000);
    x.s->ops->drain(x.s);
    fake_time(x.w, x.limits.drain_idle_ms + 2000);
    assert_string_equal(trace_text(&x.trace), "conn closed ok\nsession closed\n");
    scene_done(&x);
}

static void draining_without_a_time_closes_at_once(void **state)
{
    (void)state;
    struct scene x;
    scene_init(&x);
    x.limits.drain_idle_ms = 0;
    start(&x);
    x.s->ops->drain(x.s);
    fake_settle(x.w);
    assert_string_equal(trace_text(&x.trace), "conn closed drain\nsession closed\n");
    scene_done(&x);
}

static void what_it_became_can_be_drained_or_closed_at_once(void **state)
{
    (void)state;
    for (int h2 = 0; h2 < 2; h2++)
        for (int drains = 0; drains < 2; drains++) {
            struct scene x;
            scene_init(&x);
            x.limits.drain_idle_ms = 0;
            x.drain_at_once = drains;
            x.close_at_once = !drains;
            start(&x);
            feed(&x, h2 ? STR(PREFACE SETTINGS) : STR("GET / HTTP/1.1\r\nHost: a\r\n\r\n"));
            fake_time(x.w, 100000);
            assert_null(x.s);
            assert_int_equal(x.n, 0);
            scene_done(&x);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_bytes_choose_the_codec_however_they_are_cut),
        cmocka_unit_test(the_codec_gets_every_byte_in_the_same_turn),
        cmocka_unit_test(tls_has_negotiated_it),
        cmocka_unit_test(a_preface_over_tls_that_negotiated_http1_is_a_broken_request),
        cmocka_unit_test(nobody_need_ask_what_it_became),
        cmocka_unit_test(silence_has_a_deadline),
        cmocka_unit_test(more_bytes_of_a_preface_do_not_move_the_deadline),
        cmocka_unit_test(without_a_keep_alive_there_is_no_deadline),
        cmocka_unit_test(the_peers_end_ends_it),
        cmocka_unit_test(closing_is_quiet_and_told_later),
        cmocka_unit_test(draining_waits_a_moment_for_a_request_on_its_way),
        cmocka_unit_test(draining_without_a_time_closes_at_once),
        cmocka_unit_test(what_it_became_can_be_drained_or_closed_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
