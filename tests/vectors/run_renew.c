/* run_renew.c — renew_intent: payloads, the field that skips, the throttle, the commands. */
#include "base/text.h"
#include "ingress/redis/renew.h"
#include "ingress/redis/throttle.h"
#include "vectors/vectors.h"

static bool run_payload(struct row *r)
{
    struct str forward = row_bytes(r, r->v, "forward");
    uint64_t unix_ns;
    if (!text_u64(row_text(r->v, "observed_ns"), UINT64_MAX, &unix_ns))
        return row_fail(r, "observed_ns is no number");
    struct renew_note note = {.ns = row_text(r->v, "namespace"),
                              .id = row_text(r->v, "sandbox_id"),
                              .port = (uint16_t)row_int(r, r->v, "port", 0),
                              .forward = row_member(r->v, "forward") ? forward : STR_NONE};
    return row_same(r, "payload", renew_payload(&note, unix_ns, r->a), row_text(r->v, "expect"));
}

/* The first value of a list of them, or NULL. */
static const struct str *first_value(struct row *r, const struct json *values)
{
    struct str *ret = arena_get(r->a, sizeof *ret);
    if (!values || !json_first(values))
        return NULL;
    *ret = row_to_bytes(r, json_first(values));
    return ret;
}

static bool run_skip(struct row *r)
{
    return row_same_int(r, "skips", renew_skips(first_value(r, row_member(r->v, "values"))),
                        row_bool(r->v, "expect"));
}

static bool publishes(struct row *r, struct throttle *t, const struct json *event)
{
    struct str ns = row_text(event, "namespace"), id = row_text(event, "sandbox_id");
    uint64_t now = (uint64_t)(json_double(row_member(event, "t")) * 1000 + 0.5);
    if (renew_skips(first_value(r, row_member(event, "renew"))) || !throttle_take(t, ns, id, now))
        return false;
    if (row_bool(event, "write_fails"))
        throttle_give_back(t, ns, id, now);
    return true;
}

static bool run_throttle(struct row *r)
{
    uint64_t interval_ms = (uint64_t)row_int(r, r->v, "min_interval", 0) * 1000;
    struct throttle *t = throttle_new(interval_ms, 100);
    const struct json *wanted = json_first(row_member(r->v, "expect"));
    bool good = true;
    for (const struct json *e = json_first(row_member(r->v, "events")); e && good;
         e = json_next(e)) {
        good = row_same_int(r, "published", publishes(r, t, e), json_bool(wanted));
        wanted = json_next(wanted);
    }
    throttle_free(t);
    return good && (!wanted || row_fail(r, "fewer events"));
}

static bool run_commands(struct row *r)
{
    struct resp_command commands[2];
    struct str payload = row_text(r->v, "payload");
    unsigned n = renew_commands(row_text(r->v, "queue_key"), row_int(r, r->v, "queue_max_len", 0),
                                &payload, 1, r->a, commands);
    const struct json *wanted = json_first(row_member(r->v, "expect"));
    for (unsigned i = 0; i < n; i++, wanted = wanted ? json_next(wanted) : NULL) {
        const struct json *arg = wanted ? json_first(wanted) : NULL;
        for (unsigned k = 0; k < commands[i].n; k++, arg = arg ? json_next(arg) : NULL)
            if (!row_same(r, "argument", commands[i].args[k], arg ? json_string(arg) : STR("none")))
                return false;
        if (arg)
            return row_fail(r, "a command is too short");
    }
    return !wanted || row_fail(r, "fewer commands");
}

bool run_renew_intent(struct row *r)
{
    if (row_is(r->v, "kind", "payload"))
        return run_payload(r);
    if (row_is(r->v, "kind", "skip"))
        return run_skip(r);
    if (row_is(r->v, "kind", "throttle"))
        return run_throttle(r);
    if (row_is(r->v, "kind", "commands"))
        return run_commands(r);
    return row_fail(r, "unknown kind");
}
