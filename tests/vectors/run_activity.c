/* run_activity.c — activity: which requests are written, and what is written.  What the script
 * makes of it needs a Redis: unit/activity_test.c runs those rows against a real one. */
#include "ingress/redis/activity.h"
#include "ingress/redis/throttle.h"
#include "vectors/vectors.h"

static bool run_coalesce(struct row *r)
{
    struct throttle *t = throttle_new((uint64_t)row_int(r, r->v, "min_interval_ms", 0), 100);
    const struct json *wanted = json_first(row_member(r->v, "expect"));
    bool good = true;
    for (const struct json *e = json_first(row_member(r->v, "events")); e && good;
         e = json_next(e)) {
        bool written = throttle_take(t, row_text(e, "namespace"), row_text(e, "sandbox_id"),
                                     (uint64_t)row_int(r, e, "t_ms", 0));
        good = row_same_int(r, "written", written, json_bool(wanted));
        wanted = json_next(wanted);
    }
    throttle_free(t);
    return good && (!wanted || row_fail(r, "fewer events"));
}

static bool run_record(struct row *r)
{
    const struct json *expect = row_member(r->v, "expect");
    struct resp_command c = activity_command(STR("sha"), row_text(r->v, "sandbox_id"),
                                             (uint64_t)row_int(r, r->v, "t_ms", 0),
                                             row_int(r, r->v, "ttl_seconds", 0), r->a);
    struct str life = arena_printf(r->a, "%lld", (long long)row_int(r, expect, "ttl_s", 0));
    return row_same_int(r, "arguments", c.n, 6) &&
           row_same(r, "command", c.args[0], STR("EVALSHA")) &&
           row_same(r, "script", c.args[1], STR("sha")) &&
           row_same(r, "keys", c.args[2], STR("1")) &&
           row_same(r, "key", c.args[3], row_text(expect, "key")) &&
           row_same(r, "value", c.args[4], row_text(expect, "value")) &&
           row_same(r, "life", c.args[5], life);
}

bool run_activity(struct row *r)
{
    if (row_is(r->v, "kind", "coalesce"))
        return run_coalesce(r);
    if (row_is(r->v, "kind", "record"))
        return run_record(r);
    if (row_is(r->v, "kind", "store"))
        return row_skip(r);
    return row_fail(r, "unknown kind");
}
