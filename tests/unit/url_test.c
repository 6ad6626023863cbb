/* url_test.c — URLs as operators write them: what is taken, what it comes to on the wire, and what
 * is refused because two readers could cut it differently. */
#include "http/url.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <cmocka.h>

static const char *text_of(struct str s, char out[256])
{
    snprintf(out, 256, "%.*s", STR_ARG(s));
    return out;
}

static void a_url_is_cut_where_it_says(void **state)
{
    static const struct {
        const char *url;
        bool tls;
        const char *host;
        uint16_t port;
        const char *authority, *target, *basic;
    } rows[] = {
        {"http://a.test", false, "a.test", 80, "a.test", "/", ""},
        {"HTTPS://A.Test/", true, "A.Test", 443, "A.Test", "/", ""},
        {"https://a.test:8443/x/y?z=1&q", true, "a.test", 8443, "a.test:8443", "/x/y?z=1&q", ""},
        {"http://10.0.0.1:65535?q", false, "10.0.0.1", 65535, "10.0.0.1:65535", "/?q", ""},
        {"http://[2001:db8::1]/h#frag?x", false, "2001:db8::1", 80, "[2001:db8::1]", "/h", ""},
        {"http://[::1]:81#f", false, "::1", 81, "[::1]:81", "/", ""},
        {"http://a.test/%41%zz{\xc3\xa9\"", false, "a.test", 80, "a.test", "/%41%zz%7B%C3%A9%22",
         ""},
        {"http://me:hush@a.test/", false, "a.test", 80, "a.test", "/", "Basic bWU6aHVzaA=="},
        {"http://m%40e:h%3as:h@a.test/", false, "a.test", 80, "a.test", "/", "Basic bUBlOmg6czpo"},
        {"http://me@a.test/", false, "a.test", 80, "a.test", "/", "Basic bWU6"},
        {"http://a@b@c.test/", false, "c.test", 80, "c.test", "/", "Basic YUBiOg=="},
        {"http://@a.test/", false, "a.test", 80, "a.test", "/", ""},
        {"http://a.test/x@y:z", false, "a.test", 80, "a.test", "/x@y:z", ""},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct url u;
        struct arena a;
        char out[256];
        arena_init(&a, NULL, 0);
        if (!url_parse(str_of(rows[i].url), &u))
            fail_msg("refused: %s", rows[i].url);
        assert_int_equal(u.tls, rows[i].tls);
        assert_int_equal(u.port, rows[i].port);
        assert_string_equal(text_of(u.host, out), rows[i].host);
        assert_string_equal(text_of(u.authority, out), rows[i].authority);
        assert_string_equal(text_of(url_target(&u, &a), out), rows[i].target);
        assert_string_equal(text_of(url_basic(&u, &a), out), rows[i].basic);
        arena_done(&a);
    }
}

static void what_is_unclear_is_refused(void **state)
{
    static const char *const rows[] = {
        "",
        "a.test",
        "//a.test/",
        "ftp://a.test/",
        "http:/a.test/",
        "http:///x",
        "http://",
        "http://?x",
        "http://:80/",
        "http://a.test:/",
        "http://a.test:0/",
        "http://a.test:65536/",
        "http://a.test:+80/",
        "http://a.test:80:81/",
        "http://a test/",
        "http://a.test/x y",
        "http://a.test/\r\nX: y",
        "http://a.test\\@b.test/",
        "http://a\x7f.test/",
        "http://a.test\t/",
        "http://[::1",
        "http://[::1]x/",
        "http://[::1%25eth0]/",
        "http://[10.0.0.1]/",
        "http://[a.test]/",
        "http://::1/",
        "http://127.1/",
        "http://0x7f000001/",
        "http://2130706433/",
        "http://010.0.0.1/",
        "http://a%2etest/",
        "http://b\xc3\xbc.test/",
        "http://a..test/",
        "http://u:%zz@a.test/",
        "http://u:%4@a.test/",
        "http://u@/",
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct url u;
        if (url_parse(str_of(rows[i]), &u))
            fail_msg("taken: %s", rows[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_url_is_cut_where_it_says),
        cmocka_unit_test(what_is_unclear_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
