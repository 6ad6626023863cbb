/* h2frames.c — frames from lines and lines from frames.  Fields go out as plain literals, so that a
 * test says every byte; they are read with nghttp2's decoder, since what our codec writes is
 * compressed. */
#include "harness/h2frames.h"

#include <assert.h>
#include <nghttp2/nghttp2.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/text.h"

enum { HEAD = 9, MAX_STREAMS_READ = 4096 };
static const char magic[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/* ---- writing */

void frames_done(struct frames *f)
{
    mem_free(f->p);
    *f = (struct frames){0};
}

struct str frames_str(const struct frames *f)
{
    return (struct str){f->p ? f->p : "", f->n};
}

static void put(struct frames *f, const void *p, size_t n)
{
    if (f->n + n > f->room) {
        f->room = 2 * (f->n + n);
        f->p = mem_renew(f->p, f->room);
    }
    if (n > 0)
        memcpy(f->p + f->n, p, n);
    f->n += n;
}

static void put_u32(uint8_t *to, uint32_t v)
{
    to[0] = (uint8_t)(v >> 24);
    to[1] = (uint8_t)(v >> 16);
    to[2] = (uint8_t)(v >> 8);
    to[3] = (uint8_t)v;
}

void frames_raw(struct frames *f, unsigned type, unsigned flags, uint32_t id, const void *p,
                size_t n)
{
    uint8_t head[HEAD] = {(uint8_t)(n >> 16), (uint8_t)(n >> 8), (uint8_t)n, (uint8_t)type,
                          (uint8_t)flags};
    put_u32(head + 5, id);
    put(f, head, sizeof head);
    put(f, p, n);
}

/* An integer with a prefix of seven bits, whose first bit is 0. */
static size_t put_length(char *to, size_t v)
{
    size_t n = 0;
    if (v < 127) {
        to[0] = (char)v;
        return 1;
    }
    to[n++] = 127;
    for (v -= 127; v >= 128; v >>= 7)
        to[n++] = (char)(v | 128);
    to[n++] = (char)v;
    return n;
}

size_t frames_field(char *to, struct str name, struct str value)
{
    size_t n = 0;
    to[n++] = 0;
    n += put_length(to + n, name.n);
    if (name.n > 0)
        memcpy(to + n, name.p, name.n);
    n += name.n;
    n += put_length(to + n, value.n);
    if (value.n > 0)
        memcpy(to + n, value.p, value.n);
    return n + value.n;
}

static uint32_t number(struct str s)
{
    uint64_t v = 0;
    if (!text_u64(s, UINT32_MAX, &v)) {
        fprintf(stderr, "no number: %.*s\n", STR_ARG(s));
        abort();
    }
    return (uint32_t)v;
}

/* "name: value"; the colon of a pseudo-header field is not the one.  ": value": an empty name. */
static size_t put_line(char *to, struct str line)
{
    if (str_starts(line, STR(": ")))
        return frames_field(to, STR(""), str_skip(line, 2));
    ptrdiff_t at = str_chr(line.n > 0 ? str_skip(line, 1) : line, ':');
    assert(at >= 0);
    struct str name = str_head(line, (size_t)at + 1);
    struct str value = str_skip(line, (size_t)at + 2);
    if (value.n > 0 && value.p[0] == ' ')
        value = str_skip(value, 1);
    return frames_field(to, name, value);
}

static void put_block(struct frames *f, unsigned type, unsigned flags, uint32_t id, struct str rest)
{
    char *block = mem_new(rest.n + 12 * 64);
    size_t n = 0;
    for (struct str line; rest.p && str_next(&rest, '|', &line);)
        if (line.n > 0)
            n += put_line(block + n, line);
    frames_raw(f, type, flags, id, block, n);
    mem_free(block);
}

struct words {
    struct str word[8];
    size_t n;
    struct str rest; /* behind the first '|' */
};

static struct words cut(struct str line)
{
    struct words w = {.n = 0};
    ptrdiff_t bar = str_chr(line, '|');
    if (bar >= 0) {
        w.rest = str_skip(line, (size_t)bar + 1);
        line = str_head(line, (size_t)bar);
    }
    for (struct str word; w.n < 8 && str_next(&line, ' ', &word);)
        if (word.n > 0)
            w.word[w.n++] = word;
    return w;
}

static bool has(const struct words *w, const char *word)
{
    for (size_t i = 1; i < w->n; i++)
        if (str_eq(w->word[i], str_of(word)))
            return true;
    return false;
}

static void put_settings(struct frames *f, const struct words *w)
{
    uint8_t payload[8 * 6];
    size_t n = 0;
    for (size_t i = 1; i < w->n; i++) {
        ptrdiff_t at = str_chr(w->word[i], '=');
        if (at < 0)
            continue;
        uint32_t id = number(str_head(w->word[i], (size_t)at));
        payload[n++] = (uint8_t)(id >> 8);
        payload[n++] = (uint8_t)id;
        put_u32(payload + n, number(str_skip(w->word[i], (size_t)at + 1)));
        n += 4;
    }
    frames_raw(f, FRAME_SETTINGS, has(w, "ack") ? 1 : 0, 0, payload, n);
}

static void put_u32_frame(struct frames *f, unsigned type, uint32_t id, uint32_t v)
{
    uint8_t payload[4];
    put_u32(payload, v);
    frames_raw(f, type, 0, id, payload, sizeof payload);
}

static void put_request(struct frames *f, const struct words *w, const char *method, unsigned flags)
{
    char text[1024];
    snprintf(text, sizeof text, ":method: %s|:scheme: http|:authority: a|:path: %.*s%s%.*s", method,
             STR_ARG(w->word[2]), w->rest.p ? "|" : "", STR_ARG(w->rest));
    put_block(f, FRAME_HEADERS, flags, number(w->word[1]), str_of(text));
}

static void put_goaway(struct frames *f, uint32_t last, uint32_t code)
{
    uint8_t payload[8];
    put_u32(payload, last);
    put_u32(payload + 4, code);
    frames_raw(f, FRAME_GOAWAY, 0, 0, payload, sizeof payload);
}

static void put_frame(struct frames *f, struct str line)
{
    struct words w = cut(line);
    struct str verb = w.word[0];
    unsigned flags = (has(&w, "end") ? 1 : 0) | (has(&w, "part") ? 0 : 4);
    if (str_eq(verb, STR("preface")))
        put(f, magic, sizeof magic - 1);
    else if (str_eq(verb, STR("settings")))
        put_settings(f, &w);
    else if (str_eq(verb, STR("get")))
        put_request(f, &w, "GET", 5);
    else if (str_eq(verb, STR("post")))
        put_request(f, &w, "POST", 4);
    else if (str_eq(verb, STR("headers")))
        put_block(f, FRAME_HEADERS, flags, number(w.word[1]), w.rest);
    else if (str_eq(verb, STR("continuation")))
        put_block(f, FRAME_CONTINUATION, flags & 4, number(w.word[1]), w.rest);
    else if (str_eq(verb, STR("data")))
        frames_raw(f, FRAME_DATA, flags & 1, number(w.word[1]), w.rest.p, w.rest.n);
    else if (str_eq(verb, STR("rst")))
        put_u32_frame(f, FRAME_RST_STREAM, number(w.word[1]), number(w.word[2]));
    else if (str_eq(verb, STR("window")))
        put_u32_frame(f, FRAME_WINDOW_UPDATE, number(w.word[1]), number(w.word[2]));
    else if (str_eq(verb, STR("ping")))
        frames_raw(f, FRAME_PING, has(&w, "ack"), 0, w.word[w.n - 1].p, 8);
    else if (str_eq(verb, STR("goaway")))
        put_goaway(f, number(w.word[1]), number(w.word[2]));
    else if (str_eq(verb, STR("priority")))
        frames_raw(f, FRAME_PRIORITY, 0, number(w.word[1]), "\0\0\0\0\17", 5);
    else if (str_eq(verb, STR("frame")))
        frames_raw(f, number(w.word[1]), number(w.word[2]), number(w.word[3]), w.rest.p, w.rest.n);
    else
        assert(!"a verb we know");
}

void frames_add(struct frames *f, const char *script)
{
    struct str rest = str_of(script);
    for (struct str line; str_next(&rest, '\n', &line);)
        if (line.n > 0)
            put_frame(f, line);
}

/* ---- reading */

struct frame {
    unsigned type, flags;
    uint32_t id;
    const uint8_t *p;
    size_t n;
};

static uint32_t get_u32(const uint8_t *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static bool skip_magic(struct str *rest)
{
    if (!str_starts(*rest, str_of(magic)))
        return false;
    *rest = str_skip(*rest, sizeof magic - 1);
    return true;
}

/* The next whole frame of *rest. */
static bool next_frame(struct str *rest, struct frame *ret)
{
    const uint8_t *p = (const uint8_t *)rest->p;
    if (rest->n < HEAD)
        return false;
    size_t n = (size_t)p[0] << 16 | (size_t)p[1] << 8 | p[2];
    if (rest->n < HEAD + n)
        return false;
    *ret = (struct frame){p[3], p[4], get_u32(p + 5) & 0x7fffffff, p + HEAD, n};
    *rest = str_skip(*rest, HEAD + n);
    return true;
}

struct lines {
    uint32_t id;
    struct trace text;
    bool data; /* the last line is one of data, and not at its end */
};

struct reader {
    nghttp2_hd_inflater *inflater;
    struct lines *lines;
    size_t n;
    bool windows;
};

static struct lines *lines_of(struct reader *r, uint32_t id)
{
    for (size_t i = 0; i < r->n; i++)
        if (r->lines[i].id == id)
            return &r->lines[i];
    assert(r->n < MAX_STREAMS_READ);
    r->lines = mem_renew(r->lines, (r->n + 1) * sizeof *r->lines);
    r->lines[r->n] = (struct lines){.id = id};
    trace_init(&r->lines[r->n].text);
    return &r->lines[r->n++];
}

static void line(struct lines *l, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void line(struct lines *l, const char *format, ...)
{
    char text[4096];
    int at = l->id ? snprintf(text, sizeof text, "%u ", l->id) : 0;
    va_list args;
    va_start(args, format);
    vsnprintf(text + at, sizeof text - (size_t)at, format, args);
    va_end(args);
    if (l->data)
        trace_add(&l->text, STR("\n"));
    l->data = false;
    trace_add(&l->text, str_of(text));
    trace_add(&l->text, STR("\n"));
}

/* Fields as "{a: b; c: d}"; false: they cannot be decoded. */
static bool read_block(struct reader *r, struct lines *l, const uint8_t *p, size_t n)
{
    char text[3072] = "";
    size_t at = 0;
    for (;;) {
        nghttp2_nv nv;
        int flags = 0;
        ssize_t used = nghttp2_hd_inflate_hd2(r->inflater, &nv, &flags, p, n, 1);
        if (used < 0)
            return false;
        p += used;
        n -= (size_t)used;
        if ((flags & NGHTTP2_HD_INFLATE_EMIT) && at < sizeof text - 1)
            at += (size_t)snprintf(text + at, sizeof text - at, "%s%.*s: %.*s", at ? "; " : "",
                                   (int)nv.namelen, (const char *)nv.name, (int)nv.valuelen,
                                   (const char *)nv.value);
        if (at > sizeof text - 1)
            at = sizeof text - 1;
        if (flags & NGHTTP2_HD_INFLATE_FINAL)
            break;
    }
    nghttp2_hd_inflate_end_headers(r->inflater);
    line(l, "headers {%s}", text);
    return true;
}

/* A block and its continuations, joined. */
static bool read_headers(struct reader *r, struct lines *l, struct frame f, struct str *rest)
{
    bool end = f.flags & 1, ok;
    struct frames block = {0};
    if (f.flags & (8 | 32))
        return false; /* we neither pad nor prioritize */
    put(&block, f.p, f.n);
    while (!(f.flags & 4)) {
        if (!next_frame(rest, &f) || f.type != FRAME_CONTINUATION || f.id != l->id) {
            frames_done(&block);
            return false;
        }
        put(&block, f.p, f.n);
    }
    ok = read_block(r, l, (const uint8_t *)block.p, block.n);
    frames_done(&block);
    if (ok && end)
        line(l, "end");
    return ok;
}

static void read_data(struct lines *l, const struct frame *f)
{
    if (f->n > 0 && !l->data) {
        char text[32];
        snprintf(text, sizeof text, "%u data ", l->id);
        trace_add(&l->text, str_of(text));
        l->data = true;
    }
    trace_add(&l->text, (struct str){(const char *)f->p, f->n});
    if (f->flags & 1)
        line(l, "end");
}

static void read_settings(struct lines *l, const struct frame *f)
{
    char text[256] = "";
    size_t at = 0;
    for (size_t i = 0; i + 6 <= f->n; i += 6)
        at += (size_t)snprintf(text + at, sizeof text - at, " %u=%u", f->p[i] << 8 | f->p[i + 1],
                               get_u32(f->p + i + 2));
    line(l, "settings%s%s", f->flags & 1 ? " ack" : "", text);
}

static bool read_frame(struct reader *r, const struct frame *f, struct str *rest)
{
    struct lines *l = lines_of(r, f->id);
    switch (f->type) {
    case FRAME_DATA:
        if (f->id == 0 || (f->flags & 8))
            return false;
        read_data(l, f);
        return true;
    case FRAME_HEADERS:
        return f->id > 0 && read_headers(r, l, *f, rest);
    case FRAME_RST_STREAM:
        if (f->id == 0 || f->n != 4)
            return false;
        line(l, "rst %u", get_u32(f->p));
        return true;
    case FRAME_SETTINGS:
        read_settings(l, f);
        return f->id == 0 && f->n % 6 == 0;
    case FRAME_PING:
        line(l, "ping%s %.8s", f->flags & 1 ? " ack" : "", (const char *)f->p);
        return f->id == 0 && f->n == 8;
    case FRAME_GOAWAY:
        if (f->id != 0 || f->n < 8)
            return false;
        line(l, "goaway %u %u", get_u32(f->p), get_u32(f->p + 4));
        return true;
    case FRAME_WINDOW_UPDATE:
        if (f->n != 4)
            return false;
        if (r->windows)
            line(l, "window %u", get_u32(f->p));
        return true;
    default:
        return false; /* nothing we write */
    }
}

static int by_id(const void *a, const void *b)
{
    const struct lines *x = a, *y = b;
    return x->id < y->id ? -1 : x->id > y->id;
}

bool frames_read(struct str written, bool preface, bool windows, struct trace *ret)
{
    struct reader r = {.windows = windows};
    struct frame f;
    bool ok = nghttp2_hd_inflate_new(&r.inflater) == 0 && (!preface || skip_magic(&written));
    while (ok && next_frame(&written, &f))
        ok = read_frame(&r, &f, &written);
    if (r.n > 0)
        qsort(r.lines, r.n, sizeof *r.lines, by_id);
    for (size_t i = 0; i < r.n; i++) {
        trace_add(ret, (struct str){r.lines[i].text.p, r.lines[i].text.n});
        if (r.lines[i].data)
            trace_add(ret, STR("\n"));
        trace_done(&r.lines[i].text);
    }
    mem_free(r.lines);
    nghttp2_hd_inflate_del(r.inflater);
    return ok && written.n == 0;
}

void lines_by_stream(struct trace *t)
{
    struct reader r = {.n = 0};
    struct str rest = {t->p, t->n}, l;
    while (str_next(&rest, '\n', &l)) {
        if (l.n == 0)
            continue;
        uint64_t id = 0;
        ptrdiff_t blank = str_chr(l, ' ');
        text_u64(str_head(l, blank > 0 ? (size_t)blank : 0), UINT32_MAX, &id);
        struct trace *text = &lines_of(&r, (uint32_t)id)->text;
        trace_add(text, l);
        trace_add(text, STR("\n"));
    }
    trace_clear(t);
    if (r.n > 0)
        qsort(r.lines, r.n, sizeof *r.lines, by_id);
    for (size_t i = 0; i < r.n; i++) {
        trace_add(t, str_of(trace_text(&r.lines[i].text)));
        trace_done(&r.lines[i].text);
    }
    mem_free(r.lines);
}

uint64_t frames_credit(struct str written, bool preface, uint32_t id)
{
    uint64_t sum = 0;
    struct frame f;
    if (preface)
        skip_magic(&written);
    while (next_frame(&written, &f))
        if (f.type == FRAME_WINDOW_UPDATE && f.id == id)
            sum += get_u32(f.p);
    return sum;
}

unsigned frames_count(struct str written, bool preface, unsigned type)
{
    unsigned n = 0;
    struct frame f;
    if (preface)
        skip_magic(&written);
    while (next_frame(&written, &f))
        n += f.type == type;
    return n;
}
