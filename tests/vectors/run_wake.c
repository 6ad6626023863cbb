/* run_wake.c — wake: phases, steps and waits of a flight. */
#include "ingress/wake.h"
#include "vectors/vectors.h"

static enum pb_runtime runtime_of(struct str text)
{
    enum pb_runtime r = 0;
    while (r < PB_RUNTIMES && !str_eq(text, str_of(pb_runtime_text(r))))
        r++;
    return r;
}

static enum pb_data_plane plane_of(struct str text)
{
    static const char *const texts[] = {"UNSPECIFIED", "UNKNOWN",  "PENDING", "PUBLISHING",
                                        "READY",       "DRAINING", "FAILED",  "UNAVAILABLE"};
    size_t i = 0;
    while (i < sizeof texts / sizeof texts[0] && !str_eq(text, str_of(texts[i])))
        i++;
    return (enum pb_data_plane)i;
}

static bool run_probe(struct row *r)
{
    static const char *const phases[] = {"ready", "wakeable", "terminal", "not_ready"};
    enum wake_phase phase =
        wake_probe(runtime_of(row_text(r->v, "runtime")), plane_of(row_text(r->v, "data_plane")));
    return row_same(r, "phase", str_of(phases[phase]), row_text(r->v, "expect"));
}

static bool run_rpc(struct row *r)
{
    static const char *const steps[] = {"go on",     "poll",     "probe_again", "retry",
                                        "not_found", "rejected", "not_ready",   "canceled"};
    enum grpc_code code = 0;
    while (code < GRPC_CODES && !row_is(r->v, "grpc_code", grpc_code_text(code)))
        code++;
    enum wake_step step = row_is(r->v, "rpc", "GetSandbox")
                              ? wake_after_get(code)
                              : wake_after_resume(code, row_text(r->v, "checkpoint_id").n > 0);
    return row_same(r, "step", str_of(steps[step]), row_text(r->v, "expect"));
}

static bool near(double us, const struct json *ms)
{
    double want = json_double(ms) * 1000;
    return us > want - 2 && us < want + 2;
}

static bool run_backoff(struct row *r)
{
    double interval = json_double(row_member(r->v, "interval_ms"));
    double factor = json_double(row_member(r->v, "factor"));
    double jitter = json_double(row_member(r->v, "jitter"));
    unsigned n = 0;
    for (const struct json *v = json_first(row_member(r->v, "expect")); v; v = json_next(v), n++) {
        double least = (double)wake_backoff_us(interval, factor, jitter, n, 0);
        double most = (double)wake_backoff_us(interval, factor, jitter, n, 1);
        if (!near(least, json_first(v)) || !near(most, json_next(json_first(v))))
            return row_fail(r, "step %u waits from %g to %g us", n, least, most);
    }
    return n > 0 || row_fail(r, "no steps");
}

bool run_wake(struct row *r)
{
    if (row_is(r->v, "kind", "probe"))
        return run_probe(r);
    if (row_is(r->v, "kind", "rpc"))
        return run_rpc(r);
    return row_is(r->v, "kind", "backoff") ? run_backoff(r) : row_fail(r, "unknown kind");
}
