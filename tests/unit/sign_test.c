/* sign_test.c — the subcommand `sign`: the known answers of contract ingress 4.8, forms, faults. */
#include "ingress/sign.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/text.h"
#include "policies/signature.h"

struct fixture {
    char file[64];
    char *out, *err;
    size_t out_n, err_n;
    int status;
};

static int setup(void **state)
{
    static struct fixture f;
    f = (struct fixture){0};
    snprintf(f.file, sizeof f.file, "/tmp/sign_test.%d.key", (int)getpid());
    *state = &f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    free(f->out);
    free(f->err);
    unlink(f->file);
    return 0;
}

static void write_key(struct fixture *f, const char *text)
{
    FILE *file = fopen(f->file, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

/* Words separated by single blanks; FILE stands for the fixture's key file. */
static int run(struct fixture *f, const char *words)
{
    enum { WORDS = 16, BYTES = 100 };
    static char copies[WORDS][BYTES];
    char *argv[WORDS];
    int argc = 0;
    struct str rest = str_of(words);
    for (struct str word; rest.n && str_next(&rest, ' ', &word); argc++) {
        assert_true(argc < WORDS);
        word = str_eq(word, STR("FILE")) ? str_of(f->file) : word;
        snprintf(copies[argc], BYTES, "%.*s", STR_ARG(word));
        argv[argc] = copies[argc];
    }
    free(f->out);
    free(f->err);
    FILE *out = open_memstream(&f->out, &f->out_n), *err = open_memstream(&f->err, &f->err_n);
    f->status = ingress_sign(argc, argv, out, err);
    fclose(out);
    fclose(err);
    return f->status;
}

static void known_answers_come_out_in_all_four_forms(void **state)
{
    struct fixture *f = *state;
    static const struct {
        const char *secret, *flags, *id, *port, *tail;
    } cases[] = {
        {"Y29uZm9ybWFuY2Uta2V5LTE=", "--key-id a --expires 2000000000", "my-sandbox", "8080",
         "x2qxvk 5528a7c9a"},
        {"AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=", "--key-id=7 --expires=4102444800",
         "0f8fad5b-d9cb-469f-a165-70867728950e", "44772", "1vuhmo0 528fb6b77"},
        {"/w==", "--key-id=z --expires=0", "a", "1", "0 a9e63043z"},
        {"a2tr", "-key-id k -expires 18446744073709551615", "sb", "65535",
         "3w5e11264sgsf 5f2a3414k"},
    };
    for (unsigned i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char words[300], wanted[600], exp[16], sig[16];
        assert_int_equal(sscanf(cases[i].tail, "%15s %15s", exp, sig), 2);
        write_key(f, cases[i].secret);
        snprintf(words, sizeof words,
                 "--secret-file FILE %s --id %s --port %s --base-domain gw.test", cases[i].flags,
                 cases[i].id, cases[i].port);
        snprintf(wanted, sizeof wanted,
                 "OpenSandbox-Ingress-To: %s-%s-%s-%s\nHost: "
                 "%s-%s-%s-%s.gw.test\n/sandboxes/%s/port/%s/%s/%s/\n/%s/%s/%s/%s/\n",
                 cases[i].id, cases[i].port, exp, sig, cases[i].id, cases[i].port, exp, sig,
                 cases[i].id, cases[i].port, exp, sig, cases[i].id, cases[i].port, exp, sig);
        assert_int_equal(run(f, words), 0);
        assert_string_equal(f->out, wanted);
        assert_string_equal(f->err, "");
    }
}

static void a_key_may_stand_in_a_ring_or_between_blanks(void **state)
{
    struct fixture *f = *state;
    static const char *const files[] = {"Y29uZm9ybWFuY2Uta2V5LTE=\n",
                                        " \tY29uZm9ybWFuY2Uta2V5LTE= \r\n",
                                        "Y29uZm9y\nbWFuY2Uta2V5LTE=", "a=Y29uZm9ybWFuY2Uta2V5LTE=",
                                        "b=/w==, a = Y29uZm9ybWFuY2Uta2V5LTE=\n"};
    for (unsigned i = 0; i < sizeof files / sizeof files[0]; i++) {
        write_key(f, files[i]);
        assert_int_equal(run(f, "--secret-file FILE --key-id a --id my-sandbox --port 8080 "
                                "--expires 2033-05-18T03:33:20Z"),
                         0);
        assert_non_null(
            strstr(f->out, "OpenSandbox-Ingress-To: my-sandbox-8080-x2qxvk-5528a7c9a\n"));
        assert_non_null(strstr(f->out, "\nHost: my-sandbox-8080-x2qxvk-5528a7c9a\n"));
    }
}

static void a_ttl_counts_from_now(void **state)
{
    struct fixture *f = *state;
    write_key(f, "a2tr");
    uint64_t before = (uint64_t)time(NULL), exp;
    assert_int_equal(run(f, "--secret-file FILE --key-id k --id sb --port 80 --ttl 1h0.5s"), 0);
    uint64_t after = (uint64_t)time(NULL);
    const char *at = strstr(f->out, "sb-80-") + 6;
    assert_true(text_base36((struct str){at, strcspn(at, "-")}, &exp));
    assert_in_range(exp, before + 3601, after + 3601);
    struct keyring *ring;
    char error[100];
    assert_true(keyring_parse(STR("k=a2tr"), &ring, NULL, error, sizeof error));
    struct signed_route r = {STR("sb"), {at, strcspn(at, "-")}, {at + strcspn(at, "-") + 1, 9}, 80};
    assert_int_equal(signature_verify(ring, &r, (int64_t)after), SIGNATURE_OK);
    keyring_free(ring);
}

static void a_fault_is_one_line_and_nothing_is_printed(void **state)
{
    struct fixture *f = *state;
    static const struct {
        const char *words, *named;
    } cases[] = {
        {"", "key-id: "},
        {"--key-id A --secret-file FILE --id x --port 1 --ttl 1h", "key-id: "},
        {"--key-id aa --secret-file FILE --id x --port 1 --ttl 1h", "key-id: "},
        {"--key-id a --id x --port 1 --ttl 1h", "secret-file: "},
        {"--key-id a --secret-file /nowhere/k --id x --port 1 --ttl 1h",
         "secret-file: /nowhere/k: No such file"},
        {"--key-id a --secret-file FILE --port 1 --ttl 1h", "id: "},
        {"--key-id a --secret-file FILE --id a.b --port 1 --ttl 1h", "id: "},
        {"--key-id a --secret-file FILE --id a/b --port 1 --ttl 1h", "id: "},
        {"--key-id a --secret-file FILE --id x --ttl 1h", "port: "},
        {"--key-id a --secret-file FILE --id x --port 0 --ttl 1h", "port: "},
        {"--key-id a --secret-file FILE --id x --port 65536 --ttl 1h", "--port: "},
        {"--key-id a --secret-file FILE --id x --port 1", "expires: "},
        {"--key-id a --secret-file FILE --id x --port 1 --ttl 1h --expires 5", "expires: "},
        {"--key-id a --secret-file FILE --id x --port 1 --ttl 0", "ttl: "},
        {"--key-id a --secret-file FILE --id x --port 1 --ttl -1h", "--ttl: "},
        {"--key-id a --secret-file FILE --id x --port 1 --expires soon", "expires: "},
        {"--key-id a --secret-file FILE --id x --port 1 --expires -5", "expires: "},
        {"--key-id a --secret-file FILE --id x --port 1 --expires 1969-12-31T23:59:59Z",
         "expires: "},
        {"--key-id a --secret-file FILE --id x --port 1 --expires 18446744073709551616",
         "expires: "},
        {"--key-id b --secret-file FILE --id x --port 1 --ttl 1h",
         "secret-file: no key of the id \"b\""},
        {"--key-id a --secret-file FILE --id x --port 1 --ttl 1h word", "\"word\" is no flag"},
        {"--mode uri", "unknown flag \"mode\""},
        {"--check", "unknown flag \"check\""},
        {"--print-config", "unknown flag \"print-config\""},
    };
    write_key(f, "a=QUJD");
    for (unsigned i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char wanted[200];
        snprintf(wanted, sizeof wanted, "sallyport-ingress sign: %s", cases[i].named);
        assert_int_equal(run(f, cases[i].words), 2);
        if (strncmp(f->err, wanted, strlen(wanted)) != 0 ||
            strchr(f->err, '\n') != f->err + f->err_n - 1)
            fail_msg("%s: %s", cases[i].words, f->err);
        assert_string_equal(f->out, "");
    }
}

static void a_bad_secret_is_not_shown(void **state)
{
    struct fixture *f = *state;
    static const char *const files[] = {"hush!", "a=hush!", "", " \n", "a=", "hush=hush"};
    for (unsigned i = 0; i < sizeof files / sizeof files[0]; i++) {
        write_key(f, files[i]);
        assert_int_equal(run(f, "--key-id a --secret-file FILE --id x --port 1 --ttl 1h"), 2);
        assert_string_equal(f->err,
                            "sallyport-ingress sign: secret-file: neither base64 nor a key ring\n");
    }
}

static void help_is_its_own(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(run(f, "--key-id AAA --help"), 0);
    assert_non_null(strstr(f->out, "--secret-file"));
    assert_non_null(strstr(f->out, "--help"));
    assert_null(strstr(f->out, "--mode"));
    assert_null(strstr(f->out, "--check"));
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(known_answers_come_out_in_all_four_forms),
        T(a_key_may_stand_in_a_ring_or_between_blanks),
        T(a_ttl_counts_from_now),
        T(a_fault_is_one_line_and_nothing_is_printed),
        T(a_bad_secret_is_not_shown),
        T(help_is_its_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
