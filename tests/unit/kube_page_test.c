/* kube_page_test.c — pages of a list and lines of a watch: a page is taken whole or not at all, a
 * broken object in it is none of its faults. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <cmocka.h>

#include "ingress/kube/objects.h"

#define COUNT(table) (sizeof(table) / sizeof *(table))

struct seen {
    struct arena a;
    struct str items; /* each with ';' behind it */
    unsigned n;
};

static void note(void *user, struct str object)
{
    struct seen *s = user;
    s->items = arena_printf(&s->a, "%.*s%.*s;", STR_ARG(s->items), STR_ARG(object));
    s->n++;
}

static void assert_text(const char *of, struct str s, const char *z)
{
    if (!str_eq(s, str_of(z)))
        fail_msg("%s: \"%.*s\" is not \"%s\"", of, STR_ARG(s), z);
}

#define META "\"metadata\":{\"resourceVersion\":\"9\",\"continue\":\"c\"}"

static void a_page_gives_its_items_and_what_comes_next(void **state)
{
    (void)state;
    static const struct {
        const char *text, *items, *version, *more;
    } rows[] = {
        {"{" META ",\"items\":[{\"a\":1},{}]}", "{\"a\":1};{};", "9", "c"},
        {"{\"items\":[{}],\"kind\":\"List\"," META "}\n", "{};", "9", "c"},
        {"{" META ",\"items\":[]}", "", "9", "c"},
        {"{" META ",\"items\":null}", "", "9", "c"},
        {"{\"metadata\":{\"resourceVersion\":\"9\"},\"items\":[]}", "", "9", ""},
        {"{\"metadata\":{\"continue\":\"\\u0061==\",\"resourceVersion\":\"\"},\"items\":[]}", "",
         "", "a=="},
        {"{\"metadata\":{},\"items\":[]}", "", "", ""},
        /* an object is its own trouble */
        {"{" META ",\"items\":[{\"a\":1,\"a\":2},1,{\"b\":\"\\u0000\"},{}]}",
         "{\"a\":1,\"a\":2};1;{\"b\":\"\\u0000\"};{};", "9", "c"},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct seen s = {.n = 0};
        struct kube_page page;
        const char *error;
        arena_init(&s.a, NULL, 0);
        if (!kube_page_read(str_of(rows[i].text), &s.a, note, &s, &page, &error))
            fail_msg("%s: %s", rows[i].text, error);
        assert_text(rows[i].text, s.items, rows[i].items);
        assert_text(rows[i].text, page.version, rows[i].version);
        assert_text(rows[i].text, page.more, rows[i].more);
        arena_done(&s.a);
    }
}

static void of_a_broken_page_nothing_is_told(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "",
        "null",
        "[]",
        "{}",
        "404 page not found",
        "{" META "}",
        "{\"items\":[{}]}",
        "{\"metadata\":[],\"items\":[{}]}",
        "{\"metadata\":{\"resourceVersion\":9},\"items\":[{}]}",
        "{\"metadata\":{\"continue\":[]},\"items\":[{}]}",
        "{\"metadata\":{\"continue\":\"a\",\"continue\":\"b\"},\"items\":[{}]}",
        "{" META "," META ",\"items\":[{}]}",
        "{" META ",\"items\":[{}],\"items\":[{}]}",
        "{" META ",\"items\":{}}",
        "{" META ",\"items\":\"x\"}",
        "{" META ",\"items\":[{},{}",
        "{" META ",\"items\":[{},{}]",
        "{" META ",\"items\":[{} {}]}",
        "{" META ",\"items\":[{},]}",
        "{" META ",\"items\":[{},{\"a\":[}]}",
        "{" META ",\"items\":[{},{\"a\":\"}]}",
        "{" META ",\"items\":[{}]} {}",
    };
    for (size_t i = 0; i < COUNT(texts); i++) {
        struct seen s = {.n = 0};
        struct kube_page page;
        const char *error = NULL;
        arena_init(&s.a, NULL, 0);
        if (kube_page_read(str_of(texts[i]), &s.a, note, &s, &page, &error))
            fail_msg("read: %s", texts[i]);
        assert_non_null(error);
        assert_int_equal(s.n, 0);
        arena_done(&s.a);
    }
}

static void every_cut_of_a_page_is_refused(void **state)
{
    (void)state;
    static const char text[] = "{" META ",\"items\":[{\"a\":\"x\\\"\"},{\"b\":[1,{}]}]}";
    for (size_t n = 0; n < sizeof text - 1; n++) {
        struct seen s = {.n = 0};
        struct kube_page page;
        const char *error;
        char *copy = malloc(n ? n : 1);
        memcpy(copy, text, n);
        arena_init(&s.a, NULL, 0);
        assert_false(kube_page_read((struct str){copy, n}, &s.a, note, &s, &page, &error));
        assert_int_equal(s.n, 0);
        arena_done(&s.a);
        free(copy);
    }
}

static void a_line_of_a_watch_is_an_event(void **state)
{
    (void)state;
    static const struct {
        const char *line;
        enum kube_event_type type;
        const char *object, *version, *message;
        int code;
    } rows[] = {
        {"{\"type\":\"ADDED\",\"object\":{\"a\":1}}", KUBE_ADDED, "{\"a\":1}", "", "", 0},
        {" {\"object\":{},\"type\":\"MODIFIED\"}\r", KUBE_MODIFIED, "{}", "", "", 0},
        {"{\"type\":\"DELETED\",\"object\":{\"a\":1,\"a\":2}}", KUBE_DELETED, "{\"a\":1,\"a\":2}",
         "", "", 0},
        {"{\"type\":\"BOOKMARK\",\"object\":{\"metadata\":{\"resourceVersion\":\"12\"}}}",
         KUBE_BOOKMARK, "{\"metadata\":{\"resourceVersion\":\"12\"}}", "12", "", 0},
        {"{\"type\":\"ERROR\",\"object\":{\"code\":410,\"message\":\"too old\"}}", KUBE_ERROR,
         "{\"code\":410,\"message\":\"too old\"}", "", "too old", 410},
        {"{\"type\":\"ERROR\",\"object\":{}}", KUBE_ERROR, "{}", "", "", 0},
        {"{\"type\":\"ERROR\",\"object\":{\"code\":9999999999}}", KUBE_ERROR,
         "{\"code\":9999999999}", "", "", 0},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct arena a;
        struct kube_event e;
        const char *error;
        arena_init(&a, NULL, 0);
        if (!kube_event_read(str_of(rows[i].line), &a, &e, &error))
            fail_msg("%s: %s", rows[i].line, error);
        assert_int_equal(e.type, rows[i].type);
        assert_text(rows[i].line, e.object, rows[i].object);
        assert_text(rows[i].line, e.version, rows[i].version);
        assert_text(rows[i].line, e.message, rows[i].message);
        assert_int_equal(e.code, rows[i].code);
        arena_done(&a);
    }
}

static void other_lines_are_faults_of_the_watch(void **state)
{
    (void)state;
    static const char *const lines[] = {
        "",
        "x",
        "{}",
        "[]",
        "{\"type\":\"ADDED\"}",
        "{\"type\":\"ADDED\",\"object\":null}",
        "{\"type\":\"ADDED\",\"object\":[]}",
        "{\"type\":\"added\",\"object\":{}}",
        "{\"type\":\"SYNC\",\"object\":{}}",
        "{\"type\":1,\"object\":{}}",
        "{\"object\":{}}",
        "{\"type\":\"ADDED\",\"type\":\"DELETED\",\"object\":{}}",
        "{\"type\":\"ADDED\",\"object\":{},\"object\":{}}",
        "{\"type\":\"ADDED\",\"object\":{\"a\":1}",
        "{\"type\":\"ADDED\",\"object\":{}}{\"type\":\"ADDED\",\"object\":{}}",
        "{\"type\":\"BOOKMARK\",\"object\":{}}",
        "{\"type\":\"BOOKMARK\",\"object\":{\"metadata\":{\"resourceVersion\":\"\"}}}",
        "{\"type\":\"BOOKMARK\",\"object\":{\"metadata\":{\"resourceVersion\":1}}}",
        "{\"type\":\"ERROR\",\"object\":{\"code\":\"410\"}}",
        "{\"type\":\"ERROR\",\"object\":{\"code\":410,\"code\":410}}",
    };
    for (size_t i = 0; i < COUNT(lines); i++) {
        struct arena a;
        struct kube_event e;
        const char *error = NULL;
        arena_init(&a, NULL, 0);
        if (kube_event_read(str_of(lines[i]), &a, &e, &error))
            fail_msg("read: %s", lines[i]);
        assert_non_null(error);
        arena_done(&a);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_page_gives_its_items_and_what_comes_next),
        cmocka_unit_test(of_a_broken_page_nothing_is_told),
        cmocka_unit_test(every_cut_of_a_page_is_refused),
        cmocka_unit_test(a_line_of_a_watch_is_an_event),
        cmocka_unit_test(other_lines_are_faults_of_the_watch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
