/* lost_test.c — the hosts of a vault as its successor reads them. */
#include "egress/vault/lost.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <cmocka.h>

static struct bindings *two_bindings(struct arena *a)
{
    const struct str hosts[2][2] = {{STR("b.example.com"), STR("*.apps.example.com")},
                                    {STR("a.example.com"), STR("c.example.com")}},
                     schemes[] = {STR("https"), STR("http")};
    struct binding_draft d[2] = {{.name = STR("x"), .hosts = {hosts[0], 2}},
                                 {.name = STR("y"), .hosts = {hosts[1], 2}}};
    struct binding b[2];
    struct str error;
    d[0].type = d[1].type = STR("passthrough");
    d[1].schemes = (struct str_list){schemes, 2};
    for (unsigned i = 0; i < 2; i++)
        assert_true(binding_read(&d[i], false, a, &b[i], &error));
    return bindings_new((const struct binding *[]){&b[0], &b[1]}, 2, a, &error);
}

static void the_text_is_sorted_and_read_back(void **state)
{
    (void)state;
    struct arena a;
    arena_init(&a, NULL, 0);
    struct bindings *s = two_bindings(&a);
    struct str text = lost_text(s, &a);
    static const char expected[] = "http a.example.com\nhttp c.example.com\n"
                                   "https *.apps.example.com\nhttps a.example.com\n"
                                   "https b.example.com\nhttps c.example.com\n";
    if (!str_eq(text, STR(expected)))
        fail_msg("%.*s", STR_ARG(text));
    struct lost *l = lost_read(text);
    static const char *const names[] = {
        "a.example.com",      "b.example.com",        "c.example.com",   "apps.example.com",
        "x.apps.example.com", "a.b.apps.example.com", "x.a.example.com", "example.com"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        for (int tls = 0; tls < 2; tls++)
            if (lost_binds(l, str_of(names[i]), tls) !=
                bindings_bind_host(s, str_of(names[i]), tls))
                fail_msg("%s", names[i]);
    lost_unref(lost_ref(l));
    lost_unref(l);
    bindings_free(s);
    arena_done(&a);
}

static void two_texts_can_be_put_together(void **state)
{
    (void)state;
    struct lost *l = lost_read(STR("https b.x.y\n\nhttps a.x.y\nhttps b.x.y\n"));
    assert_true(lost_binds(l, STR("a.x.y"), true));
    assert_true(lost_binds(l, STR("b.x.y"), true));
    assert_false(lost_binds(l, STR("c.x.y"), true));
    assert_false(lost_binds(l, STR("a.x.y"), false));
    lost_unref(l);
}

static void nothing_is_lost_by_an_empty_text(void **state)
{
    (void)state;
    struct arena a;
    struct str error;
    arena_init(&a, NULL, 0);
    struct bindings *none = bindings_new(NULL, 0, &a, &error);
    assert_int_equal(lost_text(none, &a).n, 0);
    assert_null(lost_read(STR("")));
    assert_false(lost_binds(NULL, STR("a.x.y"), true));
    lost_unref(NULL);
    bindings_free(none);
    arena_done(&a);
}

static void what_cannot_be_read_loses_every_host(void **state)
{
    static const char *const texts[] = {
        "https a.x.y",
        "https a.x",
        "https a.x.y\nftp b.x.y\n",
        "https\n",
        "https a.x.y \n",
        "https  a.x.y\n",
        "HTTPS a.x.y\n",
        "https A.x.y\n",
        "https 1.2.3.4\n",
        "https *.com\n",
        "https a.x.y\r\n",
        " https a.x.y\n",
        "https a.x.y b.x.y\n",
        "https \n",
        "junk",
        "http *.\n",
    };
    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct lost *l = lost_read(str_of(texts[i]));
        if (!lost_binds(l, STR("other.example"), true) ||
            !lost_binds(l, STR("other.example"), false))
            fail_msg("%s", texts[i]);
        lost_unref(l);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_text_is_sorted_and_read_back),
        cmocka_unit_test(two_texts_can_be_put_together),
        cmocka_unit_test(nothing_is_lost_by_an_empty_text),
        cmocka_unit_test(what_cannot_be_read_loses_every_host),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
