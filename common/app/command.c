/* command.c — the part of main() that ends in an exit status instead of a running program.  Faults
 * go to stderr with the line that matters last, answers to stdout, so that both can be read by a
 * script. */
#include "app/command.h"

#include "conf/sources.h"

enum { EXIT_FAULT = 2 };

#ifndef SALLYPORT_COMMIT
#define SALLYPORT_COMMIT "unknown"
#endif
#ifndef SALLYPORT_BUILD_TIME
#define SALLYPORT_BUILD_TIME "unknown"
#endif
#if defined __x86_64__
#define PLATFORM "linux/amd64"
#elif defined __aarch64__
#define PLATFORM "linux/arm64"
#else
#define PLATFORM "linux/other"
#endif

const struct command_build command_build = {SALLYPORT_VERSION, SALLYPORT_COMMIT,
                                            SALLYPORT_BUILD_TIME, PLATFORM};

static FILE *out_of(const struct command *c)
{
    return c->out ? c->out : stdout;
}

static FILE *err_of(const struct command *c)
{
    return c->err ? c->err : stderr;
}

static int fault(const struct command *c, struct str error)
{
    fprintf(err_of(c), "%s: %.*s\n", c->schema->program, STR_ARG(error));
    return EXIT_FAULT;
}

static int usage_fault(const struct command *c, struct str error)
{
    if (!c->environment_only)
        fprintf(err_of(c), "Usage: %s; try --help\n", c->schema->usage);
    return fault(c, error);
}

static int help(const struct command *c, struct arena *a)
{
    struct str text = schema_help(c->schema, a);
    fprintf(out_of(c), "%.*s", STR_ARG(text));
    return 0;
}

static int version(const struct command *c)
{
    fprintf(out_of(c), "%s %s (commit %s, built %s, %s)\n", c->schema->program,
            command_build.version, command_build.commit, command_build.time,
            command_build.platform);
    return 0;
}

/* --check and --print-config: everything a start would look at, and no start. */
static int report(const struct command *c, enum conf_action action, struct arena *a, void *settings)
{
    struct str error, text;
    if (c->check_files && !c->check_files(settings, a, &error))
        return fault(c, error);
    text = action == CONF_PRINT
               ? conf_print(c->schema, settings, a)
               : arena_printf(a, "%s: the settings are good\n", c->schema->program);
    fprintf(out_of(c), "%.*s", STR_ARG(text));
    return 0;
}

static void warn(const struct command *c, struct arena *a, const void *settings)
{
    struct str lines = c->warnings ? c->warnings(settings, a) : STR_NONE;
    for (struct str line; lines.n && str_next(&lines, '\n', &line);)
        fprintf(err_of(c), "%s: warning: %.*s\n", c->schema->program, STR_ARG(line));
}

static int judged(const struct command *c, enum conf_action action, struct arena *a, void *settings,
                  bool *ret_run)
{
    struct str error;
    if (c->check && !c->check(settings, a, &error))
        return fault(c, error);
    warn(c, a, settings);
    if (action != CONF_RUN)
        return report(c, action, a, settings);
    error = c->missing ? c->missing(settings, a) : STR_NONE;
    if (error.n)
        return fault(c, error);
    *ret_run = true;
    return 0;
}

static const struct command_verb *verb_of(const struct command *c, int argc, char **argv)
{
    for (const struct command_verb *v = c->verbs; v && v->word && argc > 1; v++)
        if (strcmp(v->word, argv[1]) == 0)
            return v;
    return NULL;
}

int command_line(const struct command *c, int argc, char **argv, struct arena *a, void *settings,
                 bool *ret_run)
{
    *ret_run = false;
    const struct command_verb *verb = verb_of(c, argc, argv);
    if (verb)
        return verb->run(argc - 2, argv + 2, out_of(c), err_of(c));
    int skip = argc > 0;
    struct conf_input in = {argc - skip, argv + skip, c->getenv, c->environment_only};
    enum conf_action action;
    struct str error;
    bool good = conf_load(c->schema, &in, a, settings, &action, &error);
    conf_wipe_arguments(c->schema, in.argc, in.argv);
    if (!good)
        return usage_fault(c, error);
    if (action == CONF_HELP)
        return help(c, a);
    return action == CONF_VERSION ? version(c) : judged(c, action, a, settings, ret_run);
}

void command_banner(FILE *out, const char *title)
{
    enum { WIDTH = 53 };
    char line[WIDTH + 1] = "";
    memset(line, '=', WIDTH);
    fprintf(out, "%s\n %s\n", line, title);
    memset(line, '-', WIDTH);
    fprintf(out, "%s\n Version     : %s\n Git Commit  : %s\n Build Time  : %s\n Platform    : %s\n",
            line, command_build.version, command_build.commit, command_build.time,
            command_build.platform);
    memset(line, '=', WIDTH);
    fprintf(out, "%s\n", line);
    fflush(out);
}
