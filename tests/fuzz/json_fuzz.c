/* json_fuzz.c — whatever the bytes are: a document or a fault with a place in it.  Of a document
 * every value stands where it says it does, and written again it is a document again; read without
 * a tree it has the same members. */
#include <assert.h>
#include <stdint.h>
#include <stdlib.h>

#include "base/json.h"
#include "base/text.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { DEPTH = 16 };

static void check_place(const struct json_doc *d, const struct json *v, struct str text)
{
    struct json_fault fault;
    struct str rest = text, line = STR_NONE;
    json_fault_at(d, v, &fault, "x");
    for (unsigned i = 0; i < fault.line; i++)
        assert(str_next(&rest, '\n', &line));
    assert(fault.column >= 1 && fault.column <= line.n);
    char c = line.p[fault.column - 1];
    static const char *const begins[] = {"n", "tf", "-0123456789", "\"", "[", "{"};
    assert(strchr(begins[json_type(v)], c));
}

static void check_number(const struct json_doc *d, const struct json *v)
{
    int64_t n;
    if (json_int(d, v, &n))
        assert((double)n == json_double(v));
}

/* The next value in the order of the text; `above` are the containers it lies in. */
static const struct json *after(const struct json *v, const struct json **above, size_t *depth)
{
    if (json_first(v)) {
        above[(*depth)++] = v;
        return json_first(v);
    }
    while (!json_next(v)) {
        if (*depth == 0)
            return NULL;
        v = above[--*depth];
    }
    return json_next(v);
}

static void check_values(const struct json_doc *d, struct str text)
{
    const struct json *above[DEPTH + 1];
    size_t depth = 0;
    for (const struct json *v = json_root(d); v; v = after(v, above, &depth)) {
        check_place(d, v, text);
        if (json_type(v) == JSON_NUMBER)
            check_number(d, v);
        if (json_type(v) == JSON_STRING)
            assert(text_utf8(json_string(v)));
        if (depth && json_type(above[depth - 1]) == JSON_OBJECT)
            assert(json_member(above[depth - 1], json_name(v)) == v);
    }
}

static void check_fault(const struct json_fault *fault, struct str text)
{
    size_t lines = 1;
    for (size_t i = 0; i < text.n; i++)
        lines += text.p[i] == '\n';
    assert(fault->line >= 1 && fault->line <= lines && fault->column >= 1 &&
           fault->column <= text.n + 1);
    assert(fault->text[0] && text_utf8(str_of(fault->text)));
}

static void check_written_again(struct str text)
{
    struct json_fault fault;
    struct json_out o;
    json_out_init(&o);
    json_open(&o, '[');
    json_put_raw(&o, text);
    json_put_str(&o, text);
    json_close(&o, ']');
    struct json_doc *d = json_parse((struct str){o.p, o.n}, 0, DEPTH + 1, &fault);
    assert(d && json_count(json_root(d)) == 2);
    assert(str_eq(json_string(json_next(json_first(json_root(d)))), text));
    json_free(d);
    json_out_done(&o);
}

/* A level that is cut and whose values are good each is the level of the tree. */
static bool cut_level(struct str text, enum json_type type, const struct json *tree)
{
    struct json_cut c;
    struct json_fault fault;
    bool good = json_cut_begin(&c, text, type);
    const struct json *v = tree ? json_first(tree) : NULL;
    while (good && json_cut_next(&c)) {
        assert(c.value.n > 0 && c.value.p >= text.p && c.value.p + c.value.n <= text.p + text.n);
        good = json_check(c.value, 0, DEPTH, &fault);
        assert(good || !tree);
        if (!tree)
            continue;
        assert(v && (type == JSON_ARRAY || json_cut_is(&c, json_name(v))));
        v = json_next(v);
    }
    assert(!v);
    return good && c.state == JSON_CUT_END;
}

static void check_cut(struct str text, const struct json *root)
{
    enum json_type type = root ? json_type(root) : JSON_OBJECT;
    if (type == JSON_OBJECT || type == JSON_ARRAY)
        assert(cut_level(text, type, root) || !root);
    if (!root)
        cut_level(text, JSON_ARRAY, NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct str text = {(const char *)data, size};
    struct json_fault fault = {0};
    struct json_doc *d = json_parse(text, 1 << 20, DEPTH, &fault);
    struct json_fault again = {0};
    bool good = json_check(text, 1 << 20, DEPTH, &again);
    assert(good == (d != NULL) && strcmp(again.text, fault.text) == 0);
    check_cut(text, d ? json_root(d) : NULL);
    if (!d) {
        check_fault(&fault, text);
        return 0;
    }
    check_values(d, text);
    json_free(d);
    check_written_again(text);
    return 0;
}
