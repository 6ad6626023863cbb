/* command_test.c — what a command line prints and how it ends, before anything runs. */
#include "app/command.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <cmocka.h>

struct toy {
    struct str key;
    int64_t port;
    bool bad, bad_files, lacks, odd;
};

#define AT(field) offsetof(struct toy, field)
static const struct setting rows[] = {
    {"key", NULL, SET_TEXT, AT(key), "", 0, 0, NULL, SETTING_SECRET, "All", "secret", 0},
    {"port", NULL, SET_INT, AT(port), "80", 0, 65535, NULL, 0, "All", "number", 0},
    {"bad", NULL, SET_BOOL, AT(bad), "false", 0, 0, NULL, 0, "All", "check fails", 0},
    {"bad-files", NULL, SET_BOOL, AT(bad_files), "false", 0, 0, NULL, 0, "All", "files are bad", 0},
    {"lacks", NULL, SET_BOOL, AT(lacks), "false", 0, 0, NULL, 0, "All", "part is missing", 0},
    {"odd", NULL, SET_BOOL, AT(odd), "false", 0, 0, NULL, 0, "All", "warned of", 0},
};
static const struct schema toys = {
    "toy", "toy [--flag=value ...]", rows, sizeof rows / sizeof rows[0], sizeof(struct toy), false};

static bool check(void *settings, struct arena *a, struct str *ret_error)
{
    (void)a;
    *ret_error = STR("bad: it is");
    return !((struct toy *)settings)->bad;
}

static bool check_files(const void *settings, struct arena *a, struct str *ret_error)
{
    (void)a;
    *ret_error = STR("files: they are");
    return !((const struct toy *)settings)->bad_files;
}

static struct str missing(const void *settings, struct arena *a)
{
    (void)a;
    return ((const struct toy *)settings)->lacks ? STR("lacks: a part") : STR_NONE;
}

static struct str warnings(const void *settings, struct arena *a)
{
    (void)a;
    return ((const struct toy *)settings)->odd ? STR("odd: one\nodd: two") : STR_NONE;
}

static int verb(int argc, char **argv, FILE *out, FILE *err)
{
    (void)err;
    fprintf(out, "%d %s\n", argc, argc ? argv[0] : "");
    return 2;
}

static const char *no_variables(const char *name)
{
    (void)name;
    return NULL;
}

static const struct command_verb verbs[] = {{"sing", verb}, {NULL, NULL}};

struct ran {
    struct arena a;
    struct toy t;
    char *out, *err;
    size_t out_n, err_n;
    int status;
    bool run;
    char words[6][32];
};

static int setup(void **state)
{
    static struct ran r;
    r = (struct ran){0};
    arena_init(&r.a, NULL, 0);
    *state = &r;
    return 0;
}

static int teardown(void **state)
{
    struct ran *r = *state;
    free(r->out);
    free(r->err);
    arena_done(&r->a);
    return 0;
}

static struct ran *run(struct ran *r, const char *one, const char *two, const char *three)
{
    const char *const given[] = {"toy", one, two, three};
    char *argv[5];
    int argc = 0;
    for (int i = 0; i < 4 && given[i]; i++) {
        snprintf(r->words[i], sizeof r->words[i], "%s", given[i]);
        argv[argc++] = r->words[i];
    }
    free(r->out);
    free(r->err);
    struct command c = {.schema = &toys,
                        .verbs = verbs,
                        .check = check,
                        .check_files = check_files,
                        .warnings = warnings,
                        .missing = missing,
                        .getenv = no_variables};
    c.out = open_memstream(&r->out, &r->out_n);
    c.err = open_memstream(&r->err, &r->err_n);
    r->t = (struct toy){0};
    r->run = true;
    r->status = command_line(&c, argc, argv, &r->a, &r->t, &r->run);
    fclose(c.out);
    fclose(c.err);
    return r;
}

static void assert_ran(const struct ran *r, bool runs, int status, const char *out, const char *err)
{
    assert_int_equal(r->run, runs);
    assert_int_equal(r->status, status);
    assert_string_equal(r->out, out);
    assert_string_equal(r->err, err);
}

static void good_settings_run_and_print_nothing(void **state)
{
    struct ran *r = run(*state, "--port=81", NULL, NULL);
    assert_ran(r, true, 0, "", "");
    assert_int_equal(r->t.port, 81);
}

static void a_fault_on_the_line_prints_usage_and_one_line(void **state)
{
    struct ran *r = *state;
    static const char usage[] = "Usage: toy [--flag=value ...]; try --help\n";
    static const struct {
        const char *word, *line;
    } cases[] = {{"--nope", "toy: unknown flag \"nope\"\n"},
                 {"--port", "toy: --port: the value is missing\n"},
                 {"--port=x", "toy: --port: \"x\" is wrong; allowed: an integer from 0 to 65535\n"},
                 {"word", "toy: \"word\" is no flag\n"}};
    for (unsigned i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char wanted[200];
        snprintf(wanted, sizeof wanted, "%s%s", usage, cases[i].line);
        assert_ran(run(r, cases[i].word, NULL, NULL), false, 2, "", wanted);
    }
}

static void a_fault_between_settings_is_one_line(void **state)
{
    struct ran *r = *state;
    assert_ran(run(r, "--bad", NULL, NULL), false, 2, "", "toy: bad: it is\n");
    assert_ran(run(r, "--bad", "--check", NULL), false, 2, "", "toy: bad: it is\n");
    assert_ran(run(r, "--bad", "--print-config", NULL), false, 2, "", "toy: bad: it is\n");
}

static void check_reads_files_and_does_not_ask_for_missing_parts(void **state)
{
    struct ran *r = *state;
    assert_ran(run(r, "--check", NULL, NULL), false, 0, "toy: the settings are good\n", "");
    assert_ran(run(r, "--check", "--lacks", NULL), false, 0, "toy: the settings are good\n", "");
    assert_ran(run(r, "--check", "--bad-files", NULL), false, 2, "", "toy: files: they are\n");
    assert_ran(run(r, "--print-config", "--bad-files", NULL), false, 2, "",
               "toy: files: they are\n");
}

static void a_start_does_not_do_without_a_part(void **state)
{
    struct ran *r = *state;
    assert_ran(run(r, "--lacks", NULL, NULL), false, 2, "", "toy: lacks: a part\n");
    assert_ran(run(r, "--bad-files", NULL, NULL), true, 0, "",
               ""); /* whoever reads them at the start says so */
}

static void warnings_go_to_stderr_and_stop_nothing(void **state)
{
    struct ran *r = *state;
    assert_ran(run(r, "--odd", NULL, NULL), true, 0, "",
               "toy: warning: odd: one\ntoy: warning: odd: two\n");
    run(r, "--odd", "--check", NULL);
    assert_int_equal(r->status, 0);
    assert_string_equal(r->err, "toy: warning: odd: one\ntoy: warning: odd: two\n");
}

static void print_config_goes_to_stdout_masked(void **state)
{
    struct ran *r = run(*state, "--key=hush", "--print-config", NULL);
    assert_ran(r, false, 0,
               "{\n  \"key\": \"***\",\n  \"port\": 80,\n  \"bad\": false,\n  \"bad-files\": "
               "false,\n  \"lacks\": false,\n  \"odd\": false\n}\n",
               "");
}

static void secrets_are_gone_from_the_arguments_in_every_case(void **state)
{
    struct ran *r = *state;
    static const char *const others[] = {NULL, "--nope", "--check", "--help", "--bad"};
    for (unsigned i = 0; i < sizeof others / sizeof others[0]; i++) {
        run(r, "--key=hush", others[i], NULL);
        assert_string_equal(r->words[1], "--key=****");
    }
    run(r, "--key", "hush", NULL);
    assert_true(r->run);
    assert_string_equal(r->words[2], "****");
    assert_true(str_eq(r->t.key, STR("hush")));
}

static void help_and_version_end_well(void **state)
{
    struct ran *r = run(*state, "--port=x", "-h", NULL);
    assert_false(r->run);
    assert_int_equal(r->status, 0);
    assert_non_null(strstr(r->out, "Usage: toy"));
    assert_non_null(strstr(r->out, "--bad-files"));
    assert_string_equal(r->err, "");
    r = run(r, "--version", "--bad", NULL);
    assert_false(r->run);
    assert_int_equal(r->status, 0);
    char wanted[200];
    snprintf(wanted, sizeof wanted, "toy %s (commit %s, built %s, %s)\n", command_build.version,
             command_build.commit, command_build.time, command_build.platform);
    assert_string_equal(r->out, wanted);
}

static void a_verb_counts_in_the_first_place_only(void **state)
{
    struct ran *r = *state;
    assert_ran(run(r, "sing", "--loud", "now"), false, 2, "2 --loud\n", "");
    assert_ran(run(r, "sing", NULL, NULL), false, 2, "0 \n", "");
    run(r, "--port=1", "sing", NULL);
    assert_int_equal(r->status, 2);
    assert_non_null(strstr(r->err, "\"sing\" is no flag"));
}

static void the_banner_is_as_the_contract_has_it(void **state)
{
    (void)state;
    char *text = NULL;
    size_t n = 0;
    FILE *out = open_memstream(&text, &n);
    command_banner(out, "OpenSandbox Ingress");
    fclose(out);
    char wanted[500];
    static const char equals[] = "=====================================================",
                      dashes[] = "-----------------------------------------------------";
    assert_int_equal(strlen(equals), 53);
    snprintf(wanted, sizeof wanted,
             "%s\n OpenSandbox Ingress\n%s\n Version     : %s\n Git Commit  : %s\n Build Time  : "
             "%s\n Platform    : %s\n%s\n",
             equals, dashes, command_build.version, command_build.commit, command_build.time,
             command_build.platform, equals);
    assert_string_equal(text, wanted);
    free(text);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(good_settings_run_and_print_nothing),
        T(a_fault_on_the_line_prints_usage_and_one_line),
        T(a_fault_between_settings_is_one_line),
        T(check_reads_files_and_does_not_ask_for_missing_parts),
        T(a_start_does_not_do_without_a_part),
        T(warnings_go_to_stderr_and_stop_nothing),
        T(print_config_goes_to_stdout_masked),
        T(secrets_are_gone_from_the_arguments_in_every_case),
        T(help_and_version_end_well),
        T(a_verb_counts_in_the_first_place_only),
        T(the_banner_is_as_the_contract_has_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
