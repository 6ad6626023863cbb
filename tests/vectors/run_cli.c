/* run_cli.c — cli: command lines judged in-process, from the words to exit status, message and
 * effective values. */
#include <stdlib.h>

#include "app/command.h"
#include "ingress/settings.h"
#include "vectors/vectors.h"

enum { WORDS = 16 };

struct outcome {
    struct ingress_settings settings;
    int status;
    bool run;
    struct str out, err;
};

static bool check(void *settings, struct arena *a, struct str *ret_error)
{
    return ingress_settings_check(settings, a, ret_error);
}

static const char *no_variables(const char *name)
{
    (void)name;
    return NULL;
}

static void run_words(struct row *r, const char *more, struct outcome *o)
{
    char *argv[WORDS + 2] = {(char[]){"sallyport-ingress"}}, *out = NULL, *err = NULL;
    int argc = 1;
    size_t out_n = 0, err_n = 0;
    const struct json *args = row_member(r->v, "args");
    for (const struct json *v = args ? json_first(args) : NULL; v && argc < WORDS; v = json_next(v))
        argv[argc++] = (char *)(uintptr_t)arena_printf(r->a, "%.*s", STR_ARG(json_string(v))).p;
    if (more)
        argv[argc++] = (char *)(uintptr_t)arena_printf(r->a, "%s", more).p;
    struct command c = {.schema = &ingress_schema, .check = check, .getenv = no_variables};
    c.out = open_memstream(&out, &out_n);
    c.err = open_memstream(&err, &err_n);
    *o = (struct outcome){0};
    o->status = command_line(&c, argc, argv, r->a, &o->settings, &o->run);
    fclose(c.out);
    fclose(c.err);
    o->out = arena_str(r->a, (struct str){out, out_n});
    o->err = arena_str(r->a, (struct str){err, err_n});
    free(out);
    free(err);
}

/* Durations are numbers of ns in a row and texts when shown. */
static bool same_value(struct row *r, const struct json *wanted, const struct ingress_settings *s)
{
    const struct setting *row = schema_find(&ingress_schema, json_name(wanted));
    int64_t number;
    if (!row)
        return row_fail(r, "no setting %.*s", STR_ARG(json_name(wanted)));
    if (row->type == SET_DURATION)
        return json_int(r->doc, wanted, &number) &&
               row_same_int(r, row->name,
                            *(const int64_t *)(const void *)((const char *)s + row->offset),
                            number);
    struct str shown = schema_show(row, s, true, r->a), text = STR_NONE;
    if (json_type(wanted) == JSON_STRING)
        text = json_string(wanted);
    else if (json_type(wanted) == JSON_BOOL)
        text = json_bool(wanted) ? STR("true") : STR("false");
    else if (json_int(r->doc, wanted, &number))
        text = arena_printf(r->a, "%lld", (long long)number);
    return row_same(r, row->name, shown, text);
}

static bool run_good(struct row *r, const struct json *expect)
{
    struct outcome checked, started;
    run_words(r, "--check", &checked);
    if (checked.status != 0 || checked.run)
        return row_fail(r, "--check: %d, %.*s", checked.status, STR_ARG(checked.err));
    run_words(r, NULL, &started);
    if (!started.run)
        return row_fail(r, "does not start: %.*s", STR_ARG(started.err));
    const struct json *effective = row_member(expect, "effective");
    for (const struct json *v = effective ? json_first(effective) : NULL; v; v = json_next(v))
        if (!same_value(r, v, &started.settings))
            return false;
    return true;
}

static unsigned lines_of(struct str s)
{
    unsigned n = 0;
    for (size_t i = 0; i < s.n; i++)
        n += s.p[i] == '\n';
    return n;
}

bool run_cli(struct row *r)
{
    const struct json *expect = row_member(r->v, "expect");
    if (!row_member(expect, "exit"))
        return run_good(r, expect);
    struct outcome o;
    run_words(r, NULL, &o);
    if (o.run)
        return row_fail(r, "starts");
    if (!row_same_int(r, "exit", o.status, row_int(r, expect, "exit", -1)))
        return false;
    if (o.status == 0)
        return (o.out.n && !o.err.n) ||
               row_fail(r, "stdout \"%.*s\", stderr \"%.*s\"", STR_ARG(o.out), STR_ARG(o.err));
    struct str setting = row_text(expect, "setting");
    if (o.out.n || lines_of(o.err) > 2)
        return row_fail(r, "more than usage and one line: %.*s%.*s", STR_ARG(o.out),
                        STR_ARG(o.err));
    return memmem(o.err.p, o.err.n, setting.p, setting.n) ||
           row_fail(r, "\"%.*s\" is not named: %.*s", STR_ARG(setting), STR_ARG(o.err));
}
