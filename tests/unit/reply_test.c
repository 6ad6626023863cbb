/* reply_test.c — which form is preferred, and what the bodies hold. */
#include "proxy/reply.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <cmocka.h>

#include "base/json.h"

static struct arena mem;

static int begin(void **state)
{
    (void)state;
    arena_init(&mem, NULL, 0);
    return 0;
}

static int end(void **state)
{
    (void)state;
    arena_done(&mem);
    return 0;
}

static void the_form_follows_the_weights_of_accept(void **state)
{
    static const struct {
        const char *accept;
        enum reply_form form;
    } rows[] = {
        {"", REPLY_TEXT},
        {"*/*", REPLY_TEXT},
        {"application/json", REPLY_JSON},
        {"application/*", REPLY_JSON},
        {"text/*", REPLY_TEXT},
        {"text/html", REPLY_HTML},
        {"text/*, text/html", REPLY_HTML},
        {"text/*;q=0.9, text/plain;q=0.5", REPLY_HTML},
        {"application/json, text/html", REPLY_JSON},
        {"text/html, application/json", REPLY_HTML},
        {"*/*, application/json", REPLY_JSON},
        {"*/*;q=0.5, application/*;q=0.5", REPLY_JSON},
        {"application/json;q=0", REPLY_TEXT},
        {"application/json;q=0, text/html;q=0", REPLY_TEXT},
        {"text/plain;q=0, application/json;q=0", REPLY_TEXT},
        {"text/plain;q=0, */*;q=0.1", REPLY_JSON},
        {"application/json;q=1.0", REPLY_JSON},
        {"application/json;q=1.", REPLY_JSON},
        {"application/json;q=0.", REPLY_TEXT},
        {"application/json;q=1.001", REPLY_TEXT},
        {"application/json;q=2", REPLY_TEXT},
        {"application/json;q=-1", REPLY_TEXT},
        {"application/json;q=", REPLY_TEXT},
        {"application/json;q=0.1234", REPLY_TEXT},
        {"application/json;q=.5", REPLY_TEXT},
        {"application/json;q=00.5", REPLY_TEXT},
        {"application/json;q=0,5", REPLY_TEXT},
        {"application/json; Q=0.5 , text/html;q=0.4", REPLY_JSON},
        {"application/json;charset=utf-8;q=0.3, text/html;level=1;q=0.4", REPLY_HTML},
        {"application/json;v=\"a,b;q=0\", text/html;q=0.9", REPLY_JSON},
        {"text/html;x=\"\\\";q=0\";q=0.9, application/json;q=0.8", REPLY_HTML},
        {"text/html;q=0.1, text/html;level=1;q=0.9, application/json;q=0.5", REPLY_HTML},
        {"TEXT/HTML", REPLY_HTML},
        {" text/html ; q=0.3 ,\tapplication/json;q=0.2", REPLY_HTML},
        {"application/problem+json", REPLY_TEXT},
        {"json", REPLY_TEXT},
        {"*", REPLY_TEXT},
        {",,,", REPLY_TEXT},
        {"\"", REPLY_TEXT},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct field field = {STR("accept"), str_of(rows[i].accept)};
        struct http_head h = {.fields = &field, .nfields = 1};
        if (reply_form(&h) != rows[i].form)
            fail_msg("%s: %d", rows[i].accept, reply_form(&h));
    }
    assert_int_equal(reply_form(NULL), REPLY_TEXT);
    assert_int_equal(reply_form(&(struct http_head){0}), REPLY_TEXT);
}

static void several_accept_lines_are_one_list(void **state)
{
    (void)state;
    struct field fields[] = {{STR("Accept"), STR("text/html;q=0.2")},
                             {STR("X"), STR("application/json")},
                             {STR("ACCEPT"), STR("application/json;q=0.3")}};
    struct http_head h = {.fields = fields, .nfields = 3};
    assert_int_equal(reply_form(&h), REPLY_JSON);
}

static struct reply broken = {
    .status = 503,
    .brand = {"Brand", 5},
    .code = {"some_code", 9},
    .message = {"no <b> & \"c\" 'd'\t\xff", 18},
    .request_id = {"r-1", 3},
    .retry = true,
};

static struct str make(const char *method, const char *accept, struct http_head *head)
{
    struct field field = {STR("Accept"), str_of(accept)};
    struct http_head request = {.method = str_of(method), .fields = &field, .nfields = 1};
    struct str body;
    reply_make(&broken, &request, STR("now"), &mem, head, &body);
    assert_int_equal(head->length, body.n);
    return body;
}

static void each_form_says_the_same_in_its_own_way(void **state)
{
    (void)state;
    struct http_head head;
    assert_true(str_eq(make("GET", "", &head), STR("Brand: no <b> & \"c\" 'd'\t\xff\n")));
    assert_true(str_eq(*head_get(&head, STR("content-type")), STR("text/plain; charset=utf-8")));
    struct str json = make("GET", "application/json", &head);
    assert_true(str_eq(*head_get(&head, STR("content-type")), STR("application/json")));
    struct json_fault fault;
    struct json_doc *doc = json_parse(json, 0, 8, &fault);
    assert_non_null(doc);
    const struct json *error = json_member(json_root(doc), STR("error"));
    assert_true(str_eq(json_string(json_member(error, STR("message"))),
                       STR("no <b> & \"c\" 'd'\t\xef\xbf\xbd")));
    assert_true(str_eq(json_string(json_member(error, STR("code"))), STR("some_code")));
    json_free(doc);
    static const char escaped[] = "<p>Brand: no &lt;b&gt; &amp; &quot;c&quot; &#39;d&#39;";
    struct str page = make("GET", "text/html", &head);
    assert_non_null(memmem(page.p, page.n, escaped, sizeof escaped - 1));
    assert_non_null(memmem(page.p, page.n, "r-1", 3));
    assert_null(memmem(page.p, page.n, "<b>", 3));
}

static void only_the_page_of_a_503_to_a_get_loads_itself_again(void **state)
{
    (void)state;
    static const char refresh[] = "http-equiv=\"refresh\" content=\"1\"";
    struct http_head head;
    struct str page = make("GET", "text/html", &head);
    assert_non_null(memmem(page.p, page.n, refresh, sizeof refresh - 1));
    page = make("POST", "text/html", &head);
    assert_null(memmem(page.p, page.n, refresh, sizeof refresh - 1));
    broken.status = 429;
    page = make("GET", "text/html", &head);
    broken.status = 503;
    assert_null(memmem(page.p, page.n, refresh, sizeof refresh - 1));
    assert_non_null(head_get(&head, STR("Retry-After")));
}

static void the_fields_of_every_answer_of_ours_are_there(void **state)
{
    (void)state;
    struct http_head head;
    make("HEAD", "text/html", &head);
    assert_true(str_eq(*head_get(&head, STR("X-Content-Type-Options")), STR("nosniff")));
    assert_true(str_eq(*head_get(&head, STR("Cache-Control")), STR("no-store")));
    assert_true(str_eq(*head_get(&head, STR("X-Request-Id")), STR("r-1")));
    assert_true(str_eq(*head_get(&head, STR("Retry-After")), STR("1")));
    assert_true(str_eq(*head_get(&head, STR("Date")), STR("now")));
    assert_true(head.length > 0);
    broken.retry = false;
    make("GET", "", &head);
    broken.retry = true;
    assert_null(head_get(&head, STR("Retry-After")));
}

static void an_answer_needs_no_request(void **state)
{
    (void)state;
    struct http_head head;
    struct str body;
    reply_make(&broken, NULL, STR_NONE, &mem, &head, &body);
    assert_true(body.n > 0);
    assert_null(head_get(&head, STR("Date")));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_form_follows_the_weights_of_accept),
        cmocka_unit_test(several_accept_lines_are_one_list),
        cmocka_unit_test(each_form_says_the_same_in_its_own_way),
        cmocka_unit_test(only_the_page_of_a_503_to_a_get_loads_itself_again),
        cmocka_unit_test(the_fields_of_every_answer_of_ours_are_there),
        cmocka_unit_test(an_answer_needs_no_request),
    };
    return cmocka_run_group_tests(tests, begin, end);
}
