/* mitm_config.c — config.yaml as far as it counts here (contract egress-vault 18.3): keys at the
 * left margin, each with a value, a list in brackets or a list of dashes.  What is not surely read
 * is refused rather than guessed: a host that was to be passed must not be opened, and a pattern
 * that came out blank would pass every host. */
#include "base/text.h"
#include "egress/intercept/passlist.h"

enum { MAX_VALUES = 4096, MAX_OTHERS = 64, FIRST_ROOM = 8 };

/* One key with what stands behind it. */
struct entry {
    struct str key;
    struct str *values;
    unsigned n, room;
    const char *fault; /* NULL: it is what it seems */
    unsigned line;
};

struct reader {
    struct str rest;
    unsigned line; /* of what was read last */
    struct arena *a;
};

/* What is shipped, and needs no word. */
static const struct {
    const char *key, *value;
} shipped[] = {
    {"mode", "transparent"},
    {"connection_strategy", "lazy"},
    {"listen_host", "127.0.0.1"},
    {"ssl_verify_upstream_trusted_confdir", "/etc/ssl/certs"},
};

/* ---- values */

/* Blanks and tabs, and the carriage return of files from elsewhere. */
static struct str trim(struct str s)
{
    while (s.n > 0 && (s.p[s.n - 1] == ' ' || s.p[s.n - 1] == '\t' || s.p[s.n - 1] == '\r'))
        s.n--;
    while (s.n > 0 && (s.p[0] == ' ' || s.p[0] == '\t'))
        s = str_skip(s, 1);
    return s;
}

/* Without a comment, which begins the text or follows a blank. */
static struct str uncommented(struct str s)
{
    for (size_t i = 0; i < s.n; i++)
        if (s.p[i] == '#' && (i == 0 || s.p[i - 1] == ' ' || s.p[i - 1] == '\t'))
            return trim(str_head(s, i));
    return trim(s);
}

static bool is_nothing(struct str s)
{
    return s.n == 0 || str_eq(s, STR("~")) || str_eq(s, STR("null"));
}

/* Takes one value off the front of *s: up to its closing quote, or in a list up to a comma or
 * bracket, or all.  NULL, or what is wrong. */
static const char *take_value(struct str *s, bool in_list, struct str *ret)
{
    if (s->n > 0 && (s->p[0] == '\'' || s->p[0] == '"')) {
        ptrdiff_t end = str_chr(str_skip(*s, 1), s->p[0]);
        if (end < 0)
            return "a quote is not closed";
        *ret = (struct str){s->p + 1, (size_t)end};
        *s = trim(str_skip(*s, (size_t)end + 2));
        return ret->n ? NULL : "a value is blank";
    }
    if (s->n > 0 && strchr("|>{&!%@`", s->p[0]))
        return "a value is in a form that is not read here";
    size_t n = 0;
    while (n < s->n && !(in_list && strchr(",[]{}", s->p[n])))
        n++;
    *ret = in_list ? trim(str_head(*s, n)) : uncommented(*s);
    *s = in_list ? str_skip(*s, n) : STR_NONE;
    return ret->n ? NULL : "a value is blank";
}

static const char *put(struct entry *e, struct str value, struct arena *a)
{
    if (e->n == MAX_VALUES)
        return "it has too many values";
    if (e->n == e->room) {
        e->room = e->room ? 2 * e->room : FIRST_ROOM;
        struct str *more = arena_get(a, e->room * sizeof *more);
        if (e->n)
            memcpy(more, e->values, e->n * sizeof *more);
        e->values = more;
    }
    e->values[e->n++] = arena_str(a, value);
    return NULL;
}

/* What is left behind a value may be a comment. */
static const char *at_end(struct str s)
{
    return uncommented(s).n ? "something stands behind a value" : NULL;
}

/* `s`: behind the bracket. */
static const char *read_list(struct entry *e, struct str s, struct arena *a)
{
    for (s = trim(s); s.n > 0 && s.p[0] != ']'; s = trim(s)) {
        struct str value;
        const char *fault = take_value(&s, true, &value);
        if (!fault)
            fault = put(e, value, a);
        if (fault)
            return fault;
        if (s.n == 0 || (s.p[0] != ',' && s.p[0] != ']'))
            break;
        if (s.p[0] == ',')
            s = str_skip(s, 1);
    }
    if (s.n == 0 || s.p[0] != ']')
        return "a list is not closed on its line";
    s = str_skip(s, 1);
    return s.n && s.p[0] != ' ' && s.p[0] != '\t' ? "something stands behind a list" : at_end(s);
}

static const char *read_single(struct entry *e, struct str s, struct arena *a)
{
    struct str value;
    const char *fault = take_value(&s, false, &value);
    if (!fault)
        fault = put(e, value, a);
    return fault ? fault : at_end(s);
}

/* ---- lines */

/* The next line that says something, without its end; lead: blanks before it. */
static bool next_line(struct reader *r, struct str *ret, size_t *ret_lead)
{
    struct str line;
    while (str_next(&r->rest, '\n', &line)) {
        r->line++;
        struct str text = uncommented(line);
        if (text.n == 0 || str_eq(text, STR("---")))
            continue;
        *ret = trim(line);
        *ret_lead = (size_t)(ret->p - line.p);
        return true;
    }
    return false;
}

/* "key:" or "key: …": cuts it off. */
static bool take_key(struct str *line, struct str *ret)
{
    for (size_t i = 0; i < line->n; i++) {
        if (line->p[i] != ':' || (i + 1 < line->n && !strchr(" \t", line->p[i + 1])))
            continue;
        struct str key = trim(str_head(*line, i));
        if (key.n >= 2 && (key.p[0] == '"' || key.p[0] == '\'') && key.p[key.n - 1] == key.p[0])
            key = (struct str){key.p + 1, key.n - 2};
        *ret = key;
        *line = trim(str_skip(*line, i + 1));
        return key.n > 0;
    }
    return false;
}

static bool is_item(struct str line)
{
    return line.n > 0 && line.p[0] == '-' && (line.n == 1 || line.p[1] == ' ' || line.p[1] == '\t');
}

/* The lines of a key that has nothing on its own. */
static void read_item(struct entry *e, struct str line, bool block, struct arena *a)
{
    if (!block || !is_item(line))
        e->fault = "its value goes on in a form that is not read here";
    if (!e->fault)
        e->fault = read_single(e, trim(str_skip(line, 1)), a);
}

static bool belongs(struct str line, size_t lead)
{
    return lead > 0 || is_item(line);
}

/* Reads all of a key; what follows it stays in *r. */
static void read_entry(struct reader *r, struct str line, struct entry *e)
{
    bool block = is_nothing(uncommented(line));
    if (line.n > 0 && line.p[0] == '[')
        e->fault = read_list(e, str_skip(line, 1), r->a);
    else if (!block)
        e->fault = read_single(e, line, r->a);
    for (;;) {
        struct reader ahead = *r;
        struct str next;
        size_t lead;
        if (!next_line(&ahead, &next, &lead) || !belongs(next, lead))
            return;
        *r = ahead;
        read_item(e, next, block, r->a);
    }
}

/* ---- what the keys mean */

static bool read_size(struct str s, int64_t *ret)
{
    static const struct {
        char letter;
        unsigned shift;
    } units[] = {{'k', 10}, {'m', 20}, {'g', 30}};
    unsigned shift = 0;
    uint64_t n;
    for (size_t i = 0; s.n > 0 && i < sizeof units / sizeof *units; i++)
        if (ascii_lower(s.p[s.n - 1]) == units[i].letter)
            shift = units[i].shift;
    if (shift)
        s.n--;
    if (!text_u64(s, (uint64_t)INT64_MAX >> shift, &n))
        return false;
    *ret = (int64_t)(n << shift);
    return true;
}

static const char *take_hosts(struct entry *e, struct mitm_config *c)
{
    if (c->ignore_hosts)
        return "it is stated twice";
    c->ignore_hosts = e->values;
    c->nignore_hosts = e->n;
    return NULL;
}

static const char *take_size(struct entry *e, struct mitm_config *c)
{
    if (e->n == 0)
        return NULL;
    if (c->stream_large_bodies >= 0)
        return "it is stated twice";
    bool good = e->n == 1 && read_size(e->values[0], &c->stream_large_bodies);
    return good ? NULL : "it is no size, such as 1m, 512k or 1000";
}

static bool is_shipped(const struct entry *e)
{
    if (e->fault || e->n == 0)
        return !e->fault;
    for (size_t i = 0; i < sizeof shipped / sizeof *shipped; i++)
        if (str_eq(e->key, str_of(shipped[i].key)))
            return e->n == 1 && str_eq(e->values[0], str_of(shipped[i].value));
    return false;
}

static void take_other(struct entry *e, struct mitm_config *c, struct arena *a)
{
    if (is_shipped(e) || c->nothers == MAX_OTHERS)
        return;
    if (!c->others)
        c->others = arena_get(a, MAX_OTHERS * sizeof *c->others);
    c->others[c->nothers++] = arena_str(a, e->key);
}

static bool take_entry(struct entry *e, struct mitm_config *c, struct arena *a,
                       struct str *ret_error)
{
    bool hosts = str_eq(e->key, STR("ignore_hosts"));
    if (!hosts && !str_eq(e->key, STR("stream_large_bodies"))) {
        take_other(e, c, a);
        return true;
    }
    const char *fault = e->fault;
    if (!fault)
        fault = hosts ? take_hosts(e, c) : take_size(e, c);
    if (fault)
        *ret_error = arena_printf(a, "line %u: %.*s: %s", e->line, STR_ARG(e->key), fault);
    return !fault;
}

static const char *fault_of_text(struct str text)
{
    if (str_chr(text, '\0') >= 0)
        return "it is no text";
    return text_utf8(text) ? NULL : "it is not in UTF-8";
}

bool mitm_config_read(struct str text, struct arena *a, struct mitm_config *ret,
                      struct str *ret_error)
{
    struct mitm_config c = {.stream_large_bodies = -1};
    const char *fault = fault_of_text(text);
    if (fault) {
        *ret_error = arena_str(a, str_of(fault));
        return false;
    }
    if (str_starts(text, STR("\xef\xbb\xbf")))
        text = str_skip(text, 3);
    struct reader r = {.rest = text.n ? text : STR(""), .a = a};
    struct str line;
    size_t lead;
    while (next_line(&r, &line, &lead)) {
        struct entry e = {.line = r.line};
        if (lead > 0 || is_item(line) || !take_key(&line, &e.key)) {
            *ret_error = arena_printf(a, "line %u: there is no key", r.line);
            return false;
        }
        read_entry(&r, line, &e);
        if (!take_entry(&e, &c, a, ret_error))
            return false;
    }
    *ret = c;
    return true;
}
