/* flags.c — flags are rows: a name, how to read its value, and where that goes. */
#include "egress/supervisor/flags.h"

#include <stdio.h>

#include "base/text.h"

typedef bool (*reader)(char *value, void *ret);

static bool read_hook(char *value, void *ret)
{
    struct hooks *h = ret;
    if (!*value || h->n == HOOKS_MAX)
        return false;
    h->paths[h->n++] = value;
    return true;
}

static bool read_path(char *value, void *ret)
{
    *(const char **)ret = value;
    return *value != '\0';
}

static bool read_name(char *value, void *ret)
{
    *(struct str *)ret = str_of(value);
    return *value != '\0';
}

/* Rounded up: what is more than nothing stays so. */
static bool read_duration(char *value, void *ret)
{
    int64_t ns;
    if (!text_duration(str_of(value), &ns) || ns < 0)
        return false;
    *(uint64_t *)ret = (uint64_t)ns / 1000000 + (ns % 1000000 != 0);
    return true;
}

static bool read_pause(char *value, void *ret)
{
    return read_duration(value, ret) && *(uint64_t *)ret > 0;
}

static bool read_share(char *value, void *ret)
{
    double v;
    if (!text_double(str_of(value), &v) || v < 0 || v > 1)
        return false;
    *(double *)ret = v;
    return true;
}

static bool read_count(char *value, void *ret)
{
    uint64_t v;
    if (!text_u64(str_of(value), SCHEDULE_BURST_MAX, &v))
        return false;
    *(unsigned *)ret = (unsigned)v;
    return true;
}

static bool read_bool(char *value, void *ret)
{
    static const char *const words[] = {"0", "f", "F", "false", "FALSE", "False",
                                        "1", "t", "T", "true",  "TRUE",  "True"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (strcmp(value, words[i]) != 0)
            continue;
        *(bool *)ret = i >= 6;
        return true;
    }
    return false;
}

static bool read_level(char *value, void *ret)
{
    static const char *const words[] = {"debug", "info", "warn", "error"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (!str_ieq(str_of(value), str_of(words[i])))
            continue;
        *(enum flags_level *)ret = (enum flags_level)i;
        return true;
    }
    return false;
}

static const struct flag {
    const char *name;
    reader read;
    size_t at;
} table[] = {
    {"pre-start", read_hook, offsetof(struct flags, pre_start)},
    {"post-exit", read_hook, offsetof(struct flags, post_exit)},
    {"event-log", read_path, offsetof(struct flags, event_log)},
    {"backoff-min", read_pause, offsetof(struct flags, rules.backoff_min_ms)},
    {"backoff-max", read_pause, offsetof(struct flags, rules.backoff_max_ms)},
    {"backoff-jitter", read_share, offsetof(struct flags, rules.jitter)},
    {"stable-after", read_duration, offsetof(struct flags, rules.stable_after_ms)},
    {"burst-window", read_duration, offsetof(struct flags, rules.burst_window_ms)},
    {"burst-max", read_count, offsetof(struct flags, rules.burst_max)},
    {"on-burst-exit", read_bool, offsetof(struct flags, on_burst_exit)},
    {"grace-period", read_duration, offsetof(struct flags, grace_ms)},
    {"pre-start-timeout", read_duration, offsetof(struct flags, pre_start.timeout_ms)},
    {"post-exit-timeout", read_duration, offsetof(struct flags, post_exit.timeout_ms)},
    {"name", read_name, offsetof(struct flags, name)},
    {"log-level", read_level, offsetof(struct flags, level)},
};

const char *flags_help(void)
{
    return "usage: sallyport-supervisor [flags] -- command [argument ...]\n"
           "\n"
           "Starts the command, and starts it again whenever it ends, until SIGTERM or SIGINT.\n"
           "\n"
           "  --pre-start PATH          program to run before each start; may be repeated\n"
           "  --post-exit PATH          program to run after each end; may be repeated\n"
           "  --pre-start-timeout 30s   for each of them\n"
           "  --post-exit-timeout 30s   for each of them\n"
           "  --event-log PATH          where events go; default: standard error\n"
           "  --backoff-min 1s          first pause before the next start, then doubled\n"
           "  --backoff-max 30s         greatest pause\n"
           "  --backoff-jitter 0.1      share of a pause that is left to chance\n"
           "  --stable-after 1m         a run this long starts the pauses anew\n"
           "  --burst-window 5m         the crash budget is spent when so many starts\n"
           "  --burst-max 10            lie in this window; 0: no budget\n"
           "  --on-burst-exit true      then exit with status 1; false: only say so\n"
           "  --grace-period 10s        from SIGTERM to SIGKILL\n"
           "  --name NAME               in events; default: base name of the command\n"
           "  --log-level info          debug, info, warn or error\n"
           "  --help, --version\n"
           "\n"
           "Exit status: 0 after SIGTERM or SIGINT, 1 crash budget spent, 2 usage and other "
           "errors.\n";
}

static enum flags_verdict wrong(char error[FLAGS_ERROR_BYTES], const char *what, struct str name)
{
    struct str shown = name.n > 64 ? str_head(name, 64) : name;
    snprintf(error, FLAGS_ERROR_BYTES, "%s%.*s", what, STR_ARG(shown));
    return FLAGS_WRONG;
}

static const struct flag *flag_of(struct str name)
{
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (str_eq(name, str_of(table[i].name)))
            return &table[i];
    return NULL;
}

/* Reads the flag at argv[*at] and its value; *at is the next word then. */
static enum flags_verdict read_flag(char **argv, int *at, struct flags *f,
                                    char error[FLAGS_ERROR_BYTES])
{
    char *word = argv[(*at)++];
    word += word[1] == '-' ? 2 : 1;
    char *equals = strchr(word, '='), *value = equals ? equals + 1 : NULL;
    struct str name = {word, equals ? (size_t)(equals - word) : strlen(word)};
    if (str_eq(name, STR("help")) || str_eq(name, STR("h")))
        return FLAGS_HELP;
    if (str_eq(name, STR("version")))
        return FLAGS_VERSION;
    const struct flag *flag = flag_of(name);
    if (!flag)
        return wrong(error, "unknown flag: --", name);
    if (!value)
        value = flag->read == read_bool ? (char *)"true" : argv[*at] ? argv[(*at)++] : NULL;
    if (!value)
        return wrong(error, "a value is missing: --", name);
    return flag->read(value, (char *)f + flag->at) ? FLAGS_RUN
                                                   : wrong(error, "bad value for --", name);
}

static struct str base_name(struct str path)
{
    ptrdiff_t slash = str_rchr(path, '/');
    return str_skip(path, (size_t)(slash + 1));
}

enum flags_verdict flags_read(int argc, char **argv, struct flags *ret,
                              char error[FLAGS_ERROR_BYTES])
{
    struct flags f = {.pre_start.timeout_ms = 30000,
                      .post_exit.timeout_ms = 30000,
                      .rules = {1000, 30000, 60000, 300000, 0.1, 10},
                      .on_burst_exit = true,
                      .grace_ms = 10000,
                      .level = FLAGS_INFO};
    int at = 1;
    while (at < argc && argv[at][0] == '-' && argv[at][1] != '\0') {
        if (strcmp(argv[at], "--") == 0) {
            at++;
            break;
        }
        enum flags_verdict verdict = read_flag(argv, &at, &f, error);
        if (verdict != FLAGS_RUN)
            return verdict;
    }
    if (at >= argc || !*argv[at])
        return wrong(error, "no command", STR(""));
    if (f.rules.backoff_min_ms > f.rules.backoff_max_ms)
        return wrong(error, "--backoff-min is over --backoff-max", STR(""));
    f.command = argv + at;
    if (f.name.n == 0)
        f.name = base_name(str_of(argv[at]));
    *ret = f;
    return FLAGS_RUN;
}
