/* filter_test.c — what the gate does to an answer on its way down: heads of any status, bodies
 * through a filter, trailers, and answers that it does not want; for every pair of versions.  The
 * filter here makes of each byte several, keeps a tail back, counts its lives, and can fail. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <cmocka.h>

#include "harness/peer.h"

enum { PEERS = 16, STREAMS = 100, WINDOW = 65536, BIG = 400000 };

static struct rig rig; /* cmocka runs one test after the other */
static struct peer peers[PEERS];
static struct peer *all[PEERS];
static unsigned npeers;
static enum version client_is, origin_is; /* the pair that runs */

/* ---- the filter */

static struct {
    unsigned made, freed, pushes;
    unsigned times; /* each byte becomes so many */
    size_t keeps;   /* so many bytes of the end are held back */
    char bad;       /* cannot be read, 0: all can */
    enum why why;   /* with this */
    bool stuck;     /* takes nothing, makes nothing */
    size_t most_in; /* the most it was ever offered, and was made at once over the room */
    size_t most_over;
} how;

struct copier {
    struct filter f;
    char kept[64];
    size_t nkept;
    unsigned left; /* copies of `next` still to be made */
    char next;
};

static void make_copies(struct copier *m, struct buf *out, size_t room)
{
    for (; m->left > 0 && out->len < room; m->left--)
        buf_write(out, &m->next, 1);
}

/* The byte that stands first in the tail is to be made. */
static void shift(struct copier *m)
{
    m->next = m->kept[0];
    m->left = how.times;
    memmove(m->kept, m->kept + 1, --m->nkept);
}

static enum why push(struct filter *f, struct buf *in, bool end, size_t room, struct buf *out,
                     bool *ret_done)
{
    struct copier *m = container_of(f, struct copier, f);
    how.pushes++;
    how.most_in = in->len > how.most_in ? in->len : how.most_in;
    assert_true(room > 0 && room <= WINDOW);
    while (!how.stuck) {
        make_copies(m, out, room);
        if (out->len >= room)
            break;
        if (m->nkept > how.keeps || (in->len == 0 && end && m->nkept > 0)) {
            shift(m);
            continue;
        }
        if (in->len == 0) {
            *ret_done = end;
            break;
        }
        buf_peek(in, &m->kept[m->nkept++], 1);
        buf_drop(in, 1);
        if (how.bad && m->kept[m->nkept - 1] == how.bad)
            return how.why;
    }
    return WHY_OK;
}

static void free_copier(struct filter *f)
{
    how.freed++;
    mem_free(container_of(f, struct copier, f));
}

static const struct filter_ops ops = {push, free_copier};

static struct filter *make(struct rig *r, const struct http_head *head)
{
    struct copier *m = mem_new(sizeof *m);
    (void)r;
    (void)head;
    m->f.ops = &ops;
    how.made++;
    return &m->f;
}

/* ---- the stage */

static void begin(void)
{
    struct proxy_rules rules = rig_rules;
    struct http_limits *both[] = {&rules.client, &rules.origin};
    for (int i = 0; i < 2; i++) {
        both[i]->max_streams = STREAMS;
        both[i]->max_resets = 200;
        both[i]->max_control = 1000;
    }
    rig_init(&rig, &rules);
    npeers = 0;
    memset(&how, 0, sizeof how);
    how.times = 1;
    rig.filter = make;
}

static void finish(void)
{
    for (unsigned i = 0; i < npeers; i++)
        peer_done(&peers[i]);
    rig_done(&rig);
    assert_int_equal(how.made, how.freed);
}

static void settle(void)
{
    peer_pump(all, npeers);
    fake_settle(rig.w);
    rig_check(&rig);
}

static struct peer *new_peer(void)
{
    assert_true(npeers < PEERS);
    all[npeers] = &peers[npeers];
    return &peers[npeers++];
}

static struct peer *client(void)
{
    struct peer *p = new_peer();
    peer_client(p, &rig, client_is);
    settle();
    return p;
}

static struct call *asks(struct peer *p, const char *method)
{
    struct call *c = peer_ask(p, method, origin_is == H2 ? "/a2/x" : "/a/x", "", true);
    assert_non_null(c);
    settle();
    return c;
}

/* Its one call, so far. */
static struct call *origin(void)
{
    struct peer *p = new_peer();
    assert_true(fake_dials(rig.w) > 0);
    peer_origin(p, &rig, origin_is, STREAMS);
    settle();
    assert_int_equal(p->ncalls, 1);
    return &p->calls[0];
}

static void says(struct call *c, const char *bytes)
{
    tap_data(&c->tap, str_of(bytes));
    settle();
}

static void ends(struct call *c, const struct http_head *trailers)
{
    tap_end(&c->tap, trailers);
    settle();
}

static void answers(struct call *c, int status, const char *body, bool end)
{
    call_answer(c, status, body, end);
    settle();
}

static void has(struct call *c, const char *text)
{
    if (!call_has(c, text))
        print_error("h%d to h%d: no <%s> in\n%s", client_is + 1, origin_is + 1, text, call_text(c));
    assert_true(call_has(c, text));
}

static void has_not(struct call *c, const char *text)
{
    if (call_has(c, text))
        print_error("h%d to h%d: <%s> in\n%s", client_is + 1, origin_is + 1, text, call_text(c));
    assert_false(call_has(c, text));
}

static bool logged(const char *text)
{
    bool found = strstr(trace_text(&rig.lines), text) != NULL;
    if (!found)
        print_error("no <%s> in\n%s", text, trace_text(&rig.lines));
    return found;
}

/* The proxy wants no more of this answer. */
static bool is_rid(struct call *a)
{
    return origin_is == H2 ? call_has(a, "closed ") : fake_end(a->peer->far) != FAKE_UP;
}

/* All that came from either side was credited, all that was given to either has left. */
static void nothing_is_owed(void)
{
    const struct meter *m = meter();
    for (int i = 0; i < 2; i++) {
        assert_int_equal(m->received[i], m->credited[i]);
        assert_int_equal(m->given[i], m->sent[i]);
    }
    assert_int_equal(rig_running(&rig), 0);
    assert_int_equal(how.made, how.freed);
}

static void for_each_pair(void (*run)(void))
{
    for (client_is = H1; client_is <= H2; client_is++)
        for (origin_is = H1; origin_is <= H2; origin_is++) {
            begin();
            run();
            finish();
        }
}

#define EACH_PAIR(name)            \
    static void in_##name(void);   \
    static void name(void **state) \
    {                              \
        (void)state;               \
        for_each_pair(in_##name);  \
    }                              \
    static void in_##name(void)

static char *letters(size_t n)
{
    char *p = mem_new(n + 1);
    memset(p, 'x', n);
    return p;
}

static const struct http_head ok = {.status = 200, .length = -1};

/* ---- bodies */

EACH_PAIR(a_body_passes_its_filter)
{
    how.times = 2;
    struct call *q = asks(client(), "GET"), *a = origin();
    answers(a, 200, "abc", true);
    has(q, "200 {x-gate: 1}\ndata aabbcc\nend\nclosed ok\n");
    nothing_is_owed();
}

EACH_PAIR(what_it_has_made_goes_down_at_once)
{
    how.keeps = 3;
    struct call *q = asks(client(), "GET"), *a = origin();
    call_answer_head(a, &ok, false);
    says(a, "abcdef");
    has(q, "data abc\n");
    says(a, "ghi");
    has(q, "data def\n");
    has_not(q, "end");
    ends(a, NULL);
    has(q, "data ghi\nend\nclosed ok\n");
    nothing_is_owed();
}

EACH_PAIR(an_end_without_bytes_is_an_end)
{
    struct call *q = asks(client(), "GET"), *a = origin();
    call_answer_head(a, &ok, false);
    settle();
    has(q, "200");
    ends(a, NULL);
    has(q, "end\nclosed ok\n");
    has_not(q, "data");
    nothing_is_owed();
}

EACH_PAIR(no_body_no_filter)
{
    struct peer *c = client();
    struct call *q = asks(c, "HEAD"), *a = origin();
    call_answer_head(a, &(struct http_head){.status = 200, .length = 5}, true);
    settle();
    has(q, "200 length=5");
    has(q, "closed ok\n");
    q = asks(c, "GET");
    call_answer_head(&a->peer->calls[1], &(struct http_head){.status = 304, .length = -1}, true);
    settle();
    has(q, "304");
    assert_int_equal(how.made, 0);
    nothing_is_owed();
}

/* A small answer may become a large one: neither what was read nor what was made piles up. */
EACH_PAIR(a_slow_reader_holds_up_the_origin)
{
    char *text = letters(BIG);
    struct peer *c = client();
    c->hold = true;
    how.times = 3;
    struct call *q = asks(c, "GET"), *a = origin();
    call_answer_head(a, &ok, false);
    says(a, text);
    tap_flush(&q->tap);
    assert_true(a->tap.sent < BIG);
    assert_true(worker_held(rig.w) < 16 * WINDOW);
    assert_true(meter()->most_held[1] <= WINDOW + CHUNK_BULK_BYTES);
    assert_true(how.most_in <= WINDOW + CHUNK_BULK_BYTES);
    q->tap.hold = false;
    for (int i = 0; i < 100 && q->tap.received < 3 * (uint64_t)BIG; i++) {
        tap_credit_all(&q->tap);
        settle();
    }
    assert_int_equal(q->tap.received, 3 * (uint64_t)BIG);
    ends(a, NULL);
    has(q, "end\nclosed ok\n");
    nothing_is_owed();
    mem_free(text);
}

/* The tail is made after the origin's connection has become somebody else's. */
EACH_PAIR(an_origin_that_is_done_is_not_waited_with)
{
    char *text = letters(WINDOW / 2);
    struct peer *c = client();
    c->hold = true;
    how.times = 12;
    struct call *q = asks(c, "GET"), *a = origin();
    call_answer_head(a, &ok, false);
    says(a, text);
    ends(a, NULL);
    q->tap.hold = false;
    for (int i = 0; i < 100 && !call_has(q, "closed ok"); i++) {
        tap_credit_all(&q->tap);
        settle();
    }
    assert_int_equal(q->tap.received, 12 * (uint64_t)(WINDOW / 2));
    has(q, "end\nclosed ok\n");
    assert_int_equal(origin_idle(proxy_origins(rig.p)), 1);
    assert_int_equal(rig_running(&rig), 0);
    mem_free(text);
}

/* ---- what is not whole */

EACH_PAIR(what_cannot_be_read_is_cut_after_what_could_be)
{
    how.bad = '!';
    how.why = WHY_ORIGIN_PROTOCOL;
    struct call *q = asks(client(), "GET"), *a = origin();
    call_answer_head(a, &ok, false);
    says(a, "abc!def");
    has(q, "data abc\n");
    has_not(q, "end\n");
    has(q, "closed ");
    has_not(q, "closed ok");
    assert_true(is_rid(a));
    assert_true(logged("\"why\":\"origin-protocol\""));
    assert_int_equal(how.freed, 1);
}

EACH_PAIR(an_origin_that_breaks_off_is_cut_after_all_it_said)
{
    char *text = letters(WINDOW / 2);
    struct peer *c = client();
    c->hold = true;
    how.times = 12;
    how.keeps = 5;
    struct call *q = asks(c, "GET"), *a = origin();
    call_answer_head(a, &ok, false);
    says(a, text);
    peer_break(a->peer);
    settle();
    has_not(q, "closed");
    q->tap.hold = false;
    for (int i = 0; i < 100 && !call_has(q, "closed"); i++) {
        tap_credit_all(&q->tap);
        settle();
    }
    assert_int_equal(q->tap.received, 12 * (uint64_t)(WINDOW / 2 - 5)); /* the rest was held back */
    has_not(q, "end\n");
    has_not(q, "closed ok");
    assert_true(logged("\"why\":\"origin-gone\""));
    mem_free(text);
}

EACH_PAIR(a_filter_that_does_nothing_is_the_end_of_it)
{
    how.stuck = true;
    struct call *q = asks(client(), "GET"), *a = origin();
    call_answer_head(a, &ok, false);
    says(a, "abc");
    has_not(q, "data");
    has_not(q, "closed ok");
    assert_int_equal(rig_running(&rig), 0);
}

EACH_PAIR(a_client_that_leaves_ends_it)
{
    how.times = 100;
    struct peer *c = client();
    c->hold = true;
    asks(c, "GET");
    struct call *a = origin();
    call_answer_head(a, &ok, false);
    char *text = letters(WINDOW);
    says(a, text);
    peer_break(c);
    settle();
    assert_true(is_rid(a));
    assert_int_equal(how.freed, 1);
    assert_int_equal(rig_running(&rig), 0);
    mem_free(text);
}

EACH_PAIR(a_purge_in_the_middle_frees_it_once)
{
    struct call *q = asks(client(), "GET"), *a = origin();
    call_answer_head(a, &ok, false);
    says(a, "abc");
    proxy_purge(rig.p, origin_is == H2 ? STR("a2") : STR("a"));
    settle();
    has(q, "closed ");
    assert_int_equal(how.freed, 1);
}

/* ---- trailers, interim heads */

EACH_PAIR(trailers_are_the_gates_to_change)
{
    struct field field = {STR("x-t"), STR("1")};
    struct http_head trailers = {.fields = &field, .nfields = 1, .length = -1};
    rig.marks = true;
    struct peer *c = client();
    struct http_head head = {.method = STR("POST"),
                             .scheme = STR("http"),
                             .authority = STR("x"),
                             .path = origin_is == H2 ? STR("/a2/x") : STR("/a/x"),
                             .te_trailers = true,
                             .length = -1};
    struct call *q = peer_ask_head(c, &head, false);
    tap_data(&q->tap, STR("q"));
    tap_end(&q->tap, &trailers);
    settle();
    struct call *a = origin();
    has(a, "data q\n");
    has(a, "x-t: 1");
    has(a, "x-gate: 1");
    call_answer_head(a, &ok, false);
    says(a, "a");
    ends(a, &trailers);
    const char *tail = strstr(call_text(q), "data a\n");
    assert_non_null(tail);
    assert_non_null(strstr(tail, "x-t: 1"));
    assert_non_null(strstr(tail, "x-gate: 1"));
    nothing_is_owed();
}

EACH_PAIR(interim_heads_are_the_gates_to_change)
{
    struct field field = {STR("link"), STR("a")};
    rig.marks = true;
    struct call *q = asks(client(), "GET"), *a = origin();
    call_answer_head(
        a, &(struct http_head){.status = 103, .fields = &field, .nfields = 1, .length = -1}, false);
    settle();
    has(q, "103");
    has(q, "{link: a; x-gate: 1}");
    answers(a, 200, "ok", true);
    has(q, "data ok\nend\nclosed ok\n");
    nothing_is_owed();
}

/* ---- answers that are not wanted */

EACH_PAIR(an_answer_that_is_not_wanted_is_ours)
{
    static const bool ends_with_it[] = {true, false};
    struct peer *c = client();
    for (unsigned i = 0; i < 2; i++) {
        rig.unwanted = 206;
        struct call *q = asks(c, "GET");
        struct call *a = fake_dials(rig.w) > 0 ? origin() : &peers[1].calls[i];
        call_answer(a, 206, "secret", ends_with_it[i]);
        settle();
        has(q, "502");
        has(q, "identity in answer");
        has(q, "closed ok\n");
        has_not(q, "secret");
        assert_int_equal(how.made, 0);
        rig.unwanted = 0;
    }
    nothing_is_owed();
}

EACH_PAIR(an_interim_head_that_is_not_wanted_is_the_end_too)
{
    rig.unwanted = 103;
    struct call *q = asks(client(), "GET"), *a = origin();
    call_answer_head(a, &(struct http_head){.status = 103, .length = -1}, false);
    settle();
    has(q, "502");
    assert_int_not_equal(strncmp(call_text(q), "103", 3), 0);
    has(q, "closed ok\n");
    assert_true(is_rid(a));
    assert_int_equal(rig_running(&rig), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_body_passes_its_filter),
        cmocka_unit_test(what_it_has_made_goes_down_at_once),
        cmocka_unit_test(an_end_without_bytes_is_an_end),
        cmocka_unit_test(no_body_no_filter),
        cmocka_unit_test(a_slow_reader_holds_up_the_origin),
        cmocka_unit_test(an_origin_that_is_done_is_not_waited_with),
        cmocka_unit_test(what_cannot_be_read_is_cut_after_what_could_be),
        cmocka_unit_test(an_origin_that_breaks_off_is_cut_after_all_it_said),
        cmocka_unit_test(a_filter_that_does_nothing_is_the_end_of_it),
        cmocka_unit_test(a_client_that_leaves_ends_it),
        cmocka_unit_test(a_purge_in_the_middle_frees_it_once),
        cmocka_unit_test(trailers_are_the_gates_to_change),
        cmocka_unit_test(interim_heads_are_the_gates_to_change),
        cmocka_unit_test(an_answer_that_is_not_wanted_is_ours),
        cmocka_unit_test(an_interim_head_that_is_not_wanted_is_the_end_too),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
