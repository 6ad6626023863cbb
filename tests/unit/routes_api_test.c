/* routes_api_test.c — /routes over a real admin listener, with a real file and tables of two
 * workers, one of which moves only when it is told to. */
#include "ingress/routes_api.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/log.h"
#include "harness/admin_rig.h"
#include "net/worker.h"

#define TOKEN "tok-3n"
#define BEARER "Authorization: Bearer " TOKEN "\r\n"

static char log_path[] = "/tmp/routes_api_test_log.XXXXXX";

static struct {
    struct admin_rig rig;
    struct rig_call c;
    char dir[64], file[96], token_file[96];
    struct worker *other;
    struct table *tables[2];
    struct static_routes *routes;
    struct routes_api *api;
    bool stuck; /* the other worker does not move */
    bool ready;
} t;

static bool admit(struct app *app, struct admin_visit *v)
{
    (void)app;
    return routes_api_admit(t.api, v);
}

static void serve(struct app *app, struct admin_visit *v)
{
    (void)app;
    routes_api_serve(t.api, v);
}

static void refuse(struct app *app, struct admin_visit *v, int status, struct str why)
{
    (void)app;
    routes_api_refuse(v, status, why);
}

static const struct admin_api api = {"/routes", ROUTES_API_BODY_BYTES, admit, serve, refuse};
static const struct product product = {.not_ready = "-", .api = &api};

/* ---- what is told goes to the tables */

static void on_ready(void *user)
{
    (void)user;
    t.ready = true;
}

static void on_change(void *user, const struct sandbox *const *put, size_t nput,
                      const struct str *gone, size_t ngone)
{
    (void)user;
    table_publish(t.tables, 2, put, nput, gone, ngone, false, NULL, NULL, NULL);
}

static const struct resolver_events events = {.ready = on_ready, .change = on_change};

static const char *host_in(unsigned table, const char *id)
{
    static char host[64]; /* of the last call */
    const struct sandbox *s = table_get(t.tables[table], str_of(id));
    if (!s)
        return "";
    snprintf(host, sizeof host, "%.*s", STR_ARG(sandbox_endpoint(s, 80)->host));
    return host;
}

/* ---- each test ---- */

static void put_file(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static struct routes_api_host host(void)
{
    return (struct routes_api_host){&t.rig.app, t.routes, t.tables, 2, str_of(t.token_file)};
}

static void start(const char *file)
{
    struct arena a;
    struct str error;
    struct routes_api_host h;
    arena_init(&a, NULL, 0);
    t.routes = static_start(t.rig.app.main, str_of(file), &events, NULL, &a, &error);
    assert_non_null(t.routes);
    h = host();
    t.api = routes_api_start(&h, &a, &error);
    assert_non_null(t.api);
    for (int i = 0; i < 20000 && !t.ready; i++)
        admin_rig_turn(&t.rig);
    assert_true(t.ready);
    arena_done(&a);
}

static int set_up(void **state)
{
    (void)state;
    memset(&t, 0, sizeof t);
    snprintf(t.dir, sizeof t.dir, "/tmp/routes_api_test.XXXXXX");
    assert_non_null(mkdtemp(t.dir));
    snprintf(t.file, sizeof t.file, "%s/routes.json", t.dir);
    snprintf(t.token_file, sizeof t.token_file, "%s/token", t.dir);
    put_file(t.file, "{\"sandboxes\":{\"a\":{\"address\":\"10.0.0.1\",\"secureAccessToken\":"
                     "\"canary\"}}}");
    put_file(t.token_file, TOKEN "\n");
    admin_rig_start(&t.rig, &product);
    t.other = worker_new(1);
    t.tables[0] = table_new(t.rig.app.main, NULL, NULL);
    t.tables[1] = table_new(t.other, NULL, NULL);
    start(t.file);
    return 0;
}

static int tear_down(void **state)
{
    char command[128];
    (void)state;
    admin_rig_stop(&t.rig);
    static_stop(t.routes);
    routes_api_stop(t.api);
    worker_turn(t.rig.app.main);
    table_free(t.tables[0]);
    table_free(t.tables[1]);
    worker_free(t.other);
    admin_rig_done(&t.rig);
    snprintf(command, sizeof command, "rm -r '%s'", t.dir);
    return system(command);
}

static void turn(void)
{
    admin_rig_turn(&t.rig);
    if (!t.stuck)
        worker_turn(t.other);
    rig_hear(&t.c);
}

static void begin(const char *method, const char *path, const char *fields, const char *body)
{
    char head[2048], length[64] = "";
    if (body)
        snprintf(length, sizeof length, "Content-Length: %zu\r\n", strlen(body));
    int n =
        snprintf(head, sizeof head, "%s %s HTTP/1.1\r\nHost: a\r\nConnection: close\r\n%s%s\r\n",
                 method, path, fields, length);
    rig_dial(&t.rig, &t.c);
    rig_say(&t.c, (struct str){head, (size_t)n});
    if (body)
        rig_say(&t.c, str_of(body));
}

static int finish(void)
{
    for (int i = 0; i < 20000 && !t.c.ended; i++)
        turn();
    assert_true(t.c.ended);
    rig_hang_up(&t.c);
    return rig_status(&t.c);
}

static int ask_with(const char *fields, const char *method, const char *path, const char *body)
{
    char all[1024];
    snprintf(all, sizeof all, "%s%s", BEARER, fields);
    begin(method, path, all, body);
    return finish();
}

static int ask(const char *method, const char *path, const char *body)
{
    return ask_with("", method, path, body);
}

static bool says(const char *part)
{
    return strstr(rig_body(&t.c), part) != NULL;
}

static char *tag_of(const char *path, char room[64])
{
    assert_int_equal(ask("GET", path, NULL), 200);
    snprintf(room, 64, "%s", rig_field(&t.c, "etag"));
    return room;
}

static const char *file_text(void)
{
    static char text[4096]; /* of the last call */
    FILE *f = fopen(t.file, "r");
    assert_non_null(f);
    text[fread(text, 1, sizeof text - 1, f)] = '\0';
    fclose(f);
    return text;
}

/* ---- who may ask */

static void without_the_token_nothing_is_told(void **state)
{
    static const char *const bad[] = {"",
                                      "Authorization: Bearer\r\n",
                                      "Authorization: Bearer tok-3\r\n",
                                      "Authorization: Bearer tok-3nn\r\n",
                                      "Authorization: Bearer TOK-3N\r\n",
                                      "Authorization: Basic dG9rLTNu\r\n",
                                      "Authorization: tok-3n\r\n",
                                      BEARER BEARER,
                                      "X-Token: tok-3n\r\n"};
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        static const char *const paths[] = {"/routes", "/routes/a", "/routes/zz", "/routes/%zz"};
        for (size_t k = 0; k < sizeof paths / sizeof *paths; k++) {
            begin(k ? "PUT" : "GET", paths[k], bad[i], "{}");
            if (finish() != 401)
                fail_msg("%s with %s: %s", paths[k], bad[i], t.c.text);
            assert_string_equal(rig_field(&t.c, "www-authenticate"), "Bearer realm=\"routes\"");
            assert_true(says("{\"error\":{\"code\":\"unauthorized\",\"message\":\""));
        }
    }
    begin("GET", "/routes", "authorization: bearer   tok-3n \r\n", NULL);
    assert_int_equal(finish(), 200);
}

static void without_a_token_file_there_is_no_such_page(void **state)
{
    struct routes_api *api_before = t.api;
    (void)state;
    t.api = NULL;
    assert_int_equal(ask("GET", "/routes", NULL), 404);
    assert_string_equal(rig_body(&t.c), "no such page\n");
    assert_int_equal(ask("PUT", "/routes/a", "{\"address\":\"h\"}"), 404);
    t.api = api_before;
}

static void the_token_is_read_again(void **state)
{
    (void)state;
    put_file(t.token_file, "another");
    assert_int_equal(ask("GET", "/routes", NULL), 200);
    routes_api_reload(t.api);
    assert_int_equal(ask("GET", "/routes", NULL), 401);
    begin("GET", "/routes", "Authorization: Bearer another\r\n", NULL);
    assert_int_equal(finish(), 200);
    static const char *const bad[] = {"", "\n", "two words", "caf\xc3\xa9", "two\nlines"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        put_file(t.token_file, bad[i]);
        routes_api_reload(t.api);
        begin("GET", "/routes", "Authorization: Bearer another\r\n", NULL);
        assert_int_equal(finish(), 200);
    }
}

static void a_start_without_a_token_is_one_line(void **state)
{
    struct arena a;
    struct str error = STR_NONE;
    struct routes_api_host h = host();
    (void)state;
    arena_init(&a, NULL, 0);
    put_file(t.token_file, " \n");
    assert_null(routes_api_start(&h, &a, &error));
    assert_true(str_starts(error, STR("admin-token-file: ")));
    h.token_file = STR("/nonexistent/token");
    assert_null(routes_api_start(&h, &a, &error));
    assert_true(str_starts(error, STR("admin-token-file: /nonexistent/token: ")));
    arena_done(&a);
}

/* ---- reading */

static void what_is_read_shows_no_token(void **state)
{
    (void)state;
    assert_int_equal(ask("GET", "/routes", NULL), 200);
    assert_string_equal(
        rig_body(&t.c),
        "{\"sandboxes\":{\"a\":{\"address\":\"10.0.0.1\",\"secureAccess\":true}}}\n");
    assert_string_equal(rig_field(&t.c, "content-type"), "application/json");
    assert_int_equal(ask("GET", "/routes/a?x=y", NULL), 200);
    assert_string_equal(rig_body(&t.c), "{\"address\":\"10.0.0.1\",\"secureAccess\":true}\n");
    assert_int_equal(ask("HEAD", "/routes/a", NULL), 200);
    assert_string_equal(rig_body(&t.c), "");
    assert_non_null(rig_field(&t.c, "etag"));
    assert_int_equal(ask("GET", "/routes/b", NULL), 404);
    assert_true(says("\"code\":\"not_found\""));
}

static void paths_and_methods_are_strict(void **state)
{
    static const struct {
        const char *method, *path;
        int status;
        const char *allow;
    } rows[] = {
        {"PUT", "/routes", 405, "GET, HEAD"},
        {"DELETE", "/routes?x", 405, "GET, HEAD"},
        {"POST", "/routes/a", 405, "GET, HEAD, PUT, DELETE"},
        {"get", "/routes/a", 405, "GET, HEAD, PUT, DELETE"},
        {"GET", "/routes/", 404, NULL},
        {"GET", "/routes/a/b", 404, NULL},
        {"GET", "/routes/a/", 404, NULL},
        {"GET", "/routes/%", 400, NULL},
        {"GET", "/routes/%0a", 400, NULL},
        {"GET", "/routes/%00", 400, NULL},
        {"GET", "/routes/%ff", 400, NULL},
        {"GET", "/routes/%2561", 404, NULL}, /* decoded once: %61 */
        {"GET", "/routes/%61", 200, NULL},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (ask(rows[i].method, rows[i].path, NULL) != rows[i].status)
            fail_msg("%s %s: %s", rows[i].method, rows[i].path, t.c.text);
        if (rows[i].allow)
            assert_string_equal(rig_field(&t.c, "allow"), rows[i].allow);
    }
}

/* ---- changing */

static void a_route_comes_changes_and_goes(void **state)
{
    char first[64], second[64];
    (void)state;
    assert_int_equal(ask("PUT", "/routes/b%2Fc%20%C3%A9", "{\"address\":\"10.0.0.2\"}"), 201);
    assert_string_equal(rig_body(&t.c), "{\"address\":\"10.0.0.2\"}\n");
    snprintf(first, sizeof first, "%s", rig_field(&t.c, "etag"));
    assert_string_equal(host_in(0, "b/c \xc3\xa9"), "10.0.0.2");
    assert_string_equal(host_in(1, "b/c \xc3\xa9"), "10.0.0.2");
    assert_string_equal(tag_of("/routes/b%2fc%20%c3%a9", second), first);
    assert_int_equal(ask("PUT", "/routes/b%2Fc%20%C3%A9", "{\"address\":\"10.0.0.3\"}"), 200);
    assert_string_not_equal(rig_field(&t.c, "etag"), first);
    assert_string_equal(host_in(1, "b/c \xc3\xa9"), "10.0.0.3");
    assert_non_null(strstr(file_text(), "\"b/c \xc3\xa9\":{\"address\":\"10.0.0.3\"}"));
    assert_non_null(strstr(file_text(), "canary"));
    assert_int_equal(ask("DELETE", "/routes/b%2Fc%20%C3%A9", NULL), 204);
    assert_string_equal(host_in(1, "b/c \xc3\xa9"), "");
    assert_int_equal(ask("DELETE", "/routes/b%2Fc%20%C3%A9", NULL), 404);
    assert_null(strstr(file_text(), "10.0.0.3"));
}

static void put_replaces_the_whole_entry_and_refuses_what_it_shows_of_a_token(void **state)
{
    (void)state;
    assert_int_equal(ask("PUT", "/routes/a", "{\"address\":\"10.0.0.1\",\"secureAccess\":true}"),
                     400);
    assert_true(says("\"code\":\"invalid_entry\"") && says("unknown member \\\"secureAccess\\\""));
    assert_non_null(strstr(file_text(), "canary"));
    assert_int_equal(ask("PUT", "/routes/a", "{\"address\":\"10.0.0.1\"}"), 200);
    assert_null(strstr(file_text(), "canary"));
}

static void a_bad_entry_is_told_with_its_place_and_never_shown(void **state)
{
    (void)state;
    assert_int_equal(ask("PUT", "/routes/b", "{\"address\":\"h\",\n \"state\":\"hunter2\"}"), 400);
    assert_true(says("\"message\":\"line 2, column 10: "));
    assert_true(says("\"line\":2,\"column\":10}}"));
    assert_false(says("hunter2"));
    assert_int_equal(ask("PUT", "/routes/b", ""), 400);
    assert_int_equal(ask("PUT", "/routes/b", NULL), 400);
    assert_int_equal(ask("PUT", "/routes/b", "{\"b\":{\"address\":\"h\"}}"), 400);
    assert_int_equal(
        ask("PUT", "/routes/b", "{\"address\":\"h\",\"expiresAt\":\"2001-01-01T00:00:00Z\"}"), 400);
    assert_true(says("expiresAt"));
    assert_string_equal(host_in(0, "b"), "");
}

static void a_body_over_the_limit_is_413_in_json(void **state)
{
    static char body[ROUTES_API_BODY_BYTES + 2];
    (void)state;
    memset(body, ' ', sizeof body - 1);
    assert_int_equal(ask("PUT", "/routes/b", body), 413);
    assert_true(says("\"code\":\"too_long\""));
    memcpy(body, "{\"address\":\"h\"}", 15);
    body[ROUTES_API_BODY_BYTES] = '\0';
    assert_int_equal(ask("PUT", "/routes/b", body), 201);
}

static void an_answer_waits_for_every_worker(void **state)
{
    (void)state;
    t.stuck = true;
    begin("PUT", "/routes/b", BEARER, "{\"address\":\"10.0.0.2\"}");
    for (int i = 0; i < 20000 && strcmp(host_in(0, "b"), "10.0.0.2") != 0; i++)
        turn();
    for (int i = 0; i < 50; i++)
        turn();
    assert_int_equal(t.c.n, 0);
    t.stuck = false;
    assert_int_equal(finish(), 201);
    assert_string_equal(host_in(1, "b"), "10.0.0.2");
}

/* ---- conditions */

static void changes_depend_on_what_they_name(void **state)
{
    char tag[64], match[128], none[128];
    (void)state;
    tag_of("/routes/a", tag);
    snprintf(match, sizeof match, "If-Match: \"x\", %s\r\n", tag);
    snprintf(none, sizeof none, "If-None-Match: W/%s\r\n", tag);
    const char *fresh = "{\"address\":\"10.0.0.9\"}";
    assert_int_equal(ask_with("If-Match: \"x\"\r\n", "PUT", "/routes/a", fresh), 412);
    assert_true(says("condition_failed"));
    assert_int_equal(ask_with("If-Match: \"x\"\r\n", "DELETE", "/routes/a", NULL), 412);
    assert_int_equal(ask_with("If-Match: *\r\n", "PUT", "/routes/b", fresh), 412);
    assert_int_equal(ask_with("If-Match: *\r\n", "DELETE", "/routes/b", NULL), 412);
    assert_int_equal(ask_with("If-None-Match: *\r\n", "PUT", "/routes/a", fresh), 412);
    assert_int_equal(ask_with("If-Match: x\r\n", "PUT", "/routes/a", fresh), 400);
    assert_int_equal(ask_with(none, "PUT", "/routes/a", fresh), 412);
    assert_int_equal(ask_with(none, "GET", "/routes/a", NULL), 304);
    assert_string_equal(rig_field(&t.c, "etag"), tag);
    assert_int_equal(ask_with("If-None-Match: \"x\"\r\n", "GET", "/routes/a", NULL), 200);
    assert_int_equal(ask_with("If-Match: \"x\"\r\n", "GET", "/routes/a", NULL), 412);
    assert_string_equal(host_in(0, "a"), "10.0.0.1");
    assert_int_equal(ask_with(match, "PUT", "/routes/a", fresh), 200);
    assert_int_equal(ask_with(match, "PUT", "/routes/a", fresh), 412);
    assert_int_equal(ask_with("If-None-Match: *\r\n", "PUT", "/routes/b", fresh), 201);
    assert_int_equal(ask_with("If-Match: *\r\n", "DELETE", "/routes/b", NULL), 204);
}

static void a_tag_knows_the_token(void **state)
{
    char one[64], two[64];
    (void)state;
    tag_of("/routes/a", one);
    assert_int_equal(
        ask("PUT", "/routes/a", "{\"address\":\"10.0.0.1\",\"secureAccessToken\":\"other\"}"), 200);
    assert_string_not_equal(tag_of("/routes/a", two), one);
    assert_int_equal(
        ask("PUT", "/routes/a", "{\"address\":\"10.0.0.1\",\"secureAccessToken\":\"canary\"}"),
        200);
    assert_string_equal(tag_of("/routes/a", two), one);
}

/* ---- trouble */

static void what_cannot_be_saved_is_500_and_does_not_happen(void **state)
{
    char block[128];
    (void)state;
    snprintf(block, sizeof block, "%s/.routes.json.new", t.dir);
    assert_int_equal(mkdir(block, 0700), 0);
    assert_int_equal(ask("PUT", "/routes/b", "{\"address\":\"h\"}"), 500);
    assert_true(says("\"code\":\"not_saved\""));
    assert_false(says("canary"));
    assert_int_equal(ask("DELETE", "/routes/a", NULL), 500);
    assert_string_equal(host_in(0, "a"), "10.0.0.1");
    assert_string_equal(host_in(0, "b"), "");
    assert_int_equal(ask("GET", "/routes/b", NULL), 404);
}

static void a_gateway_that_stops_takes_no_changes(void **state)
{
    (void)state;
    t.rig.app.phase = APP_DRAINING;
    assert_int_equal(ask("PUT", "/routes/b", "{\"address\":\"h\"}"), 503);
    assert_string_equal(rig_field(&t.c, "retry-after"), "1");
    assert_int_equal(ask("DELETE", "/routes/a", NULL), 503);
    assert_int_equal(ask("GET", "/routes", NULL), 200);
}

static void who_leaves_before_the_answer_has_changed_it_all_the_same(void **state)
{
    (void)state;
    begin("PUT", "/routes/b", BEARER, "{\"address\":\"10.0.0.2\"}");
    for (int i = 0; i < 5; i++)
        admin_rig_turn(&t.rig);
    rig_hang_up(&t.c);
    t.c.fd = -1;
    for (int i = 0; i < 20000 && strcmp(host_in(1, "b"), "10.0.0.2") != 0; i++) {
        admin_rig_turn(&t.rig);
        worker_turn(t.other);
    }
    assert_string_equal(host_in(1, "b"), "10.0.0.2");
}

/* Stopped at any point: with static.c, with the tables, with an answer on its way. */
static void it_can_be_stopped_at_any_point(void **state)
{
    (void)state;
    for (int turns = 1; turns < 12; turns++) {
        t.stuck = turns % 2;
        begin(turns % 3 ? "PUT" : "DELETE", "/routes/a", BEARER,
              turns % 3 ? "{\"address\":\"10.0.0.2\"}" : NULL);
        for (int i = 0; i < turns; i++)
            turn();
        admin_rig_stop(&t.rig);
        if (turns % 2)
            static_stop(t.routes);
        routes_api_stop(t.api);
        if (!(turns % 2))
            static_stop(t.routes);
        table_free(t.tables[0]);
        table_free(t.tables[1]);
        rig_hang_up(&t.c);
        worker_free(t.other);
        admin_rig_done(&t.rig);
        admin_rig_start(&t.rig, &product);
        t.other = worker_new(1);
        t.tables[0] = table_new(t.rig.app.main, NULL, NULL);
        t.tables[1] = table_new(t.other, NULL, NULL);
        t.ready = false;
        start(t.file);
    }
}

static void without_a_file_routes_come_and_go_too(void **state)
{
    (void)state;
    routes_api_stop(t.api);
    static_stop(t.routes);
    t.ready = false;
    start("");
    assert_int_equal(ask("GET", "/routes", NULL), 200);
    assert_string_equal(rig_body(&t.c), "{\"sandboxes\":{}}\n");
    assert_int_equal(ask("PUT", "/routes/b", "{\"address\":\"10.0.0.2\"}"), 201);
    assert_string_equal(host_in(1, "b"), "10.0.0.2");
    assert_int_equal(ask("DELETE", "/routes/b", NULL), 204);
}

/* ---- */

static void nothing_secret_was_logged(void **state)
{
    static char text[1 << 18];
    (void)state;
    log_stop();
    FILE *f = fopen(log_path, "r");
    assert_non_null(f);
    text[fread(text, 1, sizeof text - 1, f)] = '\0';
    fclose(f);
    assert_non_null(strstr(text, "route changed over REST"));
    assert_null(strstr(text, "canary"));
    assert_null(strstr(text, TOKEN));
    assert_null(strstr(text, "two words"));
}

static int start_log(void **state)
{
    char error[128];
    (void)state;
    close(mkstemp(log_path));
    return log_start("test", str_of(log_path), LOG_INFO, error, sizeof error) ? 0 : -1;
}

static int stop_log(void **state)
{
    (void)state;
    return unlink(log_path);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    static const struct CMUnitTest tests[] = {
        TEST(without_the_token_nothing_is_told),
        TEST(without_a_token_file_there_is_no_such_page),
        TEST(the_token_is_read_again),
        TEST(a_start_without_a_token_is_one_line),
        TEST(what_is_read_shows_no_token),
        TEST(paths_and_methods_are_strict),
        TEST(a_route_comes_changes_and_goes),
        TEST(put_replaces_the_whole_entry_and_refuses_what_it_shows_of_a_token),
        TEST(a_bad_entry_is_told_with_its_place_and_never_shown),
        TEST(a_body_over_the_limit_is_413_in_json),
        TEST(an_answer_waits_for_every_worker),
        TEST(changes_depend_on_what_they_name),
        TEST(a_tag_knows_the_token),
        TEST(what_cannot_be_saved_is_500_and_does_not_happen),
        TEST(a_gateway_that_stops_takes_no_changes),
        TEST(who_leaves_before_the_answer_has_changed_it_all_the_same),
        TEST(it_can_be_stopped_at_any_point),
        TEST(without_a_file_routes_come_and_go_too),
        cmocka_unit_test(nothing_secret_was_logged),
    };
    return cmocka_run_group_tests(tests, start_log, stop_log);
}
