/* h1_server_fuzz.c — the HTTP/1 server codec over a fake connection, in three ways, chosen by the
 * first byte: the same requests whole and cut must be told and answered the same; what a request
 * says must survive being sent on; and whatever the user, the peer and the kernel do in whatever
 * order, the laws of stream.h hold (tap), nothing stalls and nothing is left behind. */
#include <assert.h>

#include "harness/side.h"

/* ---- the input */

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

/* ---- the same however it is cut */

/* Small, so that an input can reach them. */
static const struct http_limits narrow = {.max_head_bytes = 600,
                                          .window = 300,
                                          .keep_alive_ms = 6000,
                                          .linger_ms = 5000,
                                          .drain_idle_ms = 2000};

struct manner {
    uint8_t flags;
};
enum { INTERIM = 1, CHUNKED = 2, EMPTY = 4, GRANT = 8, TRAILERS = 16 };

static void answer(struct tap *t)
{
    static struct field fields[] = {{{"X-T", 3}, {"1", 1}}};
    static const struct http_head trailers = {.length = -1, .fields = fields, .nfields = 1};
    const struct manner *m = t->context;
    if ((m->flags & GRANT) && t->head && t->head->protocol.n > 0) {
        tap_head(t, &(struct http_head){.status = 101, .length = -1, .protocol = t->head->protocol},
                 false);
        tap_data(t, STR("hello"));
        return;
    }
    bool empty = m->flags & EMPTY;
    tap_head(t,
             &(struct http_head){.status = 200,
                                 .length = empty                ? 0
                                           : m->flags & CHUNKED ? -1
                                                                : 2},
             empty);
    if (empty)
        return;
    tap_data(t, STR("ok"));
    tap_end(t, m->flags & TRAILERS ? &trailers : NULL);
}

static void on_head(struct tap *t, struct http_head *head, bool end)
{
    const struct manner *m = t->context;
    (void)head;
    if (m->flags & INTERIM)
        tap_head(t, &(struct http_head){.status = 103, .length = -1}, false);
    if (end)
        answer(t);
}

static void on_end(struct tap *t, struct http_head *trailers)
{
    (void)trailers;
    if (t->tunnel)
        tap_end(t, NULL);
    else
        answer(t);
}

static void on_fault(struct tap *t, const struct http_fault *fault)
{
    if (!t->said_end)
        tap_head(t, &(struct http_head){.status = fault->status, .length = 0}, true);
}

static const struct tap_user answering = {.head = on_head, .end = on_end, .fault = on_fault};

/* How the connection ends depends on whether further bytes have come already. */
static void keep_streams_only(struct trace *t)
{
    char *to = t->p;
    for (char *line = t->p, *end; (end = strchr(line, '\n')); line = end + 1) {
        if (strncmp(line, "conn ", 5) == 0 || strncmp(line, "session ", 8) == 0)
            continue;
        memmove(to, line, (size_t)(end + 1 - line));
        to += end + 1 - line;
    }
    *to = '\0';
    t->n = (size_t)(to - t->p);
}

static void run(struct side *x, struct manner *m, struct str input, bool eof,
                const struct cuts *cuts)
{
    side_init(x, worker(), H1_SERVER, &narrow, &answering, m);
    side_feed(x, input, cuts);
    if (eof)
        fake_feed_eof(x->c);
    fake_settle(x->w);
    if (x->n > 0)
        tap_flush(side_tap(x));
    keep_streams_only(&x->trace);
}

static void same_however_cut_once(struct tape *t)
{
    struct manner m = {(uint8_t)next(t)};
    unsigned how = next(t), seed = next(t);
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
    run(&whole, &m, input, seed & 1, &(struct cuts){0});
    run(&cut, &m, input, seed & 1, &cuts);
    assert(strcmp(trace_text(&whole.trace), trace_text(&cut.trace)) == 0);
    assert(str_eq(fake_written(whole.c), fake_written(cut.c)));
    side_done(&whole);
    side_done(&cut);
}

/* ---- what is sent on is read the same */

static const struct http_limits wide = {
    .max_head_bytes = 1 << 20, .window = 1 << 20, .keep_alive_ms = 60000, .linger_ms = 5000};
static const struct tap_user silent = {0};

static void send_on(const struct http_head *head, bool end)
{
    struct side client, server;
    struct trace expected;
    struct http_head h = *head;
    side_init(&client, worker(), H1_CLIENT, &wide, &silent, NULL);
    struct tap *t = side_open(&client);
    tap_head(t, head, end);
    if (!end)
        tap_data(t, STR("x"));
    fake_settle(worker());
    side_init(&server, worker(), H1_SERVER, &wide, &silent, NULL);
    side_feed(&server, fake_written(client.c), &(struct cuts){0});
    assert(server.n == 1 && side_tap(&server)->head);
    trace_init(&expected);
    trace_line(&expected, "accept");
    h.expect_continue =
        side_tap(&server)->head->expect_continue; /* Expect of a 1.0 client is passed on, and means
                                                     something in 1.1 */
    if (!h.authority.p)
        h.authority = STR("");
    if (end && h.length < 0 && side_tap(&server)->head->length == 0)
        h.length = 0;
    trace_head(&expected, "", &h, end);
    assert(strncmp(trace_text(&server.trace), trace_text(&expected), expected.n) == 0);
    trace_done(&expected);
    side_done(&client);
    side_done(&server);
}

struct kept {
    struct arena arena;
    struct http_head *head;
    bool end;
};

static void keep_head(struct tap *t, struct http_head *head, bool end)
{
    struct kept *k = t->context;
    if (k->head)
        return;
    k->head = tap_copy_head(&k->arena, head);
    k->end = end;
}

static void is_read_the_same_when_sent_on(struct tape *t)
{
    static const struct tap_user keeping = {.head = keep_head};
    struct kept k = {.head = NULL};
    struct side x;
    arena_init(&k.arena, NULL, 0);
    side_init(&x, worker(), H1_SERVER, &narrow, &keeping, &k);
    side_feed(&x, cut_off(t, t->n), &(struct cuts){0});
    side_done(&x);
    if (k.head)
        send_on(k.head, k.end);
    arena_done(&k.arena);
}

/* ---- anything in any order */

struct player {
    struct side x;
    bool roomy;    /* the kernel takes everything */
    bool eof;      /* or reset: nothing comes any more */
    int64_t left;  /* of an answer by length */
    bool answered; /* final head given */
};

static bool alive(const struct player *p)
{
    if (!p->x.s || p->x.n == 0)
        return false;
    const struct tap *t = &p->x.taps[(p->x.n - 1) % SIDE_STREAMS];
    return !t->over && !t->cancelled;
}

static void play_head(struct player *p, struct tap *t, unsigned arg)
{
    static const int statuses[] = {200, 204, 304, 404, 100, 103, 101, 200};
    int status = statuses[arg & 7];
    if (p->answered || t->said_end || (status == 101 && (!t->head || t->head->protocol.n == 0)))
        return;
    struct http_head head = {.status = status, .length = -1};
    bool end = false;
    if (status == 101) {
        head.protocol = t->head->protocol;
        if (!t->got_end || t->got_fault) { /* the codec ends the connection */
            tap_cancel(t, WHY_ORIGIN_PROTOCOL);
            return;
        }
    } else if (status >= 200) {
        head.length = arg & 8 ? (int64_t)(arg >> 4) * 20 : -1;
        end = head.length <= 0 && (arg & 16);
    }
    p->answered = status >= 200 || status == 101;
    p->left = head.length >= 0 && status != 101 ? head.length : INT64_MAX;
    tap_head(t, &head, end);
}

static void play_data(struct player *p, struct tap *t, size_t n)
{
    static char block[65536];
    if (!p->answered || t->said_end)
        return;
    if ((int64_t)n > p->left)
        n = (size_t)p->left;
    p->left -= (int64_t)n;
    tap_data(t, (struct str){block, n});
}

static void play_end(struct player *p, struct tap *t, unsigned arg)
{
    static struct field fields[] = {{{"X-T", 3}, {"1", 1}}};
    if (!p->answered || t->said_end || (p->left > 0 && p->left != INT64_MAX))
        return;
    tap_end(t, arg & 1 ? &(struct http_head){.length = -1, .fields = fields, .nfields = 1} : NULL);
}

static void on_stream(struct tap *t, struct http_head *head, bool end)
{
    struct player *p = t->context;
    (void)head;
    (void)end;
    p->answered = false;
}

static void on_broken(struct tap *t, const struct http_fault *fault)
{
    struct player *p = t->context;
    (void)fault;
    if (!t->head) /* before any head: this is how the stream begins */
        p->answered = false;
}

static void play_tap(struct player *p, unsigned op, unsigned arg)
{
    static const enum why whys[] = {WHY_ORIGIN_GONE, WHY_CLIENT_GONE, WHY_REVOKED, WHY_DEADLINE};
    if (!alive(p))
        return;
    struct tap *t = side_tap(&p->x);
    if (!t->head && !t->got_fault)
        p->answered = false;
    switch (op) {
    case 0:
        play_head(p, t, arg);
        break;
    case 1:
        play_data(p, t, arg * 3);
        break;
    case 2:
        play_data(p, t, arg * 256);
        break;
    case 3:
        play_end(p, t, arg);
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
        if (arg >= 200 && !p->eof)
            arg & 1 ? fake_feed_eof(p->x.c) : fake_feed_error(p->x.c);
        p->eof |= arg >= 200;
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

/* When nothing moves any more, nothing may be missing. */
static void check_still(struct player *p)
{
    fake_settle(worker());
    if (!alive(p))
        return;
    const struct tap *t = side_tap(&p->x);
    if (p->roomy) {
        assert(t->sent == t->given || !p->answered);
        assert(!t->said_end || (t->tunnel && !t->got_end)); /* all was said: it is over */
    }
    size_t window = t->tunnel ? t->window / 2 : t->window;
    if (tap_owed(t) < window && !(t->got_end && !t->got_fault))
        assert(fake_unread(p->x.c) == 0); /* it still wants bytes: none waits */
}

static void anything_in_any_order(struct tape *t)
{
    static const struct tap_user playing = {.head = on_stream, .fault = on_broken};
    struct player p = {.roomy = true};
    side_init(&p.x, worker(), H1_SERVER, &narrow, &playing, &p);
    p.x.trace.quiet = true;
    unsigned steps = 8 + next(t) % 56;
    struct tape script = {t->p, 2 * steps < t->n ? 2 * steps : t->n};
    cut_off(t, script.n);
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
    switch (next(&t) % 3) {
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
