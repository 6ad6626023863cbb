/* h2_in.c — what is read: frames become events.  A header block is collected field by field in the
 * exchange's arena and judged whole by h2head.c; a body is passed on as slices of what the kernel
 * wrote, since nghttp2 points into the bytes it was fed.  What costs us something and carries
 * nothing is counted here, as is what a peer makes us hold. */
#include <assert.h>

#include "http/h2_impl.h"

enum {
    FEED_BYTES = 16384,
    QUEUED_FRAMES = 512, /* answers to frames that wait to be written: enough for a batch */
    SMALL_SPAN = 512,    /* a piece of a body that is cheaper to copy than to point to */
    FIELD_COST = 32,     /* RFC 9113 section 6.5.2 */
    INTERIM_COST = 64,   /* what a 1xx costs beyond its fields */
    SMALL_HEAD = 8192,   /* is read even if memory is short */
    HEADS = 4,           /* so many whole heads may a connection hold, ... */
    USUAL_HEAD = 4096,   /* ... besides those that are no larger than others are */
    CONTINUATIONS = 16,
    USUAL_CONTINUATION = 4096,
    SMALL_CONTINUATION = 1024,
    SPARE_FIELDS = 32,
    PSEUDO_FIELDS = 5, /* of a request (RFC 9113 section 8.3.1, RFC 8441) */
    BULK_AFTER = 256 * 1024
};

static const struct http_fault too_large = {431, "message head too large"};
static const struct http_fault many_fields = {431, "too many header fields"};
static const struct http_fault trailers_too_large = {431, "trailer section too large"};
static const struct http_fault bad_trailers = {400, "malformed trailer section"};
static const struct http_fault short_of_memory = {503, "out of memory for message heads"};

/* ---- budgets */

static int give_up(struct h2 *h, uint32_t code)
{
    h->fail_code = code;
    return NGHTTP2_ERR_CALLBACK_FAILURE;
}

static int count(struct h2 *h, bool within)
{
    return within ? 0 : give_up(h, NGHTTP2_ENHANCE_YOUR_CALM);
}

/* Was this id skipped by a younger stream?  Then it is closed and can never begin; ids of streams
 * that were there and are no more are another matter, since frames may cross (RFC 9113 section
 * 5.1.1). */
static bool skipped(const struct h2 *h, int32_t id)
{
    enum { GAPS = sizeof h->gaps / sizeof *h->gaps };
    for (unsigned i = 0; i < GAPS && i < h->ngaps; i++)
        if (id >= h->gaps[i].from && id <= h->gaps[i].to)
            return true;
    return false;
}

static void note_id(struct h2 *h, int32_t id)
{
    enum { GAPS = sizeof h->gaps / sizeof *h->gaps };
    int32_t next = h->last_id ? h->last_id + 2 : 1;
    if (id > next) {
        h->gaps[h->ngaps % GAPS].from = next;
        h->gaps[h->ngaps % GAPS].to = id - 2;
        h->ngaps++;
    }
    h->last_id = id;
}

unsigned h2_max_continuations(const struct http_limits *limits)
{
    return CONTINUATIONS + (unsigned)(limits->max_head_bytes / USUAL_CONTINUATION);
}

static int continuation(struct h2 *h, size_t n)
{
    if (++h->continuations > h2_max_continuations(h->s.limits))
        return give_up(h, NGHTTP2_ENHANCE_YOUR_CALM);
    return n >= SMALL_CONTINUATION ? 0 : count(h, h2_budget_control(&h->budget));
}

static int begin_headers_frame(struct h2 *h, int32_t id, bool known)
{
    h->continuations = 0;
    if (h->s.server && id > h->last_id && (id & 1)) {
        note_id(h, id);
        return h->phase < H2_LEAVING ? 0 : count(h, h2_budget_control(&h->budget));
    }
    if (known)
        return 0;
    if (skipped(h, id))
        return give_up(h, NGHTTP2_PROTOCOL_ERROR);
    return count(h, h2_budget_control(&h->budget));
}

static int on_begin_frame(nghttp2_session *ng, const nghttp2_frame_hd *hd, void *user)
{
    struct h2 *h = user;
    bool known = hd->stream_id > 0 && nghttp2_session_get_stream_user_data(ng, hd->stream_id);
    if (h->phase == H2_CLOSED)
        return NGHTTP2_ERR_CALLBACK_FAILURE;
    switch (hd->type) {
    case NGHTTP2_HEADERS:
        return begin_headers_frame(h, hd->stream_id, known);
    case NGHTTP2_DATA: /* paid back by the first byte */
        if (known && (hd->flags & NGHTTP2_FLAG_END_STREAM))
            return 0;
        return count(h, h2_budget_control(&h->budget));
    case NGHTTP2_RST_STREAM:
        return known ? 0 : count(h, h2_budget_control(&h->budget));
    case NGHTTP2_WINDOW_UPDATE:
        return count(h, h2_budget_update(&h->budget));
    case NGHTTP2_CONTINUATION:
        return continuation(h, hd->length);
    case NGHTTP2_PRIORITY: /* nghttp2 passes over it unread */
        if (hd->stream_id == 0)
            return give_up(h, NGHTTP2_PROTOCOL_ERROR);
        return count(h, h2_budget_control(&h->budget));
    default:
        return count(h, h2_budget_control(&h->budget));
    }
}

/* ---- ends */

/* The stream is malformed (RFC 9113 section 8.1.1); the connection lives. */
static void malformed(struct h2_stream *s)
{
    s->why = h2_protocol(s->h);
    nghttp2_submit_rst_stream(s->h->ng, NGHTTP2_FLAG_NONE, s->id, NGHTTP2_PROTOCOL_ERROR);
    h2_stream_over(s, s->why);
}

/* Server: an answer can still be given; client: the answer is worth nothing. */
static void broken(struct h2_stream *s, const struct http_fault *fault)
{
    if (!s->h->s.server) {
        malformed(s);
        return;
    }
    s->in = H2_IN_IGNORE;
    s->pub.ev->fault(s->pub.user, fault);
}

static void message_end(struct h2_stream *s, struct http_head *trailers)
{
    enum h2_in was = s->in;
    if (was == H2_IN_HELD) {
        s->held_end = true;
        return;
    }
    s->in = H2_IN_ENDED;
    if (!s->gone && (was == H2_IN_BODY || was == H2_IN_TUNNEL))
        s->pub.ev->end(s->pub.user, trailers);
}

/* ---- header blocks */

static int accept_stream(struct h2 *h, int32_t id)
{
    static const nghttp2_extpri fair = {NGHTTP2_EXTPRI_DEFAULT_URGENCY, 1};
    if (h->phase >= H2_LEAVING) { /* later than the last one that was named */
        nghttp2_submit_rst_stream(h->ng, NGHTTP2_FLAG_NONE, id, NGHTTP2_REFUSED_STREAM);
        return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    }
    struct h2_stream *s = h2_stream_new(h, id);
    nghttp2_session_set_stream_user_data(h->ng, id, s);
    nghttp2_session_change_extpri_stream_priority(h->ng, id, &fair, 1);
    h->s.ev->accept(h->s.user, &h->s, &s->pub);
    return 0;
}

static int on_begin_headers(nghttp2_session *ng, const nghttp2_frame *frame, void *user)
{
    struct h2 *h = user;
    h->nfields = 0;
    if (frame->hd.type != NGHTTP2_HEADERS)
        return 0;
    if (frame->headers.cat == NGHTTP2_HCAT_REQUEST)
        return accept_stream(h, frame->hd.stream_id);
    struct h2_stream *s = nghttp2_session_get_stream_user_data(ng, frame->hd.stream_id);
    if (!s)
        return 0;
    s->pub.spoke = true;
    s->trailing = h->s.server || s->in != H2_IN_HEAD;
    return 0;
}

static struct str text_of(struct arena *a, nghttp2_rcbuf *from)
{
    nghttp2_vec v = nghttp2_rcbuf_get_buf(from);
    struct str s = {(const char *)v.base, v.len};
    return nghttp2_rcbuf_is_static(from) ? s : arena_str(a, s);
}

static void keep_field(struct h2_stream *s, nghttp2_rcbuf *name, nghttp2_rcbuf *value)
{
    struct h2 *h = s->h;
    if (h->nfields == h->room) {
        unsigned room = h->room ? 2 * h->room : SPARE_FIELDS;
        worker_hold(h->s.w, (ptrdiff_t)((room - h->room) * sizeof *h->fields));
        h->room = room;
        h->fields = mem_renew(h->fields, room * sizeof *h->fields);
    }
    h->fields[h->nfields].name = text_of(s->pub.mem, name);
    h->fields[h->nfields++].value = text_of(s->pub.mem, value);
}

static const struct http_fault *head_fault(const struct h2_stream *s)
{
    const struct http_limits *limits = s->h->s.limits;
    bool crowded = s->head_bytes > USUAL_HEAD && s->h->heads > HEADS * limits->max_head_bytes;
    if (s->head_bytes > limits->max_head_bytes || crowded)
        return s->trailing ? &trailers_too_large : &too_large;
    if (limits->max_fields > 0 && s->h->nfields >= limits->max_fields + PSEUDO_FIELDS)
        return s->trailing ? &trailers_too_large : &many_fields;
    if (s->head_bytes > SMALL_HEAD && limits->max_memory > 0 &&
        worker_held(s->h->s.w) > limits->max_memory)
        return &short_of_memory;
    return NULL;
}

static int on_header(nghttp2_session *ng, const nghttp2_frame *frame, nghttp2_rcbuf *name,
                     nghttp2_rcbuf *value, uint8_t flags, void *user)
{
    struct h2 *h = user;
    struct h2_stream *s = nghttp2_session_get_stream_user_data(ng, frame->hd.stream_id);
    (void)flags;
    if (!s)
        return 0;
    size_t cost = nghttp2_rcbuf_get_buf(name).len + nghttp2_rcbuf_get_buf(value).len + FIELD_COST;
    s->head_bytes += cost;
    h->heads += cost;
    if (!s->fault)
        s->fault = head_fault(s);
    if (!s->fault) {
        if (!s->gone)
            keep_field(s, name, value);
        return 0;
    }
    if (s->head_bytes <= HEADS * h->s.limits->max_head_bytes)
        return 0; /* not kept; the answer says why */
    /* a few bytes of an index can stand for a whole table's worth of fields, again and again */
    nghttp2_submit_rst_stream(ng, NGHTTP2_FLAG_NONE, s->id, NGHTTP2_ENHANCE_YOUR_CALM);
    return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
}

/* What nghttp2 would drop in silence (N17). */
static int on_invalid_header(nghttp2_session *ng, const nghttp2_frame *frame, nghttp2_rcbuf *name,
                             nghttp2_rcbuf *value, uint8_t flags, void *user)
{
    (void)ng, (void)frame, (void)name, (void)value, (void)flags, (void)user;
    return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
}

/* The block as a list of the exchange; a large scratch does not outlive it. */
static struct h2_list whole(struct h2_stream *s)
{
    struct h2 *h = s->h;
    struct h2_list list = {arena_get(s->pub.mem, (h->nfields + 1) * sizeof *list.fields),
                           h->nfields};
    if (h->nfields > 0)
        memcpy(list.fields, h->fields, h->nfields * sizeof *list.fields);
    h->nfields = 0;
    if (h->room > SPARE_FIELDS)
        h2_drop_fields(h);
    return list;
}

static void request_head(struct h2_stream *s, bool end)
{
    struct http_fault fault = {400, "malformed request"};
    struct http_head *head = arena_zero(s->pub.mem, sizeof *head);
    struct h2_list list = whole(s);
    struct str scheme = conn_info(s->h->s.conn)->tls ? STR("https") : STR("http");
    enum why why = s->h->s.limits->two_names
                       ? h2head_request_of_two(&list, end, scheme, s->pub.mem, head, &fault)
                       : h2head_request(&list, end, scheme, s->pub.mem, head, &fault);
    if (why != WHY_OK) {
        if (fault.status == 400)
            malformed(s);
        else
            broken(s, &fault);
        return;
    }
    s->request = head;
    s->tunnel = head->protocol.n > 0 || str_eq(head->method, STR("CONNECT"));
    s->in = s->tunnel ? H2_IN_HELD : end ? H2_IN_ENDED : H2_IN_BODY;
    s->held_end = s->tunnel && end;
    s->pub.ev->head(s->pub.user, head, end || s->tunnel);
}

static bool interim(const struct http_head *head)
{
    return head->status < 200 && head->status != 101;
}

/* The final answer to a request for a tunnel. */
static void tunnel_answer(struct h2_stream *s, const struct http_head *head)
{
    if (head->protocol.n > 0) {
        s->in = H2_IN_TUNNEL;
        return;
    }
    s->tunnel = false;
    if (s->out == H2_OUT_BODY)
        s->out = H2_OUT_LAST;
    nghttp2_session_resume_data(s->h->ng, s->id);
    conn_wake(s->h->s.conn);
}

static void response_head(struct h2_stream *s, bool end)
{
    struct http_head *head = arena_zero(s->pub.mem, sizeof *head);
    struct h2_list list = whole(s);
    if (h2head_response(&list, s->request, head) != WHY_OK) {
        malformed(s);
        return;
    }
    if (interim(head)) {
        s->head_bytes += INTERIM_COST;
        s->h->heads += INTERIM_COST;
        s->pub.ev->head(s->pub.user, head, false);
        return;
    }
    s->in = H2_IN_BODY;
    if (s->tunnel)
        tunnel_answer(s, head);
    bool ends = end && s->in == H2_IN_BODY;
    if (ends)
        s->in = H2_IN_ENDED;
    s->pub.ev->head(s->pub.user, head, ends);
    if (end && !ends && !s->gone)
        message_end(s, NULL);
}

static void trailers(struct h2_stream *s)
{
    struct http_head *head = arena_zero(s->pub.mem, sizeof *head);
    struct h2_list list = whole(s);
    if (s->in != H2_IN_BODY) {
        message_end(s, NULL);
        return;
    }
    if (h2head_trailers(&list, s->h->s.server, head) != WHY_OK) {
        broken(s, &bad_trailers);
        return;
    }
    message_end(s, head->nfields > 0 ? head : NULL);
}

static void on_block(struct h2_stream *s, bool end)
{
    h2_budget_carried(&s->h->budget);
    if (s->gone)
        return;
    if (s->fault) {
        const struct http_fault *fault = s->fault;
        s->fault = NULL;
        if (s->in != H2_IN_IGNORE)
            broken(s, fault);
    } else if (s->trailing) {
        trailers(s);
        return;
    } else if (s->h->s.server) {
        request_head(s, end);
    } else {
        response_head(s, end);
    }
    if (end && s->in == H2_IN_IGNORE)
        s->in = H2_IN_ENDED;
}

/* ---- bodies */

static void note_bulk(struct h2_stream *s, size_t n)
{
    struct h2 *h = s->h;
    s->received += n;
    bool bulk = s->received > BULK_AFTER && h->s.running == 1; /* one stream that stands still must
                                                                  not pin what others share */
    if (h->bulk == bulk)
        return;
    h->bulk = bulk;
    conn_bulk(h->s.conn, bulk);
}

static void add_span(struct h2 *h, struct buf *to, const uint8_t *p, size_t n)
{
    if (n < SMALL_SPAN)
        buf_write(to, p, n);
    else
        buf_ref(to, h->feeding->chunk, (uint8_t *)(uintptr_t)p, n);
}

static void deliver(struct h2_stream *s, struct buf *b)
{
    s->pub.ev->data(s->pub.user, b);
    buf_clear(b); /* what is left was not wanted; the user credits all the same */
}

static int on_data(nghttp2_session *ng, uint8_t flags, int32_t id, const uint8_t *p, size_t n,
                   void *user)
{
    struct h2 *h = user;
    struct h2_stream *s = nghttp2_session_get_stream_user_data(ng, id);
    struct buf b;
    (void)flags;
    if (h->phase == H2_CLOSED)
        return NGHTTP2_ERR_CALLBACK_FAILURE;
    h2_budget_carried(&h->budget);
    if (!s || s->gone) {
        nghttp2_session_consume_connection(ng, n);
        return 0;
    }
    note_bulk(s, n);
    if (s->in == H2_IN_IGNORE) {
        nghttp2_session_consume(ng, id, n);
        return 0;
    }
    s->unread += n;
    buf_init(&b, worker_pool(h->s.w));
    add_span(h, &b, p, n);
    if (s->in == H2_IN_HELD)
        buf_queue(&s->held, &b);
    else
        deliver(s, &b);
    return 0;
}

void h2_release_held(struct h2_stream *s)
{
    struct buf b;
    s->release = false;
    if (s->gone || s->h->phase == H2_CLOSED)
        return;
    buf_init(&b, worker_pool(s->h->s.w));
    buf_move_all(&b, &s->held);
    if (b.len > 0)
        deliver(s, &b);
    if (s->held_end && !s->gone && s->h->phase != H2_CLOSED)
        message_end(s, NULL);
    s->held_end = false;
}

/* ---- frames */

static int on_reset(struct h2 *h, struct h2_stream *s, uint32_t code)
{
    if (!s)
        return 0;
    s->peer_reset = true;
    s->reset_code = code;
    return count(h, s->gone || h2_budget_reset(&h->budget));
}

static void on_settings(struct h2 *h)
{
    h->peer_settings = true;
    h->s.extended = !h->s.server && nghttp2_session_get_remote_settings(
                                        h->ng, NGHTTP2_SETTINGS_ENABLE_CONNECT_PROTOCOL) == 1;
}

static int on_frame(nghttp2_session *ng, const nghttp2_frame *frame, void *user)
{
    struct h2 *h = user;
    struct h2_stream *s = frame->hd.stream_id > 0
                              ? nghttp2_session_get_stream_user_data(ng, frame->hd.stream_id)
                              : NULL;
    bool end = frame->hd.flags & NGHTTP2_FLAG_END_STREAM, ack = frame->hd.flags & NGHTTP2_FLAG_ACK;
    if (h->phase == H2_CLOSED)
        return NGHTTP2_ERR_CALLBACK_FAILURE;
    switch (frame->hd.type) {
    case NGHTTP2_HEADERS:
        if (s)
            on_block(s, end);
        break;
    case NGHTTP2_DATA:
        if (s && end)
            message_end(s, NULL);
        break;
    case NGHTTP2_RST_STREAM:
        return on_reset(h, s, frame->rst_stream.error_code);
    case NGHTTP2_SETTINGS:
        if (!ack)
            on_settings(h);
        break;
    case NGHTTP2_PING:
        if (ack && h->phase == H2_NOTICE &&
            memcmp(frame->ping.opaque_data, h2_notice_ping, sizeof h2_notice_ping) == 0)
            h2_leave(h);
        break;
    case NGHTTP2_GOAWAY:
        h->peer_goaway = true;
        break;
    default:
        break;
    }
    return h->phase == H2_CLOSED ? NGHTTP2_ERR_CALLBACK_FAILURE : 0;
}

void h2_callbacks_in(nghttp2_session_callbacks *cb)
{
    nghttp2_session_callbacks_set_on_begin_frame_callback(cb, on_begin_frame);
    nghttp2_session_callbacks_set_on_begin_headers_callback(cb, on_begin_headers);
    nghttp2_session_callbacks_set_on_header_callback2(cb, on_header);
    nghttp2_session_callbacks_set_on_invalid_header_callback2(cb, on_invalid_header);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(cb, on_data);
    nghttp2_session_callbacks_set_on_frame_recv_callback(cb, on_frame);
}

/* ---- events of the conn */

void h2_drop_fields(struct h2 *h)
{
    worker_hold(h->s.w, -(ptrdiff_t)(h->room * sizeof *h->fields));
    mem_free(h->fields);
    h->fields = NULL;
    h->room = 0;
}

bool h2_choked(const struct h2 *h)
{
    return nghttp2_session_get_outbound_queue_size(h->ng) > QUEUED_FRAMES;
}

static uint32_t code_of(const struct h2 *h, ssize_t error)
{
    if (h->fail_code)
        return h->fail_code;
    switch (error) {
    case NGHTTP2_ERR_BAD_CLIENT_MAGIC:
        return NGHTTP2_PROTOCOL_ERROR;
    case NGHTTP2_ERR_FLOODED:
    case NGHTTP2_ERR_TOO_MANY_SETTINGS:
    case NGHTTP2_ERR_TOO_MANY_CONTINUATIONS:
        return NGHTTP2_ENHANCE_YOUR_CALM;
    default:
        return NGHTTP2_INTERNAL_ERROR;
    }
}

/* nghttp2 reads at most so much in one go, so that answers to frames cannot pile up unseen. */
static void feed(struct h2 *h, struct buf *in)
{
    struct slice *slice = in->head;
    size_t n = slice->n < FEED_BYTES ? slice->n : FEED_BYTES;
    h->feeding = slice;
    ssize_t used = nghttp2_session_mem_recv(h->ng, slice->p, n);
    h->feeding = NULL;
    if (h->phase == H2_CLOSED)
        return;
    if (used < 0) {
        h2_fail(h, code_of(h, used));
        return;
    }
    assert((size_t)used == n);
    buf_drop(in, n);
}

void h2_on_bytes(void *user, struct buf *in)
{
    struct h2 *h = user;
    while (in->len > 0 && h->phase < H2_ENDING && !(h->choked = h2_choked(h)))
        feed(h, in);
    if (h->phase == H2_ENDING || h->phase == H2_LINGER)
        buf_clear(in);
    if (h->phase != H2_CLOSED && nghttp2_session_want_write(h->ng))
        conn_wake(h->s.conn);
    h2_settle(h);
}
