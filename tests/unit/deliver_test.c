/* deliver_test.c — events on their way to a receiver on loopback that is well, ill, slow or gone:
 * how often each is tried, what is told of it, and what a full queue, a drain and an end do. */
#include "app/deliver.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <cmocka.h>

#include <poll.h>
#include <stdio.h>

#include "harness/name_list.h"
#include "harness/replier.h"
#include "harness/until.h"
#include "net/worker.h"

enum { LONG_MS = 60000 };

struct rig {
    struct worker *w;
    struct name_list list;
    struct names *names;
    struct replier server;
    const char *answers[8]; /* of the first, second … call; the last one again; NULL: none */
    bool hang_up, hold;
    uint64_t at[REPLIER_CALLS]; /* when it was called */
    char url[64];
    struct client_request to;
    struct deliver *d;
    unsigned delivered, given_up, drained;
    char labels[256]; /* of what was delivered or given up */
    enum why why;
    int status;
    bool free_when_drained;
};

static void on_call(void *user, struct call_in *c)
{
    struct rig *r = user;
    unsigned i = 0, call = 0;
    while (r->server.calls[call] != c)
        call++;
    r->at[call] = worker_now(r->w);
    while (i < call && i < 7 && r->answers[i + 1])
        i++;
    if (r->hold)
        return;
    if (r->answers[i])
        replier_say(c, r->answers[i]);
    if (r->hang_up)
        replier_hang_up(c);
}

static void note(struct rig *r, struct str label)
{
    size_t at = strlen(r->labels);
    snprintf(r->labels + at, sizeof r->labels - at, "%.*s ", STR_ARG(label));
}

static void on_delivered(void *user, struct str label)
{
    struct rig *r = user;
    r->delivered++;
    note(r, label);
}

static void on_given_up(void *user, struct str label, enum why why, int status)
{
    struct rig *r = user;
    r->given_up++;
    r->why = why;
    r->status = status;
    note(r, label);
}

static const struct deliver_events events = {on_delivered, on_given_up};

static void on_drained(void *user)
{
    struct rig *r = user;
    r->drained++;
    if (!r->free_when_drained)
        return;
    deliver_free(r->d);
    r->d = NULL;
}

static void rig_init(struct rig *r, const struct deliver_rules *rules)
{
    static const struct field type = {{"content-type", 12}, {"application/json", 16}};
    *r = (struct rig){.w = worker_new(0)};
    r->list = (struct name_list){.w = r->w, .name = "hook.test", .ip = "127.0.0.1"};
    r->names = name_list_names(&r->list);
    replier_start(&r->server, NULL, on_call, r);
    snprintf(r->url, sizeof r->url, "http://hook.test:%u/in", r->server.port);
    assert_true(url_parse(str_of(r->url), &r->to.url));
    r->to.method = STR("POST");
    r->to.fields = &type;
    r->to.nfields = 1;
    r->to.names = r->names;
    r->d = deliver_new(r->w, &r->to, rules, &events, r);
}

static void turn(struct rig *r)
{
    worker_turn(r->w);
    replier_step(&r->server);
    poll(NULL, 0, 1);
}

static void some_turns(struct rig *r)
{
    for (int i = 0; i < 30; i++)
        turn(r);
}

static void rig_done(struct rig *r)
{
    deliver_free(r->d);
    some_turns(r);
    replier_stop(&r->server);
    names_free(r->names);
    worker_free(r->w);
}

static unsigned whole_calls(const struct rig *r)
{
    unsigned n = 0;
    for (unsigned i = 0; i < r->server.n; i++)
        n += r->server.calls[i]->whole;
    return n;
}

static void push(struct rig *r, const char *label)
{
    assert_true(deliver_push(r->d, str_of(label), STR("{\"a\":1}")));
}

static const struct deliver_rules quick = {
    .queue = 8, .parallel = 2, .tries = 4, .timeout_ms = LONG_MS, .pause_ms = 1};
/* Pauses longer than any test. */
static const struct deliver_rules patient = {
    .queue = 8, .parallel = 2, .tries = 4, .timeout_ms = LONG_MS, .pause_ms = LONG_MS};
static const struct deliver_rules narrow = {
    .queue = 2, .parallel = 1, .tries = 4, .timeout_ms = LONG_MS, .pause_ms = LONG_MS};

static const char well[] = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
static const char ill[] = "HTTP/1.1 503 Ill\r\nContent-Length: 0\r\n\r\n";

static void an_event_is_one_request(void **state)
{
    struct rig r;
    char want[256];
    (void)state;
    rig_init(&r, &quick);
    r.answers[0] = well;
    push(&r, "one");
    assert_int_equal(r.delivered, 0); /* not before it returns */
    until(&r, r.delivered);
    snprintf(want, sizeof want,
             "POST /in HTTP/1.1\r\nhost: hook.test:%u\r\ncontent-type: application/json\r\n"
             "connection: close\r\ncontent-length: 7\r\n\r\n{\"a\":1}",
             r.server.port);
    assert_string_equal(r.server.calls[0]->text, want);
    assert_string_equal(r.labels, "one ");
    assert_int_equal(deliver_waiting(r.d) + deliver_running(r.d), 0);
    some_turns(&r);
    assert_int_equal(r.server.n, 1);
    rig_done(&r);
}

static void the_status_says_whether_there_is_a_next_try(void **state)
{
    static const struct {
        const char *status;
        unsigned tries;
        bool delivered;
    } rows[] = {
        {"200", 1, true},  {"204", 1, true},  {"299", 1, true},  {"300", 1, false},
        {"307", 1, false}, {"404", 1, false}, {"429", 1, false}, {"499", 1, false},
        {"500", 4, false}, {"503", 4, false}, {"599", 4, false}, {"999", 4, false},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct rig r;
        char answer[64];
        snprintf(answer, sizeof answer, "HTTP/1.1 %s x\r\nContent-Length: 0\r\n\r\n",
                 rows[i].status);
        rig_init(&r, &quick);
        r.answers[0] = answer;
        push(&r, "e");
        until(&r, r.delivered + r.given_up);
        some_turns(&r);
        assert_int_equal(r.server.n, rows[i].tries);
        assert_int_equal(r.delivered, rows[i].delivered);
        assert_int_equal(r.given_up, !rows[i].delivered);
        if (!rows[i].delivered) {
            assert_int_equal(r.why, WHY_OK);
            assert_int_equal(r.status, (rows[i].status[0] - '0') * 100 +
                                           (rows[i].status[1] - '0') * 10 + rows[i].status[2] -
                                           '0');
        }
        rig_done(&r);
    }
}

static void a_receiver_that_hangs_up_is_tried_again(void **state)
{
    struct rig r;
    (void)state;
    rig_init(&r, &quick);
    r.hang_up = true;
    push(&r, "e");
    until(&r, r.given_up);
    assert_int_equal(r.server.n, 4);
    assert_int_equal(r.why, WHY_ORIGIN_GONE);
    assert_int_equal(r.status, 0);
    rig_done(&r);
}

static void a_status_that_came_counts_whatever_became_of_the_rest(void **state)
{
    struct rig r;
    (void)state;
    rig_init(&r, &quick);
    r.answers[0] = "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\ncut";
    r.hang_up = true;
    push(&r, "e");
    until(&r, r.delivered + r.given_up);
    assert_int_equal(r.delivered, 1);
    assert_int_equal(r.server.n, 1);
    rig_done(&r);
}

static void a_receiver_that_recovers_gets_the_event(void **state)
{
    struct rig r;
    (void)state;
    rig_init(&r, &quick);
    r.answers[0] = r.answers[1] = ill;
    r.answers[2] = well;
    push(&r, "e");
    until(&r, r.delivered + r.given_up);
    assert_int_equal(r.delivered, 1);
    assert_int_equal(r.server.n, 3);
    rig_done(&r);
}

static void a_silent_receiver_is_left_after_the_time_of_each_try(void **state)
{
    struct rig r;
    (void)state;
    rig_init(&r, &(struct deliver_rules){
                     .queue = 1, .parallel = 1, .tries = 2, .timeout_ms = 150, .pause_ms = 1});
    push(&r, "e");
    until(&r, r.given_up);
    assert_int_equal(r.why, WHY_DEADLINE);
    assert_int_equal(r.status, 0);
    assert_true(r.server.n <= 2);
    rig_done(&r);
}

static void each_pause_is_twice_as_long(void **state)
{
    struct rig r;
    (void)state;
    rig_init(&r,
             &(struct deliver_rules){
                 .queue = 1, .parallel = 1, .tries = 4, .timeout_ms = LONG_MS, .pause_ms = 100});
    r.answers[0] = ill;
    push(&r, "e");
    until(&r, r.given_up);
    assert_int_equal(r.server.n, 4);
    for (unsigned i = 1; i < 4; i++) /* clocks are read once per turn */
        assert_true(r.at[i] - r.at[i - 1] + 20 >= 100u << (i - 1));
    rig_done(&r);
}

static void what_comes_on_top_of_a_full_queue_is_dropped(void **state)
{
    struct rig r;
    (void)state;
    rig_init(&r, &narrow);
    r.hold = true;
    push(&r, "a"); /* runs */
    push(&r, "b");
    push(&r, "c");
    assert_false(deliver_push(r.d, STR("d"), STR("{}")));
    assert_int_equal(deliver_running(r.d), 1);
    assert_int_equal(deliver_waiting(r.d), 2);
    until(&r, whole_calls(&r) == 1);
    r.hold = false;
    r.answers[0] = well;
    replier_say(r.server.calls[0], well);
    until(&r, r.delivered == 3);
    assert_string_equal(r.labels, "a b c ");
    push(&r, "e");
    until(&r, r.delivered == 4);
    rig_done(&r);
}

static void only_so_many_run_at_a_time(void **state)
{
    struct rig r;
    (void)state;
    rig_init(&r, &quick);
    r.hold = true;
    push(&r, "a");
    push(&r, "b");
    push(&r, "c");
    until(&r, whole_calls(&r) == 2);
    some_turns(&r);
    assert_int_equal(r.server.n, 2);
    replier_say(r.server.calls[0], well);
    until(&r, whole_calls(&r) == 3);
    assert_int_equal(r.delivered, 1);
    rig_done(&r);
}

static void a_pause_keeps_its_runner(void **state)
{
    struct rig r;
    (void)state;
    rig_init(&r, &narrow);
    r.answers[0] = ill;
    push(&r, "a");
    push(&r, "b");
    until(&r, whole_calls(&r) == 1 && r.server.calls[0]->closed);
    some_turns(&r);
    assert_int_equal(r.server.n, 1);
    assert_int_equal(deliver_running(r.d), 1);
    assert_int_equal(deliver_waiting(r.d), 1);
    rig_done(&r);
}

/* ---- the end */

static void a_drain_sends_what_is_there_and_takes_nothing_new(void **state)
{
    struct rig r;
    (void)state;
    rig_init(&r, &narrow);
    r.answers[0] = well;
    push(&r, "a");
    push(&r, "b");
    push(&r, "c");
    deliver_drain(r.d, LONG_MS, on_drained, &r);
    assert_false(deliver_push(r.d, STR("d"), STR("{}")));
    assert_int_equal(r.drained, 0);
    until(&r, r.drained);
    assert_string_equal(r.labels, "a b c ");
    some_turns(&r);
    assert_int_equal(r.drained, 1);
    rig_done(&r);
}

static void a_drain_of_nothing_is_over_at_once(void **state)
{
    struct rig r;
    (void)state;
    rig_init(&r, &narrow);
    r.free_when_drained = true;
    deliver_drain(r.d, 10u * LONG_MS, on_drained, &r);
    assert_int_equal(r.drained, 0); /* not before it returns */
    until(&r, r.drained);
    assert_null(r.d);
    rig_done(&r);
}

static void in_a_drain_nobody_waits_for_a_pause_that_does_not_end_in_time(void **state)
{
    struct rig r;
    (void)state;
    rig_init(&r, &patient);
    r.answers[0] = ill;
    push(&r, "a");
    until(&r, whole_calls(&r) == 1 && r.server.calls[0]->closed);
    some_turns(&r);
    assert_int_equal(r.server.n, 1); /* it rests */
    deliver_drain(r.d, LONG_MS / 2, on_drained, &r);
    until(&r, r.drained);
    assert_int_equal(r.server.n, 4);
    assert_int_equal(r.given_up, 1);
    assert_int_equal(r.status, 503);
    rig_done(&r);
}

static void a_drain_is_over_when_its_time_is(void **state)
{
    struct rig r;
    (void)state;
    rig_init(&r, &narrow);
    r.hold = true;
    r.free_when_drained = true;
    push(&r, "a");
    push(&r, "b");
    deliver_drain(r.d, 200, on_drained, &r);
    until(&r, r.drained);
    assert_int_equal(r.delivered, 0);
    rig_done(&r);
}

static void freed_it_forgets_without_a_word(void **state)
{
    struct rig r;
    (void)state;
    rig_init(&r, &narrow);
    r.hold = true;
    push(&r, "a");
    push(&r, "b");
    until(&r, whole_calls(&r) == 1);
    deliver_free(r.d);
    r.d = NULL;
    until(&r, r.server.calls[0]->closed);
    assert_int_equal(r.delivered + r.given_up, 0);
    assert_int_equal(r.server.n, 1);
    rig_done(&r);
}

static void freed_while_it_rests_or_asks_for_a_name_it_forgets_too(void **state)
{
    (void)state;
    for (int rests = 0; rests < 2; rests++) {
        struct rig r;
        rig_init(&r, &patient);
        r.answers[0] = ill;
        r.list.silent = !rests;
        push(&r, "a");
        if (rests)
            until(&r, whole_calls(&r) == 1 && r.server.calls[0]->closed);
        some_turns(&r);
        rig_done(&r);
        assert_int_equal(r.delivered + r.given_up, 0);
        assert_int_equal(r.list.cancelled, !rests);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_event_is_one_request),
        cmocka_unit_test(the_status_says_whether_there_is_a_next_try),
        cmocka_unit_test(a_receiver_that_hangs_up_is_tried_again),
        cmocka_unit_test(a_status_that_came_counts_whatever_became_of_the_rest),
        cmocka_unit_test(a_receiver_that_recovers_gets_the_event),
        cmocka_unit_test(a_silent_receiver_is_left_after_the_time_of_each_try),
        cmocka_unit_test(each_pause_is_twice_as_long),
        cmocka_unit_test(what_comes_on_top_of_a_full_queue_is_dropped),
        cmocka_unit_test(only_so_many_run_at_a_time),
        cmocka_unit_test(a_pause_keeps_its_runner),
        cmocka_unit_test(a_drain_sends_what_is_there_and_takes_nothing_new),
        cmocka_unit_test(a_drain_of_nothing_is_over_at_once),
        cmocka_unit_test(in_a_drain_nobody_waits_for_a_pause_that_does_not_end_in_time),
        cmocka_unit_test(a_drain_is_over_when_its_time_is),
        cmocka_unit_test(freed_it_forgets_without_a_word),
        cmocka_unit_test(freed_while_it_rests_or_asks_for_a_name_it_forgets_too),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
