/* trace.c — events as text, and the laws of a stream.  The text is the expectation of most codec
 * tests: two ways of cutting the same bytes must write the same lines. */
#include "harness/trace.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>

#include "net/worker.h"

enum { SHOWN_BYTES = 120 };

/* ---- text */

void trace_init(struct trace *t)
{
    *t = (struct trace){.p = mem_new(256), .room = 256};
}

void trace_done(struct trace *t)
{
    mem_free(t->p);
    *t = (struct trace){0};
}

const char *trace_text(const struct trace *t)
{
    return t->p;
}

void trace_clear(struct trace *t)
{
    t->n = 0;
    t->p[0] = '\0';
}

static void add(struct trace *t, const char *p, size_t n)
{
    if (t->n + n + 1 > t->room) {
        t->room = 2 * (t->n + n + 1);
        t->p = mem_renew(t->p, t->room);
    }
    if (n > 0)
        memcpy(t->p + t->n, p, n);
    t->n += n;
    t->p[t->n] = '\0';
}

static void add_text(struct trace *t, const char *text)
{
    add(t, text, strlen(text));
}

static void add_format(struct trace *t, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static void add_format(struct trace *t, const char *format, ...)
{
    char text[256];
    va_list args;
    va_start(args, format);
    int n = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    assert(n >= 0 && (size_t)n < sizeof text);
    add(t, text, (size_t)n);
}

void trace_add(struct trace *t, struct str bytes)
{
    add(t, bytes.p, bytes.n);
}

void trace_line(struct trace *t, const char *format, ...)
{
    char text[1024];
    va_list args;
    if (t->quiet)
        return;
    va_start(args, format);
    int n = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    assert(n >= 0 && (size_t)n < sizeof text);
    add(t, text, (size_t)n);
    add(t, "\n", 1);
}

/* Bytes that would break a line are escaped; long texts are shown by length and hash. */
static void add_bytes(struct trace *t, struct str s)
{
    if (s.n > SHOWN_BYTES) {
        uint64_t hash = 14695981039346656037u;
        for (size_t i = 0; i < s.n; i++)
            hash = (hash ^ (unsigned char)s.p[i]) * 1099511628211u;
        add_format(t, "<%zu bytes %016llx>", s.n, (unsigned long long)hash);
        return;
    }
    for (size_t i = 0; i < s.n; i++) {
        unsigned char c = (unsigned char)s.p[i];
        if (c == '\r')
            add_text(t, "\\r");
        else if (c == '\n')
            add_text(t, "\\n");
        else if (c < 32 || c > 126 || c == '\\')
            add_format(t, "\\x%02x", c);
        else
            add(t, s.p + i, 1);
    }
}

static void add_fields(struct trace *t, const struct http_head *head)
{
    for (unsigned i = 0; i < head->nfields; i++) {
        add_text(t, i == 0 ? " {" : "; ");
        add_bytes(t, head->fields[i].name);
        add_text(t, ": ");
        add_bytes(t, head->fields[i].value);
    }
    if (head->nfields > 0)
        add_text(t, "}");
}

void trace_head(struct trace *t, const char *prefix, const struct http_head *head, bool end)
{
    if (t->quiet)
        return;
    add_text(t, prefix);
    if (head->status > 0) {
        add_format(t, "%d", head->status);
    } else {
        add_bytes(t, head->method);
        add_text(t, " ");
        add_bytes(t, head->path);
        add_text(t, head->authority.p ? " host=" : " no host");
        add_bytes(t, head->authority);
    }
    if (head->length >= 0)
        add_format(t, " length=%lld", (long long)head->length);
    if (head->protocol.n > 0) {
        add_text(t, " protocol=");
        add_bytes(t, head->protocol);
    }
    if (head->te_trailers)
        add_text(t, " te");
    if (head->expect_continue)
        add_text(t, " expect");
    add_fields(t, head);
    add_text(t, end ? " end\n" : "\n");
}

/* ---- the laws */

void tap_flush(struct tap *t)
{
    if (t->data_n > 0 && !t->trace->quiet) {
        add_text(t->trace, t->prefix);
        add_text(t->trace, "data ");
        add_bytes(t->trace, (struct str){t->data, t->data_n});
        add_text(t->trace, "\n");
    }
    t->data_n = 0;
}

/* The door of every event. */
static struct tap *enter(void *user)
{
    struct tap *t = user;
    assert(!t->in_op);
    assert(!t->over && !t->cancelled);
    return t;
}

static void keep(struct tap *t, const void *p, size_t n)
{
    if (t->data_n + n > t->data_room) {
        t->data_room = 2 * (t->data_n + n);
        t->data = mem_renew(t->data, t->data_room);
    }
    memcpy(t->data + t->data_n, p, n);
    t->data_n += n;
}

static void on_head(void *user, struct http_head *head, bool end)
{
    struct tap *t = enter(user);
    assert(!t->got_final && !t->got_end && !t->got_fault && t->received == 0);
    assert(t->server == (head->status == 0));
    assert(t->server || t->s->spoke);
    assert(head->status == 0 || (head->status >= 100 && head->status <= 999));
    t->tunnel = head->status == 101 || (!t->server && head->protocol.n > 0);
    t->said_end = t->said_end && !t->tunnel; /* there both directions are open again */
    t->got_final = head->status == 0 || head->status >= 200 || t->tunnel;
    assert(!end || t->got_final);
    t->got_end = end;
    t->head = head;
    tap_flush(t);
    trace_head(t->trace, t->prefix, head, end);
    if (t->user->head)
        t->user->head(t, head, end);
}

static void on_data(void *user, struct buf *b)
{
    struct tap *t = enter(user);
    size_t n = b->len, at = t->data_n;
    assert(n > 0 && t->got_final && !t->got_end && !t->got_fault);
    unsigned slices = 0;
    for (const struct slice *s = b->head; s; s = s->next, slices++)
        keep(t, s->p, s->n);
    if (slices > t->slices)
        t->slices = slices;
    assert(t->data_n - at == n);
    buf_clear(b);
    t->received += n;
    assert(t->received - t->credited <= t->window);
    if (t->user->data)
        t->user->data(t, (struct str){t->data + at, n});
    if (!t->hold && !t->over && !t->cancelled)
        tap_credit(t, n);
    if (t->trace->quiet)
        t->data_n = 0;
}

static void on_end(void *user, struct http_head *trailers)
{
    struct tap *t = enter(user);
    assert(t->got_final && !t->got_end && !t->got_fault);
    assert(!trailers || trailers->nfields > 0);
    t->got_end = true;
    tap_flush(t);
    if (!t->trace->quiet) {
        add_text(t->trace, t->prefix);
        add_text(t->trace, "end");
        if (trailers)
            add_fields(t->trace, trailers);
        add_text(t->trace, "\n");
    }
    if (t->user->end)
        t->user->end(t, trailers);
}

static void on_sent(void *user, size_t n)
{
    struct tap *t = enter(user);
    t->sent += n;
    assert(n > 0 && t->sent <= t->given);
    if (t->user->sent)
        t->user->sent(t, n);
}

static void on_fault(void *user, const struct http_fault *fault)
{
    struct tap *t = enter(user);
    assert(t->server && !t->got_end && !t->got_fault);
    assert(fault->status == 400 || fault->status == 431 || fault->status == 501 ||
           fault->status == 503 || fault->status == 505);
    assert(fault->text && fault->text[0]);
    t->got_fault = true;
    tap_flush(t);
    trace_line(t->trace, "%sfault %d %s", t->prefix, fault->status, fault->text);
    if (t->user->fault)
        t->user->fault(t, fault);
}

static void free_arena(void *p)
{
    arena_done(p);
    mem_free(p);
}

static void bury_arena(struct tap *t)
{
    worker_bury(t->w, free_arena, t->mem);
    t->mem = NULL;
    t->head = NULL;
}

static void on_closed(void *user, enum why why)
{
    struct tap *t = enter(user);
    assert((unsigned)why < WHYS);
    t->over = true;
    t->spoke = t->s->spoke;
    /* a good end: everything that was said has left, or was not wanted any more */
    bool early = !t->server && t->got_end;
    assert(why != WHY_OK || early || !t->said_end || t->sent == t->given);
    tap_flush(t);
    trace_line(t->trace, "%sclosed %s", t->prefix, why_text(why));
    bury_arena(t);
    if (t->user->closed)
        t->user->closed(t, why);
}

static const struct http_events events = {on_head, on_data, on_end, on_sent, on_fault, on_closed};
static const struct tap_user nobody = {0};

void tap_init(struct tap *t, struct trace *trace, struct worker *w, struct http_stream *s,
              size_t window, const struct tap_user *user, void *context)
{
    *t = (struct tap){.trace = trace,
                      .w = w,
                      .s = s,
                      .window = window,
                      .user = user ? user : &nobody,
                      .context = context};
    t->prefix = "";
    t->mem = mem_new(sizeof *t->mem);
    arena_init(t->mem, NULL, 0);
    s->ev = &events;
    s->user = t;
    s->mem = t->mem;
}

void tap_done(struct tap *t)
{
    if (t->mem)
        free_arena(t->mem);
    mem_free(t->data);
    *t = (struct tap){0};
}

/* ---- operations */

static bool dead(const struct tap *t)
{
    return t->over || t->cancelled;
}

struct http_head *tap_copy_head(struct arena *a, const struct http_head *head)
{
    struct http_head *copy = head_copy(head, 0, a);
    copy->method = arena_str(a, head->method);
    copy->path = arena_str(a, head->path);
    if (head->authority.p)
        copy->authority = arena_str(a, head->authority);
    copy->protocol = arena_str(a, head->protocol);
    for (unsigned i = 0; i < head->nfields; i++) {
        copy->fields[i].name = arena_str(a, head->fields[i].name);
        copy->fields[i].value = arena_str(a, head->fields[i].value);
    }
    return copy;
}

void tap_head(struct tap *t, const struct http_head *head, bool end)
{
    if (dead(t))
        return;
    bool was = t->in_op;
    struct http_head *copy = tap_copy_head(t->mem, head);
    t->in_op = true;
    t->said_end = t->said_end || end;
    if (t->server &&
        head->protocol.n > 0) { /* from here on there is another end, in both directions */
        t->tunnel = true;
        t->got_end = false;
    }
    t->s->ops->head(t->s, copy, end);
    t->in_op = was;
}

void tap_data(struct tap *t, struct str bytes)
{
    struct buf b;
    if (dead(t) || bytes.n == 0)
        return;
    buf_init(&b, worker_pool(t->w));
    buf_str(&b, bytes);
    bool was = t->in_op;
    t->in_op = true;
    t->given += bytes.n;
    t->s->ops->data(t->s, &b);
    t->in_op = was;
    assert(b.len == 0);
}

void tap_end(struct tap *t, const struct http_head *trailers)
{
    if (dead(t))
        return;
    bool was = t->in_op;
    t->in_op = true;
    t->said_end = true;
    t->s->ops->end(t->s, trailers ? tap_copy_head(t->mem, trailers) : NULL);
    t->in_op = was;
}

void tap_credit(struct tap *t, size_t n)
{
    if (dead(t) || n == 0)
        return;
    bool was = t->in_op;
    assert(t->credited + n <= t->received);
    t->in_op = true;
    t->credited += n;
    t->s->ops->credit(t->s, n);
    t->in_op = was;
}

void tap_credit_all(struct tap *t)
{
    tap_credit(t, tap_owed(t));
}

void tap_cancel(struct tap *t, enum why why)
{
    if (dead(t))
        return;
    tap_flush(t);
    trace_line(t->trace, "%scancel %s", t->prefix, why_text(why));
    bool was = t->in_op;
    t->in_op = true;
    t->cancelled = true;
    t->s->ops->cancel(t->s, why);
    t->in_op = was;
    bury_arena(t);
}

size_t tap_owed(const struct tap *t)
{
    return (size_t)(t->received - t->credited);
}
