/* feed_end.c — how long a feed rests after what, and what it says about it.  A fault is logged by
 * whoever ends the request, once a minute and kind; the back-off grows as long as nothing gets
 * anywhere. */
#include <stdio.h>

#include "base/digest.h"
#include "base/log.h"
#include "base/text.h"
#include "ingress/kube/feed_impl.h"
#include "net/worker.h"

enum { TELL_MS = 60000 };

const char *kube_fault_text(enum kube_fault kind)
{
    static const char *const texts[] = {
#define X(id, text) text,
        KUBE_FAULTS(X)
#undef X
    };
    return texts[kind];
}

void feed_count(struct kube_feed *f, enum kube_fault kind)
{
    f->faults[kind]++;
}

/* ---- resting */

double feed_chance(void)
{
    uint32_t r;
    digest_random(&r, sizeof r);
    return r / 4294967296.0;
}

void feed_rest(struct kube_feed *f, enum feed_next next, uint64_t ms)
{
    f->state = FEED_RESTING;
    f->next = next;
    f->call = NULL;
    f->status = 0;
    if (next == FEED_LIST)
        gather_done(&f->in);
    else
        gather_clear(&f->in);
    if (ms > 0)
        timer_set(f->w, &f->timer, ms);
    else
        feed_go_on(f);
}

/* Doubles, half of it more at random, up to the most; from there half of it less. */
static uint64_t back_off_ms(const struct kube_feed *f)
{
    const struct kube_times *t = &f->rules.times;
    unsigned n = f->failures < 16 ? f->failures : 16;
    uint64_t ms = t->rest_ms << (n > 0 ? n - 1 : 0);
    if (ms + ms / 2 <= t->rest_max_ms)
        return ms + (uint64_t)((double)ms / 2 * feed_chance());
    return t->rest_max_ms - (uint64_t)((double)t->rest_max_ms / 2 * feed_chance());
}

/* ---- faults */

static void note_fault(struct kube_feed *f, enum kube_fault kind, const char *said)
{
    const char *doing = f->state == FEED_WATCHING ? "watch" : "list";
    snprintf(f->fault, sizeof f->fault, "%s: %s", doing, said);
    f->fault_kind = kind;
    feed_count(f, kind);
}

/* At most one a minute of a kind, so that an hour without a server is sixty lines. */
static void tell_fault(struct kube_feed *f, uint64_t again_ms)
{
    uint64_t now = worker_now(f->w);
    struct log_line line;
    if (f->told_ms != 0 && f->told_kind == f->fault_kind && now - f->told_ms < TELL_MS)
        return;
    f->told_kind = f->fault_kind;
    f->told_ms = now;
    log_begin(&line, LOG_WARN, "kubernetes: the API server does not serve us");
    log_str(&line, "resource", str_of(f->resource));
    log_str(&line, "server", kubeapi_server(f->rules.api));
    log_str(&line, "reason", str_of(f->fault));
    log_int(&line, "again_ms", (int64_t)again_ms);
    log_end(&line);
}

/* Who we are is looked up again: tokens and certificates are changed by others. */
static void renew(struct kube_feed *f)
{
    char first[512];
    struct arena a;
    struct str error;
    arena_init(&a, first, sizeof first);
    if (!kubeapi_renew(f->rules.api, &a, &error)) {
        char *text = mem_strdup(error);
        log_note_rarely(LOG_WARN, "kubernetes: access cannot be read again", "reason", text, NULL);
        mem_free(text);
    }
    arena_done(&a);
}

void feed_fail(struct kube_feed *f, enum kube_fault kind, const char *said, enum feed_next next,
               uint64_t least_ms)
{
    note_fault(f, kind, said);
    if (kind == KUBE_FAULT_UNAUTHORIZED)
        renew(f);
    f->failures++;
    uint64_t ms = back_off_ms(f);
    ms = ms > least_ms ? ms : least_ms;
    tell_fault(f, ms);
    feed_rest(f, next, ms);
}

void feed_all_well(struct kube_feed *f)
{
    f->fault[0] = '\0';
    if (f->told_ms != 0)
        log_note(LOG_INFO, "kubernetes: the API server serves us again", "resource", f->resource,
                 NULL);
    f->told_ms = 0;
}

/* ---- ends of a request */

enum kube_fault feed_kind_of(enum why why)
{
    switch (why) {
    case WHY_DNS:
    case WHY_DIAL:
    case WHY_TLS:
    case WHY_DENIED:
        return KUBE_FAULT_CONNECT;
    case WHY_DEADLINE:
        return KUBE_FAULT_TIMEOUT;
    case WHY_LIMIT:
        return KUBE_FAULT_LIMIT;
    default:
        return KUBE_FAULT_BROKEN;
    }
}

void feed_fail_why(struct kube_feed *f, enum why why, struct str fault, enum feed_next next)
{
    char said[200];
    if (why == WHY_TLS)
        renew(f);
    snprintf(said, sizeof said, "%s%s%.*s", why_text(why), fault.n ? ": " : "", STR_ARG(fault));
    feed_fail(f, feed_kind_of(why), said, next, 0);
}

static void relist(struct kube_feed *f)
{
    f->older = false;
    if (f->failures == 0 || f->moved) {
        f->failures++; /* should the next watch fail as quickly, that is no longer at once */
        feed_rest(f, FEED_LIST, 0);
    } else {
        f->failures++;
        feed_rest(f, FEED_LIST, back_off_ms(f));
    }
}

void feed_expired(struct kube_feed *f)
{
    note_fault(f, KUBE_FAULT_EXPIRED, "410, the version is gone");
    if (f->state == FEED_LISTING)
        f->whole = ++f->expired > 1;
    relist(f);
}

static bool try_older(struct kube_feed *f)
{
    if (f->status != 404 || f->state != FEED_LISTING || f->rules.kind != KUBE_AGENT_SANDBOX ||
        f->older)
        return false;
    f->older = true;
    feed_rest(f, FEED_LIST, 0);
    return true;
}

static enum kube_fault kind_of_status(int status)
{
    return status == 401   ? KUBE_FAULT_UNAUTHORIZED
           : status == 403 ? KUBE_FAULT_FORBIDDEN
           : status == 404 ? KUBE_FAULT_MISSING
                           : KUBE_FAULT_STATUS;
}

static uint64_t retry_after_ms(const struct kube_feed *f, const struct http_head *head)
{
    const struct str *text = head ? head_get(head, STR("retry-after")) : NULL;
    uint64_t s, most = f->rules.times.rest_max_ms;
    if (!text || !text_u64(*text, UINT32_MAX, &s))
        return 0;
    return s * 1000 < most ? s * 1000 : most;
}

/* The call is over. */
void feed_refused(struct kube_feed *f, const struct http_head *head)
{
    char said[64];
    uint64_t least_ms = retry_after_ms(f, head);
    if (f->status == 410) {
        feed_expired(f);
        return;
    }
    if (try_older(f))
        return;
    f->older = false;
    snprintf(said, sizeof said, "status %d", f->status);
    /* a watch that is not there any more is no better for being asked again */
    bool again = f->state == FEED_WATCHING && f->status != 404 && f->status != 400;
    feed_fail(f, kind_of_status(f->status), said, again ? FEED_WATCH : FEED_LIST, least_ms);
}
