/* run_readiness.c — network_readiness: classes of dials, keys of hosts, windows. */
#include <errno.h>

#include "ingress/readiness.h"
#include "vectors/vectors.h"

/* What a row calls an error, as our dialler reports it. */
static const struct {
    const char *text;
    enum why why;
    int err;
    bool gone;
} errors[] = {
    {"OK", WHY_OK, 0, false},
    {"deadline", WHY_DEADLINE, 0, false},
    {"net_timeout", WHY_DEADLINE, 0, false},
    {"dns", WHY_DNS, 0, false},
    {"canceled", WHY_CLIENT_GONE, 0, true},
    {"unknown", WHY_DIAL, 0, false},
    {"EHOSTUNREACH", WHY_DIAL, EHOSTUNREACH, false},
    {"ENETUNREACH", WHY_DIAL, ENETUNREACH, false},
    {"ENETDOWN", WHY_DIAL, ENETDOWN, false},
    {"ECONNREFUSED", WHY_DIAL, ECONNREFUSED, false},
};

static bool run_dial(struct row *r)
{
    enum why why = WHY_DIAL;
    int err = 0;
    bool gone = row_bool(r->v, "request_canceled");
    const struct json *list = row_member(r->v, "errors");
    for (const struct json *v = list ? json_first(list) : NULL; v; v = json_next(v)) {
        size_t i = 0, n = sizeof errors / sizeof errors[0];
        while (i < n && !str_eq(json_string(v), str_of(errors[i].text)))
            i++;
        if (i == n)
            return row_fail(r, "unknown error %.*s", STR_ARG(json_string(v)));
        why = errors[i].err ? why : errors[i].why; /* an errno comes on top of another reason */
        err = errors[i].err ? errors[i].err : err;
        gone |= errors[i].gone;
    }
    return row_same(r, "class", str_of(dial_class_text(dial_class_of(why, err, gone))),
                    row_text(r->v, "expect"));
}

static bool run_target(struct row *r)
{
    char key[READINESS_KEY_BYTES];
    size_t n = readiness_key(row_text(r->v, "target"), key);
    return row_same(r, "key", (struct str){key, n}, row_text(r->v, "expect"));
}

static uint64_t ms_of(const struct json *v)
{
    return (uint64_t)(json_double(v) * 1000 + 0.5);
}

static bool record(struct row *r, struct readiness *w, const struct json *v)
{
    for (enum dial_class c = 0; c < DIAL_CLASSES; c++) {
        if (!row_is(v, "result", dial_class_text(c)))
            continue;
        readiness_record(w, row_text(v, "target"), c, ms_of(row_member(v, "end")));
        return true;
    }
    return row_fail(r, "unknown result");
}

static bool same_view(struct row *r, const struct readiness_view *v)
{
    const struct json *e = row_member(r->v, "expect");
    return row_same_int(r, "attempts", (int64_t)v->attempts, row_int(r, e, "attempts", -1)) &&
           row_same_int(r, "signal_failures", (int64_t)v->signal_failures,
                        row_int(r, e, "signal_failures", -1)) &&
           row_same_int(r, "targets", (int64_t)v->targets, row_int(r, e, "targets", -1)) &&
           row_same_int(r, "signal_targets", (int64_t)v->signal_targets,
                        row_int(r, e, "signal_targets", -1)) &&
           row_same_int(r, "qualified", v->qualified, row_bool(e, "qualified")) &&
           row_same_int(r, "degraded", v->degraded, row_bool(e, "degraded")) &&
           row_same(r, "body", readiness_body(v), row_text(e, "body"));
}

static bool run_window(struct row *r)
{
    struct readiness_rules rules = {
        .window_ms = (uint64_t)row_int(r, r->v, "window_s", 0) * 1000,
        .max_targets = (size_t)row_int(r, r->v, "max_targets", 0),
        .min_attempts = (uint64_t)row_int(r, r->v, "min_attempts", 0),
        .min_targets = (size_t)row_int(r, r->v, "min_targets", 0),
        .min_signal_targets = (size_t)row_int(r, r->v, "min_signal_targets", 0),
        .failure_ratio = json_double(row_member(r->v, "failure_ratio")),
    };
    struct readiness *w = readiness_new(&rules);
    bool good = true;
    const struct json *list = row_member(r->v, "observations");
    for (const struct json *v = json_first(list); v && good; v = json_next(v))
        good = record(r, w, v);
    struct readiness_view view = readiness_read(w, ms_of(row_member(r->v, "read_at")));
    good = good && same_view(r, &view);
    readiness_free(w);
    return good;
}

bool run_network_readiness(struct row *r)
{
    if (row_is(r->v, "kind", "dial"))
        return run_dial(r);
    if (row_is(r->v, "kind", "target"))
        return run_target(r);
    if (row_is(r->v, "kind", "window"))
        return run_window(r);
    return row_fail(r, "unknown kind");
}
