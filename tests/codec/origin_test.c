/* origin_test.c — the pools by themselves: which connection a request gets, who waits for which,
 * and what becomes of them.  Sessions are made of nothing here: the test says when an origin's
 * SETTINGS come, how many streams it takes and when one is over. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

#include "harness/fake_dial.h"
#include "harness/trace.h"
#include "net/tls.h"
#include "proxy/origin.h"

enum { SESSIONS = 64, ASKS = 64, DIAL_MS = 5000 };

/* ---- sessions of nothing */

struct nothing {
    struct session s;
    struct http_stream streams[ASKS];
    unsigned takes; /* 0: not said yet */
    bool goaway, closed, full;
};

static struct nothing *sessions[SESSIONS]; /* cmocka runs one test after the other */
static unsigned nsessions;

static bool op_open(struct session *s, struct http_stream **ret)
{
    struct nothing *n = (struct nothing *)s;
    assert_true(s->exchanges < ASKS);
    n->full = n->closed || n->goaway || s->running >= n->takes;
    if (n->full)
        return false;
    *ret = &n->streams[s->exchanges++];
    s->running++;
    return true;
}

static void op_drain(struct session *s)
{
    (void)s;
    fail();
}

static void op_close(struct session *s, enum why why)
{
    struct nothing *n = (struct nothing *)s;
    n->closed = true;
    conn_close(s->conn, why);
}

static const struct session_ops session_ops = {op_open, op_drain, op_close, NULL};

static void on_bytes(void *user, struct buf *in)
{
    (void)user;
    buf_clear(in);
}

static void on_eof(void *user)
{
    struct nothing *n = user;
    op_close(&n->s, WHY_ORIGIN_GONE);
}

static void on_fill(void *user, struct buf *out, size_t max)
{
    (void)user;
    (void)out;
    (void)max;
}

static void on_closed(void *user, enum why why)
{
    struct nothing *n = user;
    (void)why;
    n->closed = true;
    n->s.ev->closed(n->s.user, &n->s);
}

static const struct conn_events conn_events = {NULL, on_bytes, on_eof, on_fill, on_closed};

static struct session *begin(struct worker *w, struct conn *conn, const struct http_limits *limits,
                             const struct session_events *ev, void *user, unsigned takes)
{
    struct nothing *n = mem_new(sizeof *n);
    assert_true(nsessions < SESSIONS);
    sessions[nsessions++] = n;
    n->s = (struct session){.ops = &session_ops,
                            .ev = ev,
                            .user = user,
                            .conn = conn,
                            .w = w,
                            .limits = limits,
                            .many = takes == 0};
    n->takes = takes;
    conn_attach(conn, &conn_events, n);
    return &n->s;
}

typedef struct session *start(struct worker *w, struct conn *conn, bool server,
                              const struct http_limits *limits, const struct session_events *ev,
                              void *user);
typedef struct session *start_raw(struct worker *w, struct conn *conn, bool server,
                                  struct str authority, const struct http_limits *limits,
                                  const struct session_events *ev, void *user);
start __wrap_h1_start, __wrap_h2_start;
start_raw __wrap_raw_start;

struct session *__wrap_raw_start(struct worker *w, struct conn *conn, bool server,
                                 struct str authority, const struct http_limits *limits,
                                 const struct session_events *ev, void *user)
{
    assert_false(server);
    assert_int_equal(authority.n, 0);
    struct session *s = begin(w, conn, limits, ev, user, 1);
    s->bytes = true;
    return s;
}

struct session *__wrap_h1_start(struct worker *w, struct conn *conn, bool server,
                                const struct http_limits *limits, const struct session_events *ev,
                                void *user)
{
    assert_false(server);
    return begin(w, conn, limits, ev, user, 1);
}

struct session *__wrap_h2_start(struct worker *w, struct conn *conn, bool server,
                                const struct http_limits *limits, const struct session_events *ev,
                                void *user)
{
    assert_false(server);
    return begin(w, conn, limits, ev, user, 0);
}

/* ---- who asks */

struct ask {
    unsigned number;
    struct origin_dial *dial;
    struct origin_user user;
    struct origin_got got;
    bool picky; /* no connection is good enough */
};

static struct worker *w;
static struct origins *o;
static struct conn *conns[SESSIONS];
static unsigned nconns, nasks;
static struct ask asks[ASKS];
static struct trace told;
static struct tls_ctx *tls[2]; /* of one origin, and of another */

static enum why on_allow(void *user, const struct sockaddr *addr)
{
    struct ask *a = user;
    (void)addr;
    trace_line(&told, "%u allow", a->number);
    return WHY_OK;
}

static enum why on_peer(void *user, const struct conn_info *info)
{
    struct ask *a = user;
    assert_non_null(info->peer);
    return a->picky ? WHY_IDENTITY : WHY_OK;
}

static void on_dialled(void *user, enum why why, int error, uint64_t took_us)
{
    struct ask *a = user;
    (void)took_us;
    trace_line(&told, "%u dialled %s%s", a->number, why_text(why), error ? " errno" : "");
}

/* Which session the stream is of, from 1 on. */
static unsigned session_of(const struct http_stream *s)
{
    for (unsigned i = 0; i < nsessions; i++)
        if (s >= sessions[i]->streams && s < sessions[i]->streams + ASKS)
            return i + 1;
    fail();
    return 0;
}

static void on_done(void *user, const struct origin_got *got, enum why why)
{
    struct ask *a = user;
    const struct origin_dial *dial = a->dial;
    a->dial = NULL;
    if (!got) {
        struct str fault = origin_dial_fault(dial);
        trace_line(&told, "%u failed %s%s%.*s", a->number, why_text(why), fault.n ? ": " : "",
                   STR_ARG(fault));
        origin_leave(o, &a->user);
        return;
    }
    assert_non_null(got->info->peer);
    if (!got->stream) {
        trace_line(&told, "%u prepared %s", a->number, got->h2 ? "h2" : "h1");
        origin_leave(o, &a->user);
        return;
    }
    a->got = *got;
    trace_line(&told, "%u on %u %s", a->number, session_of(got->stream), got->h2 ? "h2" : "h1");
}

static const struct origin_asker asker = {on_peer, on_allow, on_dialled, on_done};

static bool on_ended(struct origin_user *u, bool moved)
{
    struct ask *a = container_of(u, struct ask, user);
    trace_line(&told, "%u %s", a->number, moved ? "moved" : "ended");
    if (moved && a->got.stream)
        return true;
    if (a->dial)
        origin_dial_cancel(a->dial);
    a->dial = NULL;
    return false;
}

static struct ask *new_ask(const struct origin_want *want, bool picky)
{
    struct ask *a = &asks[nasks++];
    *a = (struct ask){.number = nasks, .user.ended = on_ended, .picky = picky};
    origin_join(o, want->pool, &a->user);
    return a;
}

static struct ask *ask_want(const struct origin_want *want, bool picky)
{
    struct ask *a = new_ask(want, picky);
    enum why why = want->anew ? WHY_OK : origin_reuse(o, want, &asker, a, &a->got);
    if (why != WHY_OK)
        trace_line(&told, "%u refused %s", a->number, why_text(why));
    else if (a->got.stream)
        trace_line(&told, "%u again on %u %s", a->number, session_of(a->got.stream),
                   a->got.h2 ? "h2" : "h1");
    else
        a->dial = origin_dial(o, want, DIAL_MS, &asker, a);
    assert_true(why == WHY_OK || !a->got.stream);
    return a;
}

static struct ask *ask_how(const char *pool, const char *host, enum origin_need need, bool anew)
{
    struct origin_want want = {
        .pool = str_of(pool), .to = {.host = str_of(host), .port = 80}, .need = need, .anew = anew};
    return ask_want(&want, false);
}

/* Over TLS, whichever version the origin chooses. */
static struct origin_want want_any(void)
{
    return (struct origin_want){
        .pool = STR("p"),
        .to = {.host = STR("h"), .port = 443, .tls = tls[0], .tls_name = STR("h"), .tls_h2 = true},
        .need = ORIGIN_ANY};
}

static struct ask *ask_any(void)
{
    struct origin_want want = want_any();
    return ask_want(&want, false);
}

static struct ask *prepare(void)
{
    struct origin_want want = want_any();
    struct ask *a = new_ask(&want, false);
    a->dial = origin_prepare(o, &want, DIAL_MS, &asker, a);
    return a;
}

static enum origin_speaks speaks(void)
{
    struct origin_want want = want_any();
    return origin_speaks(o, &want);
}

static struct ask *ask_for(const char *pool, const char *host, enum origin_need need)
{
    return ask_how(pool, host, need, false);
}

static struct ask *ask(enum origin_need need)
{
    return ask_for("p", "h", need);
}

static void cancel(struct ask *a, unsigned given_up)
{
    assert_int_equal(origin_dial_cancel(a->dial), given_up);
    a->dial = NULL;
    origin_leave(o, &a->user);
}

/* ---- what the origins do */

static void settle(void)
{
    fake_settle(w);
}

/* The dial that has waited longest comes up, with this protocol where it asks for TLS. */
static void up_as(const char *alpn)
{
    assert_true(fake_dials(w) > 0);
    conns[nconns] = fake_dial_up_as(fake_dial_first(w), alpn);
    assert_non_null(conns[nconns]);
    nconns++;
    settle();
}

static void up(void)
{
    up_as(NULL);
}

static void refuses(enum why why)
{
    fake_dial_fail(fake_dial_first(w), why, 111);
    settle();
}

static struct nothing *session(unsigned number)
{
    assert_true(number >= 1 && number <= nsessions);
    return sessions[number - 1];
}

static void says_settings(unsigned number, unsigned takes, bool extended)
{
    struct nothing *n = session(number);
    n->takes = takes;
    n->s.extended = extended;
    n->s.ev->idle(n->s.user, &n->s);
    settle();
}

static void is_over(struct ask *a)
{
    struct nothing *n = session(session_of(a->got.stream));
    origin_leave(o, &a->user);
    n->s.running--;
    if (!n->goaway && (n->full || n->s.running == 0))
        n->s.ev->idle(n->s.user, &n->s);
    settle();
}

static void is_lost(unsigned number)
{
    fake_feed_error(session(number)->s.conn);
    settle();
}

static void was_told(const char *text)
{
    assert_string_equal(trace_text(&told), text);
    trace_clear(&told);
}

static const struct http_limits limits = {.max_head_bytes = 8192, .window = 65536};
static const struct origin_rules rules = {
    .limits = &limits, .idle_ms = 50000, .idle_max = 2, .idle_cap = 3};

static int set_up(void **state)
{
    (void)state;
    w = worker_new(0);
    o = origins_new(w, &rules);
    nsessions = nconns = nasks = 0;
    trace_init(&told);
    for (int i = 0; i < 2; i++) {
        struct arena a;
        struct str error;
        arena_init(&a, NULL, 0);
        tls[i] = tls_client_new(&(struct tls_client_rules){.insecure = true}, &a, &error);
        arena_done(&a);
        assert_non_null(tls[i]);
    }
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    for (unsigned i = 0; i < nasks; i++) {
        if (asks[i].dial)
            origin_dial_cancel(asks[i].dial);
        origin_leave(o, &asks[i].user);
    }
    for (unsigned i = 0; i < nsessions; i++)
        if (!session(i + 1)->closed)
            op_close(&session(i + 1)->s, WHY_DRAIN);
    settle();
    assert_int_equal(origin_open(o), 0);
    assert_int_equal(origin_open_h2(o), 0);
    assert_int_equal(origin_idle(o), 0);
    assert_int_equal(fake_dials(w), 0);
    origins_free(o);
    for (unsigned i = 0; i < nconns; i++)
        fake_free(conns[i]);
    for (unsigned i = 0; i < nsessions; i++)
        mem_free(sessions[i]);
    trace_done(&told);
    worker_free(w);
    for (int i = 0; i < 2; i++)
        tls_ctx_unref(tls[i]);
    return 0;
}

/* ---- HTTP/1.1 */

static void http1_dials_for_each_and_takes_the_youngest_that_is_idle(void **state)
{
    (void)state;
    struct ask *a = ask(ORIGIN_H1), *b = ask(ORIGIN_H1);
    assert_int_equal(fake_dials(w), 2);
    up();
    up();
    was_told("1 allow\n1 dialled ok\n1 on 1 h1\n2 allow\n2 dialled ok\n2 on 2 h1\n");
    is_over(b);
    is_over(a);
    assert_int_equal(origin_idle(o), 2);
    ask(ORIGIN_H1);
    ask(ORIGIN_H1);
    was_told("3 again on 1 h1\n4 again on 2 h1\n");
}

static void the_two_versions_are_never_mixed_up(void **state)
{
    (void)state;
    struct ask *a = ask(ORIGIN_H1);
    up();
    is_over(a);
    struct ask *b = ask(ORIGIN_H2);
    assert_int_equal(fake_dials(w), 1);
    up();
    says_settings(2, 100, false);
    is_over(b);
    assert_int_equal(origin_idle(o), 2);
    assert_int_equal(origin_open_h2(o), 1);
    trace_clear(&told);
    ask(ORIGIN_H1);
    ask(ORIGIN_H2);
    ask(ORIGIN_H2);
    was_told("3 again on 1 h1\n4 again on 2 h2\n5 again on 2 h2\n");
    ask(ORIGIN_H1);
    assert_int_equal(fake_dials(w), 1);
}

/* ---- waiting */

static void who_comes_while_one_is_in_the_making_waits_for_it(void **state)
{
    (void)state;
    ask(ORIGIN_H2);
    ask(ORIGIN_H2);
    assert_int_equal(fake_dials(w), 1);
    up();
    ask(ORIGIN_H2); /* connected, and its SETTINGS not there yet */
    assert_int_equal(fake_dials(w), 0);
    was_told("1 allow\n1 dialled ok\n");
    says_settings(1, 100, false);
    was_told("1 on 1 h2\n2 on 1 h2\n3 on 1 h2\n");
    ask(ORIGIN_H2);
    was_told("4 again on 1 h2\n");
    assert_int_equal(origin_open(o), 1);
}

static void pools_and_addresses_have_their_own(void **state)
{
    (void)state;
    ask_for("p", "h", ORIGIN_H2);
    ask_for("q", "h", ORIGIN_H2);
    ask_for("p", "i", ORIGIN_H2);
    assert_int_equal(fake_dials(w), 3);
    up();
    says_settings(1, 100, false);
    ask_for("p", "i", ORIGIN_H2);
    ask_for("q", "h", ORIGIN_H2);
    was_told("1 allow\n1 dialled ok\n1 on 1 h2\n");
    assert_int_equal(fake_dials(w), 2);
}

static void as_many_are_dialled_as_it_takes(void **state)
{
    (void)state;
    static const struct {
        unsigned takes, asks, further;
    } table[] = {{1, 4, 3}, {2, 5, 2}, {2, 6, 2}, {3, 7, 2}, {4, 4, 0}, {100, 20, 0}};
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        set_up(NULL);
        for (unsigned k = 0; k < table[i].asks; k++)
            ask(ORIGIN_H2);
        assert_int_equal(fake_dials(w), 1);
        up();
        says_settings(1, table[i].takes, false);
        assert_int_equal(fake_dials(w), table[i].further);
        for (unsigned k = 0; k < table[i].further; k++) {
            up();
            says_settings(k + 2, table[i].takes, false);
        }
        for (unsigned k = 0; k < nasks; k++)
            assert_non_null(asks[k].got.stream);
        assert_int_equal(fake_dials(w), 0);
        tear_down(NULL);
    }
}

static void who_waits_takes_a_stream_that_gets_free(void **state)
{
    (void)state;
    struct ask *a = ask(ORIGIN_H2), *b = ask(ORIGIN_H2), *c = ask(ORIGIN_H2);
    up();
    says_settings(1, 1, false);
    assert_int_equal(fake_dials(w), 2);
    up(); /* of the two further ones one is up and silent */
    trace_clear(&told);
    is_over(a);
    was_told("2 on 1 h2\n");
    is_over(b);
    was_told("3 on 1 h2\n");
    assert_int_equal(fake_dials(w), 0); /* nobody waits for the others any more */
    assert_true(session(2)->closed);
    is_over(c);
    assert_int_equal(origin_idle(o), 1);
    assert_int_equal(origin_open(o), 1);
}

static void a_second_try_takes_no_stream_of_an_old_connection(void **state)
{
    (void)state;
    struct ask *a = ask(ORIGIN_H2);
    up();
    says_settings(1, 1, false);
    ask_how("p", "h", ORIGIN_H2, true);
    ask(ORIGIN_H2);
    trace_clear(&told);
    is_over(a);
    was_told("3 on 1 h2\n");
    assert_int_equal(fake_dials(w), 1);
    up();
    says_settings(2, 1, false);
    was_told("2 allow\n2 dialled ok\n2 on 2 h2\n");
}

static void an_origin_that_does_not_speak_it_fails_all_who_wait(void **state)
{
    (void)state;
    ask(ORIGIN_H2);
    ask(ORIGIN_H2);
    up();
    trace_clear(&told);
    is_lost(1);
    was_told("1 failed origin-protocol\n2 failed origin-protocol\n");
    assert_int_equal(fake_dials(w), 0);
    assert_int_equal(origin_open(o), 0);
}

static void a_connect_that_fails_is_told_once_and_fails_all(void **state)
{
    (void)state;
    ask(ORIGIN_H2);
    ask(ORIGIN_H2);
    refuses(WHY_DIAL);
    was_told("1 dialled dial errno\n1 failed dial\n2 failed dial\n");
    assert_int_equal(fake_dials(w), 0);
}

static void one_of_several_that_fails_leaves_them_the_others(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 3; i++)
        ask(ORIGIN_H2);
    up();
    says_settings(1, 1, false);
    trace_clear(&told);
    refuses(WHY_DIAL);
    was_told("2 dialled dial errno\n");
    up();
    says_settings(2, 1, false);
    was_told("2 allow\n2 dialled ok\n2 on 2 h2\n");
    assert_int_equal(fake_dials(w), 1); /* for the third */
    refuses(WHY_DIAL);
    was_told("3 dialled dial errno\n3 failed dial\n");
}

static void no_settings_before_the_deadline_is_one(void **state)
{
    (void)state;
    ask(ORIGIN_H2);
    fake_time(w, 2000);
    ask(ORIGIN_H2);
    fake_time(w, 1000);
    up();
    trace_clear(&told);
    fake_time(w, 1900);
    was_told("");
    fake_time(w, 200);
    was_told("1 failed deadline\n");
    assert_true(session(1)->closed);
    assert_int_equal(fake_dials(w), 1); /* the second has not waited as long */
    up();
    fake_time(w, 1700);
    trace_clear(&told);
    fake_time(w, 400);
    was_told("2 failed deadline\n");
    assert_int_equal(origin_open(o), 0);
}

static void an_origin_that_takes_no_stream_is_waited_for_until_the_deadline(void **state)
{
    (void)state;
    ask(ORIGIN_H2);
    up();
    session(1)->s.ev->idle(session(1)->s.user, &session(1)->s); /* and yet it takes none */
    settle();
    trace_clear(&told);
    fake_time(w, DIAL_MS + 100);
    assert_non_null(strstr(trace_text(&told), "1 failed deadline\n"));
    assert_int_equal(fake_dials(w), 0);
}

static void who_leaves_leaves_the_dial_to_the_others(void **state)
{
    (void)state;
    struct ask *a = ask(ORIGIN_H2), *b = ask(ORIGIN_H2), *c = ask(ORIGIN_H2);
    cancel(a, 0);
    assert_int_equal(fake_dials(w), 1);
    up();
    was_told("2 allow\n2 dialled ok\n");
    cancel(b, 0);
    assert_false(session(1)->closed);
    cancel(c, 0); /* connected: no connect was given up */
    assert_true(session(1)->closed);
    struct ask *d = ask(ORIGIN_H2);
    cancel(d, 1);
    struct ask *e = ask(ORIGIN_H1);
    cancel(e, 1);
    assert_int_equal(fake_dials(w), 0);
    settle();
    assert_int_equal(origin_open(o), 0);
    was_told("");
}

static void who_is_sent_away_by_goaway_dials(void **state)
{
    (void)state;
    struct ask *a = ask(ORIGIN_H2);
    up();
    says_settings(1, 100, false);
    session(1)->goaway = true;
    trace_clear(&told);
    ask(ORIGIN_H2);
    ask(ORIGIN_H2);
    assert_int_equal(fake_dials(w), 1);
    up();
    says_settings(2, 100, false);
    was_told("2 allow\n2 dialled ok\n2 on 2 h2\n3 on 2 h2\n");
    is_over(a);
    is_lost(1);
    ask(ORIGIN_H2);
    was_told("4 again on 2 h2\n");
}

/* ---- upgrades */

static void an_upgrade_takes_extended_connect_where_it_is_there(void **state)
{
    (void)state;
    struct ask *a = ask(ORIGIN_H2);
    up();
    says_settings(1, 100, true);
    trace_clear(&told);
    ask(ORIGIN_TUNNEL);
    ask(ORIGIN_H2_TUNNEL);
    was_told("2 again on 1 h2\n3 again on 1 h2\n");
    ask(ORIGIN_FRESH);
    assert_int_equal(fake_dials(w), 1);
    up();
    was_told("4 allow\n4 dialled ok\n4 on 2 h1\n");
    is_over(a);
}

static void an_upgrade_goes_in_http1_elsewhere(void **state)
{
    (void)state;
    ask(ORIGIN_TUNNEL);
    up();
    was_told("1 allow\n1 dialled ok\n1 on 1 h1\n");
    ask(ORIGIN_H2);
    up();
    says_settings(2, 100, false);
    trace_clear(&told);
    ask(ORIGIN_TUNNEL);
    up();
    ask(ORIGIN_H2_TUNNEL); /* what the origin takes is known */
    up();
    was_told("3 allow\n3 dialled ok\n3 on 3 h1\n4 allow\n4 dialled ok\n4 on 4 h1\n");
}

static void an_upgrade_never_takes_an_idle_http1_connection(void **state)
{
    (void)state;
    static const enum origin_need needs[] = {ORIGIN_FRESH, ORIGIN_TUNNEL, ORIGIN_H2_TUNNEL};
    struct ask *a = ask(ORIGIN_H1);
    up();
    is_over(a);
    for (size_t i = 0; i < sizeof needs / sizeof *needs; i++) {
        struct ask *b = ask(needs[i]);
        assert_int_equal(fake_dials(w), 1);
        cancel(b, 1);
    }
}

static void an_upgrade_over_http2_waits_to_hear_whether_it_can(void **state)
{
    (void)state;
    for (int extended = 0; extended < 2; extended++) {
        set_up(NULL);
        ask(ORIGIN_H2_TUNNEL);
        ask(ORIGIN_H2);
        assert_int_equal(fake_dials(w), 1);
        up();
        trace_clear(&told);
        says_settings(1, 100, extended);
        if (extended) {
            was_told("1 on 1 h2\n2 on 1 h2\n");
        } else {
            was_told("2 on 1 h2\n");
            up();
            was_told("1 allow\n1 dialled ok\n1 on 2 h1\n");
        }
        tear_down(NULL);
    }
}

static void an_upgrade_that_fell_back_keeps_its_deadline(void **state)
{
    (void)state;
    ask(ORIGIN_H2_TUNNEL);
    up();
    fake_time(w, 3000);
    says_settings(1, 100, false);
    assert_int_equal(fake_dials(w), 1);
    assert_int_equal(origin_idle(o), 1); /* the other one waits for requests */
    trace_clear(&told);
    fake_time(w, 1900);
    was_told("");
    fake_time(w, 200);
    was_told("1 dialled deadline errno\n1 failed deadline\n");
}

/* ---- limits and ends */

static void idle_ones_of_both_versions_count_and_end(void **state)
{
    (void)state;
    struct ask *a[4];
    for (int i = 0; i < 4; i++) {
        a[i] = ask_for(i < 3 ? "p" : "q", i == 1 ? "i" : "h", i == 0 ? ORIGIN_H1 : ORIGIN_H2);
        up();
        if (i > 0)
            says_settings((unsigned)i + 1, 10, false);
    }
    for (int i = 0; i < 3; i++)
        is_over(a[i]);
    assert_int_equal(origin_idle(o), 2); /* per pool: the oldest went */
    assert_true(session(1)->closed && !session(2)->closed);
    fake_time(w, 1000);
    is_over(a[3]);
    assert_int_equal(origin_idle(o), 3);
    struct ask *b = ask_for("r", "h", ORIGIN_H2);
    up();
    says_settings(5, 10, false);
    is_over(b);
    assert_int_equal(origin_idle(o), 3); /* over all: the oldest again */
    assert_true(session(2)->closed && !session(3)->closed);
    fake_time(w, 49500);
    assert_int_equal(origin_idle(o), 2);
    fake_time(w, 1000);
    assert_int_equal(origin_open(o), 0);
}

static void an_idle_connection_does_not_live_longer_for_saying_that_it_has_room(void **state)
{
    (void)state;
    struct ask *a = ask(ORIGIN_H2);
    up();
    says_settings(1, 1, false);
    is_over(a);
    fake_time(w, 30000);
    says_settings(1, 2, false);
    fake_time(w, 20100);
    assert_true(session(1)->closed);
}

static void a_pool_that_is_over_ends_all_of_them(void **state)
{
    (void)state;
    struct ask *a = ask(ORIGIN_H1), *b = ask(ORIGIN_H2), *c = ask_for("p", "i", ORIGIN_H2);
    up();
    up();
    up();
    says_settings(2, 1, false);
    says_settings(3, 10, false); /* has room for more */
    is_over(a);
    ask(ORIGIN_H2); /* waits, and dials */
    ask(ORIGIN_H1);
    ask(ORIGIN_H1);
    struct ask *other = ask_for("q", "h", ORIGIN_H2);
    trace_clear(&told);
    assert_int_equal(fake_dials(w), 3);
    origin_purge(o, STR("p"));
    assert_true(session(1)->closed && session(2)->closed && session(3)->closed);
    was_told("2 ended\n3 ended\n4 ended\n5 ended\n6 ended\n");
    assert_int_equal(fake_dials(w), 1);
    ask(ORIGIN_H2); /* a pool of his own */
    assert_int_equal(fake_dials(w), 2);
    settle();
    assert_int_equal(origin_open(o), 2);
    assert_non_null(other->dial);
    (void)b;
    (void)c;
}

static void a_pool_that_moves_keeps_what_runs_and_nothing_else(void **state)
{
    (void)state;
    struct ask *a = ask(ORIGIN_H1), *b = ask(ORIGIN_H2), *c = ask_for("p", "i", ORIGIN_H1);
    up();
    up();
    up();
    says_settings(2, 10, false);
    is_over(c);
    ask_for("p", "k", ORIGIN_H1); /* dials */
    trace_clear(&told);
    origin_move(o, STR("p"), STR("q"));
    was_told("1 moved\n2 moved\n4 moved\n");
    assert_int_equal(fake_dials(w), 0);
    assert_true(!session(1)->closed && !session(2)->closed && session(3)->closed);
    ask(ORIGIN_H2); /* has room there, and takes one of its own */
    assert_int_equal(fake_dials(w), 1);
    says_settings(2, 20, false); /* room, but no end */
    assert_false(session(2)->closed);
    is_over(a);
    assert_true(session(1)->closed);
    trace_clear(&told);
    origin_move(o, STR("q"), STR("r"));
    origin_purge(o, STR("q"));
    was_told("2 moved\n");
    origin_purge(o, STR("r"));
    was_told("2 ended\n");
    (void)b;
}

static void out_of_descriptors_idle_ones_give_way_once(void **state)
{
    (void)state;
    for (int h2 = 0; h2 < 2; h2++) {
        set_up(NULL);
        struct ask *a = ask_for("q", "h", ORIGIN_H1);
        up();
        is_over(a);
        trace_clear(&told);
        ask(h2 ? ORIGIN_H2 : ORIGIN_H1);
        refuses(WHY_OVERLOAD);
        assert_true(session(1)->closed);
        was_told("");
        refuses(WHY_OVERLOAD);
        was_told("2 dialled overload errno\n2 failed overload\n");
        ask(h2 ? ORIGIN_H2 : ORIGIN_H1);
        refuses(WHY_OVERLOAD); /* nothing to give way */
        was_told("3 dialled overload errno\n3 failed overload\n");
        tear_down(NULL);
    }
}

static void after_a_drain_nothing_is_kept(void **state)
{
    (void)state;
    struct ask *a = ask(ORIGIN_H1), *b = ask(ORIGIN_H2), *c = ask(ORIGIN_H1);
    up();
    up();
    says_settings(2, 10, false);
    up();
    is_over(a);
    origin_drain(o);
    assert_true(session(1)->closed);
    is_over(b);
    is_over(c);
    assert_int_equal(origin_open(o), 0);
}

static void count_pools(void *arg, struct str pool, unsigned idle, unsigned users)
{
    unsigned *n = arg;
    assert_true(pool.n > 0);
    n[0]++;
    n[1] += idle;
    n[2] += users;
}

static void pools_can_be_seen_and_go_with_their_last_use(void **state)
{
    (void)state;
    unsigned n[3] = {0}, none[3] = {0};
    struct ask *a = ask(ORIGIN_H2), *b = ask_for("q", "h", ORIGIN_H2);
    origin_each(o, count_pools, n);
    assert_true(n[0] == 2 && n[1] == 0 && n[2] == 2);
    cancel(a, 1);
    cancel(b, 1);
    settle();
    origin_each(o, count_pools, none);
    assert_int_equal(none[0], 0);
}

/* ---- bytes; another era */

static void bytes_get_a_connection_that_nobody_else_has(void **state)
{
    (void)state;
    struct ask *a = ask(ORIGIN_H1);
    up();
    is_over(a);
    assert_int_equal(origin_idle(o), 1);
    was_told("1 allow\n1 dialled ok\n1 on 1 h1\n");
    struct ask *b = ask(ORIGIN_RAW);
    up();
    was_told("2 allow\n2 dialled ok\n2 on 2 h1\n");
    assert_true(session(2)->s.bytes && !session(1)->s.bytes);
    ask(ORIGIN_RAW);
    assert_int_equal(fake_dials(w), 1);
    session(2)->s.running--;
    is_lost(2);
    origin_leave(o, &b->user);
    assert_int_equal(origin_idle(o), 1);
    ask(ORIGIN_H1);
    was_told("4 again on 1 h1\n");
}

static void what_is_of_another_era_is_not_shared(void **state)
{
    (void)state;
    struct ask *a = ask(ORIGIN_H1), *b = ask(ORIGIN_H1), *c = ask(ORIGIN_H2);
    up();
    up();
    up();
    says_settings(3, 10, true);
    was_told("1 allow\n1 dialled ok\n1 on 1 h1\n2 allow\n2 dialled ok\n2 on 2 h1\n"
             "3 allow\n3 dialled ok\n3 on 3 h2\n");
    is_over(a);
    origin_renew(o);
    settle();
    assert_true(session(1)->closed);
    assert_false(session(2)->closed || session(3)->closed); /* what runs goes on */
    ask(ORIGIN_H1);
    ask(ORIGIN_H2);
    assert_int_equal(fake_dials(w), 2);
    is_over(b);
    is_over(c);
    assert_true(session(2)->closed && session(3)->closed);
    up();
    was_told("4 allow\n4 dialled ok\n4 on 4 h1\n");
}

/* ---- the origin chooses */

static void the_first_connection_tells_what_the_origin_speaks(void **state)
{
    (void)state;
    struct ask *a = ask_any();
    ask_any();
    assert_int_equal(fake_dials(w), 1); /* who comes meanwhile waits to hear */
    assert_true(fake_dial_offers(fake_dial_first(w), "h2"));
    assert_int_equal(speaks(), ORIGIN_SPEAKS_UNKNOWN);
    up_as("h2");
    was_told("1 allow\n1 dialled ok\n");
    says_settings(1, 100, false);
    was_told("1 on 1 h2\n2 on 1 h2\n");
    assert_int_equal(speaks(), ORIGIN_SPEAKS_H2);
    assert_int_equal(origin_open_h2(o), 1);
    ask_any();
    was_told("3 again on 1 h2\n");
    is_over(a);
}

static void who_waits_for_an_origin_of_http1_gets_one_each(void **state)
{
    (void)state;
    static const char *const alpns[] = {"http/1.1", NULL};
    for (int i = 0; i < 2; i++) {
        set_up(NULL);
        struct ask *a = ask_any();
        ask_any();
        ask_any();
        assert_int_equal(fake_dials(w), 1);
        up_as(alpns[i]);
        was_told("1 allow\n1 dialled ok\n1 on 1 h1\n");
        assert_int_equal(fake_dials(w), 2);
        assert_int_equal(speaks(), ORIGIN_SPEAKS_H1);
        ask_any(); /* it is known by now: nobody waits for another's */
        assert_int_equal(fake_dials(w), 3);
        up_as(alpns[i]);
        was_told("2 allow\n2 dialled ok\n2 on 2 h1\n");
        is_over(a); /* whatever has room first */
        was_told("3 on 1 h1\n");
        up_as(alpns[i]);
        was_told("4 allow\n4 dialled ok\n4 on 3 h1\n");
        assert_int_equal(fake_dials(w), 0);
        is_over(asks + 2);
        assert_int_equal(origin_idle(o), 1);
        ask_any();
        was_told("5 again on 1 h1\n");
        ask_any();
        assert_int_equal(fake_dials(w), 1); /* a line of its own, as it is known to be */
        ask_any();
        assert_int_equal(fake_dials(w), 2);
        assert_int_equal(origin_open_h2(o), 0);
        tear_down(NULL);
    }
}

static void an_origin_may_choose_anew_each_time(void **state)
{
    (void)state;
    ask_any();
    ask_any();
    up_as("http/1.1");
    up_as("h2");
    says_settings(2, 100, false);
    was_told("1 allow\n1 dialled ok\n1 on 1 h1\n2 allow\n2 dialled ok\n2 on 2 h2\n");
    is_over(asks);
    is_over(asks + 1);
    assert_int_equal(origin_idle(o), 2);
    assert_int_equal(origin_open_h2(o), 1);
    ask_any();
    ask_any();
    was_told("3 again on 2 h2\n4 again on 2 h2\n");
}

/* What is kept was proved under a name, by somebody's roots. */
static void a_kept_connection_is_for_those_who_ask_for_the_same_proof(void **state)
{
    (void)state;
    struct origin_want want = want_any();
    ask_any();
    up_as("h2");
    says_settings(1, 100, false);
    trace_clear(&told);
    want.to.tls_name = STR("other");
    ask_want(&want, false);
    want = want_any();
    want.to.tls = tls[1];
    ask_want(&want, false);
    want = want_any();
    want.to.tls = NULL;
    want.to.tls_name = STR("");
    want.need = ORIGIN_H2;
    ask_want(&want, false);
    want = want_any();
    want.pool = STR("q");
    ask_want(&want, false);
    assert_int_equal(fake_dials(w), 4);
    ask_any();
    was_told("6 again on 1 h2\n");
}

static void a_retry_over_tls_takes_a_new_one(void **state)
{
    (void)state;
    struct origin_want want = want_any();
    struct ask *a = ask_any();
    up_as("http/1.1");
    want.anew = true;
    ask_want(&want, false);
    trace_clear(&told);
    is_over(a);
    was_told("");
    assert_int_equal(origin_idle(o), 1);
    up_as("http/1.1");
    was_told("2 allow\n2 dialled ok\n2 on 2 h1\n");
}

static void what_the_other_side_said_is_told(void **state)
{
    (void)state;
    ask_any();
    ask_any();
    fake_dial_says(fake_dial_first(w), "certificate has expired");
    fake_dial_fail(fake_dial_first(w), WHY_TLS, 0);
    settle();
    was_told("1 dialled tls\n1 failed tls: certificate has expired\n"
             "2 failed tls: certificate has expired\n");
    struct origin_want want = want_any();
    want.need = ORIGIN_FRESH;
    want.to.tls_h2 = false;
    ask_want(&want, false);
    assert_false(fake_dial_offers(fake_dial_first(w), "h2"));
    fake_dial_says(fake_dial_first(w), "certificate is not valid yet");
    fake_dial_fail(fake_dial_first(w), WHY_TLS, 0);
    was_told("3 dialled tls\n3 failed tls: certificate is not valid yet\n");
}

/* ---- preparing */

static void a_prepared_connection_is_an_idle_one(void **state)
{
    (void)state;
    static const struct {
        const char *alpn, *told, *again;
    } table[] = {
        {"h2", "1 prepared h2\n", "2 again on 1 h2\n"},
        {"http/1.1", "1 allow\n1 dialled ok\n1 prepared h1\n", "2 again on 1 h1\n"},
    };
    for (int i = 0; i < 2; i++) {
        set_up(NULL);
        prepare();
        up_as(table[i].alpn);
        if (i == 0) {
            was_told("1 allow\n1 dialled ok\n");
            says_settings(1, 100, false);
        }
        was_told(table[i].told);
        assert_int_equal(origin_idle(o), 1);
        assert_int_equal(speaks(), i == 0 ? ORIGIN_SPEAKS_H2 : ORIGIN_SPEAKS_H1);
        ask_any();
        was_told(table[i].again);
        assert_int_equal(origin_idle(o), 0);
        tear_down(NULL);
    }
}

static void who_prepares_and_who_asks_share_a_connection(void **state)
{
    (void)state;
    ask_any();
    prepare();
    prepare();
    assert_int_equal(fake_dials(w), 1);
    up_as("http/1.1");
    was_told("3 allow\n3 dialled ok\n3 prepared h1\n2 prepared h1\n1 on 1 h1\n");
    assert_int_equal(fake_dials(w), 0);
}

static void a_prepared_one_that_nobody_wants_ends_as_any(void **state)
{
    (void)state;
    prepare();
    up_as("http/1.1");
    fake_time(w, rules.idle_ms + 2000);
    assert_true(session(1)->closed);
    assert_int_equal(speaks(), ORIGIN_SPEAKS_UNKNOWN);
    cancel(prepare(), 1);
    assert_int_equal(fake_dials(w), 0);
    prepare();
    refuses(WHY_DIAL);
    prepare();
    fake_time(w, DIAL_MS + 2000);
    trace_clear(&told);
    assert_int_equal(fake_dials(w), 0);
    assert_int_equal(origin_open(o), 0);
}

static void a_pool_that_is_over_tells_who_prepares_in_it(void **state)
{
    (void)state;
    struct origin_want want = want_any();
    struct ask *a = new_ask(&want, false);
    origin_leave(o, &a->user); /* no user of the pool */
    a->dial = origin_prepare(o, &want, DIAL_MS, &asker, a);
    up_as("h2");
    origin_purge(o, STR("p"));
    settle();
    says_settings(1, 100, false);
    was_told("1 allow\n1 dialled ok\n1 failed revoked\n");
    assert_true(session(1)->closed);
}

/* ---- who may use it */

static void a_connection_that_may_not_be_used_stays_for_others(void **state)
{
    (void)state;
    static const char *const alpns[] = {"h2", "http/1.1"};
    for (int i = 0; i < 2; i++) {
        set_up(NULL);
        struct origin_want want = want_any();
        ask_want(&want, true);
        ask_any();
        up_as(alpns[i]);
        if (i == 0)
            says_settings(1, 100, false);
        assert_non_null(strstr(trace_text(&told), "1 failed identity\n2 on 1 h"));
        is_over(asks + 1);
        assert_int_equal(origin_idle(o), 1);
        trace_clear(&told);
        ask_want(&want, true);
        was_told("3 refused identity\n");
        assert_int_equal(origin_idle(o), 1);
        assert_int_equal(fake_dials(w), 0);
        tear_down(NULL);
    }
}

static void one_made_for_it_alone_is_kept_where_it_can_be(void **state)
{
    (void)state;
    static const struct {
        enum origin_need need;
        unsigned idle;
    } table[] = {{ORIGIN_H1, 1}, {ORIGIN_FRESH, 0}, {ORIGIN_RAW, 0}};
    for (int i = 0; i < 3; i++) {
        set_up(NULL);
        struct origin_want want = {
            .pool = STR("p"), .to = {.host = STR("h"), .port = 80}, .need = table[i].need};
        ask_want(&want, true);
        up();
        was_told("1 allow\n1 dialled ok\n1 failed identity\n");
        assert_int_equal(origin_idle(o), table[i].idle);
        assert_int_equal(origin_open(o), table[i].idle);
        tear_down(NULL);
    }
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(http1_dials_for_each_and_takes_the_youngest_that_is_idle),
        TEST(the_two_versions_are_never_mixed_up),
        TEST(who_comes_while_one_is_in_the_making_waits_for_it),
        TEST(pools_and_addresses_have_their_own),
        cmocka_unit_test(as_many_are_dialled_as_it_takes),
        TEST(who_waits_takes_a_stream_that_gets_free),
        TEST(a_second_try_takes_no_stream_of_an_old_connection),
        TEST(an_origin_that_does_not_speak_it_fails_all_who_wait),
        TEST(a_connect_that_fails_is_told_once_and_fails_all),
        TEST(one_of_several_that_fails_leaves_them_the_others),
        TEST(no_settings_before_the_deadline_is_one),
        TEST(an_origin_that_takes_no_stream_is_waited_for_until_the_deadline),
        TEST(who_leaves_leaves_the_dial_to_the_others),
        TEST(bytes_get_a_connection_that_nobody_else_has),
        TEST(what_is_of_another_era_is_not_shared),
        TEST(who_is_sent_away_by_goaway_dials),
        TEST(an_upgrade_takes_extended_connect_where_it_is_there),
        TEST(an_upgrade_goes_in_http1_elsewhere),
        TEST(an_upgrade_never_takes_an_idle_http1_connection),
        cmocka_unit_test(an_upgrade_over_http2_waits_to_hear_whether_it_can),
        TEST(an_upgrade_that_fell_back_keeps_its_deadline),
        TEST(idle_ones_of_both_versions_count_and_end),
        TEST(an_idle_connection_does_not_live_longer_for_saying_that_it_has_room),
        TEST(a_pool_that_is_over_ends_all_of_them),
        TEST(a_pool_that_moves_keeps_what_runs_and_nothing_else),
        cmocka_unit_test(out_of_descriptors_idle_ones_give_way_once),
        TEST(after_a_drain_nothing_is_kept),
        TEST(pools_can_be_seen_and_go_with_their_last_use),
        TEST(the_first_connection_tells_what_the_origin_speaks),
        cmocka_unit_test(who_waits_for_an_origin_of_http1_gets_one_each),
        TEST(an_origin_may_choose_anew_each_time),
        TEST(a_kept_connection_is_for_those_who_ask_for_the_same_proof),
        TEST(a_retry_over_tls_takes_a_new_one),
        TEST(what_the_other_side_said_is_told),
        cmocka_unit_test(a_prepared_connection_is_an_idle_one),
        TEST(who_prepares_and_who_asks_share_a_connection),
        TEST(a_prepared_one_that_nobody_wants_ends_as_any),
        TEST(a_pool_that_is_over_tells_who_prepares_in_it),
        cmocka_unit_test(a_connection_that_may_not_be_used_stays_for_others),
        cmocka_unit_test(one_made_for_it_alone_is_kept_where_it_can_be),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
