/* json_test.c — what is JSON and what is not, where faults are, and that large documents stay
 * cheap. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <cmocka.h>

#include "base/json.h"
#include "harness/copies.h"

/* What nobody else in this process says: the bytes with 0x55 over them. */
#define MASKED "\x3e\x30\x2c\x78\x3a\x33\x78\x38\x2c\x78\x33\x27\x3c\x30\x3b\x31"

#define COUNT(table) (sizeof(table) / sizeof *(table))

enum { DEPTH = 64 };

/* Parses an exact copy, so that a read past the end is seen.  The copy must be freed after the
 * document. */
static struct json_doc *parse(const char *text, struct json_fault *fault)
{
    static char *copy;
    struct str s = str_of(text);
    free(copy);
    copy = malloc(s.n ? s.n : 1);
    memcpy(copy, s.p, s.n);
    return json_parse((struct str){copy, s.n}, 0, DEPTH, fault);
}

static struct json_doc *parse_good(const char *text)
{
    struct json_fault fault;
    struct json_doc *d = parse(text, &fault);
    if (!d)
        fail_msg("%s: %u:%u %s", text, fault.line, fault.column, fault.text);
    return d;
}

static void assert_is(struct str s, const char *expected)
{
    assert_int_equal(s.n, strlen(expected));
    assert_memory_equal(s.p, expected, s.n);
}

static void takes_what_rfc_8259_allows(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "{}",
        "[]",
        " \t\r\n{ \n } ",
        "null",
        "true",
        "false",
        "\"\"",
        "0",
        "-0",
        "-0.0e-0",
        "1E+2",
        "123456789012345678901234567890",
        "1e-999",
        "[1,2,[3,[4]],{}]",
        "{\"a\":{\"a\":{\"a\":[{\"a\":1},{\"a\":2}]}},\"b\":null}",
        "{\"\":1,\"A\":2,\"a\":3}",
        "\"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u0041\\ud83d\\ude00\"",
        "\"\x7f gr\xc3\xbcn \xf0\x9f\x98\x80\"",
        "{\"a\":1,\"a\\u0301\":2,\"\xc3\xa1\":3}",
    };
    for (size_t i = 0; i < COUNT(texts); i++)
        json_free(parse_good(texts[i]));
}

static void refuses_the_rest_and_says_where(void **state)
{
    (void)state;
    static const struct {
        const char *text, *what;
        unsigned line, column;
    } rows[] = {
        {"", "expected a value, found the end", 1, 1},
        {"  \n ", "expected a value, found the end", 2, 2},
        {"{", "expected a member name, found the end", 1, 2},
        {"[", "expected a value, found the end", 1, 2},
        {"[1", "expected ',' or ']', found the end", 1, 3},
        {"[1,]", "expected a value", 1, 4},
        {"[,1]", "expected a value", 1, 2},
        {"[1 2]", "expected ',' or ']'", 1, 4},
        {"[1}", "expected ',' or ']'", 1, 3},
        {"{\"a\":1,}", "expected a member name", 1, 8},
        {"{\"a\" 1}", "expected ':'", 1, 6},
        {"{\"a\":}", "expected a value", 1, 6},
        {"{\"a\":1 \"b\":2}", "expected ',' or '}'", 1, 8},
        {"{a:1}", "expected a member name", 1, 2},
        {"{1:1}", "expected a member name", 1, 2},
        {"{'a':1}", "expected a member name", 1, 2},
        {"[1]x", "something follows the document", 1, 4},
        {"{} {}", "something follows the document", 1, 4},
        {"null null", "something follows the document", 1, 6},
        {"nul", "expected a value", 1, 1},
        {"nulll", "something follows the document", 1, 5},
        {"True", "expected a value", 1, 1},
        {"NaN", "expected a value", 1, 1},
        {"Infinity", "expected a value", 1, 1},
        {"// x\n1", "expected a value", 1, 1},
        {"\xef\xbb\xbf{}", "expected a value", 1, 1},
        {"01", "bad number", 1, 1},
        {"-01", "bad number", 1, 1},
        {"-", "bad number", 1, 1},
        {"+1", "expected a value", 1, 1},
        {".5", "expected a value", 1, 1},
        {"1.", "bad number", 1, 1},
        {"1.e5", "bad number", 1, 1},
        {"1e", "bad number", 1, 1},
        {"1e+", "bad number", 1, 1},
        {"0x10", "something follows the document", 1, 2},
        {"[1e999]", "number out of range", 1, 2},
        {"[\n-1e999]", "number out of range", 2, 1},
        {"1234567890123456789012345678901234567890123456789012345678901234", "number too long", 1,
         1},
        {"\"abc", "string without an end", 1, 1},
        {"\"abc\\", "string without an end", 1, 5},
        {"\"a\\x\"", "bad escape", 1, 3},
        {"\"a\\u12\"", "bad \\u escape", 1, 3},
        {"\"a\\u12g4\"", "bad \\u escape", 1, 3},
        {"\"a\\u0000\"", "\\u0000 is not allowed", 1, 3},
        {"\"\\ud800\"", "lone surrogate", 1, 2},
        {"\"\\ud800x\"", "lone surrogate", 1, 2},
        {"\"\\ud800\\u0041\"", "lone surrogate", 1, 2},
        {"\"\\ud800\\ud800\"", "lone surrogate", 1, 2},
        {"\"\\ud800\\u", "lone surrogate", 1, 2},
        {"\"\\udc00\"", "lone surrogate", 1, 2},
        {"\"a\tb\"", "control byte in a string", 1, 3},
        {"\"a\nb\"", "control byte in a string", 1, 3},
        {"\"a\x1f\"", "control byte in a string", 1, 3},
        {"\"\xff\"", "bad UTF-8", 1, 2},
        {"\"\xc0\x80\"", "bad UTF-8", 1, 2},
        {"\"\xed\xa0\x80\"", "bad UTF-8", 1, 2},
        {"\"\xe2\x82", "bad UTF-8", 1, 2},
        {"{\"\xff\":1}", "bad UTF-8", 1, 3},
        {"{\"a\":1,\"a\":2}", "doubled member name \"a\"", 1, 8},
        {"{\"a\":1,\n \"\\u0061\":2}", "doubled member name \"a\"", 2, 2},
        {"{\"\\u00e4\":1,\"\xc3\xa4\":2}", "doubled member name \"\xc3\xa4\"", 1, 13},
        {"{\"\\ud83d\\ude00\":1,\"\xf0\x9f\x98\x80\":2}",
         "doubled member name \"\xf0\x9f\x98\x80\"", 1, 19},
        {"{\"\\n\":1,\"\\u000a\":2}", "doubled member name \"\\n\"", 1, 9},
        {"[{\"x\":{\"b\":1,\"c\":1,\"b\":1}}]", "doubled member name \"b\"", 1, 20},
        {"{\"a\":{\"b\":1},\"b\":2,\"a\":3}", "doubled member name \"a\"", 1, 20},
        {"{\"\":1,\"\":1}", "doubled member name \"\"", 1, 7},
        {"[\n\n  1,\n  x]", "expected a value", 4, 3},
        {"\f1", "expected a value", 1, 1},
        {"[1\xc2\xa0]", "expected ',' or ']'", 1, 3},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct json_fault fault = {0};
        struct json_doc *d = parse(rows[i].text, &fault);
        if (d)
            fail_msg("taken: %s", rows[i].text);
        if (strcmp(fault.text, rows[i].what) != 0 || fault.line != rows[i].line ||
            fault.column != rows[i].column)
            fail_msg("%s: got %u:%u %s, expected %u:%u %s", rows[i].text, fault.line, fault.column,
                     fault.text, rows[i].line, rows[i].column, rows[i].what);
    }
}

static void a_zero_byte_is_not_an_end(void **state)
{
    (void)state;
    struct json_fault fault;
    assert_null(json_parse(STR("{}\0"), 0, DEPTH, &fault));
    assert_int_equal(fault.column, 3);
    assert_null(json_parse(STR("\"a\0b\""), 0, DEPTH, &fault));
    assert_string_equal(fault.text, "control byte in a string");
    assert_null(json_parse(STR_NONE, 0, DEPTH, &fault));
}

static void every_cut_of_a_document_is_refused(void **state)
{
    (void)state;
    static const char text[] =
        "{\"a\":[1,-2.5e3,\"x\\n\\u00e4\\ud83d\\ude00\xc3\xa4\",true,false,null],\"b\":{\"c\":[]}}";
    struct json_fault fault;
    for (size_t n = 0; n < sizeof text - 1; n++) {
        char *copy = malloc(n ? n : 1);
        memcpy(copy, text, n);
        assert_null(json_parse((struct str){copy, n}, 0, DEPTH, &fault));
        free(copy);
    }
    json_free(parse_good(text));
}

static void depth_and_size_are_limited(void **state)
{
    (void)state;
    struct json_fault fault;
    struct json_doc *d = json_parse(STR("[[{\"a\":1}]]"), 11, 3, &fault);
    assert_non_null(d);
    json_free(d);
    assert_null(json_parse(STR("[[{\"a\":1}]]"), 11, 2, &fault));
    assert_string_equal(fault.text, "nested too deeply");
    assert_int_equal(fault.column, 3);
    assert_null(json_parse(STR("[[{\"a\":1}]]"), 10, 3, &fault));
    assert_string_equal(fault.text, "too large");

    enum { N = 1000000 };
    char *deep = malloc(N);
    memset(deep, '[', N);
    assert_null(json_parse((struct str){deep, N}, 0, 1000, &fault));
    assert_string_equal(fault.text, "nested too deeply");
    memset(deep + 1000, ']', 1000);
    d = json_parse((struct str){deep, 2000}, 0, 1000, &fault);
    assert_non_null(d);
    json_free(d);
    free(deep);
}

static void values_read_back(void **state)
{
    (void)state;
    struct json_doc *d = parse_good("{\"n\":null,\"t\":true,\"f\":false,\"i\":-12,\"d\":2.5,\"s\":"
                                    "\"a\\u20acb\",\"A\":[1,2],\"a\":{}}");
    const struct json *root = json_root(d);
    static const enum json_type types[] = {JSON_NULL,   JSON_BOOL,   JSON_BOOL,  JSON_NUMBER,
                                           JSON_NUMBER, JSON_STRING, JSON_ARRAY, JSON_OBJECT};
    assert_int_equal(json_type(root), JSON_OBJECT);
    assert_int_equal(json_count(root), 8);
    size_t i = 0;
    for (const struct json *m = json_first(root); m; m = json_next(m))
        assert_int_equal(json_type(m), types[i++]);
    assert_int_equal(i, 8);
    assert_true(json_bool(json_member(root, STR("t"))));
    assert_false(json_bool(json_member(root, STR("f"))));
    assert_true(json_double(json_member(root, STR("d"))) == 2.5);
    assert_is(json_string(json_member(root, STR("s"))), "a\xe2\x82\xac"
                                                        "b");
    assert_int_equal(json_type(json_member(root, STR("A"))), JSON_ARRAY); /* case counts */
    assert_int_equal(json_type(json_member(root, STR("a"))), JSON_OBJECT);
    assert_null(json_member(root, STR("absent")));
    assert_null(json_member(root, STR("")));
    assert_int_equal(json_count(json_member(root, STR("A"))), 2);
    assert_null(json_first(json_member(root, STR("a"))));
    assert_is(json_name(json_first(root)), "n");
    assert_string_equal(json_type_name(JSON_OBJECT), "object");
    assert_string_equal(json_type_name(JSON_BOOL), "boolean");
    json_free(d);
    json_free(NULL);
}

static void integers_come_from_the_text(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t value;
        bool ok;
    } rows[] = {
        {"0", 0, true},
        {"-0", 0, true},
        {"9007199254740993", 9007199254740993, true}, /* no double */
        {"9223372036854775807", INT64_MAX, true},
        {"-9223372036854775808", INT64_MIN, true},
        {"9223372036854775808", 0, false},
        {"-9223372036854775809", 0, false},
        {"1.0", 0, false},
        {"1e3", 0, false},
        {"1E3", 0, false},
        {"[7 ]", 7, true},
        {"{\"x\":8}", 8, true},
        {"[\n9]", 9, true},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct json_doc *d = parse_good(rows[i].text);
        const struct json *v = json_root(d);
        int64_t n = 42;
        if (json_type(v) != JSON_NUMBER)
            v = json_first(v);
        assert_int_equal(json_int(d, v, &n), rows[i].ok);
        assert_true(n == (rows[i].ok ? rows[i].value : 42));
        json_free(d);
    }
}

static void assert_place(const struct json_doc *d, const struct json *v, unsigned line,
                         unsigned column)
{
    struct json_fault fault;
    json_fault_at(d, v, &fault, "must be %s", "less");
    assert_int_equal(fault.line, line);
    assert_int_equal(fault.column, column);
    assert_string_equal(fault.text, "must be less");
}

static void every_value_knows_its_place(void **state)
{
    (void)state;
    struct json_doc *d =
        parse_good("{\n  \"a\": [1, {\"b\": \"x\\\"]\"}, []],\n\t\"c\": {},\n\"d\" :\n null\n}");
    const struct json *root = json_root(d), *a = json_first(root), *b = json_next(json_first(a));
    assert_place(d, root, 1, 1);
    assert_place(d, a, 2, 8);
    assert_place(d, json_first(a), 2, 9);
    assert_place(d, b, 2, 12);
    assert_place(d, json_first(b), 2, 18);
    assert_place(d, json_next(b), 2, 27);
    assert_place(d, json_next(a), 3, 7);
    assert_place(d, json_next(json_next(a)), 5, 2);
    json_free(d);
}

static void long_names_and_texts_are_cut_in_faults(void **state)
{
    (void)state;
    char text[2000];
    struct json_fault fault;
    char name[600];
    memset(name, 'n', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    snprintf(text, sizeof text, "{\"%s\":1,\"%s\":2}", name, name);
    assert_null(parse(text, &fault));
    assert_true(strlen(fault.text) < sizeof fault.text);
    assert_memory_equal(fault.text, "doubled member name \"nnn", 24);
    struct json_doc *d = parse_good("1");
    json_fault_at(d, json_root(d), &fault, "%s", name);
    assert_int_equal(strlen(fault.text), sizeof fault.text - 1);
    json_free(d);
}

static void doubled_names_are_found_in_large_objects(void **state)
{
    (void)state;
    enum { N = 2000 };
    for (int doubled = -1; doubled < N; doubled += 333) {
        struct json_out o;
        struct json_fault fault;
        json_out_init(&o);
        json_open(&o, '{');
        for (int i = 0; i < N; i++) {
            char name[16];
            snprintf(name, sizeof name, "n%d", i);
            json_key(&o, name);
            json_put_int(&o, i);
        }
        if (doubled >= 0)
            json_put_raw(&o, STR("\"\\u006e"));
        char rest[32];
        snprintf(rest, sizeof rest, "%d\":0}", doubled);
        struct str end = doubled >= 0 ? str_of(rest) : STR("}");
        o.comma = false;
        json_put_raw(&o, end);
        struct json_doc *d = json_parse((struct str){o.p, o.n}, 0, DEPTH, &fault);
        assert_int_equal(d != NULL, doubled < 0);
        if (!d)
            assert_memory_equal(fault.text, "doubled member name \"n", 22);
        json_free(d);
        json_out_done(&o);
    }
}

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void eleven_mb_with_100000_members_take_no_time(void **state)
{
    (void)state;
    struct json_out o;
    struct json_fault fault;
    char value[80];
    memset(value, 'v', sizeof value);
    json_out_init(&o);
    json_open(&o, '{');
    for (int i = 0; i < 100000; i++) {
        char name[32];
        snprintf(name, sizeof name, "sandbox-number-%08d", i);
        json_key(&o, name);
        json_put_str(&o, (struct str){value, sizeof value});
    }
    json_close(&o, '}');
    assert_true(o.n > 10500000);
    double start = seconds();
    struct json_doc *d = json_parse((struct str){o.p, o.n}, 0, DEPTH, &fault);
    double taken = seconds() - start;
    assert_non_null(d);
    assert_int_equal(json_count(json_root(d)), 100000);
    print_message("%.3f s for %.1f MB\n", taken, (double)o.n / 1e6);
    assert_true(taken < 5); /* sanitizers are slow; anything quadratic takes minutes */
    json_free(d);
    json_out_done(&o);
}

static void writer_makes_what_the_reader_reads(void **state)
{
    (void)state;
    struct json_out o;
    json_out_init(&o);
    json_open(&o, '{');
    json_key(&o, "s");
    json_put_str(&o, STR("a\"\\\n\x01\xff\xe2\x82\xac"));
    json_key(&o, "list");
    json_open(&o, '[');
    json_put_int(&o, 0);
    json_put_int(&o, INT64_MIN);
    json_put_int(&o, INT64_MAX);
    json_put_bool(&o, true);
    json_put_bool(&o, false);
    json_put_raw(&o, STR("null"));
    json_open(&o, '{');
    json_close(&o, '}');
    json_open(&o, '[');
    json_close(&o, ']');
    json_put_str(&o, STR_NONE);
    json_close(&o, ']');
    json_key(&o, "k\"");
    json_put_int(&o, 1);
    json_close(&o, '}');
    static const char expected[] = "{\"s\":\"a\\\"\\\\\\n\\u0001\\ufffd\xe2\x82\xac\",\"list\":[0,-"
                                   "9223372036854775808,9223372036854775807,"
                                   "true,false,null,{},[],\"\"],\"k\\\"\":1}";
    assert_is((struct str){o.p, o.n}, expected);
    json_free(parse_good(expected));
    json_out_done(&o);
    assert_null(o.p);
}

/* The text itself is the caller's: here it lies in the memory of secrets. */
static struct secret *document_of(const struct secret *secret)
{
    static const char before[] = "{\"a\":[{\"value\":\"\\u0041", after[] = "\"}]}";
    struct str text = secret_bytes(secret);
    char *bytes;
    size_t n = sizeof before - 1;
    struct secret *s = secret_make(n + text.n + sizeof after - 1, &bytes);
    memcpy(bytes, before, n);
    memcpy(bytes + n, text.p, text.n);
    memcpy(bytes + n + text.n, after, sizeof after - 1);
    return s;
}

static void a_tree_leaves_nothing_when_it_is_freed(void **state)
{
    (void)state;
    struct json_fault fault;
    struct secret *secret = copies_unmask(STR(MASKED)), *text = document_of(secret);
    struct json_doc *d = json_parse(secret_bytes(text), 0, DEPTH, &fault);
    assert_non_null(d);
    assert_int_equal(copies_count(secret), 1);
    json_free(d);
    assert_int_equal(copies_count(secret), 0);
    secret_unref(text);
    secret_unref(secret);
}

/* ---- without a tree ---- */

static void a_check_takes_and_refuses_what_a_parse_does(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "{}",
        "[1,{\"a\":[null]}]",
        "\"x\"",
        " 1 ",
        "",
        "{\"a\":}",
        "[1 2]",
        "{\"a\":1,\"a\":2}",
        "[[[[1]]]]",
        "01",
        "\"\\u0000\"",
        "\"\xff\"",
        "{\"a\":{\"b\":1,\"\\u0062\":2}}",
        "[1]]",
    };
    for (size_t i = 0; i < COUNT(texts); i++) {
        struct json_fault parsed = {0}, checked = {0};
        struct str text = str_of(texts[i]);
        struct json_doc *d = json_parse(text, 0, 3, &parsed);
        assert_int_equal(json_check(text, 0, 3, &checked), d != NULL);
        assert_string_equal(checked.text, parsed.text);
        assert_int_equal(checked.line, parsed.line);
        assert_int_equal(checked.column, parsed.column);
        json_free(d);
    }
    struct json_fault fault;
    assert_false(json_check(STR("[1,2]"), 4, 3, &fault));
}

/* Names, types and ends of one level as a text: "name=value;". */
static struct str cut_all(const char *text, enum json_type type, struct arena *a, bool *ret_good)
{
    struct json_cut c;
    struct str out = STR("");
    *ret_good = json_cut_begin(&c, str_of(text), type);
    while (*ret_good && json_cut_next(&c))
        out = type == JSON_OBJECT ? arena_printf(a, "%.*s%.*s=%.*s;", STR_ARG(out), STR_ARG(c.name),
                                                 STR_ARG(c.value))
                                  : arena_printf(a, "%.*s%.*s;", STR_ARG(out), STR_ARG(c.value));
    *ret_good = *ret_good && c.state == JSON_CUT_END;
    return out;
}

static void a_level_is_cut_into_its_values(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        enum json_type type;
        const char *cut; /* NULL: broken */
    } rows[] = {
        {"{}", JSON_OBJECT, ""},
        {" { } ", JSON_OBJECT, ""},
        {"[]", JSON_ARRAY, ""},
        {"{\"a\":1}", JSON_OBJECT, "a=1;"},
        {"\n{ \"a\" : 1 , \"b\"\t:\"x\" }\r", JSON_OBJECT, "a=1;b=\"x\";"},
        {"{\"a\":{\"b\":[1,{}]},\"c\":[]}", JSON_OBJECT, "a={\"b\":[1,{}]};c=[];"},
        {"{\"a\":\"}\\\"]\",\"b\":\"\\\\\"}", JSON_OBJECT, "a=\"}\\\"]\";b=\"\\\\\";"},
        {"[1,-2.5e3,true,null,\"\",[],{}]", JSON_ARRAY, "1;-2.5e3;true;null;\"\";[];{};"},
        {"[\"a long text of more than sixteen bytes, with \\\" in it\",\"b\"]", JSON_ARRAY,
         "\"a long text of more than sixteen bytes, with \\\" in it\";\"b\";"},
        {"{\"a\":1,\"a\":2}", JSON_OBJECT, "a=1;a=2;"},   /* the caller's to judge */
        {"{\"a\":\"\x01\"}", JSON_OBJECT, "a=\"\x01\";"}, /* a value is not */
        {"{\"\xff\":1}", JSON_OBJECT, NULL},              /* but a name is */
        {"{\"a\":1", JSON_OBJECT, NULL},
        {"{\"a\":1,}", JSON_OBJECT, NULL},
        {"{,}", JSON_OBJECT, NULL},
        {"{\"a\" 1}", JSON_OBJECT, NULL},
        {"{\"a\":}", JSON_OBJECT, NULL},
        {"{\"a\":1 \"b\":2}", JSON_OBJECT, NULL},
        {"{\"a\":[1}", JSON_OBJECT, NULL},
        {"{\"a\":\"x}", JSON_OBJECT, NULL},
        {"{\"a\":\"x\\\"}", JSON_OBJECT, NULL},
        {"{\"a\":1}x", JSON_OBJECT, NULL},
        {"{a:1}", JSON_OBJECT, NULL},
        {"{", JSON_OBJECT, NULL},
        {"", JSON_OBJECT, NULL},
        {"[1,2", JSON_ARRAY, NULL},
        {"[1 2]", JSON_ARRAY, NULL},
        {"[,1]", JSON_ARRAY, NULL},
        {"[1,]", JSON_ARRAY, NULL},
        {"[1}", JSON_ARRAY, NULL},
        {"[]", JSON_OBJECT, NULL},
        {"{}", JSON_ARRAY, NULL},
        {"1", JSON_ARRAY, NULL},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct arena a;
        bool good;
        arena_init(&a, NULL, 0);
        struct str cut = cut_all(rows[i].text, rows[i].type, &a, &good);
        if (good != (rows[i].cut != NULL) || (good && !str_eq(cut, str_of(rows[i].cut))))
            fail_msg("%s: %s, %.*s", rows[i].text, good ? "good" : "broken", STR_ARG(cut));
        arena_done(&a);
    }
}

/* At every length a string can end: the walk goes by eight bytes. */
static void a_string_ends_where_it_ends_whatever_its_length(void **state)
{
    (void)state;
    for (size_t n = 0; n < 40; n++) {
        for (size_t escape = 0; escape <= n; escape++) {
            char text[64];
            size_t at = 0;
            text[at++] = '[';
            text[at++] = '"';
            for (size_t i = 0; i < n; i++) {
                if (i == escape)
                    text[at++] = '\\';
                text[at++] = i == escape ? '"' : 'x';
            }
            text[at++] = '"';
            text[at++] = ']';
            char *copy = malloc(at);
            memcpy(copy, text, at);
            struct json_cut c;
            assert_true(json_cut_begin(&c, (struct str){copy, at}, JSON_ARRAY));
            assert_true(json_cut_next(&c));
            assert_int_equal(c.value.n, at - 2);
            assert_false(json_cut_next(&c));
            assert_int_equal(c.state, JSON_CUT_END);
            assert_true(json_cut_begin(&c, (struct str){copy, at - 2}, JSON_ARRAY));
            assert_false(json_cut_next(&c));
            assert_int_equal(c.state, JSON_CUT_BROKEN);
            free(copy);
        }
    }
}

static void depth_costs_a_walk_nothing(void **state)
{
    (void)state;
    enum { N = 1000000 };
    char *deep = malloc(2 * N + 2);
    deep[0] = '[';
    memset(deep + 1, '[', N);
    memset(deep + 1 + N, ']', N);
    deep[2 * N + 1] = ']';
    struct json_cut c;
    assert_true(json_cut_begin(&c, (struct str){deep, 2 * N + 2}, JSON_ARRAY));
    assert_true(json_cut_next(&c));
    assert_int_equal(c.value.n, 2 * N);
    assert_false(json_cut_next(&c));
    assert_int_equal(c.state, JSON_CUT_END);
    free(deep);
}

static void wanted_members_are_picked_once(void **state)
{
    (void)state;
    static const struct {
        const char *text, *error, *a, *b;
        bool twice;
    } rows[] = {
        {"{\"a\":1,\"x\":[],\"b\":\"2\"}", NULL, "1", "\"2\"", false},
        {"{\"x\":{\"a\":1}}", NULL, NULL, NULL, false},
        {"{\"\\u0061\":1}", NULL, "1", NULL, false},
        {"{\"A\":1}", NULL, NULL, NULL, false},
        {"{\"x\":1,\"x\":2,\"a\":null}", NULL, "null", NULL, false},
        {"{\"a\":1,\"a\":2,\"b\":3}", "a doubled member", "1", "3", true},
        {"{\"a\":1,\"\\u0061\":2,\"a\":4}", "a doubled member", "1", NULL, true},
        {"{\"a\":1,\"a\":2,\"b\":3", "broken JSON", NULL, NULL, false},
        {"[1]", "no object", NULL, NULL, false},
        {"", "no object", NULL, NULL, false},
        {"\"a\"", "no object", NULL, NULL, false},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct json_pick m[] = {{.name = STR("a")}, {.name = STR("b"), .value = STR("old")}};
        const char *error = json_pick(str_of(rows[i].text), m, 2);
        if ((error == NULL) != (rows[i].error == NULL) ||
            (error && strcmp(error, rows[i].error) != 0))
            fail_msg("%s: %s", rows[i].text, error ? error : "good");
        assert_true(str_eq(m[0].value, str_of(rows[i].a)) && !m[0].value.p == !rows[i].a);
        assert_true(str_eq(m[1].value, str_of(rows[i].b)) && !m[1].value.p == !rows[i].b);
        assert_int_equal(m[0].twice, rows[i].twice);
    }
}

static void single_values_are_read_strictly(void **state)
{
    (void)state;
    static const struct {
        const char *value, *text;
    } texts[] = {
        {"\"\"", ""},
        {"\"x y\"", "x y"},
        {"\"\\\"\\u20ac\\n\"", "\"\xe2\x82\xac\n"},
        {"\"\\ud83d\\ude00\"", "\xf0\x9f\x98\x80"},
        {"x", NULL},
        {"", NULL},
        {"\"", NULL},
        {"\"x", NULL},
        {"\"x\"y", NULL},
        {"\"x\" ", NULL},
        {"\"\\u0000\"", NULL},
        {"\"\\x\"", NULL},
        {"\"\x01\"", NULL},
        {"\"\xc3\"", NULL},
        {"null", NULL},
    };
    static const struct {
        const char *value;
        bool good;
        int64_t n;
    } numbers[] = {
        {"0", true, 0},
        {"-0", true, 0},
        {"12", true, 12},
        {"-9223372036854775808", true, INT64_MIN},
        {"9223372036854775807", true, INT64_MAX},
        {"9223372036854775808", false, 0},
        {"01", false, 0},
        {"-01", false, 0},
        {"1.0", false, 0},
        {"1e3", false, 0},
        {"+1", false, 0},
        {"-", false, 0},
        {"", false, 0},
        {"\"1\"", false, 0},
        {" 1", false, 0},
        {"true", false, 0},
    };
    struct arena a;
    arena_init(&a, NULL, 0);
    for (size_t i = 0; i < COUNT(texts); i++) {
        struct str s = STR("old");
        assert_int_equal(json_cut_text(str_of(texts[i].value), &a, &s), texts[i].text != NULL);
        assert_is(s, texts[i].text ? texts[i].text : "old");
    }
    for (size_t i = 0; i < COUNT(numbers); i++) {
        int64_t n = 42;
        assert_int_equal(json_cut_int(str_of(numbers[i].value), &n), numbers[i].good);
        assert_true(n == (numbers[i].good ? numbers[i].n : 42));
    }
    arena_done(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(takes_what_rfc_8259_allows),
        cmocka_unit_test(refuses_the_rest_and_says_where),
        cmocka_unit_test(a_zero_byte_is_not_an_end),
        cmocka_unit_test(every_cut_of_a_document_is_refused),
        cmocka_unit_test(depth_and_size_are_limited),
        cmocka_unit_test(values_read_back),
        cmocka_unit_test(integers_come_from_the_text),
        cmocka_unit_test(every_value_knows_its_place),
        cmocka_unit_test(long_names_and_texts_are_cut_in_faults),
        cmocka_unit_test(doubled_names_are_found_in_large_objects),
        cmocka_unit_test(eleven_mb_with_100000_members_take_no_time),
        cmocka_unit_test(writer_makes_what_the_reader_reads),
        cmocka_unit_test(a_check_takes_and_refuses_what_a_parse_does),
        cmocka_unit_test(a_level_is_cut_into_its_values),
        cmocka_unit_test(a_string_ends_where_it_ends_whatever_its_length),
        cmocka_unit_test(depth_costs_a_walk_nothing),
        cmocka_unit_test(wanted_members_are_picked_once),
        cmocka_unit_test(single_values_are_read_strictly),
        cmocka_unit_test(a_tree_leaves_nothing_when_it_is_freed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
