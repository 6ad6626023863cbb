/* h2_client_fuzz.c — the HTTP/2 client codec over a fake connection, in two ways, chosen by the
 * first byte: the same answers whole and cut must be told the same; and whatever the user, the
 * origin and the kernel do in whatever order, the laws of stream.h hold (tap), open() works when
 * idle() says so, and nothing is left behind. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

#include "harness/h2play.h"
#include "harness/side.h"

static struct worker *worker(void)
{
    static struct worker *w; /* made once: a loop is dear */
    if (!w)
        w = worker_new(0);
    return w;
}

/* Small, so that an input can reach them. */
static const struct http_limits narrow = {.max_head_bytes = 1200,
                                          .window = 65536,
                                          .window_max = 131072,
                                          .max_streams = 12,
                                          .max_resets = 10,
                                          .max_control = 30,
                                          .keep_alive_ms = 6000,
                                          .linger_ms = 5000,
                                          .drain_idle_ms = 2000};
static const struct tap_user silent = {0};

static const struct http_head requests[] = {
    {.method = {"GET", 3},
     .scheme = {"http", 4},
     .authority = {"a", 1},
     .path = {"/", 1},
     .length = -1},
    {.method = {"POST", 4},
     .scheme = {"http", 4},
     .authority = {"a", 1},
     .path = {"/", 1},
     .length = -1},
    {.method = {"HEAD", 4},
     .scheme = {"http", 4},
     .authority = {"a", 1},
     .path = {"/", 1},
     .length = -1},
    {.method = {"GET", 3},
     .scheme = {"http", 4},
     .authority = {"a", 1},
     .path = {"/ws", 3},
     .length = -1,
     .protocol = {"websocket", 9}},
};

static struct tap *ask(struct side *x, unsigned which)
{
    struct tap *t = side_open(x);
    if (t)
        tap_head(t, &requests[which & 3], which != 1);
    return t;
}

/* ---- the same however it is cut: no turn of the loop between the pieces, since what has been
 * written by then decides what a later frame means */

/* Of a body that is longer than was said, what is told before that is known depends on the cuts. */
static void forget_data(struct side *x, unsigned stream)
{
    struct trace kept;
    char prefix[32];
    struct str rest = {x->trace.p, x->trace.n};
    snprintf(prefix, sizeof prefix, "%u data ", stream);
    trace_init(&kept);
    for (struct str line; str_next(&rest, '\n', &line);)
        if (line.n > 0 && !str_starts(line, str_of(prefix)) && !str_eq(line, STR("idle")))
            trace_line(&kept, "%.*s", STR_ARG(line));
    trace_done(&x->trace);
    x->trace = kept;
}

/* "open() works again" is told of the state between two pieces: settings that come and go in one
 * piece are not seen. */
static void forget_idles(struct trace *t)
{
    static const char idle[] = "idle\n";
    size_t n = sizeof idle - 1, to = 0;
    for (size_t at = 0; at < t->n;) {
        const char *eol = memchr(t->p + at, '\n', t->n - at);
        size_t line = eol ? (size_t)(eol - (t->p + at)) + 1 : t->n - at;
        if (line != n || memcmp(t->p + at, idle, n) != 0) {
            memmove(t->p + to, t->p + at, line);
            to += line;
        }
        at += line;
    }
    t->n = to;
    if (t->p)
        t->p[to] = 0;
}

static void run(struct side *x, struct str input, const struct cuts *cuts)
{
    struct http_limits limits = narrow;
    struct frames f = {0};
    limits.max_resets = limits.max_control = 0;
    limits.window = 1 << 22; /* nobody gets to its end */
    side_init(x, worker(), H2_CLIENT, &limits, &silent, NULL);
    frames_add(&f, "settings 8=1\nsettings ack");
    side_feed(x, frames_str(&f), &(struct cuts){0});
    for (unsigned i = 0; i < 8; i++)
        ask(x, i);
    fake_settle(worker());
    side_feed(x, input, cuts);
    for (unsigned i = 0; i < x->n; i++)
        if (!x->taps[i].over)
            tap_flush(&x->taps[i]);
    for (unsigned i = 0; i < x->n; i++)
        if (x->taps[i].over)
            forget_data(x, i + 1);
    lines_by_stream(&x->trace);
    forget_idles(&x->trace);
    frames_done(&f);
}

static void same_however_cut_once(struct tape *t)
{
    struct h2play play = {.stays = true, .next_id = 17};
    struct frames f = {0};
    unsigned every = 1 + tape_next(t) % 40;
    for (unsigned n = 0; t->n > 0 && n < 48; n++)
        h2play_frame(&play, t, &f);
    struct side whole, cut;
    run(&whole, frames_str(&f), &(struct cuts){.together = true});
    run(&cut, frames_str(&f), &(struct cuts){.every = every, .together = true});
    if (strcmp(trace_text(&whole.trace), trace_text(&cut.trace)) != 0) {
        fprintf(stderr, "whole:\n%s\ncut:\n%s\n", trace_text(&whole.trace), trace_text(&cut.trace));
        abort();
    }
    side_done(&whole);
    side_done(&cut);
    frames_done(&f);
}

/* ---- anything in any order */

struct player {
    struct side x;
    struct h2play play;
    bool roomy;
    bool eof; /* or reset: nothing comes any more */
    unsigned asks;
};

static unsigned alive(const struct player *p)
{
    unsigned n = 0;
    for (unsigned i = 0; i < SIDE_STREAMS && i < p->x.n; i++)
        n += !p->x.taps[i].over && !p->x.taps[i].cancelled;
    return n;
}

static void play_tap(struct player *p, unsigned op, unsigned arg, unsigned which)
{
    static char bytes[65536];
    static struct field fields[] = {{{"X-T", 3}, {"1", 1}}};
    static const struct http_head trailers = {.length = -1, .fields = fields, .nfields = 1};
    if (!p->x.s)
        return;
    if (op == 0 || p->x.n == 0) {
        struct tap *t = side_open(&p->x);
        if (t)
            p->play.next_id = 2 * p->x.n + 1;
        if (t && arg < 240)
            tap_head(t, &requests[arg & 3], (arg & 3) != 1);
        return;
    }
    unsigned back = which % 12;
    struct tap *t = side_stream(&p->x, p->x.n > back ? p->x.n - back : 1);
    if (t->over || t->cancelled)
        return;
    switch (op) {
    case 1:
    case 2:
        if (!t->said_end)
            tap_data(t, (struct str){bytes, op == 1 ? arg : arg * 256});
        break;
    case 3:
        if (!t->said_end)
            tap_end(t, arg & 1 ? &trailers : NULL);
        break;
    case 4:
        tap_credit(t, tap_owed(t) * arg / 255);
        break;
    case 5:
        t->hold = arg & 1;
        break;
    default:
        if (arg >= 224)
            tap_cancel(t, WHY_CLIENT_GONE);
        break;
    }
}

static void play_frames(struct player *p, unsigned n, struct tape *t)
{
    struct frames f = {0};
    for (n = n % 6 + 1; n > 0; n--)
        h2play_frame(&p->play, t, &f);
    if (!p->eof)
        fake_feed(p->x.c, f.p ? f.p : "", f.n);
    frames_done(&f);
}

static void play_wire(struct player *p, unsigned op, unsigned arg, struct tape *t)
{
    switch (op) {
    case 0:
    case 1:
    case 2:
        play_frames(p, arg, t);
        break;
    case 3:
        fake_settle(worker());
        break;
    case 4:
        p->roomy = arg > 128;
        fake_room(p->x.c, p->roomy ? SIZE_MAX : arg * 64);
        break;
    case 5:
        fake_time(worker(), arg * 16);
        break;
    case 6:
        if (arg >= 248 && !p->eof)
            arg & 1 ? fake_feed_eof(p->x.c) : fake_feed_error(p->x.c);
        p->eof |= arg >= 248;
        break;
    default:
        if (p->x.s && arg >= 252)
            p->x.s->ops->close(p->x.s, WHY_DRAIN);
        else if (p->x.s && arg >= 244)
            p->x.s->ops->drain(p->x.s);
        break;
    }
}

/* idle() is no empty promise. */
static void on_idle(struct side *x)
{
    struct player *p = x->context;
    if (p->asks == 0)
        return;
    p->asks--;
    struct tap *t = side_open(x);
    assert(t);
    p->play.next_id = 2 * x->n + 1;
    tap_head(t, &requests[p->asks & 3], (p->asks & 3) != 1);
}

static void check_still(struct player *p)
{
    fake_settle(worker());
    if (!p->x.s)
        return;
    assert(p->x.s->running == alive(p));
    if (p->roomy)
        assert(p->eof || fake_unread(p->x.c) == 0); /* it reads on whatever its users do */
}

static void anything_in_any_order(struct tape *t)
{
    unsigned how = tape_next(t);
    struct player p = {.roomy = true, .play = {.next_id = 1}, .asks = how >> 4};
    struct frames f = {0};
    side_init(&p.x, worker(), H2_CLIENT, &narrow, &silent, &p);
    p.x.on_idle = on_idle;
    p.x.trace.quiet = true;
    frames_add(&f, how & 1 ? "settings 8=1\nwindow 0 1000000" : "settings 3=2");
    fake_settle(worker());
    fake_feed(p.x.c, f.p, f.n);
    frames_done(&f);
    for (unsigned n = 0; t->n > 0 && n < 200; n++) {
        unsigned op = tape_next(t), arg = tape_next(t);
        if (op & 1)
            play_tap(&p, (op >> 1) % 7, arg, tape_next(t));
        else
            play_wire(&p, (op >> 1) & 7, arg, t);
        if (op >= 0xe0)
            check_still(&p);
    }
    check_still(&p);
    side_done(&p.x);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct tape t = {data, size};
    if (tape_next(&t) % 3 == 0)
        same_however_cut_once(&t);
    else
        anything_in_any_order(&t);
    fake_settle(worker());
    return 0;
}
