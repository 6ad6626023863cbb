/* mitm_config_test.c — config.yaml: what is read of it, and what is refused (contract egress-vault
 * 18.3). */
#include "egress/intercept/passlist.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

struct read {
    struct arena a;
    struct mitm_config c;
    struct str error;
};

static bool read_text(struct read *r, struct str text)
{
    *r = (struct read){.error = STR_NONE};
    arena_init(&r->a, NULL, 0);
    return mitm_config_read(text, &r->a, &r->c, &r->error);
}

static void expect_list(const struct str *at, unsigned n, const char *const *want)
{
    unsigned i = 0;
    for (; want[i]; i++) {
        assert_true(i < n);
        if (!str_eq(at[i], str_of(want[i])))
            fail_msg("\"%.*s\", not \"%s\"", STR_ARG(at[i]), want[i]);
    }
    assert_int_equal(n, i);
}

static void hosts_are_read_in_every_form(void **state)
{
    (void)state;
    static const struct {
        const char *text, *hosts[4];
    } rows[] = {
        {"", {0}},
        {"\n\n# nothing\n", {0}},
        {"---\nignore_hosts: []\n", {0}},
        {"ignore_hosts: [ ]   # none\n", {0}},
        {"ignore_hosts:\n", {0}},
        {"ignore_hosts: ~\n", {0}},
        {"ignore_hosts: null\n", {0}},
        {"#ignore_hosts: [a]\n", {0}},
        {"ignore_hosts: a\\.example", {"a\\.example"}},
        {"ignore_hosts: 'a.example'  # why\n", {"a.example"}},
        {"ignore_hosts: \"a # b\"\n", {"a # b"}},
        {"ignore_hosts: a#b\n", {"a#b"}},
        {"\"ignore_hosts\": a\n", {"a"}},
        {"ignore_hosts : a\n", {"a"}},
        {"\xef\xbb\xbfignore_hosts: a\n", {"a"}},
        {"ignore_hosts: [a, 'b, c', \"d]\"]\n", {"a", "b, c", "d]"}},
        {"ignore_hosts: [a,b,]\n", {"a", "b"}},
        {"ignore_hosts:\n- a\n- b\n", {"a", "b"}},
        {"ignore_hosts:\n  # first\n  - a # one\n\n  - '^b:443$'\nmode: [transparent]\n",
         {"a", "^b:443$"}},
        {"ignore_hosts:\r\n  - a\r\n  - \"b\"\r\n", {"a", "b"}},
        {"ignore_hosts:\n\t-\ta\n", {"a"}},
        {"ignore_hosts:\n  - a: b\n", {"a: b"}},
        {"mode:\n- transparent\nignore_hosts:\n- (a|b)[0-9]{2}\\.test\n", {"(a|b)[0-9]{2}\\.test"}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct read r;
        if (!read_text(&r, str_of(rows[i].text)))
            fail_msg("row %zu: %.*s", i, STR_ARG(r.error));
        expect_list(r.c.ignore_hosts, r.c.nignore_hosts, rows[i].hosts);
        assert_int_equal(r.c.nothers, 0);
        assert_int_equal(r.c.stream_large_bodies, -1);
        arena_done(&r.a);
    }
}

static void sizes_are_read(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t bytes;
    } rows[] = {
        {"stream_large_bodies: 1m\n", 1048576}, {"stream_large_bodies: 512k\n", 524288},
        {"stream_large_bodies: 1000\n", 1000},  {"stream_large_bodies: '2M' # big\n", 2097152},
        {"stream_large_bodies: 1g\n", 1 << 30}, {"stream_large_bodies: 0\n", 0},
        {"stream_large_bodies:\n", -1},         {"stream_large_bodies: ~\n", -1},
        {"stream_large_bodies: null\n", -1},    {"#stream_large_bodies: 1m\n", -1},
        {"x_stream_large_bodies: 1m\n", -1},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct read r;
        assert_true(read_text(&r, str_of(rows[i].text)));
        assert_true(r.c.stream_large_bodies == rows[i].bytes);
        arena_done(&r.a);
    }
}

static void what_cannot_be_read_is_refused_with_its_line(void **state)
{
    (void)state;
    static const struct {
        const char *text, *says;
    } rows[] = {
        {"ignore_hosts: ''\n", "line 1: ignore_hosts: a value is blank"},
        {"\nignore_hosts: [a, '']\n", "line 2: ignore_hosts: a value is blank"},
        {"ignore_hosts: [a,, b]\n", "blank"},
        {"ignore_hosts:\n  -\n", "blank"},
        {"ignore_hosts:\n  - # nothing\n", "blank"},
        {"ignore_hosts:\n  - ''\n", "blank"},
        {"ignore_hosts: [a, b\n", "not closed"},
        {"ignore_hosts: [a[0-9]]\n", "not closed"},
        {"ignore_hosts: 'a\n", "quote is not closed"},
        {"ignore_hosts: 'a' b\n", "stands behind"},
        {"ignore_hosts: 'it''s'\n", "stands behind"},
        {"ignore_hosts: [a] b\n", "stands behind"},
        {"ignore_hosts: [a]b\n", "stands behind"},
        {"ignore_hosts: |\n  a\n", "form"},
        {"ignore_hosts: >-\n  a\n", "form"},
        {"ignore_hosts: !x a\n", "form"},
        {"ignore_hosts: &x a\n", "form"},
        {"ignore_hosts: {a: b}\n", "form"},
        {"ignore_hosts:\n  a: b\n", "form"},
        {"ignore_hosts: a\n  b\n", "form"},
        {"ignore_hosts: [a]\n- b\n", "form"},
        {"ignore_hosts: a\nignore_hosts: b\n", "line 2: ignore_hosts: it is stated twice"},
        {"stream_large_bodies: 1m\nstream_large_bodies: 1m\n", "twice"},
        {"stream_large_bodies: m\n", "no size"},
        {"stream_large_bodies: -1\n", "no size"},
        {"stream_large_bodies: 1.5m\n", "no size"},
        {"stream_large_bodies: 1mb\n", "no size"},
        {"stream_large_bodies: 1 m\n", "no size"},
        {"stream_large_bodies: 99999999999999999999\n", "no size"},
        {"stream_large_bodies: 9999999999999g\n", "no size"},
        {"stream_large_bodies: [1m, 2m]\n", "no size"},
        {"ignore_hosts\n", "line 1: there is no key"},
        {"- a\n", "no key"},
        {"  ignore_hosts: a\n", "no key"},
        {": a\n", "no key"},
        {"ignore_hosts: [a]\n...\n", "line 2: there is no key"},
        {"ignore_hosts: \xff\n", "UTF-8"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct read r;
        if (read_text(&r, str_of(rows[i].text)))
            fail_msg("row %zu was read", i);
        if (!memmem(r.error.p, r.error.n, rows[i].says, strlen(rows[i].says)))
            fail_msg("row %zu: %.*s", i, STR_ARG(r.error));
        assert_int_equal(str_chr(r.error, '\n'), -1);
        arena_done(&r.a);
    }
    struct read r;
    assert_false(read_text(&r, STR("ignore_hosts: a\0b\n")));
    arena_done(&r.a);
}

static void more_hosts_than_anybody_needs_are_refused(void **state)
{
    enum { MANY = 5000 };
    (void)state;
    struct arena a;
    struct str text = STR("ignore_hosts:\n");
    arena_init(&a, NULL, 0);
    char *p = arena_get(&a, text.n + MANY * 4);
    memcpy(p, text.p, text.n);
    for (unsigned i = 0; i < MANY; i++)
        memcpy(p + text.n + 4 * i, "- a\n", 4);
    struct read r;
    assert_true(read_text(&r, (struct str){p, text.n + 4 * 4096}));
    assert_int_equal(r.c.nignore_hosts, 4096);
    arena_done(&r.a);
    assert_false(read_text(&r, (struct str){p, text.n + 4 * 4097}));
    arena_done(&r.a);
    arena_done(&a);
}

static void other_keys_are_named_where_they_differ_from_what_is_shipped(void **state)
{
    (void)state;
    static const struct {
        const char *text, *others[4];
    } rows[] = {
        {"mode:\n  - transparent\nconnection_strategy: lazy\nlisten_host: 127.0.0.1\n"
         "ssl_verify_upstream_trusted_confdir: /etc/ssl/certs\n",
         {0}},
        {"mode: [transparent]\n", {0}},
        {"mode: regular\nlisten_host: 0.0.0.0\n", {"mode", "listen_host"}},
        {"mode: [transparent, socks5]\n", {"mode"}},
        {"listen_port: 8080\n", {"listen_port"}},
        {"listen_port:\n", {0}},
        {"scripts:\n  - a.py\n  - b.py\n", {"scripts"}},
        {"nested:\n  a: |\n    ignore_hosts: b\n  c: d\n", {"nested"}},
        {"folded: >\n  ignore_hosts: b\nignore_hosts: []\n", {"folded"}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct read r;
        assert_true(read_text(&r, str_of(rows[i].text)));
        expect_list(r.c.others, r.c.nothers, rows[i].others);
        assert_int_equal(r.c.nignore_hosts, 0);
        arena_done(&r.a);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hosts_are_read_in_every_form),
        cmocka_unit_test(sizes_are_read),
        cmocka_unit_test(what_cannot_be_read_is_refused_with_its_line),
        cmocka_unit_test(more_hosts_than_anybody_needs_are_refused),
        cmocka_unit_test(other_keys_are_named_where_they_differ_from_what_is_shipped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
