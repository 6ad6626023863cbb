/* h2side.c — the frame around an HTTP/2 codec: what its peer says and what it says are texts. */
#include "harness/h2side.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- the user */

const struct script plain = {.head = {.status = 200, .length = 2}, .body = "ok"};
const struct script unknown = {.head = {.status = 200, .length = -1}, .body = "hello"};
const struct script empty = {.head = {.status = 200, .length = -1}};
const struct script silent = {.when = NEVER};

static void say(struct tap *t, const struct script *s)
{
    struct http_head head = s->head;
    if (head.status == 101)
        head.protocol = t->head->protocol;
    tap_head(t, &head, s->body == NULL);
    if (s->body)
        tap_data(t, str_of(s->body));
    if (s->body && !s->open)
        tap_end(t, s->trailers);
}

static void on_head(struct tap *t, struct http_head *head, bool end)
{
    const struct script *s = t->context;
    (void)head;
    if (s->interim)
        tap_head(t, s->interim, false);
    if (s->when == AT_HEAD || (s->when == AT_END && end))
        say(t, s);
}

static void on_end(struct tap *t, struct http_head *trailers)
{
    const struct script *s = t->context;
    (void)trailers;
    if (s->when == AT_END && !t->tunnel)
        say(t, s);
}

static void on_fault(struct tap *t, const struct http_fault *fault)
{
    const struct script *s = t->context;
    if (s->when == NEVER || t->said_end)
        return;
    tap_head(t, &(struct http_head){.status = fault->status, .length = -1}, true);
}

const struct tap_user answering = {.head = on_head, .end = on_end, .fault = on_fault};

/* ---- in */

void feed(struct side *x, const char *script)
{
    struct frames f = {0};
    frames_add(&f, script);
    side_feed(x, frames_str(&f), &(struct cuts){0});
    frames_done(&f);
}

void feed_for(struct side *x, const char *script, unsigned id)
{
    char text[512];
    size_t n = 0;
    for (const char *p = script; *p && n < sizeof text - 16; p++) {
        if (*p == '#')
            n += (size_t)snprintf(text + n, sizeof text - n, "%u", id);
        else
            text[n++] = *p;
    }
    text[n] = '\0';
    feed(x, text);
}

void feed_data(struct side *x, uint32_t id, size_t n, bool end)
{
    static const char bytes[16384];
    struct frames f = {0};
    while (n > 0) {
        size_t piece = n < sizeof bytes ? n : sizeof bytes;
        n -= piece;
        frames_raw(&f, FRAME_DATA, end && n == 0, id, bytes, piece);
    }
    side_feed(x, frames_str(&f), &(struct cuts){0});
    frames_done(&f);
}

void begin_server(struct side *x, struct worker *w, const struct http_limits *limits,
                  const struct tap_user *user, const void *context)
{
    side_init(x, w, H2_SERVER, limits, user, (void *)(uintptr_t)context);
    fake_settle(w);
    feed(x, "preface\nsettings\nsettings ack");
}

void begin_client(struct side *x, struct worker *w, const struct http_limits *limits,
                  const struct tap_user *user, const char *settings)
{
    side_init(x, w, H2_CLIENT, limits, user, NULL);
    fake_settle(w);
    feed(x, settings);
    feed(x, "settings ack");
}

/* ---- out */

void read_output(struct side *x, struct trace *to)
{
    bool client = x->kind == H2_CLIENT;
    const char *ours = client ? CLIENT_SETTINGS : SERVER_SETTINGS;
    struct trace all;
    trace_init(&all);
    bool whole = frames_read(fake_written(x->c), client, false, &all);
    if (!whole || strncmp(trace_text(&all), ours, strlen(ours)) != 0) {
        fprintf(stderr, "no frames, or not after our SETTINGS:\n%s", trace_text(&all));
        abort();
    }
    trace_add(to, str_of(trace_text(&all) + strlen(ours)));
    trace_done(&all);
}

void check_text(const char *name, const char *got, const char *expected)
{
    if (strcmp(got, expected) == 0)
        return;
    fprintf(stderr, "in %s:\n--- got\n%s--- expected\n%s", name, got, expected);
    abort();
}

void check_events(struct side *x, const char *expected)
{
    for (unsigned i = 0; i < SIDE_STREAMS && i < x->n; i++)
        if (!x->taps[i].over && !x->taps[i].cancelled)
            tap_flush(&x->taps[i]);
    check_text("events", trace_text(&x->trace), expected);
}

void check_output(struct side *x, const char *expected)
{
    struct trace t;
    trace_init(&t);
    read_output(x, &t);
    check_text("output", trace_text(&t), expected);
    trace_done(&t);
}
