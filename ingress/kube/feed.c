/* feed.c — list, watch, and what to do when either ends.  There is one request at a time; between
 * two of them the feed rests, or goes on at once.  A watch that got somewhere is opened again at
 * once, anything that got nowhere waits longer each time. */
#include "ingress/kube/feed.h"

#include <inttypes.h>

#include "base/log.h"
#include "base/text.h"
#include "ingress/kube/feed_impl.h"
#include "net/worker.h"

enum { PAGE = 500, PAGE_BYTES = 256 << 20, AFTER_LIST = 2 };

const struct kube_times kube_times = {.head_ms = 30000,
                                      .page_ms = 120000,
                                      .list_ms = 600000,
                                      .quiet_ms = 100000,
                                      .watch_ms = 300000,
                                      .margin_ms = 30000,
                                      .proven_ms = 10000,
                                      .rest_ms = 800,
                                      .rest_max_ms = 30000};

static const struct {
    const char *group, *version, *older, *resource;
} kinds[] = {
    [KUBE_BATCHSANDBOX] = {"sandbox.opensandbox.io", "v1alpha1", NULL, "batchsandboxes"},
    [KUBE_AGENT_SANDBOX] = {"agents.x-k8s.io", "v1beta1", "v1alpha1", "sandboxes"},
};

/* ---- list */

static void end_list(struct kube_feed *f)
{
    bool first = !f->ready;
    struct log_line line;
    f->lists++;
    f->ready = true;
    f->failures = f->failures < AFTER_LIST ? f->failures : AFTER_LIST;
    log_begin(&line, first ? LOG_INFO : LOG_DEBUG, "kubernetes: listed");
    log_str(&line, "resource", str_of(f->resource));
    log_int(&line, "objects", (int64_t)kube_index_objects(f->index));
    log_int(&line, "pages", f->pages);
    log_ms(&line, "ms", (worker_now(f->w) - f->list_since_ms) * 1000);
    log_end(&line);
    feed_all_well(f);
    gather_done(&f->in);
    mem_trim();
    feed_rest(f, FEED_WATCH, 0);
    if (first)
        f->ev.ready(f->user);
}

static void end_page(struct kube_feed *f)
{
    const char *error = "";
    f->news_ms = worker_now(f->w);
    switch (feed_read_page(f, &error)) {
    case NEWS_END:
        end_list(f);
        return;
    case NEWS_GOOD:
        if (f->news_ms - f->list_since_ms < f->rules.times.list_ms)
            feed_rest(f, FEED_PAGE, 0);
        else
            feed_fail(f, KUBE_FAULT_TIMEOUT, "too many pages", FEED_LIST, 0);
        return;
    case NEWS_OLD:
        feed_fail(f, KUBE_FAULT_OLD, "a list from before the last event", FEED_LIST, 0);
        return;
    default:
        feed_fail(f, KUBE_FAULT_BROKEN, error, FEED_LIST, 0);
    }
}

static void on_head(void *user, const struct http_head *head)
{
    struct kube_feed *f = user;
    f->status = head->status;
    if (head->status == 200) {
        f->watch_since_ms = worker_now(f->w);
        return;
    }
    call_cancel(f->call);
    feed_refused(f, head);
}

static void on_page_data(void *user, struct buf *b)
{
    struct kube_feed *f = user;
    gather_add(&f->in, b);
}

static void on_page_done(void *user, enum why why, const struct http_head *trailers,
                         struct str fault)
{
    struct kube_feed *f = user;
    (void)trailers;
    f->call = NULL;
    if (why == WHY_OK)
        end_page(f);
    else
        feed_fail_why(f, why, fault, FEED_LIST);
}

/* ---- watch */

static bool has_proven(const struct kube_feed *f)
{
    return f->status == 200 &&
           (f->moved || worker_now(f->w) - f->watch_since_ms >= f->rules.times.proven_ms);
}

static void end_watch(struct kube_feed *f, enum why why, struct str fault)
{
    /* quiet to the deadline: either it had died, or there are no bookmarks here */
    if (why == WHY_DEADLINE && f->status == 200 && f->marks == MARKS_UNKNOWN)
        f->marks = MARKS_NEVER;
    if (!has_proven(f)) {
        feed_fail_why(f, why == WHY_OK ? WHY_ORIGIN_GONE : why, fault, FEED_WATCH);
        return;
    }
    f->failures = f->spoilt = 0;
    if (why != WHY_OK)
        feed_count(f, feed_kind_of(why));
    feed_rest(f, FEED_WATCH, 0);
}

static void end_of_news(struct kube_feed *f, enum feed_news news, const char *error)
{
    if (news == NEWS_BROKEN || news == NEWS_LARGE) {
        f->failures = f->failures > f->spoilt ? f->failures : f->spoilt;
        f->spoilt++;
        feed_fail(f, news == NEWS_LARGE ? KUBE_FAULT_LIMIT : KUBE_FAULT_BROKEN, error, FEED_LIST,
                  0);
        return;
    }
    if (has_proven(f))
        f->failures = f->spoilt = 0;
    if (news == NEWS_EXPIRED)
        feed_expired(f);
    else
        feed_refused(f, NULL);
}

static void on_events(void *user, struct buf *b)
{
    struct kube_feed *f = user;
    const char *error = "";
    f->news_ms = worker_now(f->w);
    gather_add(&f->in, b);
    enum feed_news news = feed_read_events(f, &error);
    if (news == NEWS_GOOD) {
        if (f->moved && f->fault[0] != '\0')
            feed_all_well(f);
        return;
    }
    call_cancel(f->call);
    end_of_news(f, news, error);
}

static void on_watch_done(void *user, enum why why, const struct http_head *trailers,
                          struct str fault)
{
    struct kube_feed *f = user;
    (void)trailers;
    f->call = NULL;
    end_watch(f, why, fault);
}

/* ---- requests */

static struct str escaped(struct str s, struct arena *a)
{
    char *p = arena_get(a, s.n * 3);
    return (struct str){p, text_put_percent(p, s)};
}

static struct str path_of(const struct kube_feed *f, struct arena *a)
{
    enum kube_kind kind = f->rules.kind;
    return arena_printf(a, "/apis/%s/%s/%s", kinds[kind].group,
                        f->older ? kinds[kind].older : kinds[kind].version, f->resource);
}

static struct str page_target(const struct kube_feed *f, struct arena *a)
{
    struct str path = path_of(f, a);
    if (f->more)
        return arena_printf(a, "%.*s?limit=%d&continue=%.*s", STR_ARG(path), PAGE,
                            STR_ARG(escaped(str_of(f->more), a)));
    return f->whole ? path : arena_printf(a, "%.*s?limit=%d", STR_ARG(path), PAGE);
}

static void ask_page(struct kube_feed *f, struct arena *a)
{
    static const struct call_events events = {on_head, on_page_data, on_page_done};
    const struct kube_times *t = &f->rules.times;
    struct call_request r = {.target = page_target(f, a),
                             .head_ms = t->head_ms,
                             .silence_ms = t->quiet_ms,
                             .whole_ms = t->page_ms,
                             .max_bytes = PAGE_BYTES};
    f->state = FEED_LISTING;
    f->call = kubeapi_get(f->rules.api, &r, &events, f);
}

static void ask_list(struct kube_feed *f, struct arena *a)
{
    f->pages = 0;
    f->moved = false;
    mem_free(f->more);
    f->more = NULL;
    f->list_since_ms = worker_now(f->w);
    ask_page(f, a);
}

static void ask_watch(struct kube_feed *f, struct arena *a)
{
    static const struct call_events events = {on_head, on_events, on_watch_done};
    const struct kube_times *t = &f->rules.times;
    uint64_t ms = t->watch_ms + (uint64_t)((double)t->watch_ms * feed_chance());
    struct str version = {f->version.text, f->version.n};
    struct str target = arena_printf(
        a, "%.*s?watch=true&allowWatchBookmarks=true&resourceVersion=%.*s&timeoutSeconds=%" PRIu64,
        STR_ARG(path_of(f, a)), STR_ARG(escaped(version, a)), ms / 1000 + 1);
    struct call_request r = {.target = target,
                             .head_ms = t->head_ms,
                             .silence_ms = f->marks == MARKS_NEVER ? 0 : t->quiet_ms,
                             .whole_ms = ms + t->margin_ms};
    f->state = FEED_WATCHING;
    f->moved = false;
    f->watches++;
    f->call = kubeapi_get(f->rules.api, &r, &events, f);
}

static void ask(struct kube_feed *f)
{
    char first[2048];
    struct arena a;
    arena_init(&a, first, sizeof first);
    if (f->next == FEED_LIST)
        ask_list(f, &a);
    else if (f->next == FEED_PAGE)
        ask_page(f, &a);
    else
        ask_watch(f, &a);
    arena_done(&a);
}

/* Pages of one list count once: they follow each other, and the server sets the pace. */
void feed_go_on(struct kube_feed *f)
{
    uint64_t ms = f->next == FEED_PAGE ? 0 : kubeapi_turn(f->rules.api);
    if (ms > 0)
        timer_set(f->w, &f->timer, ms);
    else
        ask(f);
}

static void on_rested(struct timer *t)
{
    feed_go_on(container_of(t, struct kube_feed, timer));
}

/* ---- life */

struct kube_feed *kube_feed_start(struct worker *w, const struct kube_feed_rules *rules,
                                  const struct resolver_events *ev, void *user)
{
    struct kube_feed *f = mem_new(sizeof *f);
    f->w = w;
    f->rules = *rules;
    f->resource = kinds[rules->kind].resource;
    f->ev = *ev;
    f->user = user;
    f->index = kube_index_new();
    f->news_ms = worker_now(w);
    timer_init(&f->timer, on_rested);
    f->state = FEED_RESTING;
    f->next = FEED_LIST;
    timer_set(w, &f->timer, 0);
    return f;
}

void kube_feed_stop(struct kube_feed *f)
{
    if (!f)
        return;
    timer_clear(f->w, &f->timer);
    if (f->call)
        call_cancel(f->call);
    kube_index_free(f->index);
    gather_done(&f->in);
    mem_free(f->more);
    mem_free(f);
}

void kube_feed_nudge(struct kube_feed *f)
{
    if (f->state == FEED_RESTING)
        timer_set(f->w, &f->timer, 0);
}

struct kube_feed_state kube_feed_state(const struct kube_feed *f)
{
    struct kube_feed_state s = {.objects = kube_index_objects(f->index),
                                .ambiguous = kube_index_ambiguous(f->index),
                                .ready = f->ready,
                                .watching = f->state == FEED_WATCHING && f->status == 200,
                                .news_age_ms = worker_now(f->w) - f->news_ms,
                                .lists = f->lists,
                                .watches = f->watches,
                                .events = f->events,
                                .resource = str_of(f->resource),
                                .fault = str_of(f->fault)};
    memcpy(s.faults, f->faults, sizeof s.faults);
    return s;
}
