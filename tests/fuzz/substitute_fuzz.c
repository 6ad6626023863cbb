/* substitute_fuzz.c — any placeholders in any text: the result is that of the plain scan of the
 * contract; what is encoded means what it was; a Basic token that was changed decodes to the text
 * that is told.  Input: placeholders, one per LF, an empty line, the text. */
#include <stdint.h>
#include <stdlib.h>

#include "base/json.h"
#include "base/text.h"
#include "policies/inject.h"

#define CHECK(what)  \
    do {             \
        if (!(what)) \
            abort(); \
    } while (0)

enum { MAX_PAIRS = 24, MOST = 1 << 20, DEPTH = 4 };

static struct str plain_scan(const struct replacements *p, struct str text, struct arena *a,
                             bool *ret_hit)
{
    char *out = arena_get(a, (text.n + 1) * 32);
    size_t n = 0;
    *ret_hit = false;
    while (text.n) {
        const struct replacement *best = NULL;
        for (unsigned i = 0; i < p->n; i++)
            if (str_starts(text, p->at[i].placeholder) &&
                (!best || p->at[i].placeholder.n > best->placeholder.n))
                best = &p->at[i];
        struct str put = best ? best->value : str_head(text, 1);
        memcpy(out + n, put.p, put.n);
        n += put.n;
        *ret_hit |= best != NULL;
        text = str_skip(text, best ? best->placeholder.n : 1);
    }
    return (struct str){out, n};
}

static void check_scan(const struct replacements *p, struct str text, struct arena *a,
                       struct secret_bag *bag)
{
    struct str got = text;
    bool hit;
    struct str expected = plain_scan(p, text, a, &hit);
    enum substituted done = substitute(p, text, MOST, bag, &got);
    CHECK(done == (hit ? SUBSTITUTE_DONE : SUBSTITUTE_NOTHING));
    CHECK(str_eq(got, expected));
    CHECK(!hit || secret_covers(got.p));
    if (!hit || expected.n == 0)
        return;
    CHECK(substitute(p, text, expected.n, bag, &got) == SUBSTITUTE_DONE);
    CHECK(substitute(p, text, expected.n - 1, bag, &got) == SUBSTITUTE_LONG);
}

static struct str read_json(struct json_doc *d)
{
    CHECK(d && json_type(json_root(d)) == JSON_STRING);
    return json_string(json_root(d));
}

/* cJSON has no NUL in a string, and a value has none. */
static void check_json(struct str value, struct arena *a, struct secret_bag *bag)
{
    struct json_fault fault;
    struct str content = encode_value(ENCODE_JSON, value, bag);
    for (size_t i = 0; i < content.n; i++)
        CHECK((uint8_t)content.p[i] >= 0x20 && (uint8_t)content.p[i] < 0x80);
    if (!text_utf8(value) || str_chr(value, '\0') >= 0)
        return;
    struct str quoted = arena_cat(a, arena_cat(a, STR("\""), content), STR("\""));
    struct json_doc *d = json_parse(quoted, 0, DEPTH, &fault);
    CHECK(str_eq(read_json(d), value));
    json_free(d);
}

static void check_values(struct str value, struct arena *a, struct secret_bag *bag)
{
    char *out = arena_get(a, value.n * 3 + 1);
    size_t n;
    struct str percent = encode_value(ENCODE_PERCENT, value, bag);
    CHECK(text_percent(percent, out, &n) && str_eq((struct str){out, n}, value));
    struct str form = encode_value(ENCODE_FORM, value, bag);
    CHECK(str_chr(form, ' ') < 0 && form.n <= percent.n);
    CHECK(str_eq(encode_value(ENCODE_RAW, value, bag), value));
    check_json(value, a, bag);
}

static void check_basic(const struct replacements *p, struct str value, struct arena *a,
                        struct secret_bag *bag)
{
    struct str got, token, text;
    if (substitute_basic(p, value, MOST, bag, &got, &token, &text) != SUBSTITUTE_DONE)
        return;
    uint8_t *out = arena_get(a, token.n + 1);
    size_t n;
    CHECK(str_istarts(got, STR("basic ")) && token.p + token.n == got.p + got.n);
    CHECK(text_base64(token, out, &n) && str_eq((struct str){(char *)out, n}, text));
}

/* The text as the token that a client would send, and as it stands. */
static void check_both_basics(const struct replacements *p, struct str text, struct arena *a,
                              struct secret_bag *bag)
{
    char *out = arena_get(a, 6 + 4 * ((text.n + 2) / 3));
    memcpy(out, "Basic ", 6);
    size_t n = 6 + text_put_base64(out + 6, text.p, text.n);
    check_basic(p, (struct str){out, n}, a, bag);
    check_basic(p, text, a, bag);
}

static void check_coding(struct str text, struct arena *a)
{
    struct field fields[] = {{STR("accept-encoding"), text}, {STR("Accept-Encoding"), STR("br")}};
    unsigned n = 2;
    inject_accept_coding(fields, &n, a);
    CHECK(n == 1 || n == 2);
    CHECK(str_eq(fields[n - 1].value, STR("br")) && fields[0].value.n <= 2 * text.n + 2);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct str rest = {(const char *)data, size}, line;
    struct replacement at[MAX_PAIRS];
    struct replacements pairs = {at, 0};
    struct arena a;
    struct secret_bag bag;
    if (size > 4096)
        return 0;
    arena_init(&a, NULL, 0);
    secret_bag_init(&bag);
    while (str_next(&rest, '\n', &line) && line.n && pairs.n < MAX_PAIRS)
        at[pairs.n++] = (struct replacement){line, arena_printf(&a, "<%zu>", line.n)};
    struct str text = rest.p ? rest : STR("");
    check_scan(&pairs, text, &a, &bag);
    check_values(text, &a, &bag);
    check_both_basics(&pairs, text, &a, &bag);
    check_coding(text, &a);
    secret_bag_done(&bag);
    arena_done(&a);
    CHECK(secret_held() == 0);
    return 0;
}
