/* run_supervisor.c — supervisor: pauses, budget and command lines, without a process: the runs of a
 * row happen on a clock that only they move. */
#include "egress/supervisor/flags.h"
#include "vectors/vectors.h"

enum { WORDS = 64 };

struct words {
    char *at[WORDS + 1];
    int n;
};

static void add(struct row *r, struct words *w, struct str text)
{
    if (w->n < WORDS)
        w->at[w->n++] = (char *)arena_printf(r->a, "%.*s", STR_ARG(text)).p;
}

/* The command line of a row, with jitter 0. */
static struct words command_line_of(struct row *r)
{
    struct words w = {.n = 0};
    const struct json *argv = row_member(r->v, "argv"), *flags = row_member(r->v, "flags");
    add(r, &w, STR("supervisor"));
    for (const struct json *v = argv ? json_first(argv) : NULL; v; v = json_next(v))
        add(r, &w, json_string(v));
    if (argv)
        return w;
    add(r, &w, STR("--backoff-jitter=0"));
    for (const struct json *v = flags ? json_first(flags) : NULL; v; v = json_next(v))
        add(r, &w, arena_printf(r->a, "%.*s=%.*s", STR_ARG(json_name(v)), STR_ARG(json_string(v))));
    add(r, &w, STR("--"));
    add(r, &w, STR("/bin/true"));
    return w;
}

static struct str put(struct row *r, struct str list, int64_t v)
{
    return arena_printf(r->a, "%.*s%s%lld", STR_ARG(list), list.n ? "," : "", (long long)v);
}

static struct str in_ms(struct row *r, const struct json *list)
{
    struct str text = STR("");
    for (const struct json *v = list ? json_first(list) : NULL; v; v = json_next(v))
        text = put(r, text, (int64_t)(json_double(v) * 1000 + 0.5));
    return text;
}

static struct str truths(struct row *r, const struct json *list)
{
    struct str text = STR("");
    for (const struct json *v = list ? json_first(list) : NULL; v; v = json_next(v))
        text = put(r, text, json_bool(v));
    return text;
}

struct course {
    struct str sleeps, stable;
    int64_t bursts, launched;
    bool ended;
};

static void run_one(struct row *r, const struct flags *f, struct schedule *s,
                    const struct json *run, uint64_t *now_ms, struct course *c)
{
    bool launched = !row_is(run, "prestart", "fail");
    const struct json *up = row_member(run, "up");
    uint64_t up_ms = launched && up ? (uint64_t)(json_double(up) * 1000 + 0.5) : 0;
    schedule_started(s, *now_ms);
    *now_ms += up_ms;
    struct schedule_verdict v = schedule_ended(s, *now_ms, up_ms, 0);
    c->launched += launched;
    c->stable = put(r, c->stable, v.stable);
    c->bursts += v.burst;
    c->ended = v.burst && f->on_burst_exit;
    if (c->ended)
        return;
    c->sleeps = put(r, c->sleeps, (int64_t)v.sleep_ms);
    *now_ms += v.sleep_ms;
}

static bool run_course(struct row *r, const struct flags *f)
{
    struct schedule s;
    struct course c = {STR(""), STR(""), 0, 0, false};
    uint64_t now_ms = 5000;
    schedule_init(&s, &f->rules);
    const struct json *run = json_first(row_member(r->v, "runs"));
    for (; run && !c.ended; run = json_next(run))
        run_one(r, f, &s, run, &now_ms, &c);
    const struct json *stable = row_member(r->v, "stable");
    return row_same(r, "sleeps", c.sleeps, in_ms(r, row_member(r->v, "sleeps"))) &&
           row_same_int(r, "exit", c.ended ? 1 : -1, row_int(r, r->v, "exit", -1)) &&
           (!stable || row_same(r, "stable", c.stable, truths(r, stable))) &&
           row_same_int(r, "burst_exit", c.bursts, row_int(r, r->v, "burst_exit", c.bursts)) &&
           row_same_int(r, "launched", c.launched, row_int(r, r->v, "launched", c.launched));
}

static bool needs_program(struct row *r)
{
    const struct json *runs = row_member(r->v, "runs");
    if (row_member(r->v, "killed_after"))
        return true;
    for (const struct json *v = runs ? json_first(runs) : NULL; v; v = json_next(v))
        if (row_member(v, "stop") || row_member(v, "stop_in_backoff"))
            return true;
    return false;
}

bool run_supervisor(struct row *r)
{
    char error[FLAGS_ERROR_BYTES];
    struct flags f;
    struct words w = command_line_of(r);
    if (needs_program(r)) /* tests/unit/supervisor_flow_test.c */
        return row_skip(r);
    enum flags_verdict verdict = flags_read(w.n, w.at, &f, error);
    if (row_member(r->v, "argv"))
        return row_same_int(r, "exit", verdict == FLAGS_WRONG ? 2 : 0, row_int(r, r->v, "exit", 0));
    return verdict == FLAGS_RUN ? run_course(r, &f) : row_fail(r, "%s", error);
}
