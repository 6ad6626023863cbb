/* h2_out.c — what is written.  Operations only submit; frames are made when the kernel takes more,
 * so that windows and turns are decided late.  A DATA frame is its nine bytes and slices that move,
 * no byte of it is copied; heads are copied by nghttp2 and compressed when their turn comes. */
#include <assert.h>

#include "base/secret.h"
#include "http/h2_impl.h"

enum { FRAME_HEAD_BYTES = 9, FEW_FIELDS = 48 };

static bool dead(const struct h2_stream *s)
{
    return s->closed || s->h->phase >= H2_ENDING;
}

static void wake(const struct h2_stream *s)
{
    if (s->h->phase != H2_CLOSED)
        conn_wake(s->h->s.conn);
}

static void reset(struct h2_stream *s, uint32_t code)
{
    nghttp2_submit_rst_stream(s->h->ng, NGHTTP2_FLAG_NONE, s->id, code);
}

/* ---- heads */

/* few: the caller's room for a usual list. */
static nghttp2_nv *nv_of(const struct h2_list *list, struct arena *a, nghttp2_nv few[FEW_FIELDS])
{
    nghttp2_nv *nv = list->nfields <= FEW_FIELDS ? few : arena_get(a, list->nfields * sizeof *nv);
    for (unsigned i = 0; i < list->nfields; i++) {
        const struct field *f = &list->fields[i];
        bool secret =
            h2head_sensitive(f->name) || secret_covers(f->value.p) || secret_covers(f->name.p);
        nv[i] = (nghttp2_nv){(uint8_t *)(uintptr_t)f->name.p, (uint8_t *)(uintptr_t)f->value.p,
                             f->name.n, f->value.n,
                             secret ? NGHTTP2_NV_FLAG_NO_INDEX : NGHTTP2_NV_FLAG_NONE};
    }
    return nv;
}

/* What nghttp2 asks for the body of s. */
static ssize_t on_read(nghttp2_session *ng, int32_t id, uint8_t *to, size_t max, uint32_t *flags,
                       nghttp2_data_source *source, void *user)
{
    struct h2_stream *s = source->ptr;
    size_t n = s->body.len < max ? s->body.len : max;
    (void)to, (void)user;
    if (n == 0 && s->out == H2_OUT_CUT)
        return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE; /* makes it RST_STREAM(INTERNAL_ERROR) */
    if (n == 0 && s->out != H2_OUT_LAST)
        return NGHTTP2_ERR_DEFERRED;
    *flags |= NGHTTP2_DATA_FLAG_NO_COPY;
    if (n < s->body.len || s->out != H2_OUT_LAST)
        return (ssize_t)n;
    *flags |= NGHTTP2_DATA_FLAG_EOF;
    if (s->trailers && s->trailers->nfields > 0) {
        struct h2_list list;
        nghttp2_nv few[FEW_FIELDS];
        h2head_write_trailers(s->trailers, s->pub.mem, &list);
        if (list.nfields > 0 &&
            nghttp2_submit_trailer(ng, id, nv_of(&list, s->pub.mem, few), list.nfields) == 0)
            *flags |= NGHTTP2_DATA_FLAG_NO_END_STREAM;
    }
    return (ssize_t)n;
}

static nghttp2_data_provider provider(struct h2_stream *s)
{
    return (nghttp2_data_provider){{.ptr = s}, on_read};
}

static void submit_response(struct h2_stream *s, const struct http_head *head, bool end)
{
    static const struct http_head unread = {.method = {"GET", 3}, .length = -1};
    nghttp2_data_provider body = provider(s);
    struct h2_list list;
    nghttp2_nv few[FEW_FIELDS];
    h2head_write_response(head, s->request ? s->request : &unread, end, s->pub.mem, &list);
    nghttp2_nv *nv = nv_of(&list, s->pub.mem, few);
    if (head->status < 200 && head->status != 101) {
        nghttp2_submit_headers(s->h->ng, NGHTTP2_FLAG_NONE, s->id, NULL, nv, list.nfields, NULL);
        return;
    }
    s->follows = !end;
    s->out = end ? H2_OUT_LAST : H2_OUT_BODY;
    nghttp2_submit_response(s->h->ng, s->id, nv, list.nfields, end ? NULL : &body);
}

/* What has come and may come is nobody's: it was meant for the tunnel. */
static void refuse_tunnel(struct h2_stream *s)
{
    s->tunnel = false;
    s->in = s->held_end ? H2_IN_ENDED : H2_IN_IGNORE;
    buf_clear(&s->held);
    h2_give_back(s);
}

static void grant_tunnel(struct h2_stream *s)
{
    s->in = H2_IN_TUNNEL;
    s->release = s->held.len > 0 || s->held_end;
    if (s->release)
        h2_later(s);
}

static bool bodyless(const struct h2_stream *s, const struct http_head *head)
{
    return head->status == 204 || head->status == 304 ||
           (s->request && str_eq(s->request->method, STR("HEAD")));
}

static void server_head(struct h2_stream *s, const struct http_head *head, bool end)
{
    if (s->out != H2_OUT_WAIT)
        return;
    bool final = head->status >= 200 || head->status == 101;
    bool grants = final && head->protocol.n > 0 && s->in == H2_IN_HELD;
    if (head->status == 101 && !grants) { /* nobody asked for it */
        s->why = WHY_ORIGIN_PROTOCOL;
        s->ours = true;
        reset(s, NGHTTP2_INTERNAL_ERROR);
        return;
    }
    if (grants)
        grant_tunnel(s);
    else if (final && s->in == H2_IN_HELD)
        refuse_tunnel(s);
    s->bodyless = final && bodyless(s, head);
    submit_response(s, head, end && !grants);
}

static void client_head(struct h2_stream *s, const struct http_head *head, bool end)
{
    nghttp2_data_provider body = provider(s);
    struct h2_list list;
    nghttp2_nv few[FEW_FIELDS];
    if (s->out != H2_OUT_WAIT)
        return;
    s->request = head;
    s->tunnel = head->protocol.n > 0 || str_eq(head->method, STR("CONNECT"));
    end = end && !s->tunnel;
    h2head_write_request(head, end, s->pub.mem, &list);
    int32_t id = nghttp2_submit_request(s->h->ng, NULL, nv_of(&list, s->pub.mem, few), list.nfields,
                                        end ? NULL : &body, s);
    if (id < 0) {
        s->why = WHY_REFUSED;
        h2_later(s);
        return;
    }
    s->id = id;
    s->closed = false;
    s->follows = !end;
    s->out = end ? H2_OUT_LAST : H2_OUT_BODY;
}

static void op_head(struct http_stream *stream, const struct http_head *head, bool end)
{
    struct h2_stream *s = h2_of(stream);
    bool unsent = !s->h->s.server && s->id == 0 && s->h->phase < H2_ENDING;
    if (dead(s) && !unsent)
        return;
    if (s->h->s.server)
        server_head(s, head, end);
    else
        client_head(s, head, end);
    wake(s);
}

/* ---- bodies */

static void op_data(struct http_stream *stream, struct buf *b)
{
    struct h2_stream *s = h2_of(stream);
    if (dead(s) || s->out != H2_OUT_BODY) {
        buf_clear(b); /* closed() will come */
        return;
    }
    wake(s);
    if (s->bodyless) { /* a body where none may be: HEAD, 204, 304 */
        s->sent += b->len;
        buf_clear(b);
        h2_later(s);
        return;
    }
    buf_queue(&s->body, b);
    nghttp2_session_resume_data(s->h->ng, s->id);
}

static bool tunnel_unanswered(const struct h2_stream *s)
{
    return !s->h->s.server && s->tunnel && s->in == H2_IN_HEAD;
}

static void op_end(struct http_stream *stream, const struct http_head *trailers)
{
    struct h2_stream *s = h2_of(stream);
    if (dead(s) || s->out != H2_OUT_BODY || tunnel_unanswered(s))
        return;
    s->trailers = s->bodyless || s->tunnel ? NULL : trailers;
    s->out = H2_OUT_LAST;
    nghttp2_session_resume_data(s->h->ng, s->id);
    wake(s);
}

/* Credit that comes back fast asks for more at a time; a tunnel may stall for days, and keeps to
 * what it has (WS-07). */
static void adjust_window(struct h2_stream *s, size_t n)
{
    struct h2 *h = s->h;
    const struct http_limits *limits = h->s.limits;
    size_t size = s->window.size;
    if (s->in != H2_IN_BODY)
        return;
    size_t next =
        window_next(&s->window, n, worker_now(h->s.w), limits->window, limits->window_max);
    if (next == size || h->granted - size + next > h->window)
        return;
    s->window.size = next;
    h->granted += next - size;
    nghttp2_session_set_local_window_size(h->ng, NGHTTP2_FLAG_NONE, s->id, (int32_t)next);
}

static void op_credit(struct http_stream *stream, size_t n)
{
    struct h2_stream *s = h2_of(stream);
    if (s->closed || s->h->phase == H2_CLOSED)
        return; /* was given back */
    assert(n <= s->unread);
    s->unread -= n;
    if (s->in == H2_IN_ENDED) {
        nghttp2_session_consume_connection(s->h->ng, n);
    } else {
        nghttp2_session_consume(s->h->ng, s->id, n);
        adjust_window(s, n);
    }
    if (nghttp2_session_want_write(s->h->ng))
        wake(s);
}

/* ---- giving up */

static uint32_t code_of(const struct h2_stream *s, enum why why)
{
    switch (why) {
    case WHY_CLIENT_GONE:
    case WHY_REVOKED:
        return NGHTTP2_CANCEL;
    case WHY_CLIENT_PROTOCOL:
        return NGHTTP2_PROTOCOL_ERROR;
    case WHY_LIMIT:
        return NGHTTP2_ENHANCE_YOUR_CALM;
    case WHY_REFUSED:
    case WHY_OVERLOAD:
    case WHY_DRAIN: /* nothing was done if not even the head had come */
        return s->in == H2_IN_HEAD ? NGHTTP2_REFUSED_STREAM : NGHTTP2_INTERNAL_ERROR;
    default:
        return NGHTTP2_INTERNAL_ERROR;
    }
}

/* A response under way breaks off after what is queued. */
static void cut(struct h2_stream *s)
{
    struct h2 *h = s->h;
    s->out = H2_OUT_CUT;
    timer_set(h->s.w, &s->timer, h->s.limits->linger_ms ? h->s.limits->linger_ms : 1);
    nghttp2_session_resume_data(h->ng, s->id);
}

static void cancel_response(struct h2_stream *s, enum why why)
{
    bool waits = why != WHY_CLIENT_GONE && why != WHY_REVOKED;
    if (s->out == H2_OUT_WAIT || (!waits && s->out != H2_OUT_DONE)) {
        reset(s, code_of(s, why));
        return;
    }
    if (s->out == H2_OUT_DONE)
        reset(s, waits ? NGHTTP2_NO_ERROR : NGHTTP2_CANCEL); /* all was said already */
    else if (s->follows)
        cut(s);
}

static void op_cancel(struct http_stream *stream, enum why why)
{
    struct h2_stream *s = h2_of(stream);
    s->gone = s->ours = true;
    s->h->s.running--;
    h2_unused(s->h); /* what we submit now may never leave */
    s->request = s->trailers = NULL;
    buf_clear(&s->held);
    h2_give_back(s);
    wake(s);
    if (dead(s))
        h2_stream_release(s);
    else if (s->h->s.server)
        cancel_response(s, why);
    else
        reset(s, NGHTTP2_CANCEL);
}

/* What waits in the conn may be of other streams. */
static enum http_left op_left(const struct http_stream *pub)
{
    const struct h2_stream *s =
        container_of((struct http_stream *)(uintptr_t)pub, struct h2_stream, pub);
    if (!s->begun)
        return HTTP_LEFT_NOTHING;
    return s->out == H2_OUT_DONE && conn_unsent(s->h->s.conn) == 0 ? HTTP_LEFT_ALL : HTTP_LEFT_PART;
}

const struct http_ops h2_ops = {op_head,   op_data, op_end, op_credit,
                                op_cancel, NULL,    NULL,   op_left};

/* ---- what nghttp2 tells while it writes */

static int on_send_data(nghttp2_session *ng, nghttp2_frame *frame, const uint8_t *framehd, size_t n,
                        nghttp2_data_source *source, void *user)
{
    struct h2 *h = user;
    struct h2_stream *s = source->ptr;
    (void)ng, (void)frame;
    buf_write(h->filling, framehd, FRAME_HEAD_BYTES);
    buf_move(h->filling, &s->body, n);
    h2_budget_sent(&h->budget, n);
    s->sent += n;
    if (n > 0)
        h2_later(s);
    return h->filling->len >= h->fill_max ? NGHTTP2_ERR_PAUSE : 0;
}

/* END_STREAM is out.  The rest of a request that is answered already is not wanted (N7); in a
 * tunnel the other direction lives on. */
static void message_sent(struct h2_stream *s)
{
    s->out = H2_OUT_DONE;
    if (s->h->s.server && s->in != H2_IN_ENDED && (!s->tunnel || s->gone))
        reset(s, NGHTTP2_NO_ERROR);
}

static void goaway_sent(struct h2 *h, const nghttp2_goaway *g)
{
    if (g->error_code != NGHTTP2_NO_ERROR)
        h->broken = true;
    if (h->phase >= H2_LEAVING || h->broken)
        h->goaway_left = true;
    else if (h->phase == H2_NOTICE) /* not before: a PING would overtake it in the queue */
        nghttp2_submit_ping(h->ng, NGHTTP2_FLAG_NONE, h2_notice_ping);
}

static int on_frame_send(nghttp2_session *ng, const nghttp2_frame *frame, void *user)
{
    struct h2 *h = user;
    struct h2_stream *s = NULL;
    if (frame->hd.stream_id > 0)
        s = nghttp2_session_get_stream_user_data(ng, frame->hd.stream_id);
    switch (frame->hd.type) {
    case NGHTTP2_HEADERS:
    case NGHTTP2_DATA:
        if (!s)
            return 0;
        s->begun = true;
        if (frame->hd.flags & NGHTTP2_FLAG_END_STREAM)
            message_sent(s);
        return 0;
    case NGHTTP2_RST_STREAM:
        if (frame->rst_stream.error_code != NGHTTP2_NO_ERROR && (!s || !s->ours) &&
            !h2_budget_reset(&h->budget))
            h->fail_code = NGHTTP2_ENHANCE_YOUR_CALM;
        return 0;
    case NGHTTP2_GOAWAY:
        goaway_sent(h, &frame->goaway);
        return 0;
    default:
        return 0;
    }
}

/* A head that is too large for any peer (N18): its stream would hang. */
static int on_frame_not_send(nghttp2_session *ng, const nghttp2_frame *frame, int error, void *user)
{
    const struct h2 *h = user;
    struct h2_stream *s = NULL;
    if (frame->hd.type == NGHTTP2_HEADERS)
        s = nghttp2_session_get_stream_user_data(ng, frame->hd.stream_id);
    if (!s || s->why != WHYS || error != NGHTTP2_ERR_FRAME_SIZE_ERROR)
        return 0;
    s->why = WHY_LIMIT;
    s->ours = true;
    if (h->s.server) /* a request's stream is closed without that */
        reset(s, NGHTTP2_INTERNAL_ERROR);
    return 0;
}

void h2_callbacks_out(nghttp2_session_callbacks *cb)
{
    nghttp2_session_callbacks_set_send_data_callback(cb, on_send_data);
    nghttp2_session_callbacks_set_on_frame_send_callback(cb, on_frame_send);
    nghttp2_session_callbacks_set_on_frame_not_send_callback(cb, on_frame_not_send);
}

/* ---- what the conn pulls */

/* nghttp2 keeps the last frame until it makes the next one.  What it has handed over it does not
 * read again; only the client's preface, which is no HEADERS and no CONTINUATION, is a constant. */
static void wipe_head(const uint8_t *p, size_t n)
{
    if (n > FRAME_HEAD_BYTES && (p[3] == NGHTTP2_HEADERS || p[3] == NGHTTP2_CONTINUATION))
        mem_wipe((void *)(uintptr_t)(p + FRAME_HEAD_BYTES), n - FRAME_HEAD_BYTES);
}

static void write_frames(struct h2 *h, struct buf *out, size_t max)
{
    const uint8_t *p;
    h->filling = out;
    h->fill_max = max;
    while (out->len < max) {
        ssize_t n = nghttp2_session_mem_send(h->ng, &p);
        if (n < 0)
            h->goaway_left = h->broken = true; /* out of its mind: nothing can follow */
        if (n <= 0)
            break;
        buf_write(out, p, (size_t)n);
        if (worker_is_private(h->s.w))
            wipe_head(p, (size_t)n);
    }
    h->filling = NULL;
}

void h2_on_fill(void *user, struct buf *out, size_t max)
{
    struct h2 *h = user;
    h2_tell_later(h); /* the last batch has left, or we would not be asked */
    if (h->phase < H2_LINGER)
        write_frames(h, out, max);
    if (out->len == 0)
        h2_tell_later(h);
    if (h->phase < H2_ENDING && (h->broken || h->fail_code))
        h2_fail(h, h->fail_code ? h->fail_code : NGHTTP2_PROTOCOL_ERROR);
    if (h->choked && h->phase < H2_ENDING && !h2_choked(h)) {
        h->choked = false;
        conn_read(h->s.conn, true);
    }
    h2_settle(h);
}
