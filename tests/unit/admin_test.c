/* admin_test.c — pages and an API of the product's own on the admin listener. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <cmocka.h>

#include "app/pages.h"
#include "harness/admin_rig.h"
#include "net/worker.h"

static struct {
    struct admin_rig rig;
    struct rig_call c;
    bool refuses; /* admit() */
    bool later;   /* serve() keeps the visit */
    struct admin_visit *kept;
    unsigned served, refused;
    char body[256];
} t;

/* ---- the product */

static struct str hello(struct app *app, int *status, struct arena *a)
{
    (void)app;
    *status = 203;
    return arena_printf(a, "hello\n");
}

static const struct page own_pages[] = {
    {"/debug/hello", "text/plain", hello, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static void say(struct admin_visit *v, int status, const char *type, const char *body)
{
    admin_answer(v, &(struct admin_answer){.status = status,
                                           .type = type,
                                           .body = str_of(body),
                                           .fields = {{STR("X-One"), STR("1")}},
                                           .nfields = 1});
}

static bool admit(struct app *app, struct admin_visit *v)
{
    assert_ptr_equal(app, &t.rig.app);
    if (t.refuses)
        say(v, 403, "text/plain", "no\n");
    return !t.refuses;
}

static void serve(struct app *app, struct admin_visit *v)
{
    struct str method = admin_head(v)->method;
    (void)app;
    t.served++;
    snprintf(t.body, sizeof t.body, "%.*s", STR_ARG(admin_body(v)));
    if (t.later)
        t.kept = v;
    else if (str_eq(method, STR("DELETE")))
        say(v, 204, NULL, "");
    else
        say(v, 200, "text/plain", "whole\n");
}

static void refuse(struct app *app, struct admin_visit *v, int status, struct str why)
{
    (void)app;
    (void)why;
    t.refused++;
    say(v, status, "text/plain", "refused\n");
}

static const struct admin_api api = {"/things", 100, admit, serve, refuse};
static const struct product product = {.not_ready = "-", .pages = own_pages, .api = &api};
static const struct product bare = {.not_ready = "-"};

static int set_up(void **state)
{
    (void)state;
    memset(&t, 0, sizeof t);
    admin_rig_start(&t.rig, &product);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    admin_rig_done(&t.rig);
    return 0;
}

static int ask(const char *method, const char *path, const char *fields, const char *body)
{
    return rig_ask(&t.rig, &t.c, method, path, fields, body);
}

/* ---- tests */

static void pages_of_the_product_stand_beside_ours(void **state)
{
    (void)state;
    assert_int_equal(ask("GET", "/debug/hello", NULL, NULL), 203);
    assert_string_equal(rig_body(&t.c), "hello\n");
    assert_int_equal(ask("GET", "/healthz?x", NULL, NULL), 200);
    assert_string_equal(rig_body(&t.c), "ok\n");
    assert_int_equal(ask("GET", "/debug/hell", NULL, NULL), 404);
    assert_int_equal(ask("POST", "/debug/hello", NULL, "x"), 405);
    assert_string_equal(rig_field(&t.c, "allow"), "GET, HEAD");
    assert_int_equal(ask("HEAD", "/debug/hello", NULL, NULL), 203);
    assert_string_equal(rig_field(&t.c, "content-length"), "6");
    assert_string_equal(rig_body(&t.c), "");
}

static void a_product_without_any_has_none(void **state)
{
    (void)state;
    t.rig.app.product = &bare;
    assert_int_equal(ask("GET", "/debug/hello", NULL, NULL), 404);
    assert_int_equal(ask("GET", "/things", NULL, NULL), 404);
    assert_int_equal(ask("PUT", "/things/1", NULL, "x"), 404);
    assert_int_equal(ask("GET", "/healthz", NULL, NULL), 200);
}

static void the_api_has_its_path_and_all_below(void **state)
{
    static const struct {
        const char *path;
        bool is;
    } rows[] = {{"/things", true},     {"/things?q=/", true}, {"/things/", true},
                {"/things/a/b", true}, {"/thingsx", false},   {"/thing", false},
                {"/Things", false},    {"/x/things", false}};
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        int status = ask("GET", rows[i].path, NULL, NULL);
        if (status != (rows[i].is ? 200 : 404))
            fail_msg("%s: %d", rows[i].path, status);
    }
}

static void a_body_comes_whole(void **state)
{
    (void)state;
    assert_int_equal(ask("PUT", "/things/1", NULL, "0123456789"), 200);
    assert_string_equal(t.body, "0123456789");
    assert_string_equal(rig_field(&t.c, "x-one"), "1");
    assert_string_equal(rig_field(&t.c, "cache-control"), "no-store");
    rig_dial(&t.rig, &t.c);
    rig_say(&t.c,
            STR("PUT /things HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc"));
    for (int i = 0; i < 20; i++)
        admin_rig_turn(&t.rig);
    assert_int_equal(t.served, 1);
    rig_say(&t.c, STR("\r\n2\r\nde\r\n0\r\n\r\n"));
    rig_until_heard(&t.rig, &t.c, "whole\n");
    assert_string_equal(t.body, "abcde");
    rig_hang_up(&t.c);
}

static void a_body_of_the_very_length_is_taken_and_one_byte_more_is_not(void **state)
{
    char body[102];
    (void)state;
    memset(body, 'x', sizeof body);
    body[100] = '\0';
    assert_int_equal(ask("PUT", "/things", NULL, body), 200);
    assert_int_equal(strlen(t.body), 100);
    body[100] = 'x';
    body[101] = '\0';
    assert_int_equal(ask("PUT", "/things", NULL, body), 413);
    assert_int_equal(ask("PUT", "/things", "Expect: 100-continue\r\n", body), 413);
    assert_null(strstr(t.c.text, "100 Continue"));
    rig_dial(&t.rig, &t.c);
    rig_say(&t.c,
            STR("PUT /things HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n65\r\n"));
    rig_say(&t.c, str_of(body));
    rig_until_heard(&t.rig, &t.c, "refused\n");
    assert_int_equal(rig_status(&t.c), 413);
    rig_hang_up(&t.c);
    assert_int_equal(t.served, 1);
    assert_int_equal(t.refused, 3);
}

static void who_asks_first_is_told_to_go_on(void **state)
{
    (void)state;
    rig_dial(&t.rig, &t.c);
    rig_say(&t.c, STR("PUT /things HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n"
                      "Expect: 100-continue\r\n\r\n"));
    rig_until_heard(&t.rig, &t.c, "100 Continue\r\n\r\n");
    rig_say(&t.c, STR("abc"));
    rig_until_heard(&t.rig, &t.c, "whole\n");
    assert_string_equal(t.body, "abc");
    rig_hang_up(&t.c);
}

static void who_is_not_admitted_is_answered_before_its_body(void **state)
{
    (void)state;
    t.refuses = true;
    rig_dial(&t.rig, &t.c);
    rig_say(&t.c, STR("PUT /things HTTP/1.1\r\nHost: a\r\nContent-Length: 30\r\n\r\nabc"));
    rig_until_heard(&t.rig, &t.c, "no\n");
    assert_int_equal(rig_status(&t.c), 403);
    rig_hang_up(&t.c);
    assert_int_equal(t.served, 0);
}

static void a_broken_body_is_refused(void **state)
{
    (void)state;
    rig_dial(&t.rig, &t.c);
    rig_say(&t.c,
            STR("PUT /things HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"));
    rig_until_heard(&t.rig, &t.c, "refused\n");
    assert_int_equal(rig_status(&t.c), 400);
    rig_until_ended(&t.rig, &t.c);
    rig_hang_up(&t.c);
    assert_int_equal(t.served, 0);
}

static void a_body_that_ends_early_is_never_served(void **state)
{
    (void)state;
    rig_dial(&t.rig, &t.c);
    rig_say(&t.c, STR("PUT /things HTTP/1.1\r\nHost: a\r\nContent-Length: 30\r\n\r\nabc"));
    for (int i = 0; i < 20; i++)
        admin_rig_turn(&t.rig);
    rig_hang_up(&t.c);
    for (int i = 0; i < 20; i++)
        admin_rig_turn(&t.rig);
    assert_int_equal(t.served, 0);
}

static void an_answer_without_a_body_has_none(void **state)
{
    (void)state;
    assert_int_equal(ask("DELETE", "/things/1", NULL, NULL), 204);
    assert_null(rig_field(&t.c, "content-length"));
    assert_null(rig_field(&t.c, "content-type"));
    assert_string_equal(rig_body(&t.c), "");
    assert_int_equal(ask("HEAD", "/things/1", NULL, NULL), 200);
    assert_string_equal(rig_body(&t.c), "");
    assert_string_equal(rig_field(&t.c, "content-length"), "6");
}

static void an_answer_may_come_later(void **state)
{
    (void)state;
    t.later = true;
    rig_dial(&t.rig, &t.c);
    rig_say(&t.c, STR("PUT /things HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nx"));
    for (int i = 0; i < 100 && !t.kept; i++)
        admin_rig_turn(&t.rig);
    assert_non_null(t.kept);
    rig_hear(&t.c);
    assert_int_equal(t.c.n, 0);
    say(t.kept, 201, "text/plain", "late\n");
    rig_until_heard(&t.rig, &t.c, "late\n");
    assert_int_equal(rig_status(&t.c), 201);
    t.later = false;
    rig_say(&t.c, STR("GET /things HTTP/1.1\r\nHost: a\r\n\r\n")); /* the connection goes on */
    rig_until_heard(&t.rig, &t.c, "whole\n");
    rig_hang_up(&t.c);
}

static void who_left_is_not_answered_and_nothing_breaks(void **state)
{
    (void)state;
    t.later = true;
    rig_dial(&t.rig, &t.c);
    rig_say(&t.c, STR("GET /things HTTP/1.1\r\nHost: a\r\n\r\n"));
    for (int i = 0; i < 100 && !t.kept; i++)
        admin_rig_turn(&t.rig);
    assert_non_null(t.kept);
    rig_hang_up(&t.c);
    for (int i = 0; i < 50; i++)
        admin_rig_turn(&t.rig);
    assert_non_null(admin_head(t.kept)); /* it is still there */
    say(t.kept, 200, "text/plain", "late\n");
}

static void a_visit_outlives_the_listener(void **state)
{
    (void)state;
    t.later = true;
    rig_dial(&t.rig, &t.c);
    rig_say(&t.c, STR("GET /things HTTP/1.1\r\nHost: a\r\n\r\n"));
    for (int i = 0; i < 100 && !t.kept; i++)
        admin_rig_turn(&t.rig);
    assert_non_null(t.kept);
    admin_rig_stop(&t.rig);
    say(t.kept, 200, "text/plain", "late\n");
    rig_hang_up(&t.c);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    static const struct CMUnitTest tests[] = {
        TEST(pages_of_the_product_stand_beside_ours),
        TEST(a_product_without_any_has_none),
        TEST(the_api_has_its_path_and_all_below),
        TEST(a_body_comes_whole),
        TEST(a_body_of_the_very_length_is_taken_and_one_byte_more_is_not),
        TEST(who_asks_first_is_told_to_go_on),
        TEST(who_is_not_admitted_is_answered_before_its_body),
        TEST(a_broken_body_is_refused),
        TEST(a_body_that_ends_early_is_never_served),
        TEST(an_answer_without_a_body_has_none),
        TEST(an_answer_may_come_later),
        TEST(who_left_is_not_answered_and_nothing_breaks),
        TEST(a_visit_outlives_the_listener),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
