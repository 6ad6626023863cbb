/* h2.c — an HTTP/2 session: many exchanges at once on one connection, in either role.  Here is its
 * life and that of its streams; what is read is in h2_in.c, what is written in h2_out.c.
 *
 * It ends like this: told that it drains it announces so and waits for what is on its way, then
 * names the last stream and finishes what runs, says GOAWAY, sends FIN, and reads on for a while,
 * since a close with bytes unread would reset away what the peer has yet to read. */
#include "http/h2_impl.h"

#include <assert.h>
#include <stdlib.h>

enum {
    LEAST_WINDOW = 4 << 20, /* of a connection */
    MAX_WINDOW = 16 << 20,
    DEFAULT_STREAMS = 100,
    ROUND_TRIP_MS = 1000,
    FREE_STREAMS = 16,
    HEAD_PIECES = 9,     /* bytes of a frame's head */
    ACKS = 16384,        /* the budgets are far narrower */
    RESET_RATE = 1 << 30 /* likewise */
};

enum why h2_gone(const struct h2 *h)
{
    return h->s.server ? WHY_CLIENT_GONE : WHY_ORIGIN_GONE;
}

enum why h2_protocol(const struct h2 *h)
{
    return h->s.server ? WHY_CLIENT_PROTOCOL : WHY_ORIGIN_PROTOCOL;
}

static void arm(struct h2 *h, uint64_t ms)
{
    timer_set(h->s.w, &h->timer, ms ? ms : 1);
}

/* ---- streams */

/* A cut answer that does not leave in time. */
static void on_cut_timer(struct timer *t)
{
    struct h2_stream *s = container_of(t, struct h2_stream, timer);
    nghttp2_submit_rst_stream(s->h->ng, NGHTTP2_FLAG_NONE, s->id, NGHTTP2_INTERNAL_ERROR);
    conn_wake(s->h->s.conn);
}

struct h2_stream *h2_stream_new(struct h2 *h, int32_t id)
{
    struct list *l = list_pop(&h->free);
    struct h2_stream *s = l ? container_of(l, struct h2_stream, link) : mem_renew(NULL, sizeof *s);
    if (l)
        h->nfree--;
    *s = (struct h2_stream){
        .pub = {.ops = &h2_ops}, .h = h, .id = id, .closed = id == 0, .why = WHYS};
    window_init(&s->window, h->s.limits->window, worker_now(h->s.w));
    list_init(&s->link);
    list_init(&s->later);
    list_push(&h->streams, &s->link);
    buf_init(&s->body, worker_pool(h->s.w));
    buf_init(&s->held, worker_pool(h->s.w));
    timer_init(&s->timer, on_cut_timer);
    h->granted += s->window.size;
    h->nstreams++;
    h->s.running++;
    h->s.exchanges++;
    return s;
}

void h2_give_back(struct h2_stream *s)
{
    if (s->unread == 0 || s->h->phase == H2_CLOSED)
        return;
    nghttp2_session_consume_connection(s->h->ng, s->unread);
    s->unread = 0;
}

void h2_stream_release(struct h2_stream *s)
{
    struct h2 *h = s->h;
    if (!s->gone || !s->closed || s->released)
        return;
    s->released = true;
    h2_give_back(s);
    buf_clear(&s->body);
    buf_clear(&s->held);
    timer_clear(h->s.w, &s->timer);
    list_del(&s->link);
    list_del(&s->later);
    h->heads -= s->head_bytes;
    h->granted -= s->window.size;
    s->head_bytes = 0;
    h->nstreams--;
    list_push(&h->graves, &s->link);
}

static void dig_graves(struct h2 *h, unsigned keep)
{
    for (struct list *l; (l = list_pop(&h->graves));) {
        if (h->nfree >= keep) {
            mem_free(container_of(l, struct h2_stream, link));
            continue;
        }
        list_push(&h->free, l);
        h->nfree++;
    }
}

void h2_stream_over(struct h2_stream *s, enum why why)
{
    if (s->gone)
        return;
    if (!s->h->s.server && !s->begun && (why == WHY_ORIGIN_GONE || why == WHY_ORIGIN_PROTOCOL))
        why = WHY_REFUSED;
    if (why == WHY_OK)
        h2_budget_ended(&s->h->budget);
    s->gone = true;
    s->h->s.running--;
    s->request = s->trailers = NULL;
    h2_give_back(s);
    s->pub.ev->closed(s->pub.user, why);
}

/* Tells all that are left. */
static void all_over(struct h2 *h, enum why why)
{
    struct list now;
    list_init(&now);
    for (struct list *l; (l = list_pop(&h->streams));)
        list_push(&now, l);
    for (struct list *l; (l = list_pop(&now));) {
        struct h2_stream *s = container_of(l, struct h2_stream, link);
        list_push(&h->streams, l);
        h2_stream_over(s, why);
        h2_stream_release(s);
    }
}

static enum why reset_by_peer(const struct h2_stream *s)
{
    if (s->h->s.server)
        return WHY_CLIENT_GONE;
    if (s->reset_code == NGHTTP2_REFUSED_STREAM && !s->pub.spoke)
        return WHY_REFUSED;
    /* the answer is complete, and the rest of the request was not wanted */
    return s->in == H2_IN_ENDED && !s->tunnel ? WHY_OK : WHY_ORIGIN_GONE;
}

static enum why why_closed(const struct h2_stream *s, uint32_t code)
{
    if (s->why != WHYS)
        return s->why;
    if (s->peer_reset)
        return reset_by_peer(s);
    if (code == NGHTTP2_NO_ERROR)
        return WHY_OK;
    if (code == NGHTTP2_REFUSED_STREAM) /* a GOAWAY has left it out */
        return s->h->s.server ? WHY_DRAIN : WHY_REFUSED;
    return h2_protocol(s->h);
}

static int on_stream_close(nghttp2_session *ng, int32_t id, uint32_t code, void *user)
{
    struct h2 *h = user;
    struct h2_stream *s = nghttp2_session_get_stream_user_data(ng, id);
    if (!s || h->phase == H2_CLOSED)
        return 0;
    s->why = why_closed(s, code);
    s->closed = true;
    h2_give_back(s);
    if (h->feeding) {
        h2_stream_over(s, s->why);
        h2_stream_release(s);
    } else {
        h2_later(s);
    }
    return 0;
}

/* ---- what is told after nghttp2 has written */

void h2_later(struct h2_stream *s)
{
    if (list_empty(&s->later))
        list_push(&s->h->later, &s->later);
}

static void tell(struct h2_stream *s)
{
    size_t sent = s->sent;
    s->sent = 0;
    if (sent > 0 && !s->gone)
        s->pub.ev->sent(s->pub.user, sent);
    if (s->release)
        h2_release_held(s);
    if (s->closed && s->why != WHYS && s->h->phase != H2_CLOSED)
        h2_stream_over(s, s->why);
    h2_stream_release(s);
}

void h2_tell_later(struct h2 *h)
{
    while (h->phase != H2_CLOSED) {
        struct list *l = list_pop(&h->later);
        if (!l)
            return;
        tell(container_of(l, struct h2_stream, later));
    }
}

/* ---- the end of the session */

static void close_conn(struct h2 *h, enum why why)
{
    if (h->phase == H2_CLOSED)
        return;
    h->phase = H2_CLOSED;
    timer_clear(h->s.w, &h->timer);
    conn_close(h->s.conn, why);
}

void h2_end(struct h2 *h, uint32_t code, enum why why)
{
    if (h->phase >= H2_ENDING)
        return;
    bool named = h->s.server && h->phase == H2_LEAVING && code == NGHTTP2_NO_ERROR;
    h->phase = H2_ENDING;
    h->end_why = why;
    if (!named && nghttp2_session_terminate_session(h->ng, code) != 0)
        h->goaway_left = true;
    arm(h, h->s.limits->linger_ms);
    conn_wake(h->s.conn);
}

void h2_fail(struct h2 *h, uint32_t code)
{
    h2_end(h, code, h2_protocol(h));
    all_over(h, h2_protocol(h));
}

void h2_leave(struct h2 *h)
{
    h->phase = H2_LEAVING;
    timer_clear(h->s.w, &h->timer);
    nghttp2_submit_goaway(h->ng, NGHTTP2_FLAG_NONE, nghttp2_session_get_last_proc_stream_id(h->ng),
                          NGHTTP2_NO_ERROR, NULL, 0);
    conn_wake(h->s.conn);
}

/* The last word has left. */
static void finish(struct h2 *h)
{
    if (!h->s.server || h->peer_eof) {
        close_conn(h, h->end_why);
        return;
    }
    h->phase = H2_LINGER;
    conn_finish(h->s.conn);
    conn_read(h->s.conn, true);
}

static bool can_open(const struct h2 *h)
{
    unsigned own = h->s.limits->max_streams;
    uint32_t max =
        nghttp2_session_get_remote_settings(h->ng, NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS);
    return !h->s.server && h->phase == H2_OPEN && h->peer_settings && !h->peer_goaway &&
           !h->peer_eof && h->nstreams < max && (own == 0 || h->nstreams < own) &&
           nghttp2_session_check_request_allowed(h->ng);
}

/* An origin that takes no more requests, for now or for ever: there is nobody who would close it.
 */
static bool is_useless(const struct h2 *h)
{
    return !h->s.server && h->s.exchanges > 0 && !can_open(h);
}

/* Nobody uses it.  Streams may be left all the same, over for their users, whose last word a peer
 * that does not read keeps from leaving: they must not hold the connection for ever. */
static uint64_t unused_ms(const struct h2 *h)
{
    const struct http_limits *limits = h->s.limits;
    if (h->s.server && limits->keep_alive_ms > 0)
        return limits->keep_alive_ms;
    return list_empty(&h->streams) ? 0 : limits->linger_ms;
}

void h2_unused(struct h2 *h)
{
    uint64_t ms = unused_ms(h);
    bool lives = h->phase == H2_OPEN || h->phase == H2_LEAVING;
    if (lives && h->s.running == 0 && ms > 0 && !timer_is_set(&h->timer))
        arm(h, ms);
}

static void settle_empty(struct h2 *h)
{
    if (!h->s.server)
        timer_clear(h->s.w, &h->timer); /* who made the connection keeps it as long as he likes */
    if (h->bulk) {
        h->bulk = false;
        conn_bulk(h->s.conn, false);
    }
    if (h->peer_goaway || is_useless(h))
        h2_end(h, NGHTTP2_NO_ERROR, WHY_OK);
}

static void settle_open(struct h2 *h)
{
    if (h->s.running > 0) {
        timer_clear(h->s.w, &h->timer);
        return;
    }
    if (list_empty(&h->streams))
        settle_empty(h);
    h2_unused(h);
}

static void settle_ending(struct h2 *h)
{
    if (h->goaway_left && conn_unsent(h->s.conn) == 0)
        finish(h);
}

static void tell_idle(struct h2 *h)
{
    if (!can_open(h)) {
        h->told_open = false;
        return;
    }
    if (h->told_open && (h->s.running > 0 || !h->was_busy))
        return;
    h->told_open = true;
    h->was_busy = h->s.running > 0;
    h->s.ev->idle(h->s.user, &h->s);
}

void h2_settle(struct h2 *h)
{
    switch (h->phase) {
    case H2_OPEN:
        settle_open(h);
        break;
    case H2_NOTICE:
        break;
    case H2_LEAVING:
        if (list_empty(&h->streams))
            h2_end(h, NGHTTP2_NO_ERROR, WHY_DRAIN);
        else
            h2_unused(h);
        break;
    case H2_ENDING:
        settle_ending(h);
        break;
    case H2_LINGER:
        if (h->peer_eof && conn_unsent(h->s.conn) == 0)
            close_conn(h, h->end_why);
        break;
    case H2_CLOSED:
        break;
    }
    if (!h->s.server && h->phase == H2_OPEN)
        tell_idle(h);
    dig_graves(h, FREE_STREAMS);
}

static void on_timer(struct timer *t)
{
    struct h2 *h = container_of(t, struct h2, timer);
    if (h->phase == H2_OPEN)
        h2_end(h, NGHTTP2_NO_ERROR, WHY_OK);
    else if (h->phase == H2_NOTICE)
        h2_leave(h);
    else
        close_conn(h, conn_unsent(h->s.conn) > 0 ? WHY_DEADLINE : h->end_why);
}

/* Who has left does not read answers either; but those that are complete may still be on their way.
 */
static void on_eof(void *user)
{
    struct h2 *h = user;
    h->peer_eof = true;
    h2_tell_later(h); /* what is complete is complete, whether the kernel has it or not */
    if (h->s.running > 0 && h->phase < H2_ENDING) {
        close_conn(h, h2_gone(h));
        all_over(h, h2_gone(h));
    }
    h2_end(h, NGHTTP2_NO_ERROR, WHY_OK);
    h2_settle(h);
}

static void free_h2(void *p)
{
    struct h2 *h = p;
    dig_graves(h, 0);
    for (struct list *l; (l = list_pop(&h->free));)
        mem_free(container_of(l, struct h2_stream, link));
    nghttp2_session_del(h->ng);
    h2_drop_fields(h);
    mem_free(h);
}

static void on_closed(void *user, enum why why)
{
    struct h2 *h = user;
    h->phase = H2_CLOSED;
    timer_clear(h->s.w, &h->timer);
    all_over(h, why);
    list_each(l, &h->streams)
    {
        struct h2_stream *s = container_of(l, struct h2_stream, link);
        s->closed = true;
        h2_stream_release(s);
    }
    h->s.ev->closed(h->s.user, &h->s);
    worker_bury(h->s.w, free_h2, h);
}

static const struct conn_events events = {NULL, h2_on_bytes, on_eof, h2_on_fill, on_closed};

/* ---- session operations */

static bool op_open(struct session *session, struct http_stream **ret)
{
    struct h2 *h = (struct h2 *)session;
    if (!can_open(h)) {
        h->told_open = false;
        return false;
    }
    h->was_busy = true;
    *ret = &h2_stream_new(h, 0)->pub;
    if (!can_open(h))
        h->told_open = false;
    return true;
}

static void op_drain(struct session *session)
{
    struct h2 *h = (struct h2 *)session;
    if (h->phase != H2_OPEN)
        return;
    conn_wake(h->s.conn);
    if (!h->s.server) {
        h->phase = H2_LEAVING;
        return;
    }
    if (h->s.limits->drain_idle_ms == 0) {
        h2_leave(h);
        return;
    }
    h->phase = H2_NOTICE;
    nghttp2_submit_shutdown_notice(h->ng);
    arm(h, ROUND_TRIP_MS);
}

/* Down is quiet: the streams hear of it when the conn has closed. */
static void op_close(struct session *session, enum why why)
{
    close_conn((struct h2 *)session, why);
}

static const struct session_ops ops = {op_open, op_drain, op_close, NULL};

/* ---- nghttp2's memory, counted for the cap of the worker, and wiped where it may be secret: it
 * copies the heads that it is given and those that it reads */

enum { PREFIX = 16 };

static void *ng_realloc(void *p, size_t n, void *user)
{
    char *block = p ? (char *)p - PREFIX : NULL;
    size_t old = 0;
    if (block)
        memcpy(&old, block, sizeof old);
    block =
        worker_is_private(user) ? mem_renew_wiped(block, PREFIX + n) : mem_renew(block, PREFIX + n);
    memcpy(block, &n, sizeof n);
    worker_hold(user, (ptrdiff_t)n - (ptrdiff_t)old);
    return block + PREFIX;
}

static void *ng_malloc(size_t n, void *user)
{
    return ng_realloc(NULL, n, user);
}

static void *ng_calloc(size_t count, size_t n, void *user)
{
    return memset(ng_realloc(NULL, count * n, user), 0, count * n);
}

static void ng_free(void *p, void *user)
{
    size_t n;
    if (!p)
        return;
    char *block = (char *)p - PREFIX;
    memcpy(&n, block, sizeof n);
    worker_hold(user, -(ptrdiff_t)n);
    if (worker_is_private(user))
        mem_wipe(p, n);
    mem_free(block);
}

/* ---- beginning */

/* Before the first frame: what a peer may do to nghttp2 itself (N18). */
static nghttp2_option *options(const struct http_limits *limits)
{
    nghttp2_option *o;
    if (nghttp2_option_new(&o) != 0)
        abort();
    nghttp2_option_set_no_auto_window_update(o, 1);
    nghttp2_option_set_no_closed_streams(o, 1);
    nghttp2_option_set_max_outbound_ack(o, ACKS);
    nghttp2_option_set_stream_reset_rate_limit(o, RESET_RATE, RESET_RATE);
    /* it counts them anew for each piece they come in; h2_in.c counts those that it sees */
    nghttp2_option_set_max_continuations(o, HEAD_PIECES * h2_max_continuations(limits));
    /* ours may be larger than what was read: fields are added, and this counts the worst case */
    nghttp2_option_set_max_send_header_block_length(o, 65536 + 4 * limits->max_head_bytes);
    return o;
}

static void new_session(struct h2 *h)
{
    nghttp2_mem mem = {h->s.w, ng_malloc, ng_free, ng_calloc, ng_realloc};
    nghttp2_session_callbacks *cb;
    nghttp2_option *o = options(h->s.limits);
    if (nghttp2_session_callbacks_new(&cb) != 0)
        abort();
    nghttp2_session_callbacks_set_on_stream_close_callback(cb, on_stream_close);
    h2_callbacks_in(cb);
    h2_callbacks_out(cb);
    int failed = h->s.server ? nghttp2_session_server_new3(&h->ng, cb, h, o, &mem)
                             : nghttp2_session_client_new3(&h->ng, cb, h, o, &mem);
    assert(failed == 0);
    nghttp2_session_callbacks_del(cb);
    nghttp2_option_del(o);
}

static unsigned streams_of(const struct http_limits *limits)
{
    return limits->max_streams ? limits->max_streams : DEFAULT_STREAMS;
}

static void send_settings(struct h2 *h)
{
    const struct http_limits *limits = h->s.limits;
    nghttp2_settings_entry all[] = {
        {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, (uint32_t)limits->window},
        {NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, (uint32_t)limits->max_head_bytes},
        {NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, streams_of(limits)},
        {NGHTTP2_SETTINGS_ENABLE_CONNECT_PROTOCOL, 1},
        {NGHTTP2_SETTINGS_NO_RFC7540_PRIORITIES, 1},
    };
    nghttp2_settings_entry client[] = {
        all[0],
        all[1],
        {NGHTTP2_SETTINGS_ENABLE_PUSH, 0},
        {NGHTTP2_SETTINGS_HEADER_TABLE_SIZE, 0}, /* what an origin reflects is not kept */
    };
    size_t nclient = sizeof client / sizeof *client - !worker_is_private(h->s.w);
    int failed = h->s.server ? nghttp2_submit_settings(h->ng, NGHTTP2_FLAG_NONE, all,
                                                       sizeof all / sizeof *all)
                             : nghttp2_submit_settings(h->ng, NGHTTP2_FLAG_NONE, client, nclient);
    assert(failed == 0);
}

/* The sum of what all streams may use at first, so that those that stand still do not hold up the
 * others; they grow only while the sum of all stays within it (N15). */
static void set_window(struct h2 *h)
{
    uint64_t all = (uint64_t)h->s.limits->window * streams_of(h->s.limits);
    h->window = all < LEAST_WINDOW ? LEAST_WINDOW : all > MAX_WINDOW ? MAX_WINDOW : all;
    nghttp2_session_set_local_window_size(h->ng, NGHTTP2_FLAG_NONE, 0, (int32_t)h->window);
}

struct session *h2_start(struct worker *w, struct conn *conn, bool server,
                         const struct http_limits *limits, const struct session_events *ev,
                         void *user)
{
    struct h2 *h = mem_new(sizeof *h);
    h->s = (struct session){&ops, ev, user, conn, w, limits, server, 0, 0, true, false, false};
    h->budget.max_resets = limits->max_resets;
    h->budget.max_control = limits->max_control;
    list_init(&h->streams);
    list_init(&h->later);
    list_init(&h->graves);
    list_init(&h->free);
    timer_init(&h->timer, on_timer);
    new_session(h);
    send_settings(h);
    set_window(h);
    conn_attach(conn, &events, h);
    conn_wake(conn);
    if (server && limits->keep_alive_ms > 0)
        arm(h, limits->keep_alive_ms);
    return &h->s;
}
