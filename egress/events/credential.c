/* credential.c — requests to bound hosts, told once they are over (contract egress-vault 20): which
 * binding, which names, where something was put in, what came of it.  Values, paths and queries are
 * not here to be told. */
#include <stdio.h>

#include "egress/events/events_impl.h"

enum { SHOWN = 8, METHOD_SHOWN = 32 };

static struct str decision_text(enum credential_decision d)
{
    static const struct str texts[] = {
        [CREDENTIAL_NO_MATCH] = {"no_match", 8},
        [CREDENTIAL_INJECTED] = {"injected", 8},
        [CREDENTIAL_DENIED] = {"denied", 6},
        [CREDENTIAL_AMBIGUOUS] = {"ambiguous_match", 15},
        [CREDENTIAL_MISMATCH] = {"identity_mismatch", 17},
    };
    return texts[d];
}

static bool is_refused(const struct event_credential *c)
{
    return c->decision != CREDENTIAL_INJECTED && c->decision != CREDENTIAL_NO_MATCH;
}

static void log_headers(struct log_line *l, const struct event_credential *c)
{
    char list[512];
    size_t n = 0;
    for (unsigned i = 0; i < c->nheaders && i < SHOWN; i++) {
        int more = snprintf(list + n, sizeof list - n, "%s%.*s", i ? "," : "",
                            STR_ARG(c->headers[i].name));
        if (more < 0 || (size_t)more >= sizeof list - n)
            break;
        n += (size_t)more;
    }
    if (n > 0)
        log_str(l, "headers", (struct str){list, n});
}

static void log_surfaces(struct log_line *l, unsigned surfaces)
{
    static const struct {
        unsigned bit;
        const char *text;
    } rows[] = {{SURFACE_PATH, "path"},
                {SURFACE_QUERY, "query"},
                {SURFACE_HEADER, "header"},
                {SURFACE_BODY, "body"}};
    char list[32];
    size_t n = 0;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (surfaces & rows[i].bit)
            n += (size_t)snprintf(list + n, sizeof list - n, "%s%s", n ? "," : "", rows[i].text);
    if (n > 0)
        log_str(l, "surfaces", (struct str){list, n});
}

static void log_all(const struct event_credential *c, enum log_level level, const char *msg)
{
    struct log_line l;
    log_begin(&l, level, msg);
    log_str(&l, "operation", STR("request"));
    log_str(&l, "decision", decision_text(c->decision));
    if (c->cause)
        log_str(&l, "cause", str_of(c->cause));
    if (c->binding.n)
        log_str(&l, "binding", c->binding);
    log_int(&l, "revision", c->revision);
    log_str(&l, "target.host", c->host);
    log_str(&l, "method",
            str_head(c->method, c->method.n < METHOD_SHOWN ? c->method.n : METHOD_SHOWN));
    if (c->pattern.n)
        log_str(&l, "path_pattern", c->pattern);
    log_headers(&l, c);
    log_surfaces(&l, c->surfaces);
    if (c->status)
        log_int(&l, "status", c->status);
    log_int(&l, "duration_ms", (int64_t)c->took_ms);
    log_str(&l, "request_id", c->request_id);
    log_end(&l);
}

static void count(struct event_counters *n, const struct event_credential *c)
{
    counter_add(&n->credential[c->decision], 1);
    counter_add(&n->credential_skipped, c->skipped);
    counter_add(&n->credential_masked, c->masked);
    histogram_add(&n->credential_took, c->took_ms * 1000);
}

void events_credential(struct events *e, const struct event_credential *c)
{
    count(&e->counters, c);
    if (is_refused(c)) {
        if (share_take(&e->withheld))
            log_all(c, LOG_WARN, "credential withheld");
        return;
    }
    if (c->skipped && share_take(&e->withheld))
        log_all(c, LOG_WARN, "substitution skipped: the body cannot be looked into");
    if (c->decision == CREDENTIAL_INJECTED)
        log_all(c, LOG_INFO, "credential injected");
    else if (c->missed)
        log_all(c, LOG_INFO, "substitution miss");
    else if (log_on(LOG_DEBUG))
        log_all(c, LOG_DEBUG, "no credential for this request");
}
