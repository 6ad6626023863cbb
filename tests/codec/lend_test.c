/* lend_test.c — when a stream may lend its connection: only while the bytes of that direction are
 * body and nothing else, and nothing of it lies in the codec. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <stdio.h>

#include "harness/side.h"

static const struct tap_user nobody = {0};
static const struct http_limits limits = {
    .max_head_bytes = 8192, .window = 65536, .keep_alive_ms = 60000, .linger_ms = 5000};

struct scene {
    struct worker *w;
    struct side x;
};

static void begin(struct scene *s, enum side_kind kind)
{
    s->w = worker_new(0);
    side_init(&s->x, s->w, kind, &limits, &nobody, NULL);
    if (!s->x.s->server)
        side_open(&s->x);
}

static void done(struct scene *s)
{
    side_done(&s->x);
    worker_free(s->w);
}

static void feed(struct scene *s, const char *text)
{
    side_feed(&s->x, str_of(text), &(struct cuts){0});
}

/* How many bytes are lent, 0: none; given back at once, so many moved. */
static int64_t lent(struct scene *s, bool in, int64_t moved)
{
    struct http_stream *stream = side_tap(&s->x)->s;
    int64_t n = 0;
    struct conn *c = stream->ops->lend(stream, in, &n);
    if (!c)
        return 0;
    assert_ptr_equal(c, s->x.c);
    stream->ops->back(stream, in, moved);
    return n;
}

static void request(struct scene *s, const char *method, int64_t length, bool end)
{
    struct http_head h = {.method = str_of(method),
                          .authority = STR("b"),
                          .path = STR("/"),
                          .length = length,
                          .protocol = STR("")};
    tap_head(side_tap(&s->x), &h, end);
    fake_settle(s->w);
}

static void what_is_read_is_lent_while_it_is_body_and_nothing_else(void **state)
{
    static const struct {
        const char *head;
        int64_t n;
    } rows[] = {
        {"HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\n", 1000000 - 4096},
        {"HTTP/1.1 200 OK\r\ncontent-length: 69633\r\n\r\n", 69633 - 4096},
        {"HTTP/1.1 200 OK\r\ncontent-length: 69632\r\n\r\n", 0}, /* too short to be worth it */
        {"HTTP/1.1 200 OK\r\n\r\n", -1},
        {"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n", 0},
        {"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nffff0\r\n", 0},
        {"HTTP/1.1 100 Continue\r\n\r\n", 0},
        {"HTTP/1.1 204 No\r\n", 0},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct scene s;
        begin(&s, H1_CLIENT);
        request(&s, "GET", -1, true);
        feed(&s, rows[i].head);
        assert_int_equal(lent(&s, true, 0), rows[i].n);
        done(&s);
    }
}

static void what_went_past_counts_and_the_end_comes_by_the_codec(void **state)
{
    (void)state;
    struct scene s;
    begin(&s, H1_CLIENT);
    request(&s, "GET", -1, true);
    feed(&s, "HTTP/1.1 200 OK\r\ncontent-length: 100000\r\n\r\n");
    assert_int_equal(lent(&s, true, 100000 - 4096), 100000 - 4096);
    assert_false(side_tap(&s.x)->got_end);
    char last[4096];
    memset(last, 'x', sizeof last);
    side_feed(&s.x, (struct str){last, sizeof last - 1}, &(struct cuts){0});
    assert_false(side_tap(&s.x)->got_end);
    side_feed(&s.x, STR("x"), &(struct cuts){0});
    assert_true(side_tap(&s.x)->got_end);
    assert_int_equal(s.x.idles, 1); /* and the connection serves on */
    done(&s);
}

static void nothing_is_lent_that_was_received_and_is_not_credited(void **state)
{
    (void)state;
    struct scene s;
    begin(&s, H1_CLIENT);
    side_tap(&s.x)->hold = true;
    request(&s, "GET", -1, true);
    feed(&s, "HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\nabc");
    assert_int_equal(lent(&s, true, 0), 0);
    tap_credit(side_tap(&s.x), 3);
    assert_int_equal(lent(&s, true, 0), 1000000 - 3 - 4096);
    done(&s);
}

static void what_is_written_is_lent_when_all_before_it_has_left(void **state)
{
    static const struct {
        int64_t length;
        const char *version;
        bool lent;
    } rows[] = {{1000000, "1.1", true}, {-1, "1.1", false}, {-1, "1.0", true}};
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct scene s;
        char text[128];
        struct http_head h = {.status = 200, .length = rows[i].length, .protocol = STR("")};
        begin(&s, H1_SERVER);
        snprintf(text, sizeof text, "GET / HTTP/%s\r\nhost: gw.test\r\n\r\n", rows[i].version);
        feed(&s, text);
        assert_int_equal(lent(&s, false, 0), 0); /* no head yet */
        tap_head(side_tap(&s.x), &h, false);
        assert_int_equal(lent(&s, false, 0), 0); /* not out yet */
        fake_settle(s.w);
        assert_int_equal(lent(&s, false, 0), rows[i].lent ? -1 : 0);
        tap_data(side_tap(&s.x), STR("abc"));
        assert_int_equal(lent(&s, false, 0), 0); /* queued */
        fake_settle(s.w);
        assert_int_equal(lent(&s, false, 0), rows[i].lent ? -1 : 0);
        if (rows[i].length < 0) {
            tap_end(side_tap(&s.x), NULL);
            fake_settle(s.w);
        }
        done(&s);
    }
}

static void tunnel_is_lent_both_ways_until_a_direction_ends(void **state)
{
    (void)state;
    struct scene s;
    struct http_head h = {.status = 101, .length = -1, .protocol = STR("bulk")};
    begin(&s, H1_SERVER);
    feed(&s, "GET / HTTP/1.1\r\nhost: gw.test\r\nconnection: upgrade\r\nupgrade: bulk\r\n\r\n");
    tap_head(side_tap(&s.x), &h, false);
    fake_settle(s.w);
    assert_int_equal(lent(&s, true, 12345), -1);
    assert_int_equal(lent(&s, false, 12345), -1);
    fake_feed_eof(s.x.c);
    fake_settle(s.w);
    assert_int_equal(lent(&s, true, 0), 0);
    assert_int_equal(lent(&s, false, 0), -1);
    tap_end(side_tap(&s.x), NULL);
    fake_settle(s.w);
    done(&s);
}

static void raw_bytes_are_lent_both_ways_until_a_direction_ends(void **state)
{
    (void)state;
    struct scene s;
    begin(&s, RAW_SERVER);
    feed(&s, "x");
    assert_int_equal(lent(&s, true, 5), -1);
    assert_int_equal(lent(&s, false, 5), -1);
    tap_data(side_tap(&s.x), STR("y"));
    assert_int_equal(lent(&s, false, 0), 0);
    fake_settle(s.w);
    fake_feed_eof(s.x.c);
    fake_settle(s.w);
    assert_int_equal(lent(&s, true, 0), 0);
    assert_int_equal(lent(&s, false, 0), -1);
    done(&s);
}

static void nothing_is_lent_over_tls(void **state)
{
    (void)state;
    struct scene s;
    begin(&s, H1_CLIENT);
    request(&s, "GET", -1, true);
    feed(&s, "HTTP/1.1 200 OK\r\n\r\n");
    assert_int_equal(lent(&s, true, 0), -1);
    fake_tls(s.x.c, "http/1.1", "b");
    assert_int_equal(lent(&s, true, 0), 0);
    done(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_read_is_lent_while_it_is_body_and_nothing_else),
        cmocka_unit_test(what_went_past_counts_and_the_end_comes_by_the_codec),
        cmocka_unit_test(nothing_is_lent_that_was_received_and_is_not_credited),
        cmocka_unit_test(what_is_written_is_lent_when_all_before_it_has_left),
        cmocka_unit_test(tunnel_is_lent_both_ways_until_a_direction_ends),
        cmocka_unit_test(raw_bytes_are_lent_both_ways_until_a_direction_ends),
        cmocka_unit_test(nothing_is_lent_over_tls),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
