/* h1_in.c — the message that is read.  A head is looked at byte by byte as it comes and copied
 * once, into the exchange's arena; a body is passed on as slices of what the kernel wrote.  What
 * the user has no window for stays untaken in the conn, which pushes back. */
#include <assert.h>

#include "http/h1_impl.h"
#include "http/websocket.h"

enum {
    BULK_AFTER = 256 * 1024,
    MAX_FIELD_BYTES = 32,
    INTERIM_BYTES = 64, /* what a 1xx costs beyond its text */
    SMALL_SPAN = 512    /* a piece of a body that is cheaper to copy than to point to */
};

void h1_drop_scratch(struct h1 *h)
{
    worker_hold(h->s.w, -(ptrdiff_t)h->scratch_room);
    if (worker_is_private(h->s.w))
        mem_wipe(h->scratch, h->scratch_n);
    mem_free(h->scratch);
    h->scratch = NULL;
    h->scratch_n = h->scratch_room = 0;
}

void h1_reset_in(struct h1 *h)
{
    h->in = IN_IDLE;
    h->scan = (struct h1_scan){0};
    h->chunked = (struct chunked){0};
    h->in_framing = (struct framing){.keep_alive = true};
    h->left = 0;
    if (h->body_in > BULK_AFTER)
        conn_bulk(h->s.conn, false);
    h->body_in = 0;
    h->unread = 0;
    window_init(&h->window, h->s.limits->window, worker_now(h->s.w));
    h->waits_tunnel = false;
    if (h->scratch)
        h1_drop_scratch(h);
}

/* The peer broke the protocol.  A client gets an answer, if its exchange still can give one; a
 * backend is cut off. */
static void broken(struct h1 *h, const struct http_fault *fault)
{
    if (!h->s.server) {
        h1_close(h, WHY_ORIGIN_PROTOCOL);
        return;
    }
    h->in = IN_DISCARD;
    h->we_keep = false;
    h->in_framing.keep_alive = false;
    if (h->has_stream)
        h->stream.ev->fault(h->stream.user, fault);
}

static void broken_text(struct h1 *h, int status, const char *text)
{
    broken(h, &(struct http_fault){status, text});
}

/* ---- heads */

static void keep_piece(struct h1 *h, const char *p, size_t n)
{
    if (h->scratch_n + n > h->scratch_room) {
        size_t room = 2 * (h->scratch_n + n) < 512 ? 512 : 2 * (h->scratch_n + n);
        worker_hold(h->s.w, (ptrdiff_t)(room - h->scratch_room));
        h->scratch_room = room;
        h->scratch = worker_is_private(h->s.w) ? mem_renew_wiped(h->scratch, room)
                                               : mem_renew(h->scratch, room);
    }
    memcpy(h->scratch + h->scratch_n, p, n);
    h->scratch_n += n;
}

/* Above the cap of the worker a head that comes in pieces is not waited for (B7). */
static bool short_of_memory(const struct h1 *h)
{
    size_t cap = h->s.limits->max_memory;
    return cap > 0 && worker_held(h->s.w) > cap;
}

/* The complete head as one text in the exchange's arena. */
static struct str whole(struct h1 *h, const char *p, size_t n)
{
    char *to = arena_get(h->stream.mem, h->scratch_n + n + 1);
    if (h->scratch_n > 0)
        memcpy(to, h->scratch, h->scratch_n);
    memcpy(to + h->scratch_n, p, n);
    struct str s = {to, h->scratch_n + n};
    if (h->scratch)
        h1_drop_scratch(h);
    return s;
}

static void message_complete(struct h1 *h, struct http_head *trailers);

/* State of the body after a head. */
static bool begin_body(struct h1 *h)
{
    h->left = h->in_framing.length;
    h->chunked = (struct chunked){0};
    bool none =
        h->in_framing.body == BODY_NONE || (h->in_framing.body == BODY_LENGTH && h->left == 0);
    h->in = none ? IN_DONE : IN_BODY;
    return none;
}

static struct str scheme(const struct h1 *h)
{
    return conn_info(h->s.conn)->tls ? STR("https") : STR("http");
}

static void request_head(struct h1 *h, struct str block)
{
    struct http_raw raw;
    struct http_fault fault = {400, "malformed request"};
    struct http_head *head = arena_get(h->stream.mem, sizeof *head);
    enum why why =
        h1head_request(block, h->scan.lines ? h->scan.lines - 1 : 0, h->stream.mem, &raw, &fault);
    h->minor = why == WHY_OK ? raw.minor : 1;
    if (why == WHY_OK)
        why = rules_request(&raw, scheme(h), head, &h->in_framing, &fault);
    if (why != WHY_OK) {
        broken(h, &fault);
        return;
    }
    h->request = head;
    h->waits_tunnel = head->protocol.n > 0;
    bool end = begin_body(h);
    h->stream.ev->head(h->stream.user, head, end);
}

static bool interim(const struct http_head *head)
{
    return head->status < 200 && head->status != 101;
}

/* A 101, or a 2xx to CONNECT: bytes are bytes from here on, both ways. */
static void to_tunnel(struct h1 *h)
{
    h->in = IN_TUNNEL;
    h->in_framing.keep_alive = false;
    h->out = h->out == OUT_DONE ? OUT_TUNNEL : h->out;
    h->out_coding = CODING_RAW;
}

/* The answer to a key of ours: the one right value, once, and it ends here. */
static bool take_accept(struct h1 *h, struct http_head *head)
{
    unsigned kept = 0, right = 0, lines = 0;
    for (unsigned i = 0; i < head->nfields; i++) {
        struct field f = head->fields[i];
        if (!websocket_is_accept(f.name)) {
            head->fields[kept++] = f;
            continue;
        }
        lines++;
        right += websocket_accepted(h->key, f.value);
    }
    head->nfields = kept;
    return lines == 1 && right == 1;
}

/* Of a handshake made up for HTTP/2: there any 2xx would be read as a switch. */
static bool granted_well(struct h1 *h, struct http_head *head)
{
    return head->protocol.n > 0 ? take_accept(h, head) : head->status / 100 != 2;
}

static void response_head(struct h1 *h, struct str block)
{
    struct http_raw raw;
    struct http_head *head = arena_get(h->stream.mem, sizeof *head);
    enum why why =
        h1head_response(block, h->scan.lines ? h->scan.lines - 1 : 0, h->stream.mem, &raw);
    if (why == WHY_OK)
        why = rules_response(&raw, h->request, head, &h->in_framing);
    /* a switch before our request is out would mix its body with the tunnel */
    if (why == WHY_OK && head->protocol.n > 0 && h->out != OUT_DONE)
        why = WHY_ORIGIN_PROTOCOL;
    if (why == WHY_OK && h->key.n > 0 && !granted_well(h, head))
        why = WHY_ORIGIN_PROTOCOL;
    if (why != WHY_OK) {
        h1_close(h, why);
        return;
    }
    h->minor = raw.minor;
    bool end = false;
    if (head->protocol.n > 0)
        to_tunnel(h);
    else if (interim(head)) /* as many as there are, they lie in one arena: one limit for all */
        h->scan = (struct h1_scan){.bytes = h->scan.bytes + INTERIM_BYTES};
    else
        end = begin_body(h);
    h->stream.ev->head(h->stream.user, head, end);
    if (end)
        h1_settle(h);
}

static void begin_request(struct h1 *h)
{
    timer_clear(h->s.w, &h->timer);
    h->in = IN_HEAD;
    h->out = OUT_WAIT;
    h->out_coding = CODING_NONE;
    h->we_keep = true;
    h->minor = 1;
    h->has_stream = true;
    h->s.running = 1;
    h->s.exchanges++;
    h->s.ev->accept(h->s.user, &h->s, &h->stream);
}

/* Empty lines before a request line are skipped (RFC 9112 section 2.2).  True: go on with what
 * follows; a CR or LF that stands alone is left for the scan of the head to find. */
static bool skip_empty_lines(struct h1 *h, struct buf *in)
{
    while (in->len > 0) {
        char c = (char)*in->head->p;
        if (c != (h->scan.cr ? '\n' : '\r'))
            return true;
        h->scan.cr = c == '\r';
        buf_drop(in, 1);
    }
    return false;
}

static bool has_many_fields(const struct h1 *h, unsigned fields)
{
    const struct http_limits *limits = h->s.limits;
    return (size_t)h->scan.lines * MAX_FIELD_BYTES > limits->max_head_bytes ||
           (limits->max_fields > 0 && fields > limits->max_fields);
}

static void head_bytes(struct h1 *h, struct buf *in)
{
    const char *p = (const char *)in->head->p;
    size_t n = in->head->n, used;
    if (h1_request_unsent(h)) {
        h1_close(h, WHY_ORIGIN_GONE); /* an answer, but not to us */
        return;
    }
    h->stream.spoke = true;
    switch (h1_scan(&h->scan, p, n, h->s.limits->max_head_bytes, &used)) {
    case H1_SCAN_BAD:
        broken_text(h, 400, "malformed message head");
        return;
    case H1_SCAN_TOO_LARGE:
        broken_text(h, 431, "message head too large");
        return;
    case H1_SCAN_MORE:
        if (short_of_memory(h)) {
            broken_text(h, 503, "out of memory for message heads");
            return;
        }
        keep_piece(h, p, n);
        buf_drop(in, n);
        return;
    case H1_SCAN_DONE:
        break;
    }
    if (has_many_fields(h, h->scan.lines - 1)) {
        broken_text(h, 431, "too many header fields");
        return;
    }
    struct str block = whole(h, p, used);
    buf_drop(in, used);
    if (h->s.server)
        request_head(h, block);
    else
        response_head(h, block);
}

/* ---- bodies */

/* A tunnel may stall in both directions for days: it holds half of what a body may (WS-07). */
static size_t room(const struct h1 *h)
{
    size_t window = h->in == IN_TUNNEL ? h->s.limits->window / 2 : h->window.size;
    return h->unread < window ? window - h->unread : 0;
}

static void note_body(struct h1 *h, size_t n)
{
    if (h->body_in <= BULK_AFTER && h->body_in + n > BULK_AFTER)
        conn_bulk(h->s.conn, true);
    h->body_in += n;
    h->unread += n;
}

static void deliver(struct h1 *h, struct buf *b)
{
    if (b->len == 0)
        return;
    note_body(h, b->len);
    h->stream.ev->data(h->stream.user, b);
    buf_clear(b); /* what is left was not wanted; the user credits all the same */
}

static void message_complete(struct h1 *h, struct http_head *trailers)
{
    h->in = IN_DONE;
    h->stream.ev->end(h->stream.user, trailers);
    h1_settle(h);
}

static void plain_body(struct h1 *h, struct buf *in)
{
    struct buf b;
    size_t n = room(h);
    if (h->in == IN_BODY && h->in_framing.body == BODY_LENGTH && (int64_t)n > h->left)
        n = (size_t)h->left;
    if (n > in->len)
        n = in->len;
    buf_init(&b, worker_pool(h->s.w));
    buf_move(&b, in, n);
    if (h->in == IN_BODY && h->in_framing.body == BODY_LENGTH)
        h->left -= (int64_t)n;
    deliver(h, &b);
    if (h->has_stream && h->in == IN_BODY && h->in_framing.body == BODY_LENGTH && h->left == 0)
        message_complete(h, NULL);
}

static void begin_trailers(struct h1 *h)
{
    h->in = IN_TRAILER;
    h->scan = (struct h1_scan){0};
}

/* One slice of chunked bytes; body spans go to `out`.  False: the loop over this input ends. */
static bool chunked_slice(struct h1 *h, struct buf *in, struct buf *out)
{
    struct slice *s = in->head;
    size_t used, n = s->n, left = room(h) - out->len;
    struct str span;
    if (h->chunked.state == CHUNKED_BODY && n > left)
        n = left;
    if (n == 0)
        return false;
    switch (chunked_step(&h->chunked, (const char *)s->p, n, &used, &span)) {
    case CHUNKED_BAD:
        deliver(h, out);
        if (h->has_stream)
            broken_text(h, 400, "malformed chunked body");
        return false;
    case CHUNKED_DATA:
        if (span.n > left) { /* the size line and more data than fits came in one piece */
            size_t over = span.n - left;
            h->chunked.left += over;
            h->chunked.state = CHUNKED_BODY;
            span.n -= over;
            used -= over;
        }
        if (span.n < SMALL_SPAN)
            buf_write(out, span.p, span.n);
        else
            buf_ref(out, s->chunk, (uint8_t *)(uintptr_t)span.p, span.n);
        break;
    case CHUNKED_TRAILERS:
        begin_trailers(h);
        break;
    case CHUNKED_MORE:
        break;
    }
    buf_drop(in, used);
    return h->in == IN_BODY;
}

static void chunked_body(struct h1 *h, struct buf *in)
{
    struct buf out;
    buf_init(&out, worker_pool(h->s.w));
    while (in->len > 0 && chunked_slice(h, in, &out))
        ;
    if (h->has_stream)
        deliver(h, &out);
    buf_clear(&out);
}

static void trailer_bytes(struct h1 *h, struct buf *in)
{
    const char *p = (const char *)in->head->p;
    size_t n = in->head->n, used;
    enum h1_scan_result r = h1_scan(&h->scan, p, n, h->s.limits->max_head_bytes, &used);
    if (r == H1_SCAN_MORE) {
        keep_piece(h, p, n);
        buf_drop(in, n);
        return;
    }
    if (r == H1_SCAN_TOO_LARGE || has_many_fields(h, h->scan.lines)) {
        broken_text(h, 431, "trailer section too large");
        return;
    }
    if (r == H1_SCAN_BAD) {
        broken_text(h, 400, "malformed trailer section");
        return;
    }
    struct str block = whole(h, p, used);
    buf_drop(in, used);
    struct http_head *trailers = arena_get(h->stream.mem, sizeof *trailers);
    if (h1head_trailers(block, h->scan.lines, h->stream.mem, trailers) != WHY_OK) {
        broken_text(h, 400, "malformed trailer section");
        return;
    }
    message_complete(h, trailers->nfields > 0 ? trailers : NULL);
}

static void body_bytes(struct h1 *h, struct buf *in)
{
    if (h->in_framing.body == BODY_CHUNKED && h->in != IN_TUNNEL)
        chunked_body(h, in);
    else
        plain_body(h, in);
}

/* ---- events of the conn */

static void idle_bytes(struct h1 *h, struct buf *in)
{
    if (!h->s.server) {
        h1_close(h, WHY_ORIGIN_PROTOCOL); /* an answer nobody asked for: whose would it be? (H13) */
        return;
    }
    if (skip_empty_lines(h, in))
        begin_request(h);
}

/* One step; false: nothing more can be done with these bytes now. */
static bool step(struct h1 *h, struct buf *in)
{
    size_t before = in->len;
    enum h1_in state = h->in;
    switch (h->in) {
    case IN_IDLE:
        idle_bytes(h, in);
        break;
    case IN_HEAD:
        head_bytes(h, in);
        break;
    case IN_BODY:
    case IN_TUNNEL:
        body_bytes(h, in);
        break;
    case IN_TRAILER:
        trailer_bytes(h, in);
        break;
    case IN_DISCARD:
        buf_clear(in);
        return false;
    case IN_DONE:
    case IN_ENDED:
        return false; /* the next request waits for this one's answer */
    }
    return in->len < before || h->in != state;
}

void h1_on_bytes(void *user, struct buf *in)
{
    struct h1 *h = user;
    while (!h->closing && !h->released && in->len > 0 && step(h, in))
        ;
}

/* Server: the end of the client's sending counts as leaving until the final head has come, then as
 * a half-close (H6). */
static void server_eof(struct h1 *h)
{
    switch (h->in) {
    case IN_DONE:
        if (h->out == OUT_WAIT)
            h1_close(h, WHY_CLIENT_GONE);
        return;
    case IN_DISCARD:
        if (h->out == OUT_CUT || (h->has_stream && h->out != OUT_WAIT))
            return; /* an answer is still on its way */
        if (h->has_stream)
            h1_close(h, WHY_CLIENT_GONE);
        else
            h1_settle(h);
        return;
    case IN_IDLE:
        h1_close(h, WHY_OK);
        return;
    default:
        h1_close(h, WHY_CLIENT_GONE);
    }
}

static void client_eof(struct h1 *h)
{
    if (h->in == IN_BODY && h->in_framing.body == BODY_EOF) {
        message_complete(h, NULL);
        if (h->has_stream)
            return; /* our request is not out yet: the user decides */
        h1_close(h, WHY_OK);
        return;
    }
    if (h->in == IN_DONE)
        return; /* complete; h1_settle() will not reuse it */
    h1_close(h, h->in == IN_IDLE ? WHY_OK : WHY_ORIGIN_GONE);
}

void h1_on_eof(void *user)
{
    struct h1 *h = user;
    h->peer_eof = true;
    if (h->released)
        return; /* the next owner is told */
    if (h->in == IN_TUNNEL) {
        h->in = IN_ENDED;
        h->stream.ev->end(h->stream.user, NULL);
        h1_settle(h);
        return;
    }
    if (h->s.server)
        server_eof(h);
    else
        client_eof(h);
}
