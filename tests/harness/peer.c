/* peer.c — both ends of wires.  Since each end is a codec, what a test asserts is what that codec
 * understood; the bytes themselves are the codec tests' business. */
#include "harness/peer.h"

#include <assert.h>

enum { WIRE_BYTES = 65536 };

struct session *__real_h1_start(struct worker *w, struct conn *conn, bool server,
                                const struct http_limits *limits, const struct session_events *ev,
                                void *user);
struct session *__real_h2_start(struct worker *w, struct conn *conn, bool server,
                                const struct http_limits *limits, const struct session_events *ev,
                                void *user);

static const struct http_limits peer_limits = {.max_head_bytes = 65536,
                                               .window = 65536,
                                               .window_max = 262144,
                                               .max_streams = 100,
                                               .max_resets = 1000,
                                               .max_control = 100000,
                                               .linger_ms = 3000};

static struct call *begin(struct peer *p, struct http_stream *s)
{
    size_t window = p->limits.window_max;
    assert(p->ncalls < PEER_CALLS);
    struct call *c = &p->calls[p->ncalls++];
    c->peer = p;
    trace_init(&c->trace);
    tap_init(&c->tap, &c->trace, p->rig->w, s, window, p->user, p);
    c->tap.server = p->origin;
    c->tap.hold = p->hold;
    return c;
}

/* ---- sessions */

static void on_accept(void *user, struct session *s, struct http_stream *stream)
{
    (void)s;
    begin(user, stream);
}

static void on_idle(void *user, struct session *s)
{
    (void)user;
    (void)s;
}

static void on_closed(void *user, struct session *s)
{
    struct peer *p = user;
    (void)s;
    p->s = NULL;
}

static const struct session_events events = {on_accept, on_idle, NULL, on_closed};

static void start(struct peer *p)
{
    struct worker *w = p->rig->w;
    p->c = fake_new(w, p->origin);
    rig_keep(p->rig, p->c);
    p->s = p->version == H2 ? __real_h2_start(w, p->c, p->origin, &p->limits, &events, p)
                            : __real_h1_start(w, p->c, p->origin, &p->limits, &events, p);
}

void peer_client(struct peer *p, struct rig *r, enum version version)
{
    *p = (struct peer){.rig = r, .version = version, .limits = peer_limits};
    p->far = rig_client(r);
    start(p);
}

void peer_origin(struct peer *p, struct rig *r, enum version version, unsigned max_streams)
{
    *p = (struct peer){.rig = r, .version = version, .origin = true, .limits = peer_limits};
    p->limits.max_streams = max_streams;
    p->far = rig_origin_as(r, version == H2 ? "h2" : "http/1.1");
    assert(p->far);
    start(p);
}

void peer_break(struct peer *p)
{
    p->broken = true;
    fake_feed_error(p->c);
    fake_feed_error(p->far);
    fake_settle(p->rig->w);
}

void peer_done(struct peer *p)
{
    if (p->s)
        p->s->ops->close(p->s, WHY_DRAIN);
    fake_settle(p->rig->w);
    assert(!p->s);
    for (unsigned i = 0; i < p->ncalls; i++) {
        tap_done(&p->calls[i].tap);
        trace_done(&p->calls[i].trace);
    }
}

/* ---- wires */

static bool is_over(const struct conn *c)
{
    return fake_end(c) == FAKE_CLOSED || fake_end(c) == FAKE_RESET;
}

/* The kernel between them holds so much and no more. */
static void make_room(struct conn *from, const struct conn *to)
{
    size_t held = fake_unread(to);
    fake_room(from, held < WIRE_BYTES ? WIRE_BYTES - held : 0);
}

/* From one end to the other.  True: something passed. */
static bool carry(struct conn *from, struct conn *to, size_t *at, bool *told)
{
    struct str s = str_skip(fake_written(from), *at);
    if (*told || is_over(to)) {
        *at += s.n;
        return false;
    }
    *at += s.n;
    if (s.n > 0)
        fake_feed(to, s.p, s.n);
    make_room(from, to);
    if (fake_end(from) == FAKE_UP)
        return s.n > 0;
    *told = true;
    if (fake_end(from) == FAKE_RESET)
        fake_feed_error(to);
    else
        fake_feed_eof(to);
    return true;
}

/* Whoever writes to an end that has closed is told so. */
static bool bounce(struct conn *closed, struct conn *c, size_t at, bool told)
{
    if (!told || fake_end(closed) != FAKE_CLOSED || is_over(c) || fake_written(c).n == at)
        return false;
    fake_feed_error(c);
    return true;
}

static bool pump_one(struct peer *p)
{
    if (p->broken)
        return false;
    bool any = bounce(p->far, p->c, p->to_far, p->told_c);
    any |= bounce(p->c, p->far, p->from_far, p->told_far);
    any |= carry(p->c, p->far, &p->to_far, &p->told_far);
    any |= carry(p->far, p->c, &p->from_far, &p->told_c);
    return any;
}

void peer_pump(struct peer *const *all, unsigned n)
{
    unsigned idle = 0; /* rounds: room that was made is used in the next one */
    for (unsigned rounds = 0; idle < 2; rounds++, idle++) {
        assert(rounds < 100000);
        for (unsigned i = 0; i < n; i++) {
            fake_settle(all[i]->rig->w);
            if (pump_one(all[i]))
                idle = 0;
        }
    }
}

/* ---- calls */

struct call *peer_ask_head(struct peer *p, const struct http_head *head, bool end)
{
    struct http_stream *s;
    if (!p->s || !p->s->ops->open(p->s, &s))
        return NULL;
    struct call *c = begin(p, s);
    tap_head(&c->tap, head, end);
    return c;
}

struct call *peer_ask(struct peer *p, const char *method, const char *path, const char *body,
                      bool end)
{
    size_t n = strlen(body);
    struct http_head head = {.method = str_of(method),
                             .scheme = STR("http"),
                             .authority = STR("gw.test"),
                             .path = str_of(path),
                             .length = end && n > 0 ? (int64_t)n : -1};
    struct call *c = peer_ask_head(p, &head, end && n == 0);
    if (!c)
        return NULL;
    tap_data(&c->tap, str_of(body));
    if (end && n > 0)
        tap_end(&c->tap, NULL);
    return c;
}

void call_answer_head(struct call *c, const struct http_head *head, bool end)
{
    tap_head(&c->tap, head, end);
}

void call_answer(struct call *c, int status, const char *body, bool end)
{
    size_t n = strlen(body);
    struct http_head head = {.status = status, .length = end ? (int64_t)n : -1};
    call_answer_head(c, &head, end && n == 0);
    tap_data(&c->tap, str_of(body));
    if (end && n > 0)
        tap_end(&c->tap, NULL);
}

const char *call_text(struct call *c)
{
    tap_flush(&c->tap);
    return trace_text(&c->trace);
}

bool call_has(struct call *c, const char *text)
{
    return strstr(call_text(c), text) != NULL;
}
