/* kube_test.c — listing and watching against an API server that is the test itself: it stands in
 * for kubeapi.h and call_cancel(), so that each request and each byte of an answer is its own. */
#include "ingress/kube/feed.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <time.h>
#include <cmocka.h>

#include "base/map.h"
#include "net/worker.h"

enum { PATIENCE_MS = 20000 };

static struct {
    bool open; /* a request is under way */
    struct call_events ev;
    void *user;
    struct call_request asked;
    char target[1024];
    unsigned requests, cancelled, renewed;
    uint64_t wait_ms; /* kubeapi_turn() says so, once */
    unsigned turns;
} api;

static struct {
    struct worker *w;
    struct kube_feed *feed;
    struct map *table;
    unsigned ready, changes, puts, gones;
} t;

/* ---- kubeapi.h */

uint64_t kubeapi_turn(struct kubeapi *k)
{
    (void)k;
    uint64_t ms = api.wait_ms;
    api.wait_ms = 0;
    api.turns++;
    return ms;
}

struct call *kubeapi_get(struct kubeapi *k, const struct call_request *r,
                         const struct call_events *ev, void *user)
{
    (void)k;
    assert_false(api.open);
    api.open = true;
    api.ev = *ev;
    api.user = user;
    api.asked = *r;
    assert_true(r->target.n < sizeof api.target);
    snprintf(api.target, sizeof api.target, "%.*s", STR_ARG(r->target));
    api.requests++;
    return (struct call *)(void *)&api;
}

bool kubeapi_renew(struct kubeapi *k, struct arena *a, struct str *ret_error)
{
    (void)k;
    (void)a;
    (void)ret_error;
    api.renewed++;
    return true;
}

struct str kubeapi_server(const struct kubeapi *k)
{
    (void)k;
    return STR("10.96.0.1:443");
}

void call_cancel(struct call *c)
{
    assert_ptr_equal(c, &api);
    assert_true(api.open);
    api.open = false;
    api.cancelled++;
}

/* ---- what is told */

static void on_ready(void *user)
{
    (void)user;
    t.ready++;
}

static void on_change(void *user, const struct sandbox *const *put, size_t nput,
                      const struct str *gone, size_t ngone)
{
    (void)user;
    assert_true(nput + ngone > 0);
    t.changes++;
    t.puts += (unsigned)nput;
    t.gones += (unsigned)ngone;
    for (size_t i = 0; i < ngone; i++) {
        struct sandbox *s = map_del(t.table, gone[i]);
        assert_non_null(s);
        sandbox_unref(s);
    }
    for (size_t i = 0; i < nput; i++) {
        sandbox_ref(put[i]);
        sandbox_unref(map_put(t.table, put[i]->id, (void *)(uintptr_t)put[i]));
    }
}

static const struct resolver_events events = {.ready = on_ready, .change = on_change};

static const struct sandbox *known(const char *id)
{
    return map_get(t.table, str_of(id));
}

static void assert_leads(const char *id, const char *host)
{
    const struct sandbox *s = known(id);
    if (!host) {
        assert_null(s);
        return;
    }
    assert_non_null(s);
    assert_int_equal(s->state, SANDBOX_RUNNING);
    assert_true(str_eq(sandbox_endpoint(s, 80)->host, str_of(host)));
}

/* ---- the run */

static const struct kube_times short_times = {.head_ms = 30000,
                                              .page_ms = 60000,
                                              .list_ms = 60000,
                                              .quiet_ms = 50000,
                                              .watch_ms = 400000,
                                              .margin_ms = 30000,
                                              .proven_ms = 1000000,
                                              .rest_ms = 4,
                                              .rest_max_ms = 16};

static void begin(enum kube_kind kind, const struct kube_times *times)
{
    memset(&api, 0, sizeof api);
    memset(&t, 0, sizeof t);
    t.w = worker_new(0);
    t.table = map_new();
    t.feed = kube_feed_start(
        t.w, &(struct kube_feed_rules){.kind = kind, .api = NULL, .times = *times}, &events, NULL);
}

static int set_up(void **state)
{
    (void)state;
    begin(KUBE_BATCHSANDBOX, &short_times);
    return 0;
}

static int set_up_agents(void **state)
{
    (void)state;
    begin(KUBE_AGENT_SANDBOX, &short_times);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    size_t at = 0;
    kube_feed_stop(t.feed);
    for (struct sandbox *s; (s = map_next(t.table, &at));)
        sandbox_unref(s);
    map_free(t.table);
    worker_turn(t.w);
    worker_free(t.w);
    return 0;
}

static uint64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/* Until the next request, which has `part` in its target; how long it took. */
static uint64_t asked(const char *part)
{
    uint64_t start = now_ms();
    while (!api.open) {
        if (now_ms() > start + PATIENCE_MS)
            fail_msg("no request for %s", part);
        worker_turn(t.w);
        nanosleep(&(struct timespec){.tv_nsec = 500000}, NULL);
    }
    if (!strstr(api.target, part))
        fail_msg("asked for %s, not for %s", api.target, part);
    return now_ms() - start;
}

static void head_with(int status, struct field *fields, unsigned n)
{
    struct http_head h = {.status = status, .fields = fields, .nfields = n, .length = -1};
    api.ev.head(api.user, &h);
}

static void head(int status)
{
    head_with(status, NULL, 0);
}

static void say(const char *text)
{
    struct buf b;
    buf_init(&b, worker_pool(t.w));
    buf_str(&b, str_of(text));
    if (api.open)
        api.ev.data(api.user, &b);
    buf_clear(&b);
}

static void end(enum why why)
{
    assert_true(api.open);
    api.open = false;
    api.ev.done(api.user, why, NULL, STR_NONE);
}

#define OBJECT(name, uid, version, ip)                                         \
    "{\"metadata\":{\"name\":\"" name "\",\"namespace\":\"ns\",\"uid\":\"" uid \
    "\",\"resourceVersion\":\"" version                                        \
    "\",\"annotations\":{\"sandbox.opensandbox.io/endpoints\":\"[\\\"" ip      \
    "\\\"]\"}},\"spec\":{},\"status\":{\"replicas\":1,\"ready\":1}}"
#define EVENT(type, object) "{\"type\":\"" type "\",\"object\":" object "}\n"
#define BOOKMARK(version) EVENT("BOOKMARK", "{\"metadata\":{\"resourceVersion\":\"" version "\"}}")
#define GONE EVENT("ERROR", "{\"kind\":\"Status\",\"code\":410,\"reason\":\"Expired\"}")
#define LIST(version, more, items)                                            \
    "{\"metadata\":{\"resourceVersion\":\"" version "\",\"continue\":\"" more \
    "\"},\"items\":[" items "]}"

static void answer(const char *body)
{
    head(200);
    say(body);
    end(WHY_OK);
}

/* A list of sb1 at 10.0.0.1, and a watch that was granted. */
static void serve(void)
{
    asked("?limit=500");
    answer(LIST("10", "", OBJECT("sb1", "u1", "9", "10.0.0.1")));
    assert_int_equal(t.ready, 1);
    asked("watch=true");
    assert_non_null(strstr(api.target, "resourceVersion=10&"));
    head(200);
}

/* ---- lists */

static void pages_are_told_as_they_come_and_ready_after_the_last(void **state)
{
    (void)state;
    asked("/apis/sandbox.opensandbox.io/v1alpha1/batchsandboxes?limit=500");
    assert_null(strstr(api.target, "resourceVersion"));
    answer(LIST("10", "to+the/next=", OBJECT("sb1", "u1", "5", "10.0.0.1")));
    assert_leads("sb1", "10.0.0.1");
    asked("?limit=500&continue=to%2Bthe%2Fnext%3D");
    assert_int_equal(t.ready, 0);
    assert_int_equal(api.turns, 1); /* a list counts once */
    answer(LIST("10", "", OBJECT("sb2", "u2", "6", "10.0.0.2")));
    assert_leads("sb2", "10.0.0.2");
    assert_int_equal(t.ready, 1);
    asked("watch=true&allowWatchBookmarks=true&resourceVersion=10&timeoutSeconds=");
    assert_int_equal(kube_feed_state(t.feed).objects, 2);
}

static void a_list_that_fails_is_asked_for_until_it_comes(void **state)
{
    (void)state;
    asked("?limit=500");
    end(WHY_DIAL);
    assert_non_null(strstr(kube_feed_state(t.feed).fault.p, "list: dial"));
    asked("?limit=500");
    head(500);
    assert_int_equal(api.cancelled, 1);
    asked("?limit=500");
    head(200);
    say("{\"metadata\":{");
    end(WHY_ORIGIN_GONE);
    asked("?limit=500");
    answer("{\"metadata\":{\"resourceVersion\":\"10\"},\"items\":[1");
    asked("?limit=500");
    answer(LIST("", "", ""));
    asked("?limit=500");
    answer(LIST("10", "x", OBJECT("sb1", "u1", "9", "10.0.0.1")));
    asked("&continue=x");
    end(WHY_DEADLINE);
    assert_int_equal(t.ready, 0);
    serve();
    struct kube_feed_state s = kube_feed_state(t.feed);
    assert_int_equal(s.fault.n, 0);
    assert_int_equal(s.lists, 1);
    assert_int_equal(s.faults[KUBE_FAULT_CONNECT], 1);
    assert_int_equal(s.faults[KUBE_FAULT_STATUS], 1);
    assert_int_equal(s.faults[KUBE_FAULT_BROKEN], 3);
    assert_int_equal(s.faults[KUBE_FAULT_TIMEOUT], 1);
}

static void a_list_that_expires_begins_again_and_twice_is_asked_for_whole(void **state)
{
    (void)state;
    asked("?limit=500");
    answer(LIST("10", "x", OBJECT("sb0", "u0", "9", "10.0.0.9")));
    asked("&continue=x");
    head(410);
    asked("batchsandboxes?limit=500");
    assert_null(strstr(api.target, "continue"));
    answer(LIST("11", "y", OBJECT("sb1", "u1", "9", "10.0.0.1")));
    asked("&continue=y");
    head(410);
    asked("batchsandboxes");
    assert_null(strchr(api.target, '?'));
    answer(LIST("12", "", OBJECT("sb1", "u1", "9", "10.0.0.1")));
    assert_leads("sb0", NULL);
    assert_leads("sb1", "10.0.0.1");
    assert_int_equal(t.ready, 1);
}

static void who_we_are_is_read_again_when_the_server_does_not_know_us(void **state)
{
    (void)state;
    asked("?limit=500");
    head(401);
    assert_int_equal(api.renewed, 1);
    asked("?limit=500");
    head(403);
    assert_int_equal(api.renewed, 1);
    asked("?limit=500");
    end(WHY_TLS);
    assert_int_equal(api.renewed, 2);
    serve();
    say(EVENT("ERROR", "{\"code\":401}"));
    assert_int_equal(api.renewed, 3);
    asked("watch=true");
    head(403);
    asked("watch=true");
    assert_leads("sb1", "10.0.0.1");
    struct kube_feed_state s = kube_feed_state(t.feed);
    assert_int_equal(s.faults[KUBE_FAULT_UNAUTHORIZED], 2);
    assert_int_equal(s.faults[KUBE_FAULT_FORBIDDEN], 2);
}

static void the_rate_of_requests_is_kept(void **state)
{
    (void)state;
    api.wait_ms = 30;
    assert_true(asked("?limit=500") >= 25);
    assert_int_equal(api.turns, 2);
}

static void the_server_says_how_long_to_stay_away(void **state)
{
    struct field fields[] = {{STR("retry-after"), STR("3600")}};
    struct kube_times times = short_times;
    (void)state;
    tear_down(NULL);
    times.rest_max_ms = 300;
    begin(KUBE_BATCHSANDBOX, &times);
    asked("?limit=500");
    head_with(429, fields, 1);
    assert_true(asked("?limit=500") >= 250);
}

static void an_object_without_a_name_is_left_out_alone(void **state)
{
    (void)state;
    asked("?limit=500");
    answer(LIST("10", "", "{\"metadata\":{}},{},7," OBJECT("sb1", "u1", "9", "10.0.0.1")));
    assert_leads("sb1", "10.0.0.1");
    assert_int_equal(t.ready, 1);
    assert_int_equal(kube_feed_state(t.feed).faults[KUBE_FAULT_OBJECT], 3);
}

/* ---- watches */

static void all_events_of_a_piece_are_one_change(void **state)
{
    (void)state;
    serve();
    unsigned before = t.changes;
    say(EVENT("ADDED", OBJECT("sb2", "u2", "11", "10.0.0.2"))
            EVENT("MODIFIED", OBJECT("sb1", "u1", "12", "10.0.0.7"))
                EVENT("DELETED", OBJECT("sb2", "u2", "13", "10.0.0.2")));
    assert_int_equal(t.changes, before + 1);
    assert_leads("sb1", "10.0.0.7");
    assert_leads("sb2", NULL);
    assert_int_equal(kube_feed_state(t.feed).events, 3);
}

static void events_may_come_in_any_pieces(void **state)
{
    static const char text[] =
        EVENT("ADDED", OBJECT("sb2", "u2", "11", "10.0.0.2")) "\n\r\n" BOOKMARK("12")
            EVENT("MODIFIED", OBJECT("sb2", "u2", "13", "10.0.0.3"));
    (void)state;
    serve();
    for (size_t i = 0; text[i]; i++)
        say((char[]){text[i], '\0'});
    assert_leads("sb2", "10.0.0.3");
    assert_int_equal(kube_feed_state(t.feed).events, 3);
}

static void a_watch_is_opened_again_where_it_ended(void **state)
{
    static const enum why whys[] = {WHY_OK, WHY_ORIGIN_GONE, WHY_DEADLINE, WHY_ORIGIN_PROTOCOL};
    (void)state;
    serve();
    for (unsigned i = 0; i < 4; i++) {
        char part[64], text[1024];
        snprintf(text, sizeof text, EVENT("MODIFIED", OBJECT("sb1", "u1", "2%u", "10.0.1.%u")), i,
                 i);
        say(text);
        say("{\"type\":\"MODIFIED\",\"obj"); /* never whole: comes again */
        end(whys[i]);
        snprintf(part, sizeof part, "watch=true&allowWatchBookmarks=true&resourceVersion=2%u&", i);
        asked(part);
        head(200);
    }
    say(BOOKMARK("40"));
    end(WHY_OK);
    asked("resourceVersion=40&");
    assert_leads("sb1", "10.0.1.3");
    assert_int_equal(kube_feed_state(t.feed).lists, 1);
}

static void nothing_is_removed_because_the_server_is_away(void **state)
{
    static const enum why whys[] = {WHY_DIAL, WHY_DNS, WHY_TLS, WHY_DEADLINE, WHY_ORIGIN_GONE};
    (void)state;
    serve();
    end(WHY_ORIGIN_GONE);
    for (unsigned i = 0; i < 20; i++) {
        asked("resourceVersion=10&");
        end(whys[i % 5]);
    }
    asked("resourceVersion=10&");
    head(500);
    asked("resourceVersion=10&");
    assert_leads("sb1", "10.0.0.1");
    assert_false(kube_feed_state(t.feed).watching);
    head(200);
    assert_true(kube_feed_state(t.feed).watching);
    assert_true(kube_feed_state(t.feed).fault.n > 0);
    say(BOOKMARK("11"));
    assert_int_equal(kube_feed_state(t.feed).fault.n, 0);
}

static void a_version_that_is_gone_lists_again_and_nothing_flaps(void **state)
{
    (void)state;
    serve();
    say(EVENT("ADDED", OBJECT("sb2", "u2", "11", "10.0.0.2")));
    uint64_t generation = known("sb1")->generation;
    unsigned puts = t.puts;
    say(GONE);
    assert_int_equal(api.cancelled, 1);
    asked("?limit=500");
    answer(LIST("20", "x", OBJECT("sb1", "u1", "9", "10.0.0.1")));
    assert_leads("sb2", "10.0.0.2");
    asked("continue=x");
    answer(LIST("20", "", OBJECT("sb3", "u3", "15", "10.0.0.3")));
    assert_leads("sb2", NULL);
    assert_leads("sb3", "10.0.0.3");
    assert_int_equal(known("sb1")->generation, generation);
    assert_int_equal(t.puts, puts + 1);
    assert_int_equal(t.ready, 1);
    asked("resourceVersion=20&");
    head(410);
    asked("?limit=500");
    assert_int_equal(kube_feed_state(t.feed).faults[KUBE_FAULT_EXPIRED], 2);
}

static void an_event_that_cannot_be_read_lists_again(void **state)
{
    (void)state;
    serve();
    say(EVENT("ADDED", OBJECT("sb2", "u2", "11", "10.0.0.2")) "{\"type\":7}\n");
    assert_leads("sb2", "10.0.0.2");
    asked("?limit=500");
    answer(LIST("12", "", OBJECT("sb1", "u1", "9", "10.0.0.1")));
    assert_leads("sb2", NULL);
    asked("resourceVersion=12&");
}

static void an_event_that_never_ends_lists_again(void **state)
{
    char piece[60001];
    (void)state;
    memset(piece, 'x', sizeof piece - 1);
    piece[sizeof piece - 1] = '\0';
    serve();
    say("{\"type\":\"ADDED\",\"object\":{\"a\":\"");
    for (unsigned i = 0; i < 400 && api.open; i++)
        say(piece);
    assert_false(api.open);
    assert_int_equal(kube_feed_state(t.feed).faults[KUBE_FAULT_LIMIT], 1);
    asked("?limit=500");
}

static void a_list_from_before_the_last_event_is_not_believed_at_first(void **state)
{
    (void)state;
    serve();
    say(EVENT("MODIFIED", OBJECT("sb1", "u2", "30", "10.0.0.2")));
    say(GONE);
    for (unsigned i = 0; i < 3; i++) {
        asked("?limit=500");
        answer(LIST("20", "", OBJECT("sb1", "u1", "9", "10.0.0.1")));
        assert_leads("sb1", "10.0.0.2");
    }
    assert_int_equal(kube_feed_state(t.feed).faults[KUBE_FAULT_OLD], 3);
    asked("?limit=500"); /* it goes on saying so: the store was restored */
    answer(LIST("20", "", OBJECT("sb1", "u1", "9", "10.0.0.1")));
    assert_leads("sb1", "10.0.0.1");
    asked("resourceVersion=20&");
}

static void a_quiet_watch_ends_only_where_bookmarks_come(void **state)
{
    (void)state;
    serve();
    assert_int_equal(api.asked.silence_ms, short_times.quiet_ms);
    assert_true(api.asked.whole_ms >= short_times.watch_ms + short_times.margin_ms);
    end(WHY_DEADLINE); /* quiet: there may be no bookmarks */
    asked("resourceVersion=10&");
    assert_int_equal(api.asked.silence_ms, 0);
    assert_true(api.asked.whole_ms > 0);
    head(200);
    say(BOOKMARK("11"));
    end(WHY_OK);
    asked("resourceVersion=11&");
    assert_int_equal(api.asked.silence_ms, short_times.quiet_ms);
}

static void watches_that_get_nowhere_come_less_often(void **state)
{
    struct kube_times times = short_times;
    (void)state;
    tear_down(NULL);
    times.rest_ms = 30;
    times.rest_max_ms = 1000;
    begin(KUBE_BATCHSANDBOX, &times);
    serve();
    end(WHY_OK);
    for (unsigned i = 0; i < 4; i++) {
        assert_true(asked("watch=true") >= (UINT64_C(25) << i));
        head(200);
        end(WHY_OK);
    }
}

/* ---- agent-sandbox */

static void the_older_version_is_taken_where_only_that_is_served(void **state)
{
    (void)state;
    asked("/apis/agents.x-k8s.io/v1beta1/sandboxes?limit=500");
    head(404);
    asked("/apis/agents.x-k8s.io/v1alpha1/sandboxes?limit=500");
    head(404);
    assert_int_equal(kube_feed_state(t.feed).faults[KUBE_FAULT_MISSING], 1);
    asked("/apis/agents.x-k8s.io/v1beta1/sandboxes?limit=500");
    head(404);
    asked("/apis/agents.x-k8s.io/v1alpha1/sandboxes?limit=500");
    answer(LIST("10", "",
                "{\"metadata\":{\"name\":\"a1\",\"namespace\":\"ns\",\"uid\":\"u\","
                "\"resourceVersion\":\"3\"},\"status\":{\"serviceFQDN\":\"a1.ns.svc\","
                "\"conditions\":[{\"type\":\"Ready\",\"status\":\"True\"}]}}"));
    assert_leads("a1", "a1.ns.svc");
    asked("/apis/agents.x-k8s.io/v1alpha1/sandboxes?watch=true");
    head(410);
    asked("/apis/agents.x-k8s.io/v1beta1/sandboxes?limit=500");
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(pages_are_told_as_they_come_and_ready_after_the_last),
        TEST(a_list_that_fails_is_asked_for_until_it_comes),
        TEST(a_list_that_expires_begins_again_and_twice_is_asked_for_whole),
        TEST(who_we_are_is_read_again_when_the_server_does_not_know_us),
        TEST(the_rate_of_requests_is_kept),
        TEST(the_server_says_how_long_to_stay_away),
        TEST(an_object_without_a_name_is_left_out_alone),
        TEST(all_events_of_a_piece_are_one_change),
        TEST(events_may_come_in_any_pieces),
        TEST(a_watch_is_opened_again_where_it_ended),
        TEST(nothing_is_removed_because_the_server_is_away),
        TEST(a_version_that_is_gone_lists_again_and_nothing_flaps),
        TEST(an_event_that_cannot_be_read_lists_again),
        TEST(an_event_that_never_ends_lists_again),
        TEST(a_list_from_before_the_last_event_is_not_believed_at_first),
        TEST(a_quiet_watch_ends_only_where_bookmarks_come),
        TEST(watches_that_get_nowhere_come_less_often),
        cmocka_unit_test_setup_teardown(the_older_version_is_taken_where_only_that_is_served,
                                        set_up_agents, tear_down),
    };
#undef TEST
    return cmocka_run_group_tests(tests, NULL, NULL);
}
