/* dsn_test.c — Redis DSNs beyond the vectors (contract ingress 10.4). */
#include "ingress/dsn.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

struct fixture {
    struct arena a;
    struct dsn d;
    const char *error;
};

static int setup(void **state)
{
    static struct fixture f;
    f = (struct fixture){0};
    arena_init(&f.a, NULL, 0);
    *state = &f;
    return 0;
}

static int teardown(void **state)
{
    arena_done(&((struct fixture *)*state)->a);
    return 0;
}

static void parse(struct fixture *f, const char *text)
{
    if (!dsn_parse(str_of(text), &f->a, &f->d, &f->error))
        fail_msg("%s: %s", text, f->error);
}

#define assert_text(s, z)                                       \
    do {                                                        \
        struct str s_ = (s);                                    \
        if (!str_eq(s_, str_of(z)))                             \
            fail_msg("\"%.*s\" is not \"%s\"", STR_ARG(s_), z); \
    } while (0)

static void options_that_are_not_given_have_defaults(void **state)
{
    struct fixture *f = *state;
    parse(f, "redis://");
    assert_int_equal(f->d.option[DSN_DIAL_TIMEOUT], 5000);
    assert_int_equal(f->d.option[DSN_READ_TIMEOUT], 3000);
    assert_int_equal(f->d.option[DSN_WRITE_TIMEOUT], 3000);
    assert_int_equal(f->d.option[DSN_MAX_RETRIES], 3);
    assert_int_equal(f->d.option[DSN_MIN_RETRY_BACKOFF], 8);
    assert_int_equal(f->d.option[DSN_MAX_RETRY_BACKOFF], 512);
    assert_int_equal(f->d.option[DSN_SKIP_VERIFY], 0);
    parse(f, "redis://h?dial_timeout=&max_retries=");
    assert_int_equal(f->d.option[DSN_DIAL_TIMEOUT], 5000);
    assert_int_equal(f->d.option[DSN_MAX_RETRIES], 3);
}

static void the_host_and_port_stand_apart_too(void **state)
{
    struct fixture *f = *state;
    parse(f, "redis://[fd00::5]:6380");
    assert_text(f->d.host, "fd00::5");
    assert_int_equal(f->d.port, 6380);
    parse(f, "redis://cache:");
    assert_text(f->d.address, "cache:6379");
    parse(f, "unix:///run/a%20b?db=3");
    assert_text(f->d.host, "/run/a b");
    assert_int_equal(f->d.port, 0);
    assert_int_equal(f->d.db, 3);
    assert_true(f->d.unix_socket);
}

static void user_and_password_are_decoded_once(void **state)
{
    struct fixture *f = *state;
    parse(f, "redis://a%3Ab:p%40ss%252F@h");
    assert_text(f->d.username, "a:b");
    assert_text(f->d.password, "p@ss%2F");
    parse(f, "redis://u:p@ss@h"); /* the last @ ends them */
    assert_text(f->d.password, "p@ss");
    parse(f, "redis://:@h");
    assert_int_equal(f->d.password.n, 0);
}

static void durations_round_up_and_switch_off(void **state)
{
    struct fixture *f = *state;
    static const struct {
        const char *dsn;
        int64_t ms;
    } cases[] = {{"redis://h?dial_timeout=1", 1000},      {"redis://h?dial_timeout=1500ms", 1500},
                 {"redis://h?dial_timeout=1us", 1},       {"redis://h?dial_timeout=0s", -1},
                 {"redis://h?dial_timeout=-3s", -1},      {"redis://h?dial_timeout=-0", -1},
                 {"redis://h?dial_timeout=1m30s", 90000}, {"redis://h?dial_timeout=%31", 1000}};
    for (unsigned i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        parse(f, cases[i].dsn);
        if (f->d.option[DSN_DIAL_TIMEOUT] != cases[i].ms)
            fail_msg("%s: %lld", cases[i].dsn, (long long)f->d.option[DSN_DIAL_TIMEOUT]);
    }
}

static void a_plus_sign_is_a_blank_in_options(void **state)
{
    struct fixture *f = *state;
    parse(f, "redis://h?client_name=a+b%2Bc");
    assert_text(f->d.client_name, "a b+c");
    assert_false(dsn_parse(STR("redis://h?pool_size=+5"), &f->a, &f->d, &f->error));
}

static void every_option_is_known(void **state)
{
    struct fixture *f = *state;
    static const char *const names[] = {"protocol=2",
                                        "protocol=3",
                                        "client_name=x",
                                        "max_retries=-1",
                                        "min_retry_backoff=1ms",
                                        "max_retry_backoff=1",
                                        "dial_timeout=1",
                                        "read_timeout=1",
                                        "write_timeout=1",
                                        "pool_fifo=1",
                                        "pool_fifo=",
                                        "pool_size=1",
                                        "pool_timeout=1",
                                        "min_idle_conns=1",
                                        "max_idle_conns=1",
                                        "max_active_conns=1",
                                        "conn_max_idle_time=1",
                                        "idle_timeout=1",
                                        "conn_max_lifetime=1",
                                        "max_conn_age=1",
                                        "max_concurrent_dials=1",
                                        "conn_max_lifetime_jitter=1",
                                        "",
                                        "&&db=1&"};
    for (unsigned i = 0; i < sizeof names / sizeof names[0]; i++) {
        struct str dsn = arena_printf(&f->a, "redis://h?%s", names[i]);
        if (!dsn_parse(dsn, &f->a, &f->d, &f->error))
            fail_msg("%s: %s", names[i], f->error);
    }
}

static void what_is_half_understood_is_refused(void **state)
{
    struct fixture *f = *state;
    static const char *const bad[] = {"redis:",
                                      "redis:/h",
                                      "redis//h",
                                      " redis://h",
                                      "redis://h ",
                                      "redis://h#f",
                                      "redis://h\n",
                                      "redis://a b@h",
                                      "redis://::1",
                                      "redis://::1:6379",
                                      "redis://[::1",
                                      "redis://[]",
                                      "redis://[127.0.0.1]",
                                      "redis://[::1]x",
                                      "redis://[fe80::1%25eth0]",
                                      "redis://h:0",
                                      "redis://h:65536",
                                      "redis://h:-1",
                                      "redis://h:6379:1",
                                      "redis://h/1/2",
                                      "redis://h/-1",
                                      "redis://h/+1",
                                      "redis://h/99999999999",
                                      "redis://h%41",
                                      "redis://h,i",
                                      "redis://h?protocol=1",
                                      "redis://h?protocol=0",
                                      "redis://h?db=-1",
                                      "redis://h?DB=1",
                                      "redis://h?max_retries=1.5",
                                      "redis://h?pool_size=99999999999",
                                      "redis://h?dial_timeout=1h1",
                                      "redis://h?dial_timeout=99999999999",
                                      "redis://h?pool_fifo=True",
                                      "redis://h?a%zz=1",
                                      "redis://h?db=%zz",
                                      "redis://h?foo",
                                      "unix://host/run/x",
                                      "unix:///run/x?skip_verify=true",
                                      "unix:///run/%00x",
                                      "unix://%20",
                                      "redis://u%zz@h",
                                      "rediss://h?skip_verify=yes",
                                      "redis://u:p^w@h",
                                      "unix:///"
                                      "012345678901234567890123456789012345678901234567890123456789"
                                      "0123456789012345678901234567890123456789012345678"};
    for (unsigned i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        f->error = NULL;
        if (dsn_parse(str_of(bad[i]), &f->a, &f->d, &f->error))
            fail_msg("%s was taken", bad[i]);
        assert_non_null(f->error);
    }
    assert_false(dsn_parse((struct str){"redis://h\0x", 11}, &f->a, &f->d, &f->error));
    assert_false(dsn_parse(STR_NONE, &f->a, &f->d, &f->error));
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(options_that_are_not_given_have_defaults), T(the_host_and_port_stand_apart_too),
        T(user_and_password_are_decoded_once),       T(durations_round_up_and_switch_off),
        T(a_plus_sign_is_a_blank_in_options),        T(every_option_is_known),
        T(what_is_half_understood_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
