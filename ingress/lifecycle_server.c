/* lifecycle_server.c — the lifecycle server as an operator sees it: where it is, the key we show
 * it, and what is told of its answers.  The key is nowhere but in locked memory and in the requests
 * to that server. */
#include <stdio.h>

#include "base/log.h"
#include "base/map.h"
#include "base/text.h"
#include "conf/sources.h"
#include "ingress/lifecycle_impl.h"
#include "ingress/settings.h"
#include "net/tls.h"
#include "net/worker.h"
#include "policies/signature.h"

enum { KEY_FILE_BYTES = 65536, KEY_BYTES = 4096, LOG_MS = 60000, SHOWN_BYTES = 256 };

/* ---- key */

static bool take_key(struct str text, const char *from, struct secret **ret, struct arena *a,
                     struct str *ret_error)
{
    text = signature_trim(text);
    if (!text_is_visible(text) || text.n > KEY_BYTES) {
        *ret_error = arena_printf(
            a, "%s: must hold one key of printable ASCII characters without blanks", from);
        return false;
    }
    *ret = secret_new(text.p, text.n);
    return true;
}

bool lifecycle_key(const struct ingress_settings *set, struct secret **ret, struct arena *a,
                   struct str *ret_error)
{
    struct arena mine;
    struct str text, error;
    bool good;
    if (set->lifecycle_api_key_file.n == 0)
        return take_key(set->lifecycle_api_key, "OPENSANDBOX_INGRESS_LIFECYCLE_API_KEY", ret, a,
                        ret_error);
    arena_init_private(&mine, NULL, 0);
    good = conf_read_file(set->lifecycle_api_key_file, KEY_FILE_BYTES, &mine, &text, &error);
    if (good)
        good = take_key(text, "lifecycle-api-key-file", ret, a, ret_error);
    else
        *ret_error = arena_printf(a, "lifecycle-api-key-file: %.*s", STR_ARG(error));
    arena_done(&mine);
    return good;
}

void lifecycle_reload(void *self)
{
    struct lifecycle *l = self;
    struct secret *key = NULL;
    struct str error = STR_NONE;
    struct arena a;
    arena_init(&a, NULL, 0);
    if (lifecycle_key(l->set, &key, &a, &error)) {
        lifecycle_calls_key(l->calls, key);
        l->refusal_ms = 0; /* whether the new one is any better is news */
    } else {
        struct log_line line;
        log_begin(&line, LOG_ERROR, "lifecycle-api-key-file: not usable, nothing changed");
        log_str(&line, "fault", error);
        log_end(&line);
    }
    arena_done(&a);
}

/* ---- server */

static bool read_url(const struct ingress_settings *set, struct url *ret, struct str *ret_error)
{
    if (url_parse(set->lifecycle_url, ret) && !ret->user.p)
        return true;
    *ret_error = STR("lifecycle-url: must be http:// or https://, host, port and path");
    return false;
}

struct lifecycle_calls *lifecycle_connect(struct worker *w, const struct ingress_settings *set,
                                          struct arena *a, struct str *ret_error)
{
    static const struct tls_client_rules roots = {.sessions = 1, .wipe = true};
    struct lifecycle_calls_rules r = {.max = (unsigned)set->lifecycle_max_calls,
                                      .connect_ms = settings_ms(set->lifecycle_connect_timeout),
                                      .whole_ms = settings_ms(set->lifecycle_timeout)};
    struct str error;
    if (!read_url(set, &r.url, ret_error))
        return NULL;
    if (r.url.tls && !(r.tls = tls_client_new(&roots, a, &error))) {
        *ret_error = arena_cat(a, STR("lifecycle-url: "), error);
        return NULL;
    }
    struct lifecycle_calls *c = lifecycle_calls_new(w, &r);
    tls_ctx_unref(r.tls);
    return c;
}

bool lifecycle_check(const struct ingress_settings *set, struct arena *a, struct str *ret_error)
{
    struct url u;
    struct secret *key = NULL;
    bool good = read_url(set, &u, ret_error) && lifecycle_key(set, &key, a, ret_error);
    secret_unref(key);
    return good;
}

/* ---- what is told of its answers */

static const char *const calls[LIFECYCLE_CALLS] = {"state", "endpoint"};

struct str lifecycle_reason(enum lifecycle_verdict v, const struct lifecycle_reply *r,
                            const char *fault)
{
    if (v == LIFECYCLE_REFUSED)
        return STR("the lifecycle server refuses our key");
    if (v == LIFECYCLE_WRONG)
        return STR("the lifecycle server does not take the request");
    if (r->why != WHY_OK)
        return str_of(why_text(r->why));
    return *fault ? str_of(fault) : STR("the lifecycle server has trouble");
}

static void log_answer(enum log_level level, const char *msg, enum lifecycle_call call,
                       struct str id, const struct lifecycle_reply *r, const char *fault)
{
    char status[12] = "", mem[1024];
    struct arena a;
    arena_init_private(&a, mem, sizeof mem);
    char *sandbox = mem_strdup(str_head(id, id.n < SHOWN_BYTES ? id.n : SHOWN_BYTES));
    char *code = mem_strdup(lifecycle_read_code(r->body, &a)), *said = mem_strdup(r->fault);
    if (r->status > 0)
        snprintf(status, sizeof status, "%d", r->status);
    log_note_rarely(level, msg, "provider", "lifecycle", "sandbox_id", sandbox, "call", calls[call],
                    "why", r->why == WHY_OK ? "" : why_text(r->why), "status", status, "code", code,
                    "error", *fault ? fault : said, NULL);
    mem_free(sandbox);
    mem_free(code);
    mem_free(said);
    arena_done(&a);
}

/* A wrong key stays wrong: a line a minute says enough. */
static void log_refusal(struct lifecycle *l, enum lifecycle_call call, struct str id,
                        const struct lifecycle_reply *r)
{
    uint64_t now = lifecycle_now(l);
    if (l->refusal_ms > 0 && now - l->refusal_ms < LOG_MS)
        return;
    l->refusal_ms = now;
    log_answer(LOG_ERROR, "ingress: the lifecycle server refuses our key", call, id, r, "");
}

void lifecycle_note(struct lifecycle *l, enum lifecycle_call call, struct str id,
                    enum lifecycle_verdict v, const struct lifecycle_reply *r, const char *fault)
{
    l->answers[call][v]++;
    if (v == LIFECYCLE_GOOD || v == LIFECYCLE_ABSENT) {
        l->good_ms = lifecycle_now(l);
        l->refused = 0;
    } else if (v == LIFECYCLE_REFUSED) {
        l->refused = r->status;
        log_refusal(l, call, id, r);
    } else {
        log_answer(LOG_WARN, "ingress: provider resolution failed", call, id, r, fault);
    }
}

void lifecycle_note_gateway(struct str id)
{
    char *sandbox = mem_strdup(str_head(id, id.n < SHOWN_BYTES ? id.n : SHOWN_BYTES));
    log_note_rarely(LOG_ERROR,
                    "ingress: the lifecycle server points at a gateway; it must run with "
                    "ingress.mode = \"direct\"",
                    "provider", "lifecycle", "sandbox_id", sandbox, NULL);
    mem_free(sandbox);
}

struct str lifecycle_unready(void *self, struct arena *a)
{
    const struct lifecycle *l = self;
    if (l->refused)
        return arena_printf(a, "the lifecycle server refuses our key (status %d)", l->refused);
    return l->ready ? STR("") : STR("the lifecycle resolver has not begun");
}

/* ---- metrics */

static void answers(const struct lifecycle *l, struct metrics_out *o)
{
    char label[64];
    metrics_family(o, "ingress.lifecycle.calls", "counter",
                   "Calls to the lifecycle server by what came of them");
    for (int c = 0; c < LIFECYCLE_CALLS; c++)
        for (int v = 0; v < LIFECYCLE_VERDICTS; v++) {
            snprintf(label, sizeof label, "call=\"%s\",outcome=\"%s\"", calls[c],
                     lifecycle_verdict_text((enum lifecycle_verdict)v));
            metrics_value(o, "ingress.lifecycle.calls", label, (double)l->answers[c][v]);
        }
}

void lifecycle_metrics(void *self, struct metrics_out *o)
{
    const struct lifecycle *l = self;
    answers(l, o);
    metrics_single(o, "ingress.lifecycle.stale", "counter",
                   "Lookups that the last good answer served", (double)l->stale);
    metrics_single(o, "ingress.lifecycle.overflows", "counter", "Lookups that found the line full",
                   (double)l->overflows);
    metrics_single(o, "ingress.lifecycle.calls.active", "gauge", "Calls in flight",
                   lifecycle_calls_active(l->calls));
    metrics_single(o, "ingress.lifecycle.calls.waiting", "gauge", "Calls in the line",
                   lifecycle_calls_waiting(l->calls));
    metrics_single(o, "ingress.lifecycle.ports", "gauge", "Ports of sandboxes that are kept",
                   (double)map_size(l->ports));
    metrics_single(o, "ingress.lifecycle.answer.age.seconds", "gauge",
                   "Seconds since the last good answer; -1: there was none",
                   l->good_ms ? (double)(lifecycle_now(l) - l->good_ms) / 1000 : -1);
}
