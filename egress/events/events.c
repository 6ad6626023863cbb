/* events.c — what the workload did, told to the log, the decision log, the webhook and the
 * counters.  All of it is caused by the workload, which can do it as often as it likes: so lines
 * about what was refused have a share of each second, and everything else here is bounded. */
#include "egress/events/events.h"

#include <netinet/in.h>
#include <stdio.h>

#include "egress/events/events_impl.h"
#include "egress/events/webhook.h"
#include "policies/domains.h"

enum {
    DENIED_PER_S = 100,
    REFUSED_PER_S = 20,
    DROPPED_PER_S = 10,
    IPS_SHOWN = 32 /* of one answer: a line has 4 KiB */
};

static const uint32_t bounds_us[EVENTS_BUCKETS - 1] = EVENTS_BOUNDS_US;

/* ---- life ---- */

struct events *events_new(const struct events_setup *setup, struct arena *a, struct str *ret_error)
{
    struct events *e = mem_new(sizeof *e);
    e->s = *setup;
    struct counter *more = &e->counters.lines_left_out;
    share_init(&e->denied, setup->w, more, LOG_WARN, DENIED_PER_S, "[dns] denied by policy, more");
    share_init(&e->refused, setup->w, more, LOG_WARN, REFUSED_PER_S,
               "connection denied by policy, more");
    share_init(&e->dropped, setup->w, more, LOG_INFO, DROPPED_PER_S, "packet refused, more");
    share_init(&e->withheld, setup->w, more, LOG_WARN, REFUSED_PER_S, "credential withheld, more");
    if (setup->set->deny_webhook.n == 0)
        return e;
    e->webhook = webhook_new(setup, &e->counters, a, ret_error);
    if (e->webhook)
        return e;
    mem_free(e);
    return NULL;
}

void events_free(struct events *e)
{
    if (!e)
        return;
    webhook_free(e->webhook);
    share_done(&e->denied);
    share_done(&e->refused);
    share_done(&e->dropped);
    share_done(&e->withheld);
    view_unref(e->view);
    mem_free(e);
}

void events_adopt(struct events *e, const struct egress_view *view)
{
    const struct egress_view *old = e->view;
    e->view = view_ref(view);
    view_unref(old);
}

void events_drain(struct events *e, void (*done)(void *user), void *user)
{
    uint64_t ms = settings_ms(e->s.set->core.drain_timeout);
    if (e->webhook)
        webhook_drain(e->webhook, ms - ms / 8, done, user);
    else
        done(user);
}

static void decide(struct events *e, const struct decision *d)
{
    if (e->s.decisions)
        decisions_note(e->s.decisions, d, worker_unix_ms(e->s.w));
}

/* ---- queries ---- */

static bool is_answered(const struct dns_told *t)
{
    return t->why == WHY_OK && (t->rcode == DNS_NOERROR || t->rcode == DNS_NXDOMAIN);
}

static void count_query(struct event_counters *c, const struct dns_told *t)
{
    size_t i = 0;
    while (i < EVENTS_BUCKETS - 1 && t->took_us > bounds_us[i])
        i++;
    counter_add(&c->took[i], 1);
    counter_add(&c->took_us, t->took_us);
    if (is_answered(t))
        return;
    counter_add(t->why == WHY_DENIED                          ? &c->denied
                : t->why == WHY_DNS || t->why == WHY_DEADLINE ? &c->upstream_error
                : t->why == WHY_OK                            ? &c->rcode
                                                              : &c->not_told,
                1);
}

static const char *fault_of(const struct dns_told *t, char out[32])
{
    switch (t->why) {
    case WHY_DNS:
        return "no upstream gave an answer";
    case WHY_DEADLINE:
        return "no answer in time";
    case WHY_LIMIT:
        return "a limit of questions or of learned addresses is reached";
    case WHY_OVERLOAD:
        return "too many questions wait, or the kernel did not take the addresses";
    case WHY_OK:
        snprintf(out, 32, "upstream's rcode %d", (int)t->rcode);
        return out;
    default:
        return why_text(t->why);
    }
}

static void log_ips(struct log_line *l, const struct gate_learned *ips)
{
    char list[IPS_SHOWN * (IP_TEXT_BYTES + 3) + 2];
    unsigned shown = ips->n < IPS_SHOWN ? ips->n : IPS_SHOWN;
    size_t n = 0;
    if (ips->n == 0)
        return;
    for (unsigned i = 0; i < shown; i++) {
        list[n++] = i ? ',' : '[';
        list[n++] = '"';
        n += ip_text(&ips->at[i].ip, list + n);
        list[n++] = '"';
    }
    list[n++] = ']';
    log_json(l, "target.ips", (struct str){list, n});
    if (ips->n > shown)
        log_int(l, "target.ips_left_out", ips->n - shown);
}

/* log_skip silences success, and nothing else. */
static bool is_silenced(const struct events *e, const struct dns_told *t)
{
    return is_answered(t) && e->view && e->view->log_skip &&
           patterns_first(e->view->log_skip, t->name) != PATTERNS_NONE;
}

static void log_outbound(struct events *e, const struct dns_told *t)
{
    struct log_line l;
    char text[32];
    if (!log_on(LOG_INFO) || is_silenced(e, t))
        return;
    log_begin(&l, LOG_INFO, "egress outbound");
    log_str(&l, "opensandbox.event", STR("egress.outbound"));
    log_str(&l, "target.host", t->name);
    log_ips(&l, t->ips);
    if (!is_answered(t))
        log_str(&l, "error", str_of(fault_of(t, text)));
    log_end(&l);
}

static void log_denied(struct events *e, const struct dns_told *t, struct str rule)
{
    struct log_line l;
    char msg[DNS_NAME_TEXT_BYTES + 128], from[ADDR_TEXT_BYTES] = "-";
    size_t n = t->client ? addr_text(t->client, from) : 1;
    if (!share_take(&e->denied))
        return;
    snprintf(msg, sizeof msg, "[dns] denied by policy (remote=%.*s question=%.*s type=%u)", (int)n,
             from, STR_ARG(t->name), t->type);
    log_begin(&l, LOG_WARN, msg);
    log_str(&l, "rule", rule);
    log_end(&l);
}

/* Of an allowed name, and not the upstreams' fault: an operator may have to raise a limit (4.3). */
static void warn_of_limits(const struct dns_told *t)
{
    if (t->why == WHY_LIMIT)
        log_note_rarely(LOG_WARN,
                        "[dns] SERVFAIL: a limit of questions or of learned addresses is reached",
                        NULL);
    else if (t->why == WHY_OVERLOAD)
        log_note_rarely(LOG_WARN,
                        "[dns] SERVFAIL: too many questions wait, or the kernel takes no address",
                        NULL);
}

void events_dns(struct events *e, const struct dns_told *t)
{
    char text[POLICY_RULE_BYTES];
    struct str rule = {text, policy_rule_text(t->judged, text)};
    count_query(&e->counters, t);
    decide(e, &(struct decision){
                  .kind = DECISION_DNS, .name = t->name, .rule = rule, .allow = t->judged.allow});
    if (t->why != WHY_DENIED) {
        log_outbound(e, t);
        warn_of_limits(t);
        return;
    }
    log_denied(e, t, rule);
    if (e->webhook && !str_eq(t->name, STR(".")) && t->name.n)
        webhook_tell(e->webhook, t->name);
}

/* ---- connections and packets ---- */

static void log_target(struct log_line *l, struct str host, struct str address, uint16_t port)
{
    if (host.n)
        log_str(l, "target.host", host);
    if (address.n)
        log_str(l, "target.ip", address);
    if (port)
        log_int(l, "target.port", port);
}

void events_connection(struct events *e, const struct event_connection *c)
{
    char text[IP_TEXT_BYTES];
    struct str address = {text, c->ip ? ip_text(c->ip, text) : 0};
    struct log_line l;
    counter_add(c->allow ? &e->counters.connections_allowed : &e->counters.connections_denied, 1);
    decide(e, &(struct decision){.kind = DECISION_CONNECTION,
                                 .name = c->host,
                                 .address = address,
                                 .port = c->port,
                                 .proto = STR("tcp"),
                                 .rule = c->rule,
                                 .allow = c->allow});
    if (c->allow || !share_take(&e->refused))
        return;
    log_begin(&l, LOG_WARN, "connection denied by policy");
    log_target(&l, c->host, address, c->port);
    log_str(&l, "rule", c->rule);
    log_str(&l, "why", str_of(why_text(c->why)));
    log_end(&l);
}

static struct str proto_text(uint8_t protocol)
{
    switch (protocol) {
    case IPPROTO_TCP:
        return STR("tcp");
    case IPPROTO_UDP:
        return STR("udp");
    case IPPROTO_ICMP:
    case IPPROTO_ICMPV6:
        return STR("icmp");
    default:
        return STR_NONE;
    }
}

void events_drop(struct events *e, const struct drop *d, struct str rule)
{
    char text[IP_TEXT_BYTES];
    struct str address = {text, ip_text(&d->dst, text)}, proto = proto_text(d->protocol);
    struct log_line l;
    counter_add(&e->counters.drops, 1);
    decide(e, &(struct decision){.kind = DECISION_PACKET,
                                 .address = address,
                                 .port = d->dst_port,
                                 .proto = proto,
                                 .rule = rule});
    if (!share_take(&e->dropped))
        return;
    log_begin(&l, LOG_INFO, "packet refused");
    log_target(&l, STR_NONE, address, d->dst_port);
    if (proto.n)
        log_str(&l, "proto", proto);
    else
        log_int(&l, "proto", d->protocol);
    if (d->has_uid)
        log_int(&l, "uid", d->uid);
    log_str(&l, "rule", rule);
    log_end(&l);
}
