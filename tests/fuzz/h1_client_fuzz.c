/* h1_client_fuzz.c — the HTTP/1 client codec over a fake connection: the same answers whole and cut
 * must be told the same, and whatever the user, the origin and the kernel do in whatever order, the
 * laws of stream.h hold (tap), nothing stalls and no connection is offered for another exchange
 * unless this one ended cleanly on both sides. */
#include <assert.h>

#include "harness/side.h"

struct tape {
    const uint8_t *p;
    size_t n;
};

static unsigned next(struct tape *t)
{
    if (t->n == 0)
        return 0;
    t->n--;
    return *t->p++;
}

static struct str cut_off(struct tape *t, size_t n)
{
    if (n > t->n)
        n = t->n;
    struct str s = {(const char *)t->p, n};
    t->p += n;
    t->n -= n;
    return s;
}

static struct worker *worker(void)
{
    static struct worker *w; /* made once: a loop is dear */
    if (!w)
        w = worker_new(0);
    return w;
}

#define TEXT(text)             \
    {                          \
        text, sizeof(text) - 1 \
    }

static const struct http_head requests[] = {
    {.method = TEXT("GET"), .path = TEXT("/"), .authority = TEXT("a"), .length = -1},
    {.method = TEXT("HEAD"), .path = TEXT("/"), .authority = TEXT("a"), .length = -1},
    {.method = TEXT("GET"),
     .path = TEXT("/"),
     .authority = TEXT("a"),
     .length = -1,
     .protocol = TEXT("websocket")},
    {.method = TEXT("CONNECT"), .path = TEXT(""), .authority = TEXT("a:1"), .length = -1},
};

/* ---- the same however it is cut */

/* Small, so that an input can reach them. */
static const struct http_limits narrow = {.max_head_bytes = 600,
                                          .window = 300,
                                          .keep_alive_ms = 6000,
                                          .linger_ms = 5000,
                                          .drain_idle_ms = 2000};

static void keep_streams_only(struct trace *t)
{
    char *to = t->p;
    for (char *line = t->p, *end; (end = strchr(line, '\n')); line = end + 1) {
        if (strncmp(line, "conn ", 5) == 0 || strncmp(line, "session ", 8) == 0 ||
            strncmp(line, "idle", 4) == 0)
            continue;
        memmove(to, line, (size_t)(end + 1 - line));
        to += end + 1 - line;
    }
    *to = '\0';
    t->n = (size_t)(to - t->p);
}

static void run(struct side *x, const struct http_head *request, struct str input, bool eof,
                const struct cuts *cuts)
{
    static const struct tap_user silent = {0};
    side_init(x, worker(), H1_CLIENT, &narrow, &silent, NULL);
    tap_head(side_open(x), request, true);
    fake_settle(worker());
    side_feed(x, input, cuts);
    if (eof)
        fake_feed_eof(x->c);
    fake_settle(worker());
    tap_flush(side_tap(x));
    keep_streams_only(&x->trace);
}

static void same_however_cut_once(struct tape *t)
{
    unsigned which = next(t), how = next(t), seed = next(t);
    size_t at[8], n = 0, last = 0;
    for (unsigned i = 0; i < 8; i++) {
        seed = seed * 1103515245u + 12345u;
        last += 1 + (seed >> 16) % (how % 61 + 1);
        at[n++] = last;
    }
    struct cuts cuts = {.at = how & 64 ? at : NULL,
                        .n = n,
                        .every = how & 64 ? 0 : how % 13 + 1,
                        .together = how & 128};
    struct str input = cut_off(t, t->n);
    struct side whole, cut;
    run(&whole, &requests[which & 3], input, which & 4, &(struct cuts){0});
    run(&cut, &requests[which & 3], input, which & 4, &cuts);
    assert(strcmp(trace_text(&whole.trace), trace_text(&cut.trace)) == 0);
    side_done(&whole);
    side_done(&cut);
}

/* ---- anything in any order */

struct player {
    struct side x;
    bool roomy, eof;
    bool clean;     /* the exchange that was begun last ended well */
    bool asked;     /* its head was given */
    bool in_chunks; /* data and end may follow */
};

static struct tap *current(struct player *p)
{
    if (!p->x.s || p->x.n == 0)
        return NULL;
    struct tap *t = side_tap(&p->x);
    return t->over || t->cancelled ? NULL : t;
}

static void on_closed(struct tap *t, enum why why)
{
    struct player *p = t->context;
    p->clean = why == WHY_OK && t->got_end && t->said_end && t->sent == t->given;
}

static void on_idle(struct side *x)
{
    struct player *p = container_of(x, struct player, x);
    assert(p->clean && !side_tap(x)->tunnel && !p->eof);
    p->clean = false;
}

static void play_open(struct player *p, unsigned arg)
{
    bool busy = current(p) != NULL;
    struct tap *t = side_open(&p->x);
    assert(!t || !busy);
    if (!t)
        return;
    p->asked = p->in_chunks = false;
    if (arg & 128)
        return; /* the head comes later */
    p->asked = true;
    p->in_chunks = arg & 4;
    tap_head(t, &requests[arg & 3], !p->in_chunks);
}

static void play_tap(struct player *p, unsigned op, unsigned arg)
{
    static const enum why whys[] = {WHY_ORIGIN_GONE, WHY_CLIENT_GONE, WHY_REVOKED, WHY_DEADLINE};
    static char block[65536];
    struct tap *t = current(p);
    if (op == 0 && (!t || p->asked)) {
        play_open(p, arg);
        return;
    }
    if (!t)
        return;
    bool may_send = p->in_chunks || (t->tunnel && !t->said_end);
    switch (op) {
    case 0:
        p->asked = true;
        p->in_chunks = arg & 4;
        tap_head(t, &requests[arg & 3], !p->in_chunks);
        break;
    case 1:
    case 2:
        if (may_send && p->asked)
            tap_data(t, (struct str){block, op == 1 ? arg * 3 : arg * 256});
        break;
    case 3:
        if (may_send && p->asked)
            tap_end(t, NULL);
        p->in_chunks = p->in_chunks && !may_send;
        break;
    case 4:
        tap_credit(t, tap_owed(t) * arg / 255);
        break;
    case 5:
        t->hold = arg & 1;
        break;
    default:
        if (arg >= 240)
            tap_cancel(t, whys[arg & 3]);
        break;
    }
}

static void play_wire(struct player *p, unsigned op, unsigned arg, struct tape *t)
{
    switch (op) {
    case 0:
        if (!p->eof)
            fake_feed(p->x.c, (const char *)t->p, arg < t->n ? arg : t->n);
        cut_off(t, arg);
        break;
    case 1:
        fake_settle(worker());
        break;
    case 2:
        p->roomy = arg > 200;
        fake_room(p->x.c, p->roomy ? SIZE_MAX : arg * 16);
        break;
    case 3:
        fake_time(worker(), arg * 32);
        break;
    case 4:
        if (arg >= 200 && !p->eof) {
            p->eof = true; /* before it is told: nothing may be idle from then on */
            arg & 1 ? fake_feed_eof(p->x.c) : fake_feed_error(p->x.c);
        }
        break;
    case 5:
        if (p->x.s && arg >= 240)
            p->x.s->ops->drain(p->x.s);
        break;
    default:
        if (p->x.s && arg >= 250)
            p->x.s->ops->close(p->x.s, WHY_DRAIN);
        break;
    }
}

static void check_still(struct player *p)
{
    fake_settle(worker());
    struct tap *t = current(p);
    if (!t)
        return;
    if (p->roomy && p->asked) {
        assert(t->sent == t->given);
        assert(!t->said_end || !t->got_end); /* both sides said all: it is over */
    }
    size_t window = t->tunnel ? t->window / 2 : t->window;
    if (tap_owed(t) < window && !t->got_end)
        assert(fake_unread(p->x.c) == 0); /* it still wants bytes: none waits */
}

static void anything_in_any_order(struct tape *t)
{
    static const struct tap_user playing = {.closed = on_closed};
    struct player p = {.roomy = true};
    side_init(&p.x, worker(), H1_CLIENT, &narrow, &playing, &p);
    p.x.on_idle = on_idle;
    p.x.trace.quiet = true;
    unsigned steps = 8 + next(t) % 56;
    struct tape script = {t->p, 2 * steps < t->n ? 2 * steps : t->n};
    cut_off(t, script.n);
    play_open(&p, next(&script));
    while (script.n > 0) {
        unsigned op = next(&script), arg = next(&script);
        if (op & 1)
            play_tap(&p, (op >> 1) % 7, arg);
        else
            play_wire(&p, (op >> 1) % 7, arg, t);
        if (op & 128)
            check_still(&p);
    }
    if (!p.eof)
        fake_feed(p.x.c, (const char *)t->p, t->n);
    check_still(&p);
    side_done(&p.x);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct tape t = {data, size};
    if (next(&t) & 1)
        same_however_cut_once(&t);
    else
        anything_in_any_order(&t);
    fake_settle(worker());
    return 0;
}
