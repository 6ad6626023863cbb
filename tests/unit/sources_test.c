/* sources_test.c — Go flag syntax, precedence, the file, printing and wiping (contract
 * ingress 1.1). */
#include "conf/sources.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

struct toy {
    struct str config, name, key, variable;
    int64_t port, wait, room;
    double ratio;
    bool on, off, pick_given, name_given;
    int pick;
};

static const char *const picks[] = {"red", "green", NULL};

#define AT(field) offsetof(struct toy, field)
static const struct setting rows[] = {
    {"config", NULL, SET_TEXT, AT(config), "", 0, 0, NULL, SETTING_NO_FILE, "All", "file", 0},
    {"name", "TOY_NAME", SET_TEXT, AT(name), "nobody", 0, 0, NULL, 0, "All", "text",
     AT(name_given)},
    {"key", NULL, SET_TEXT, AT(key), "", 0, 0, NULL, SETTING_SECRET, "All", "secret", 0},
    {"port", "TOY_PORT", SET_INT, AT(port), "80", 0, 65535, NULL, 0, "All", "number", 0},
    {"wait", NULL, SET_DURATION, AT(wait), "5s", 0, INFINITY, NULL, 0, "All", "time", 0},
    {"room", NULL, SET_BYTES, AT(room), "1KiB", 0, INFINITY, NULL, 0, "All", "space", 0},
    {"ratio", NULL, SET_DOUBLE, AT(ratio), "0.5", 0, 1, NULL, 0, "All", "part", 0},
    {"on", NULL, SET_BOOL, AT(on), "true", 0, 0, NULL, 0, "All", "switch", 0},
    {"off", NULL, SET_BOOL, AT(off), "false", 0, 0, NULL, 0, "All", "switch", 0},
    {"pick", NULL, SET_CHOICE, AT(pick), "red", 0, 0, picks, 0, "All", "choice", AT(pick_given)},
    {"TOY_SECRET", "TOY_SECRET", SET_TEXT, AT(variable), "", 0, 0, NULL,
     SETTING_SECRET | SETTING_VARIABLE, "All", "variable", 0},
};
static const struct schema toys = {
    "toy", "toy", rows, sizeof rows / sizeof rows[0], sizeof(struct toy), false};

enum { WORDS = 8 };

struct fixture {
    struct arena a;
    struct toy t;
    enum conf_action action;
    struct str error;
    char path[64];
};

static int setup(void **state)
{
    static struct fixture f;
    f = (struct fixture){0};
    arena_init(&f.a, NULL, 0);
    snprintf(f.path, sizeof f.path, "/tmp/sources_test.%d.json", (int)getpid());
    *state = &f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    unlink(f->path);
    arena_done(&f->a);
    return 0;
}

static const char *no_variables(const char *name)
{
    (void)name;
    return NULL;
}

static const char *some_variables(const char *name)
{
    return strcmp(name, "TOY_NAME") == 0     ? "variable"
           : strcmp(name, "TOY_PORT") == 0   ? ""
           : strcmp(name, "TOY_SECRET") == 0 ? "hush"
                                             : NULL;
}

static const char *bad_variables(const char *name)
{
    return strcmp(name, "TOY_PORT") == 0 ? "many" : NULL;
}

/* Words in one text, ended by '|' each, so that empty ones and blanks can be written. */
static bool load_with(struct fixture *f, const char *text, const char *(*variables)(const char *),
                      bool environment_only)
{
    static char copy[400];
    char *argv[WORDS];
    int argc = 0;
    snprintf(copy, sizeof copy, "%s", text);
    for (char *at = copy, *end; (end = strchr(at, '|')); at = end + 1) {
        *end = '\0';
        assert_true(argc < WORDS);
        argv[argc++] = at;
    }
    struct conf_input in = {argc, argv, variables, environment_only};
    f->t = (struct toy){0};
    f->error = STR_NONE;
    return conf_load(&toys, &in, &f->a, &f->t, &f->action, &f->error);
}

static bool load(struct fixture *f, const char *text)
{
    return load_with(f, text, no_variables, false);
}

static bool load_file(struct fixture *f, const char *json, const char *more)
{
    FILE *out = fopen(f->path, "w");
    assert_non_null(out);
    fputs(json, out);
    fclose(out);
    char words[300];
    snprintf(words, sizeof words, "--config|%s|%s", f->path, more);
    return load_with(f, words, some_variables, false);
}

#define assert_text(s, z)                                       \
    do {                                                        \
        struct str s_ = (s);                                    \
        if (!str_eq(s_, str_of(z)))                             \
            fail_msg("\"%.*s\" is not \"%s\"", STR_ARG(s_), z); \
    } while (0)

static void without_words_everything_has_its_default(void **state)
{
    struct fixture *f = *state;
    assert_true(load(f, ""));
    assert_int_equal(f->action, CONF_RUN);
    assert_text(f->t.name, "nobody");
    assert_int_equal(f->t.port, 80);
    assert_int_equal(f->t.wait, 5000000000);
    assert_int_equal(f->t.room, 1024);
    assert_true(f->t.on && !f->t.off && f->t.pick == 0);
    assert_false(f->t.name_given || f->t.pick_given);
}

static void flags_are_read_as_go_reads_them(void **state)
{
    struct fixture *f = *state;
    static const struct {
        const char *words;
        int64_t port;
        const char *name;
        bool on, off;
    } cases[] = {
        {"-port=1|", 1, "nobody", true, false},
        {"--port=1|", 1, "nobody", true, false},
        {"-port|1|", 1, "nobody", true, false},
        {"--port|1|--name|x|", 1, "x", true, false},
        {"--port=0x10|", 16, "nobody", true, false},
        {"--port=010|", 8, "nobody", true, false},
        {"--port=0o17|", 15, "nobody", true, false},
        {"--port=0b11|", 3, "nobody", true, false},
        {"--port=1|--port=2|", 2, "nobody", true, false},
        {"--name=|", 80, "", true, false},
        {"--name||", 80, "", true, false},
        {"--name|--port=9|", 80, "--port=9", true, false},
        {"--name|--|--off|", 80, "--", true, true},
        {"--name|-|", 80, "-", true, false},
        {"--name=a=b|", 80, "a=b", true, false},
        {"--off|", 80, "nobody", true, true},
        {"-off=T|-on=F|", 80, "nobody", false, true},
        {"--off|--off=0|", 80, "nobody", true, false},
        {"--off|--|", 80, "nobody", true, true},
        {"--|", 80, "nobody", true, false},
        {"--check=false|", 80, "nobody", true, false},
    };
    for (unsigned i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        if (!load(f, cases[i].words))
            fail_msg("%s: %.*s", cases[i].words, STR_ARG(f->error));
        if (f->t.port != cases[i].port || f->t.on != cases[i].on || f->t.off != cases[i].off ||
            f->action != CONF_RUN)
            fail_msg("%s: read wrong", cases[i].words);
        assert_text(f->t.name, cases[i].name);
    }
}

static void a_faulty_line_is_named(void **state)
{
    struct fixture *f = *state;
    static const struct {
        const char *words, *error;
    } cases[] = {
        {"--nope|", "unknown flag \"nope\""},
        {"--nope=secret|", "unknown flag \"nope\""},
        {"--Port=1|", "unknown flag \"Port\""},
        {"--TOY_SECRET=x|", "unknown flag \"TOY_SECRET\""},
        {"--port|", "--port: the value is missing"},
        {"--port=|", "--port: \"\" is wrong; allowed: an integer from 0 to 65535"},
        {"--port|-1|", "--port: \"-1\" is wrong; allowed: an integer from 0 to 65535"},
        {"--port=x|--port=1|", "--port: \"x\" is wrong; allowed: an integer from 0 to 65535"},
        {"word|", "\"word\" is no flag"},
        {"|", "\"\" is no flag"},
        {"-|", "\"-\" is no flag"},
        {"--|--port=1|", "\"--port\" is no flag"},
        {"--|--help|", "\"--help\" is no flag"},
        {"--off|false|", "\"false\" is no flag"},
        {"--=x|", "\"--\" is no flag: a name must follow the dashes"},
        {"---port=1|", "\"---port\" is no flag: a name must follow the dashes"},
        {"-=x|", "\"-\" is no flag: a name must follow the dashes"},
        {"--off=yes|", "--off: \"yes\" is wrong; allowed: true or false"},
        {"--check=yes|", "--check: \"yes\" is wrong; allowed: true or false"},
        {"--version|--nope|", "unknown flag \"nope\""},
        {"--port=x|--nope|", "unknown flag \"nope\""},
        {"--config=/nowhere/x|", "--config: /nowhere/x: No such file or directory"},
        {"--config=/|", "--config: /: Is a directory"},
    };
    for (unsigned i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        if (load(f, cases[i].words))
            fail_msg("%s was taken", cases[i].words);
        assert_text(f->error, cases[i].error);
    }
}

static void a_broken_list_of_keys_is_not_shown(void **state)
{
    struct fixture *f = *state;
    assert_false(load(f, "--key=a=QUFB,|b=QkJC|"));
    assert_text(f->error, "the word behind --key is no flag");
    assert_false(load(f, "--on|b=QkJC|"));
    assert_text(f->error, "\"b\" is no flag");
}

static void help_wins_over_everything(void **state)
{
    struct fixture *f = *state;
    static const char *const lines[] = {"--help|",
                                        "-h|",
                                        "-help|",
                                        "--h|",
                                        "--help=x|",
                                        "--port=x|--help|",
                                        "--nope|-h|",
                                        "word|--help|",
                                        "--port|--help|",
                                        "--version|--check|-h|",
                                        "--config=/nowhere|-h|"};
    for (unsigned i = 0; i < sizeof lines / sizeof lines[0]; i++)
        if (!load(f, lines[i]) || f->action != CONF_HELP)
            fail_msg("%s is not help", lines[i]);
}

static void actions_have_an_order(void **state)
{
    struct fixture *f = *state;
    assert_true(load(f, "--check|") && f->action == CONF_CHECK);
    assert_true(load(f, "-check=1|--print-config|") && f->action == CONF_PRINT);
    assert_true(load(f, "--print-config|--check|--version|") && f->action == CONF_VERSION);
    assert_true(load_with(f, "--version|", bad_variables, false) && f->action == CONF_VERSION);
}

static void variables_win_over_the_file_and_flags_over_both(void **state)
{
    struct fixture *f = *state;
    assert_true(load_with(f, "", some_variables, false));
    assert_text(f->t.name, "variable");
    assert_int_equal(f->t.port, 80); /* an empty variable is none */
    assert_text(f->t.variable, "hush");
    assert_true(f->t.name_given);
    assert_true(load_file(f, "{\"name\":\"file\",\"port\":1,\"wait\":\"1s\"}", "--wait=2s|"));
    assert_text(f->t.name, "variable");
    assert_int_equal(f->t.port, 1);
    assert_int_equal(f->t.wait, 2000000000);
    assert_true(load_file(f, "{\"name\":\"file\"}", "--name=flag|"));
    assert_text(f->t.name, "flag");
    assert_false(load_with(f, "--port=1|", bad_variables, false));
    assert_text(f->error,
                "variable TOY_PORT: port: \"many\" is wrong; allowed: an integer from 0 to 65535");
}

static void a_program_of_variables_takes_only_actions(void **state)
{
    struct fixture *f = *state;
    assert_true(load_with(f, "--check|", some_variables, true) && f->action == CONF_CHECK);
    assert_text(f->t.name, "variable");
    assert_false(load_with(f, "--port=1|", some_variables, true));
    assert_text(f->error, "unknown flag \"port\"");
}

static void a_file_has_values_in_flag_syntax_or_their_own_type(void **state)
{
    struct fixture *f = *state;
    assert_true(load_file(
        f,
        "{\n \"port\": 81, \"room\": 2048, \"ratio\": 0.25, \"on\": false, \"off\": \"t\",\n"
        " \"wait\": \"1m\", \"pick\": \"green\", \"key\": \"\\u00e9|\"}\n",
        ""));
    assert_int_equal(f->t.port, 81);
    assert_int_equal(f->t.room, 2048);
    assert_true(f->t.ratio == 0.25);
    assert_true(!f->t.on && f->t.off);
    assert_int_equal(f->t.wait, 60000000000);
    assert_true(f->t.pick == 1 && f->t.pick_given);
    assert_text(f->t.key, "\xc3\xa9|");
    assert_true(load_file(f, "{\"port\":\"0x51\",\"room\":\"2KiB\",\"ratio\":\"1\"}", ""));
    assert_int_equal(f->t.port, 81);
    assert_int_equal(f->t.room, 2048);
    assert_true(load_file(f, "{\"ratio\":1}", "") && f->t.ratio == 1.0);
}

static void a_faulty_file_is_one_line_with_its_place(void **state)
{
    struct fixture *f = *state;
    static const struct {
        const char *json, *error;
    } cases[] = {
        {"{\"port\":1,\n \"nope\":2}", ":2:9: unknown member \"nope\""},
        {"{\"port\":true}", ":1:9: port: a value of this type (boolean) is not allowed"},
        {"{\"port\":1.5}", ":1:9: port: a value of this type (number) is not allowed"},
        {"{\"wait\":5}", ":1:9: wait: a value of this type (number) is not allowed"},
        {"{\"on\":1}", ":1:7: on: a value of this type (number) is not allowed"},
        {"{\"name\":null}", ":1:9: name: a value of this type (null) is not allowed"},
        {"{\"name\":[]}", ":1:9: name: a value of this type (array) is not allowed"},
        {"{\"port\":65536}", ":1:9: port: \"65536\" is wrong; allowed: an integer from 0 to 65535"},
        {"{\"pick\":\"blue\"}", ":1:9: pick: \"blue\" is wrong; allowed: one of red, green"},
        {"{\"config\":\"x\"}", ":1:11: \"config\" cannot be set in a file"},
        {"{\"TOY_SECRET\":\"x\"}", ":1:15: \"TOY_SECRET\" cannot be set in a file"},
        {"[]", ":1:1: one object is expected"},
        {"7", ":1:1: one object is expected"},
    };
    for (unsigned i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        if (load_file(f, cases[i].json, ""))
            fail_msg("%s was taken", cases[i].json);
        struct str wanted = arena_printf(&f->a, "--config: %s%s", f->path, cases[i].error);
        if (!str_eq(f->error, wanted))
            fail_msg("\"%.*s\" is not \"%.*s\"", STR_ARG(f->error), STR_ARG(wanted));
    }
    static const char *const broken[] = {"",
                                         "{",
                                         "{\"port\":1,\"port\":2}",
                                         "{\"port\":1}x",
                                         "{port:1}",
                                         "{\"name\":\"\\u0000\"}",
                                         "{'port':1}"};
    struct str start = arena_printf(&f->a, "--config: %s:1:", f->path);
    for (unsigned i = 0; i < sizeof broken / sizeof broken[0]; i++)
        if (load_file(f, broken[i], "") || !str_starts(f->error, start) ||
            str_chr(f->error, '\n') >= 0)
            fail_msg("%s: %.*s", broken[i], STR_ARG(f->error));
}

static void what_is_printed_can_be_given_back_as_a_file(void **state)
{
    struct fixture *f = *state;
    assert_true(
        load(f, "--port=7|--name=a\"b\\|--wait=90s|--room=3KiB|--ratio=0.1|--off|--pick=green|"));
    struct str printed = conf_print(&toys, &f->t, &f->a);
    assert_text(
        printed,
        "{\n  \"name\": \"a\\\"b\\\\\",\n  \"key\": \"\",\n  \"port\": 7,\n  \"wait\": \"1m30s\",\n"
        "  \"room\": \"3KiB\",\n  \"ratio\": 0.1,\n  \"on\": true,\n  \"off\": true,\n  \"pick\": "
        "\"green\"\n}\n");
    char json[600];
    snprintf(json, sizeof json, "%.*s", STR_ARG(printed));
    assert_true(load_file(f, json, "--name=a\"b\\|"));
    f->t.config = f->t.variable = STR_NONE;
    struct str again = conf_print(&toys, &f->t, &f->a);
    assert_true(str_eq(printed, again));
}

static void printing_masks_secrets(void **state)
{
    struct fixture *f = *state;
    assert_true(load_with(f, "--key=hush|", some_variables, false));
    struct str printed = conf_print(&toys, &f->t, &f->a);
    char *z = mem_strdup(printed);
    assert_non_null(strstr(z, "\"key\": \"***\""));
    assert_non_null(strstr(z, "\"TOY_SECRET\": \"***\""));
    assert_null(strstr(z, "hush"));
    mem_free(z);
}

static void wiping_overwrites_secrets_in_both_forms_and_nothing_else(void **state)
{
    (void)state;
    char words[][16] = {"--key=a=b", "-key",   "topsecret", "--name=key", "--name", "--key=x",
                        "--key",     "--key=", "word",      "--",         "--key=y"};
    static const char *const after[] = {"--key=***", "-key",    "*********", "--name=key",
                                        "--name",    "--key=x", "--key",     "******",
                                        "word",      "--",      "--key=y"};
    char *argv[11];
    for (int i = 0; i < 11; i++)
        argv[i] = words[i];
    conf_wipe_arguments(&toys, 11, argv);
    for (int i = 0; i < 11; i++)
        assert_string_equal(argv[i], after[i]);
}

static void a_file_is_read_whole_up_to_its_limit(void **state)
{
    struct fixture *f = *state;
    FILE *out = fopen(f->path, "w");
    for (int i = 0; i < 10000; i++)
        fputc('a' + i % 26, out);
    fclose(out);
    struct str text, error;
    assert_true(conf_read_file(str_of(f->path), 10000, &f->a, &text, &error));
    assert_int_equal(text.n, 10000);
    assert_int_equal(text.p[9999], 'a' + 9999 % 26);
    assert_false(conf_read_file(str_of(f->path), 9999, &f->a, &text, &error));
    assert_true(str_starts(error, str_of(f->path)));
    assert_true(conf_read_file(STR("/dev/null"), 10, &f->a, &text, &error));
    assert_int_equal(text.n, 0);
    assert_true(conf_read_file(STR("/proc/self/maps"), 1 << 22, &f->a, &text,
                               &error)); /* says it has no size */
    assert_true(text.n > 4096);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(without_words_everything_has_its_default),
        T(flags_are_read_as_go_reads_them),
        T(a_faulty_line_is_named),
        T(a_broken_list_of_keys_is_not_shown),
        T(help_wins_over_everything),
        T(actions_have_an_order),
        T(variables_win_over_the_file_and_flags_over_both),
        T(a_program_of_variables_takes_only_actions),
        T(a_file_has_values_in_flag_syntax_or_their_own_type),
        T(a_faulty_file_is_one_line_with_its_place),
        T(what_is_printed_can_be_given_back_as_a_file),
        T(printing_masks_secrets),
        T(wiping_overwrites_secrets_in_both_forms_and_nothing_else),
        T(a_file_is_read_whole_up_to_its_limit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
