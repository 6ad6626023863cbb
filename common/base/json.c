/* json.c — strict JSON over cJSON.  The pre-scan (json_scan.c) decides what is JSON and notes where
 * every value begins; cJSON only builds the tree of what has passed.  The places are put into the
 * tree afterwards: both go through the values in the same order, and cJSON's integer member,
 * useless beside the text itself, has room for them. */
#include "base/json.h"

#include <assert.h>
#include <cjson/cJSON.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>

#include "base/json_impl.h"
#include "base/text.h"

enum { DEPTH_MAX = CJSON_NESTING_LIMIT };

struct json_doc {
    cJSON *root;
    struct str text;
};

/* ---- the document ---- */

/* Goes through the tree in the order of the text; `above` has room for the depth of the document.
 */
static void put_places(cJSON *root, const uint32_t *places, size_t n, cJSON **above)
{
    size_t i = 0;
    unsigned depth = 0;
    for (cJSON *v = root; v;) {
        assert(i < n);
        v->valueint = (int)places[i++];
        if (v->child) {
            above[depth++] = v;
            v = v->child;
            continue;
        }
        while (v && !v->next)
            v = depth ? above[--depth] : NULL;
        v = v ? v->next : NULL;
    }
    assert(i == n);
}

static void *tree_get(size_t n)
{
    return mem_renew(NULL, n);
}

/* Any document may be one that brings secrets. */
static void wipe_trees(void)
{
    cJSON_InitHooks(&(cJSON_Hooks){tree_get, mem_free_wiped});
}

static struct json_doc *build(struct json_scan *s)
{
    /* the library has its allocator once per process */
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, wipe_trees);
    cJSON *root = cJSON_ParseWithLengthOpts(s->text.p, s->text.n, NULL, false);
    if (!root) {
        json_scan_fail(s, 0, "not understood");
        return NULL;
    }
    cJSON **above = mem_new((s->max_depth + 1) * sizeof *above);
    put_places(root, s->places, s->place_count, above);
    mem_free(above);
    struct json_doc *d = mem_new(sizeof *d);
    *d = (struct json_doc){root, s->text};
    return d;
}

struct json_doc *json_parse(struct str text, size_t max_bytes, unsigned max_depth,
                            struct json_fault *ret_fault)
{
    assert(max_depth > 0 && max_depth <= DEPTH_MAX);
    struct json_scan s = {.text = text, .max_depth = max_depth, .tree = true, .fault = ret_fault};
    struct json_doc *d = json_scan_document(&s, max_bytes) ? build(&s) : NULL;
    json_scan_done(&s);
    return d;
}

void json_free(struct json_doc *d)
{
    if (!d)
        return;
    cJSON_Delete(d->root);
    mem_free(d);
}

/* ---- reading ---- */

static const cJSON *item(const struct json *v)
{
    return (const cJSON *)(const void *)v;
}

static const struct json *value(const cJSON *item)
{
    return (const struct json *)(const void *)item;
}

const struct json *json_root(const struct json_doc *d)
{
    return value(d->root);
}

enum json_type json_type(const struct json *v)
{
    switch (item(v)->type & 0xff) {
    case cJSON_True:
    case cJSON_False:
        return JSON_BOOL;
    case cJSON_Number:
        return JSON_NUMBER;
    case cJSON_String:
        return JSON_STRING;
    case cJSON_Array:
        return JSON_ARRAY;
    case cJSON_Object:
        return JSON_OBJECT;
    default:
        return JSON_NULL;
    }
}

const char *json_type_name(enum json_type t)
{
    static const char *const names[] = {"null", "boolean", "number", "string", "array", "object"};
    assert((unsigned)t <= JSON_OBJECT);
    return names[t];
}

const struct json *json_first(const struct json *v)
{
    return value(item(v)->child);
}

const struct json *json_next(const struct json *v)
{
    return value(item(v)->next);
}

size_t json_count(const struct json *v)
{
    size_t n = 0;
    for (const cJSON *child = item(v)->child; child; child = child->next)
        n++;
    return n;
}

struct str json_name(const struct json *member)
{
    return str_of(item(member)->string);
}

const struct json *json_member(const struct json *object, struct str name)
{
    for (const struct json *m = json_first(object); m; m = json_next(m))
        if (str_eq(json_name(m), name))
            return m;
    return NULL;
}

struct str json_string(const struct json *v)
{
    assert(json_type(v) == JSON_STRING);
    return str_of(item(v)->valuestring);
}

bool json_bool(const struct json *v)
{
    assert(json_type(v) == JSON_BOOL);
    return (item(v)->type & 0xff) == cJSON_True;
}

double json_double(const struct json *v)
{
    assert(json_type(v) == JSON_NUMBER);
    return item(v)->valuedouble;
}

bool json_int(const struct json_doc *d, const struct json *v, int64_t *ret)
{
    assert(json_type(v) == JSON_NUMBER);
    struct str s = str_skip(d->text, (size_t)item(v)->valueint);
    size_t n = s.p[0] == '-';
    while (n < s.n &&
           ((s.p[n] >= '0' && s.p[n] <= '9') || s.p[n] == '.' || ascii_lower(s.p[n]) == 'e'))
        n++;
    return json_cut_int(str_head(s, n), ret);
}

void json_fault_at(const struct json_doc *d, const struct json *v, struct json_fault *ret_fault,
                   const char *format, ...)
{
    va_list args;
    json_place(ret_fault, d->text, (size_t)item(v)->valueint);
    va_start(args, format);
    vsnprintf(ret_fault->text, sizeof ret_fault->text, format, args);
    va_end(args);
}

/* ---- writing ---- */

void json_out_init(struct json_out *o)
{
    *o = (struct json_out){0};
}

void json_out_done(struct json_out *o)
{
    mem_free(o->p);
    json_out_init(o);
}

/* Room for n more bytes. */
static char *grow(struct json_out *o, size_t n)
{
    if (o->room - o->n < n) {
        size_t room = o->room ? o->room : 256;
        while (room - o->n < n)
            room *= 2;
        o->p = mem_renew(o->p, room);
        o->room = room;
    }
    return o->p + o->n;
}

static void put(struct json_out *o, struct str s)
{
    char *at = grow(o, s.n);
    if (s.n)
        memcpy(at, s.p, s.n);
    o->n += s.n;
}

/* A value comes next. */
static void separate(struct json_out *o)
{
    if (o->comma)
        put(o, STR(","));
    o->comma = true;
}

static void put_quoted(struct json_out *o, struct str s)
{
    char *at = grow(o, s.n * 6 + 2); /* the longest escape has six bytes */
    at[0] = '"';
    size_t n = text_put_json(at + 1, s.n * 6, s);
    at[n + 1] = '"';
    o->n += n + 2;
}

void json_open(struct json_out *o, char bracket)
{
    assert(bracket == '{' || bracket == '[');
    separate(o);
    put(o, (struct str){&bracket, 1});
    o->comma = false;
}

void json_close(struct json_out *o, char bracket)
{
    assert(bracket == '}' || bracket == ']');
    put(o, (struct str){&bracket, 1});
    o->comma = true;
}

void json_key(struct json_out *o, const char *name)
{
    separate(o);
    put_quoted(o, str_of(name));
    put(o, STR(":"));
    o->comma = false;
}

void json_put_str(struct json_out *o, struct str s)
{
    separate(o);
    put_quoted(o, s);
}

void json_put_int(struct json_out *o, int64_t v)
{
    char digits[20];
    separate(o);
    if (v < 0)
        put(o, STR("-"));
    size_t n = text_put_u64(digits, v < 0 ? 0 - (uint64_t)v : (uint64_t)v);
    put(o, (struct str){digits, n});
}

void json_put_bool(struct json_out *o, bool v)
{
    separate(o);
    put(o, v ? STR("true") : STR("false"));
}

void json_put_raw(struct json_out *o, struct str s)
{
    separate(o);
    put(o, s);
}
