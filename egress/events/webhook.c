/* webhook.c — the events as JSON, over app/deliver.h.  The URL may hold a secret, so it stands in
 * no line; and calls go outside of the policy, so a webhook whose host is denied tells of others
 * and never of itself. */
#include "egress/events/webhook.h"

#include <assert.h>
#include <stdio.h>

#include "app/deliver.h"
#include "base/text.h"
#include "egress/events/share.h"
#include "net/tls.h"

enum {
    PARALLEL = 4,
    TRIES = 4,
    PAUSE_MS = 1000,
    DROPPED_PER_S = 100,
    GIVEN_UP_PER_S = 20,
    SECONDS_BYTES = 19 /* of a time without its fraction and zone */
};

static const struct field fields[] = {
    {{"content-type", sizeof "content-type" - 1},
     {"application/json", sizeof "application/json" - 1}},
};

struct webhook {
    struct worker *w;
    struct str sandbox_id;
    struct deliver *deliver;
    struct tls_ctx *tls; /* NULL: plain */
    struct event_counters *counters;
    struct share dropped, given_up;
};

static void on_delivered(void *user, struct str host)
{
    struct webhook *h = user;
    (void)host;
    counter_add(&h->counters->webhook_sent, 1);
}

static void on_given_up(void *user, struct str host, enum why why, int status)
{
    struct webhook *h = user;
    struct log_line l;
    counter_add(&h->counters->webhook_given_up, 1);
    if (!share_take(&h->given_up))
        return;
    log_begin(&l, LOG_WARN, "[events] blocked-event not delivered");
    log_str(&l, "target.host", host);
    if (status)
        log_int(&l, "status", status);
    else
        log_str(&l, "why", str_of(why_text(why)));
    log_end(&l);
}

static const struct deliver_events deliver_events = {on_delivered, on_given_up};

static bool make_tls(const struct events_setup *setup, struct webhook *h, struct arena *a,
                     struct str *ret_error)
{
    struct str why;
    struct tls_client_rules rules = {.roots_pem = setup->roots_pem};
    h->tls = tls_client_new(&rules, a, &why);
    if (!h->tls)
        *ret_error = arena_printf(a, EGRESS_VARIABLE "DENY_WEBHOOK: %.*s", STR_ARG(why));
    return h->tls != NULL;
}

static struct deliver *make_deliver(const struct events_setup *setup, struct webhook *h,
                                    const struct url *url)
{
    struct client_request to = {.url = *url,
                                .method = STR("POST"),
                                .fields = fields,
                                .nfields = sizeof fields / sizeof fields[0],
                                .tls = h->tls,
                                .names = setup->names};
    struct deliver_rules rules = {.queue = (unsigned)setup->set->webhook_queue,
                                  .parallel = PARALLEL,
                                  .tries = TRIES,
                                  .timeout_ms = settings_ms(setup->set->webhook_timeout),
                                  .pause_ms = PAUSE_MS};
    return deliver_new(setup->w, &to, &rules, &deliver_events, h);
}

struct webhook *webhook_new(const struct events_setup *setup, struct event_counters *counters,
                            struct arena *a, struct str *ret_error)
{
    struct url url;
    bool good = url_parse(setup->set->deny_webhook, &url);
    assert(good && setup->names); /* egress_settings_check() has read it */
    struct webhook *h = mem_new(sizeof *h);
    h->w = setup->w;
    h->sandbox_id = setup->set->sandbox_id;
    h->counters = counters;
    if (url.tls && !make_tls(setup, h, a, ret_error)) {
        mem_free(h);
        return NULL;
    }
    share_init(&h->dropped, h->w, &counters->lines_left_out, LOG_WARN, DROPPED_PER_S,
               "[events] blocked-event queue full, more");
    share_init(&h->given_up, h->w, &counters->lines_left_out, LOG_WARN, GIVEN_UP_PER_S,
               "[events] blocked-event not delivered, more");
    h->deliver = make_deliver(setup, h, &url);
    return h;
}

void webhook_free(struct webhook *h)
{
    if (!h)
        return;
    deliver_free(h->deliver);
    share_done(&h->dropped);
    share_done(&h->given_up);
    tls_ctx_unref(h->tls);
    mem_free(h);
}

static void put(struct json_out *o, const char *name, struct str value)
{
    json_key(o, name);
    json_put_str(o, value);
}

static void drop(struct webhook *h, struct str host)
{
    char msg[DNS_NAME_TEXT_BYTES + 80];
    struct log_line l;
    counter_add(&h->counters->webhook_dropped, 1);
    if (!share_take(&h->dropped))
        return;
    snprintf(msg, sizeof msg, "[events] blocked-event queue full; dropping hostname %.*s",
             STR_ARG(host));
    log_begin(&l, LOG_WARN, msg);
    log_end(&l);
}

void webhook_tell(struct webhook *h, struct str host)
{
    char time[24];
    struct json_out o;
    text_put_iso8601(time, worker_unix_ms(h->w));
    time[SECONDS_BYTES] = 'Z';
    json_out_init(&o);
    json_open(&o, '{');
    put(&o, "hostname", host);
    put(&o, "timestamp", (struct str){time, SECONDS_BYTES + 1});
    put(&o, "source", STR("opensandbox-egress"));
    put(&o, "sandboxId", h->sandbox_id);
    json_close(&o, '}');
    if (!deliver_push(h->deliver, host, (struct str){o.p, o.n}))
        drop(h, host);
    json_out_done(&o);
}

void webhook_drain(struct webhook *h, uint64_t ms, void (*done)(void *user), void *user)
{
    deliver_drain(h->deliver, ms, done, user);
}

unsigned webhook_waiting(const struct webhook *h)
{
    return deliver_waiting(h->deliver) + deliver_running(h->deliver);
}
