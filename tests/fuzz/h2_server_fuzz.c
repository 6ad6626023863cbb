/* h2_server_fuzz.c — the HTTP/2 server codec over a fake connection, in three ways, chosen by the
 * first byte: the same frames whole and cut must be told the same; a request that was taken must
 * be read the same when it is sent on, in either version; and whatever the user, the peer and the
 * kernel do in whatever order, the laws of stream.h hold (tap), what was received comes back to the
 * connection's window, and nothing is left behind. */
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
        if (line.n > 0 && !str_starts(line, str_of(prefix)))
            trace_line(&kept, "%.*s", STR_ARG(line));
    trace_done(&x->trace);
    x->trace = kept;
}

static void all_lines(struct side *x)
{
    for (unsigned i = 0; i < SIDE_STREAMS && i < x->n; i++)
        if (!x->taps[i].over && !x->taps[i].cancelled)
            tap_flush(&x->taps[i]);
    for (unsigned i = 0; i < SIDE_STREAMS && i < x->n; i++)
        if (x->taps[i].over)
            forget_data(x, i + 1);
    lines_by_stream(&x->trace);
}

static void run(struct side *x, struct str input, const struct cuts *cuts)
{
    struct http_limits limits = narrow;
    limits.max_resets = limits.max_control = 0;
    limits.window = 1 << 22; /* nobody gets to its end */
    side_init(x, worker(), H2_SERVER, &limits, &silent, NULL);
    side_feed(x, input, cuts);
    all_lines(x);
}

static void same(const char *what, struct str whole, struct str cut)
{
    if (str_eq(whole, cut))
        return;
    fprintf(stderr, "%s whole:\n%.*s\n%s cut:\n%.*s\n", what, STR_ARG(whole), what, STR_ARG(cut));
    abort();
}

static void same_output(const struct side *whole, const struct side *cut)
{
    struct trace a, b;
    trace_init(&a);
    trace_init(&b);
    assert(frames_read(fake_written(whole->c), whole->kind == H2_CLIENT, false, &a));
    assert(frames_read(fake_written(cut->c), whole->kind == H2_CLIENT, false, &b));
    same("output", str_of(trace_text(&a)), str_of(trace_text(&b)));
    trace_done(&a);
    trace_done(&b);
}

static void same_however_cut_once(struct tape *t)
{
    struct h2play play = {.client = true, .stays = true, .next_id = 1};
    struct frames f = {0};
    unsigned every = 1 + tape_next(t) % 40;
    frames_add(&f, "preface\nsettings\nsettings ack");
    for (unsigned n = 0; t->n > 0 && n < 48; n++)
        h2play_frame(&play, t, &f);
    struct side whole, cut;
    run(&whole, frames_str(&f), &(struct cuts){.together = true});
    run(&cut, frames_str(&f), &(struct cuts){.every = every, .together = true});
    same_output(&whole, &cut);
    same("events", str_of(trace_text(&whole.trace)), str_of(trace_text(&cut.trace)));
    side_done(&whole);
    side_done(&cut);
    frames_done(&f);
}

/* ---- what is sent on is read the same */

static const struct http_limits wide = {.max_head_bytes = 1 << 20,
                                        .window = 1 << 20,
                                        .max_streams = 100,
                                        .keep_alive_ms = 60000,
                                        .linger_ms = 5000};

/* A body of no bytes may end with its head, or by itself. */
static bool line_ends(const char *line)
{
    const char *eol = strchr(line, '\n');
    return eol && eol - line >= 4 && strncmp(eol - 4, " end", 4) == 0;
}

static void expect_head(const struct side *server, const struct http_head *head, bool end)
{
    struct trace expected;
    struct http_head h = *head;
    const struct tap *t = &server->taps[0];
    assert(server->n == 1 && t->head);
    if (end && h.length < 0 && t->head->length == 0)
        h.length = 0; /* said or not, there is none */
    const char *line = strchr(trace_text(&server->trace), '\n') + 1;
    end = h.length == 0 ? line_ends(line) : end;
    trace_init(&expected);
    trace_head(&expected, t->prefix, &h, end || head->protocol.n > 0);
    if (strncmp(line, trace_text(&expected), expected.n) != 0) {
        /* names may be in lower case now */
        for (char *p = expected.p; *p; p++)
            *p = ascii_lower(*p);
        for (char *p = (char *)(uintptr_t)line; *p; p++)
            *p = ascii_lower(*p);
        assert(strncmp(line, trace_text(&expected), expected.n) == 0);
    }
    trace_done(&expected);
}

static void send_on(const struct http_head *head, bool end, bool h2)
{
    struct side client, server;
    struct frames f = {0};
    if (!h2 && head->protocol.n > 0)
        return; /* h1 makes up a key */
    side_init(&client, worker(), h2 ? H2_CLIENT : H1_CLIENT, &wide, &silent, NULL);
    frames_add(&f, "settings 8=1");
    if (h2)
        side_feed(&client, frames_str(&f), &(struct cuts){0});
    struct tap *t = side_open(&client);
    tap_head(t, head, end);
    if (!end && head->length < 0 && head->protocol.n == 0)
        tap_data(t, STR("x"));
    fake_settle(worker());
    side_init(&server, worker(), h2 ? H2_SERVER : H1_SERVER, &wide, &silent, NULL);
    side_feed(&server, fake_written(client.c), &(struct cuts){0});
    expect_head(&server, head, end);
    assert(server.n == 1 && !server.taps[0].got_fault);
    side_done(&client);
    side_done(&server);
    frames_done(&f);
}

struct kept {
    struct arena arena;
    struct http_head *head;
    bool end;
};

static void keep_head(struct tap *t, struct http_head *head, bool end)
{
    struct kept *k = t->context;
    if (k->head || str_eq(head->method, STR("CONNECT")))
        return;
    k->head = tap_copy_head(&k->arena, head);
    k->end = end;
}

/* The tape is a header block: fields as lengths and bytes. */
static void put_block(struct tape *t, struct frames *f, bool end)
{
    char block[4096];
    size_t n = 0;
    if (tape_next(t) & 1) {
        n += frames_field(block + n, STR(":method"), STR("POST"));
        n += frames_field(block + n, STR(":scheme"), STR("http"));
        n += frames_field(block + n, STR(":authority"), STR("a"));
        n += frames_field(block + n, STR(":path"), STR("/"));
    }
    while (t->n > 0 && n < sizeof block - 600) {
        struct str name = tape_cut(t, tape_next(t) % 40), value = tape_cut(t, tape_next(t) % 80);
        n += frames_field(block + n, name, value);
    }
    frames_raw(f, FRAME_HEADERS, end ? 5 : 4, 1, block, n);
}

static void is_read_the_same_when_sent_on(struct tape *t)
{
    static const struct tap_user keeping = {.head = keep_head};
    struct kept k = {.head = NULL};
    struct frames f = {0};
    struct side x;
    arena_init(&k.arena, NULL, 0);
    side_init(&x, worker(), H2_SERVER, &wide, &keeping, &k);
    frames_add(&f, "preface\nsettings");
    put_block(t, &f, tape_next(t) & 1);
    side_feed(&x, frames_str(&f), &(struct cuts){0});
    side_done(&x);
    if (k.head) {
        send_on(k.head, k.end, true);
        send_on(k.head, k.end, false);
    }
    arena_done(&k.arena);
    frames_done(&f);
}

/* ---- anything in any order */

struct player {
    struct side x;
    struct h2play play;
    bool roomy;
    bool eof; /* or reset: nothing comes any more */
};

static void play_head(struct tap *t, unsigned arg)
{
    static const int statuses[] = {200, 204, 304, 404, 100, 103, 101, 200};
    int status = statuses[arg & 7];
    if (t->said_end)
        return;
    struct http_head head = {.status = status, .length = -1};
    if (status == 101) {
        if (!t->head || t->head->protocol.n == 0 || !t->got_end || t->got_fault)
            return;
        head.protocol = t->head->protocol;
    }
    bool end = status >= 200 && (arg & 16);
    t->context = status >= 200 || status == 101 ? t : NULL;
    tap_head(t, &head, end);
}

static void play_tap(struct player *p, unsigned op, unsigned arg, unsigned which)
{
    static char bytes[65536];
    static struct field fields[] = {{{"X-T", 3}, {"1", 1}}};
    static const struct http_head trailers = {.length = -1, .fields = fields, .nfields = 1};
    static const enum why whys[] = {WHY_ORIGIN_GONE, WHY_CLIENT_GONE, WHY_REVOKED, WHY_DEADLINE};
    if (!p->x.s || p->x.n == 0)
        return;
    unsigned back = which % 12;
    struct tap *t = side_stream(&p->x, p->x.n > back ? p->x.n - back : 1);
    bool answered = t->context == t;
    if (t->over || t->cancelled)
        return;
    switch (op) {
    case 0:
        if (!answered)
            play_head(t, arg);
        break;
    case 1:
    case 2:
        if (answered && !t->said_end)
            tap_data(t, (struct str){bytes, op == 1 ? arg : arg * 256});
        break;
    case 3:
        if (answered && !t->said_end)
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
            tap_cancel(t, whys[arg & 3]);
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
        else if (p->x.s && arg >= 240)
            p->x.s->ops->drain(p->x.s);
        break;
    }
}

/* A stream begins: nothing was answered. */
static void on_head(struct tap *t, struct http_head *head, bool end)
{
    (void)head, (void)end;
    t->context = NULL;
}

static unsigned alive(const struct player *p)
{
    unsigned n = 0;
    for (unsigned i = 0; i < SIDE_STREAMS && i < p->x.n; i++)
        n += !p->x.taps[i].over && !p->x.taps[i].cancelled;
    return n;
}

/* When nothing moves any more, nothing may be missing. */
static void check_still(struct player *p)
{
    fake_settle(worker());
    if (!p->x.s)
        return;
    assert(p->x.s->running == alive(p));
    if (p->roomy)
        assert(p->eof || fake_unread(p->x.c) == 0); /* it reads on whatever its users do */
    for (unsigned i = 0; p->roomy && p->play.calm && i < SIDE_STREAMS && i < p->x.n; i++) {
        const struct tap *t = &p->x.taps[i];
        if (!t->over && !t->cancelled)
            assert(t->sent == t->given); /* windows are wide open */
    }
}

static void anything_in_any_order(struct tape *t)
{
    static const struct tap_user playing = {.head = on_head};
    unsigned how = tape_next(t);
    struct player p = {.roomy = true, .play = {.client = true, .calm = how & 1, .next_id = 1}};
    struct frames f = {0};
    side_init(&p.x, worker(), H2_SERVER, &narrow, &playing, NULL);
    p.x.trace.quiet = true;
    frames_add(&f, how & 1 ? "preface\nsettings 4=100000000\nwindow 0 1000000000"
                           : "preface\nsettings");
    if (how & 2)
        frames_add(&f, "settings ack");
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
    switch (tape_next(&t) % 4) {
    case 0:
        same_however_cut_once(&t);
        break;
    case 1:
        is_read_the_same_when_sent_on(&t);
        break;
    default:
        anything_in_any_order(&t);
        break;
    }
    fake_settle(worker());
    return 0;
}
