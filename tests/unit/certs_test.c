/* certs_test.c — pairs of files and of a folder: which one answers to which name, and what refuses
 * the whole set. */
#include "ingress/certs.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "harness/pems.h"

static struct {
    struct arena a;
    struct ingress_settings s;
    struct certs *certs;
    struct str error;
    char dir[64];
} t;

static int setup(void **state)
{
    (void)state;
    memset(&t, 0, sizeof t);
    arena_init(&t.a, NULL, 0);
    snprintf(t.dir, sizeof t.dir, "/tmp/certs_test.XXXXXX");
    return mkdtemp(t.dir) ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    char command[100];
    certs_unref(t.certs);
    arena_done(&t.a);
    snprintf(command, sizeof command, "rm -rf %s", t.dir);
    return system(command);
}

static const char *at(const char *name)
{
    return arena_printf(&t.a, "%s/%s", t.dir, name).p;
}

static void put(const char *name, const char *text)
{
    FILE *f = fopen(at(name), "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static void folder(const char *name)
{
    assert_int_equal(mkdir(at(name), 0700), 0);
}

static struct str list(const char *one, const char *two)
{
    return arena_printf(&t.a, "%s%s%s", at(one), two ? " , " : "", two ? at(two) : "");
}

static bool load(void)
{
    certs_unref(t.certs);
    t.error = STR_NONE;
    t.certs = certs_load(&t.s, &t.a, &t.error);
    return t.certs != NULL;
}

static void load_well(void)
{
    if (!load())
        fail_msg("%.*s", STR_ARG(t.error));
}

/* First name of the pair that answers. */
static void expect_name(const char *sni, const char *first)
{
    const struct tls_leaf *leaf = certs_find(t.certs, str_of(sni));
    assert_non_null(leaf);
    struct str name = tls_leaf_name(leaf, 0);
    if (!str_eq(name, str_of(first)))
        fail_msg("\"%s\" is answered by %.*s, not %s", sni, STR_ARG(name), first);
}

static void expect_fault(const char *setting, const char *file)
{
    assert_false(load());
    struct str start = arena_printf(&t.a, "%s: %s", setting, at(file));
    if (!str_starts(t.error, start) || str_chr(t.error, '\n') >= 0 ||
        memmem(t.error.p, t.error.n, "hush", 4))
        fail_msg("%.*s", STR_ARG(t.error));
}

static void put_all(void)
{
    put("one.crt", PEM_ONE_CRT);
    put("one.key", PEM_ONE_KEY);
    put("two.crt", PEM_TWO_CRT);
    put("two.key", PEM_TWO_KEY);
    put("cn.crt", PEM_CN_CRT);
    put("cn.key", PEM_CN_KEY);
}

static void a_name_is_exact_then_wildcard_then_the_first_pair(void **state)
{
    (void)state;
    static const struct {
        const char *sni, *first;
    } cases[] = {
        {"one.test", "one.test"}, /* both have it: the first keeps it */
        {"two.test", "two.test"},
        {"x.one.test", "two.test"}, /* exact in the second, a wildcard in the first */
        {"y.one.test", "one.test"},
        {"y.two.test", "two.test"},
        {"a.y.two.test", "one.test"}, /* one label only */
        {".two.test", "one.test"},
        {"test", "one.test"},
        {"*.two.test", "two.test"}, /* no client's name; what its only label matches */
        {"other.test", "one.test"},
        {"two.tes", "one.test"},
        {"two.test.", "one.test"},
        {"", "one.test"},
    };
    put_all();
    t.s.tls_cert = list("one.crt", "two.crt");
    t.s.tls_key = list("one.key", "two.key");
    load_well();
    assert_int_equal(certs_count(t.certs), 2);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        expect_name(cases[i].sni, cases[i].first);
    assert_true(str_eq(certs_name(t.certs, 1), STR("two.test")));
    assert_true(certs_not_after(t.certs, 0) > 4000000000);
}

static void the_order_of_the_list_decides_the_default(void **state)
{
    (void)state;
    put_all();
    t.s.tls_cert = list("two.crt", "one.crt");
    t.s.tls_key = list("two.key", "one.key");
    load_well();
    expect_name("", "two.test");
    expect_name("one.test", "two.test");
    expect_name("y.one.test", "one.test");
}

static void a_folder_has_pairs_of_both_kinds_behind_the_list(void **state)
{
    (void)state;
    put_all();
    t.s.tls_cert = list("cn.crt", NULL);
    t.s.tls_key = list("cn.key", NULL);
    folder("d");
    t.s.tls_cert_dir = str_of(at("d"));
    put("d/b.crt", PEM_ONE_CRT);
    put("d/b.key", PEM_ONE_KEY);
    folder("d/a");
    put("d/a/tls.crt", PEM_TWO_CRT);
    put("d/a/tls.key", PEM_TWO_KEY);
    put("d/a/ca.crt", "not looked at");
    folder("d/empty");
    put("d/README", "not looked at");
    put("d/ca.crt", "what cert-manager lays beside a pair");
    put("d/.hidden.crt", "not looked at");
    load_well();
    assert_int_equal(certs_count(t.certs), 3);
    expect_name("", "cn.test");
    expect_name("one.test", "two.test"); /* "a" comes before "b" */
    expect_name("z.one.test", "one.test");
}

/* What the kubelet makes of a Secret: links into a folder of the day. */
static void a_mounted_secret_is_read_once(void **state)
{
    (void)state;
    folder("m");
    folder("m/..2026");
    put("m/..2026/tls.crt", PEM_ONE_CRT);
    put("m/..2026/tls.key", PEM_ONE_KEY);
    assert_int_equal(symlink("..2026", at("m/..data")), 0);
    assert_int_equal(symlink("..data/tls.crt", at("m/tls.crt")), 0);
    assert_int_equal(symlink("..data/tls.key", at("m/tls.key")), 0);
    t.s.tls_cert_dir = str_of(at("m"));
    load_well();
    assert_int_equal(certs_count(t.certs), 1);
    expect_name("whoever.test", "one.test");
}

static void a_certificate_without_names_goes_by_its_common_name(void **state)
{
    (void)state;
    put_all();
    t.s.tls_cert = list("one.crt", "cn.crt");
    t.s.tls_key = list("one.key", "cn.key");
    load_well();
    expect_name("cn.test", "cn.test");
}

static void one_that_is_past_its_end_still_loads(void **state)
{
    (void)state;
    put("o.crt", PEM_OLD_CRT);
    put("o.key", PEM_OLD_KEY);
    t.s.tls_cert = list("o.crt", NULL);
    t.s.tls_key = list("o.key", NULL);
    load_well();
    assert_int_equal(certs_not_after(t.certs, 0), 1012608000);
}

static void a_fault_in_a_list_names_setting_and_file(void **state)
{
    (void)state;
    put_all();
    put("bad.key", "-----BEGIN PRIVATE KEY-----\nhush\n-----END PRIVATE KEY-----\n");
    put("blank", "");
    t.s.tls_cert = list("one.crt", "none.crt");
    t.s.tls_key = list("one.key", "two.key");
    expect_fault("tls-cert", "none.crt");
    t.s.tls_cert = list("one.crt", "two.crt");
    t.s.tls_key = list("one.key", "none.key");
    expect_fault("tls-key", "none.key");
    t.s.tls_key = list("one.key", "one.key"); /* of the other pair */
    expect_fault("tls-cert", "two.crt");
    t.s.tls_key = list("one.key", "bad.key");
    expect_fault("tls-cert", "two.crt");
    t.s.tls_key = list("one.key", "blank");
    expect_fault("tls-cert", "two.crt");
    t.s.tls_cert = list("one.crt", "blank");
    t.s.tls_key = list("one.key", "two.key");
    expect_fault("tls-cert", "blank");
}

static void a_broken_pair_refuses_the_whole_folder(void **state)
{
    (void)state;
    folder("d");
    t.s.tls_cert_dir = str_of(at("d"));
    put("d/a.crt", PEM_ONE_CRT);
    put("d/a.key", PEM_ONE_KEY);
    load_well();
    put("d/b.crt", PEM_TWO_CRT);
    expect_fault("tls-cert-dir", "d/b.key"); /* missing */
    put("d/b.key", PEM_ONE_KEY);
    expect_fault("tls-cert-dir", "d/b.crt");
    unlink(at("d/b.crt"));
    expect_fault("tls-cert-dir", "d/b.crt"); /* missing */
    unlink(at("d/b.key"));
    folder("d/c");
    put("d/c/tls.key", PEM_ONE_KEY);
    expect_fault("tls-cert-dir", "d/c/tls.crt");
}

static void a_folder_without_a_pair_serves_nobody(void **state)
{
    (void)state;
    folder("d");
    t.s.tls_cert_dir = str_of(at("d"));
    expect_fault("tls-cert-dir", "d");
    t.s.tls_cert_dir = str_of(at("gone"));
    expect_fault("tls-cert-dir", "gone");
    put_all();
    t.s.tls_cert_dir = str_of(at("d"));
    t.s.tls_cert = list("one.crt", NULL);
    t.s.tls_key = list("one.key", NULL);
    load_well(); /* the list has one */
}

static void note_path(void *user, struct str path)
{
    struct str *all = user;
    *all = arena_printf(&t.a, "%.*s%.*s|", STR_ARG(*all), STR_ARG(str_skip(path, strlen(t.dir))));
}

static void all_that_may_change_is_told_to_be_watched(void **state)
{
    (void)state;
    struct str all = STR_NONE;
    put_all();
    folder("d");
    folder("d/empty");
    folder("d/s");
    put("d/b.crt", PEM_ONE_CRT);
    put("d/s/tls.crt", PEM_TWO_CRT);
    t.s.tls_cert = list("one.crt", "two.crt");
    t.s.tls_key = list("one.key", "two.key");
    t.s.tls_cert_dir = str_of(at("d"));
    certs_paths(&t.s, note_path, &all);
    assert_true(str_eq(all, STR("/one.crt|/two.crt|/one.key|/two.key|/d|/d/empty|/d/s|/d/b.crt|"
                                "/d/b.key|/d/s/tls.crt|/d/s/tls.key|")));
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(a_name_is_exact_then_wildcard_then_the_first_pair),
        T(the_order_of_the_list_decides_the_default),
        T(a_folder_has_pairs_of_both_kinds_behind_the_list),
        T(a_mounted_secret_is_read_once),
        T(a_certificate_without_names_goes_by_its_common_name),
        T(one_that_is_past_its_end_still_loads),
        T(a_fault_in_a_list_names_setting_and_file),
        T(a_broken_pair_refuses_the_whole_folder),
        T(a_folder_without_a_pair_serves_nobody),
        T(all_that_may_change_is_told_to_be_watched),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
