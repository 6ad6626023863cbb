/* raw_test.c — bytes as a stream: one head at the start, both directions with an end of their own,
 * and a window. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "harness/side.h"

static const struct tap_user nobody = {0};

struct scene {
    struct worker *w;
    struct side x;
};

static void begin(struct scene *s, enum side_kind kind)
{
    s->w = worker_new(0);
    side_init(&s->x, s->w, kind, NULL, &nobody, NULL);
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

static void feed_eof(struct scene *s)
{
    fake_feed_eof(s->x.c);
    fake_settle(s->w);
}

static void assert_events(struct scene *s, const char *text)
{
    if (s->x.n > 0)
        tap_flush(side_tap(&s->x));
    assert_string_equal(trace_text(&s->x.trace), text);
}

static void assert_output(struct scene *s, const char *text)
{
    assert_int_equal(fake_written(s->x.c).n, strlen(text));
    assert_memory_equal(fake_written(s->x.c).p, text, strlen(text));
}

#define ACCEPTED "accept\nCONNECT  host=10.0.0.1:443 protocol=connect\n"

static void run_bytes(const struct cuts *cuts, void *arg, struct outcome *ret)
{
    struct scene s;
    begin(&s, H1_SERVER == *(enum side_kind *)arg ? RAW_SERVER : RAW_CLIENT);
    if (!s.x.s->server)
        side_open(&s.x);
    side_feed(&s.x, STR("GET / HTTP/1.1\r\n\r\n\0\xff bytes"), cuts);
    tap_data(side_tap(&s.x), STR("answer"));
    fake_settle(s.w);
    feed_eof(&s);
    tap_end(side_tap(&s.x), NULL);
    fake_settle(s.w);
    trace_line(&ret->events, "%s", trace_text(&s.x.trace));
    trace_line(&ret->output, "%.*s", STR_ARG(fake_written(s.x.c)));
    done(&s);
}

static void bytes_pass_as_they_are_however_they_are_cut(void **state)
{
    (void)state;
    enum side_kind kinds[] = {H1_SERVER, H1_CLIENT};
    for (int i = 0; i < 2; i++) {
        struct outcome o;
        same_however_cut(run_bytes, &kinds[i], 26, &o);
        assert_string_equal(trace_text(&o.output), "answer\n");
        const char *events = trace_text(&o.events);
        if (i == 0) {
            assert_memory_equal(events, ACCEPTED, strlen(ACCEPTED));
            events += strlen(ACCEPTED);
        }
        assert_string_equal(events, "data GET / HTTP/1.1\\r\\n\\r\\n\\x00\\xff bytes\nend\nconn "
                                    "close ok\nclosed ok\nsession closed\n\n");
        outcome_done(&o);
    }
}

static void the_stream_begins_before_the_first_byte(void **state)
{
    (void)state;
    struct scene s;
    begin(&s, RAW_SERVER);
    assert_events(&s, "");
    fake_settle(s.w);
    assert_events(&s, ACCEPTED);
    feed(&s, "x");
    assert_events(&s, ACCEPTED "data x\n");
    done(&s);
    begin(&s, RAW_SERVER);
    feed_eof(&s);
    assert_events(&s, "conn close ok\nsession closed\n");
    done(&s);
}

static void a_client_is_opened_once(void **state)
{
    (void)state;
    struct scene s;
    begin(&s, RAW_CLIENT);
    feed(&s, "early"); /* a server that speaks first, before we are ready */
    struct tap *t = side_open(&s.x);
    assert_non_null(t);
    assert_null(side_open(&s.x));
    fake_settle(s.w);
    assert_events(&s, "data early\n");
    done(&s);
}

static void each_direction_ends_by_itself(void **state)
{
    (void)state;
    struct scene s;
    begin(&s, RAW_SERVER);
    feed(&s, "a");
    tap_head(side_tap(&s.x), &(struct http_head){.status = 200, .length = -1},
             false); /* bytes have none: nothing is written */
    tap_data(side_tap(&s.x), STR("x"));
    tap_end(side_tap(&s.x), NULL);
    fake_settle(s.w);
    feed(&s, "b");
    fake_time(s.w, 100000);
    feed_eof(&s);
    assert_output(&s, "x");
    assert_events(&s, ACCEPTED
                  "data a\nconn fin\ndata b\nend\nconn close ok\nclosed ok\nsession closed\n");
    done(&s);
}

/* The last bytes wait for the kernel when the peer's end comes: closing then would lose them. */
static void the_end_of_both_does_not_cut_what_is_on_its_way(void **state)
{
    (void)state;
    for (int order = 0; order < 2; order++) {
        struct scene s;
        begin(&s, RAW_SERVER);
        feed(&s, "a");
        fake_room(s.x.c, 3);
        if (order == 0)
            feed_eof(&s);
        tap_data(side_tap(&s.x), STR("last words"));
        tap_end(side_tap(&s.x), NULL);
        fake_settle(s.w);
        if (order == 1)
            feed_eof(&s);
        assert_false(side_tap(&s.x)->over);
        fake_room(s.x.c, SIZE_MAX);
        fake_settle(s.w);
        assert_true(side_tap(&s.x)->over);
        assert_output(&s, "last words");
        assert_int_equal(fake_lost(s.x.c), 0);
        done(&s);
    }
}

static void bytes_stop_at_the_window_and_go_on_with_credit(void **state)
{
    (void)state;
    struct scene s;
    static char block[50000];
    begin(&s, RAW_SERVER);
    s.x.hold = true;
    side_feed(&s.x, (struct str){block, sizeof block}, &(struct cuts){.every = 700});
    feed_eof(&s);
    struct tap *t = side_tap(&s.x);
    assert_int_equal(t->received, 1024);
    while (!t->got_end) {
        tap_credit(t, tap_owed(t) < 999 ? tap_owed(t) : 999);
        fake_settle(s.w);
    }
    assert_int_equal(t->received, sizeof block);
    done(&s);
}

static void endings_are_told_once(void **state)
{
    (void)state;
    struct scene s;
    begin(&s, RAW_SERVER);
    feed(&s, "a");
    fake_feed_error(s.x.c);
    fake_settle(s.w);
    assert_events(&s,
                  ACCEPTED "data a\nconn close client-gone\nclosed client-gone\nsession closed\n");
    done(&s);
    begin(&s, RAW_CLIENT);
    side_open(&s.x);
    fake_feed_error(s.x.c);
    fake_settle(s.w);
    assert_events(&s, "conn close origin-gone\nclosed origin-gone\nsession closed\n");
    done(&s);
    begin(&s, RAW_SERVER);
    feed(&s, "a");
    tap_cancel(side_tap(&s.x), WHY_REVOKED);
    fake_settle(s.w);
    assert_events(&s, ACCEPTED "data a\ncancel revoked\nconn close revoked\nsession closed\n");
    done(&s);
}

static void closing_a_session_is_quiet_and_told_later(void **state)
{
    (void)state;
    struct scene s;
    begin(&s, RAW_SERVER);
    feed(&s, "a");
    side_tap(&s.x)->in_op = true;
    s.x.s->ops->close(s.x.s, WHY_DRAIN);
    side_tap(&s.x)->in_op = false;
    tap_data(side_tap(&s.x), STR("swallowed"));
    fake_settle(s.w);
    assert_events(&s, ACCEPTED "data a\nconn close drain\nclosed drain\nsession closed\n");
    done(&s);
}

struct heir {
    struct conn *conn;
    struct trace heard;
};

static void on_heir_bytes(void *user, struct buf *in)
{
    struct heir *h = user;
    char text[100] = "";
    buf_peek(in, text, in->len);
    trace_line(&h->heard, "%s", text);
    buf_clear(in);
}

static void on_heir_eof(void *user)
{
    struct heir *h = user;
    trace_line(&h->heard, "end");
}

static void on_heir_fill(void *user, struct buf *out, size_t max)
{
    (void)user;
    (void)out;
    (void)max;
}

static void on_heir_closed(void *user, enum why why)
{
    struct heir *h = user;
    trace_line(&h->heard, "closed %s", why_text(why));
}

static const struct conn_events heir_events = {NULL, on_heir_bytes, on_heir_eof, on_heir_fill,
                                               on_heir_closed};

static void on_given(void *arg, struct conn *conn)
{
    struct heir *h = arg;
    h->conn = conn;
    conn_attach(conn, &heir_events, h);
}

/* Whatever the next owner hears is what came after release(). */
static void a_connection_is_given_away_when_all_has_left(void **state)
{
    (void)state;
    struct scene s;
    struct heir heir = {0};
    trace_init(&heir.heard);
    begin(&s, RAW_SERVER);
    feed(&s, "a");
    fake_room(s.x.c, 3);
    tap_data(side_tap(&s.x), STR("last"));
    fake_settle(s.w);
    tap_data(side_tap(&s.x), STR(" words")); /* not even made yet */
    s.x.s->ops->release(s.x.s, on_given, &heir);
    feed(&s, "b");
    feed_eof(&s);
    assert_null(heir.conn);
    fake_room(s.x.c, SIZE_MAX);
    fake_settle(s.w);
    assert_ptr_equal(heir.conn, s.x.c);
    assert_output(&s, "last words");
    assert_events(&s, ACCEPTED "data a\n");
    assert_string_equal(trace_text(&heir.heard), "b\nend\n");
    side_tap(&s.x)->cancelled = true; /* it heard its last */
    s.x.s = NULL;
    conn_close(heir.conn, WHY_OK);
    fake_settle(s.w);
    done(&s);
    trace_done(&heir.heard);
}

static void what_was_said_in_the_same_turn_leaves_first(void **state)
{
    (void)state;
    struct scene s;
    struct heir heir = {0};
    trace_init(&heir.heard);
    begin(&s, RAW_SERVER);
    feed(&s, "a");
    tap_data(side_tap(&s.x), STR("words"));
    s.x.s->ops->release(s.x.s, on_given, &heir);
    fake_settle(s.w);
    assert_ptr_equal(heir.conn, s.x.c);
    assert_output(&s, "words");
    side_tap(&s.x)->cancelled = true;
    s.x.s = NULL;
    conn_close(heir.conn, WHY_OK);
    fake_settle(s.w);
    done(&s);
    trace_done(&heir.heard);
}

static void who_waits_for_a_connection_that_is_lost_hears_nothing(void **state)
{
    (void)state;
    for (int cancel = 0; cancel < 2; cancel++) {
        struct scene s;
        struct heir heir = {0};
        begin(&s, RAW_SERVER);
        feed(&s, "a");
        fake_room(s.x.c, 0);
        tap_data(side_tap(&s.x), STR("x"));
        fake_settle(s.w);
        s.x.s->ops->release(s.x.s, on_given, &heir);
        if (cancel)
            tap_cancel(side_tap(&s.x), WHY_REVOKED);
        else
            fake_feed_error(s.x.c);
        fake_settle(s.w);
        assert_null(heir.conn);
        assert_null(s.x.s);
        done(&s);
    }
}

static void draining_ends_what_has_not_begun_and_lets_the_rest_live(void **state)
{
    (void)state;
    struct scene s;
    begin(&s, RAW_SERVER);
    s.x.s->ops->drain(s.x.s);
    fake_settle(s.w);
    assert_events(&s, "conn close drain\nsession closed\n");
    done(&s);
    begin(&s, RAW_SERVER);
    feed(&s, "a");
    s.x.s->ops->drain(s.x.s);
    feed(&s, "b");
    assert_events(&s, ACCEPTED "data ab\n");
    done(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_pass_as_they_are_however_they_are_cut),
        cmocka_unit_test(the_stream_begins_before_the_first_byte),
        cmocka_unit_test(a_connection_is_given_away_when_all_has_left),
        cmocka_unit_test(what_was_said_in_the_same_turn_leaves_first),
        cmocka_unit_test(who_waits_for_a_connection_that_is_lost_hears_nothing),
        cmocka_unit_test(a_client_is_opened_once),
        cmocka_unit_test(each_direction_ends_by_itself),
        cmocka_unit_test(the_end_of_both_does_not_cut_what_is_on_its_way),
        cmocka_unit_test(bytes_stop_at_the_window_and_go_on_with_credit),
        cmocka_unit_test(endings_are_told_once),
        cmocka_unit_test(closing_a_session_is_quiet_and_told_later),
        cmocka_unit_test(draining_ends_what_has_not_begun_and_lets_the_rest_live),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
