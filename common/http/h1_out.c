/* h1_out.c — the message that is written.  Framing is never copied, always made anew; chunk lines
 * are made when the kernel takes more, so that many small pieces of one turn become one chunk.  A
 * response head is serialized as late as possible: by then it is known whether the request is
 * complete, and so whether the connection may live on. */
#include <assert.h>

#include "base/digest.h"
#include "base/text.h"
#include "http/h1_impl.h"
#include "http/websocket.h"

static struct h1 *of(struct http_stream *s)
{
    return container_of(s, struct h1, stream);
}

/* ---- serializing */

static void put(struct buf *b, const char *text)
{
    buf_write(b, text, strlen(text));
}

static void put_field(struct buf *b, struct str name, struct str value)
{
    buf_str(b, name);
    buf_write(b, ": ", 2);
    buf_str(b, value);
    buf_write(b, "\r\n", 2);
}

static void put_length(struct buf *b, uint64_t n)
{
    char text[20 + 20 + 2] = "content-length: ";
    size_t at = strlen(text);
    at += text_put_u64(text + at, n);
    text[at++] = '\r';
    text[at++] = '\n';
    buf_write(b, text, at);
}

/* All end-to-end fields in one piece where they fit: one copy, one look at the buf. */
static void put_fields(struct buf *b, const struct http_head *head)
{
    char text[2048];
    size_t at = 0;
    for (unsigned i = 0; i < head->nfields; i++) {
        const struct field *f = &head->fields[i];
        size_t need = f->name.n + f->value.n + 4;
        if (at + need > sizeof text) {
            buf_write(b, text, at);
            at = 0;
        }
        if (need > sizeof text) {
            put_field(b, f->name, f->value);
            continue;
        }
        memcpy(text + at, f->name.p, f->name.n);
        at += f->name.n;
        text[at++] = ':';
        text[at++] = ' ';
        if (f->value.n > 0)
            memcpy(text + at, f->value.p, f->value.n);
        at += f->value.n;
        text[at++] = '\r';
        text[at++] = '\n';
    }
    buf_write(b, text, at);
}

static void put_status_line(struct buf *b, int status)
{
    char text[16] = "HTTP/1.1 000 ";
    text[9] = (char)('0' + status / 100);
    text[10] = (char)('0' + status / 10 % 10);
    text[11] = (char)('0' + status % 10);
    buf_write(b, text, 13);
    buf_str(b, head_reason(status));
    buf_write(b, "\r\n", 2);
}

static void put_upgrade(struct buf *b, const struct http_head *head)
{
    put(b, "connection: upgrade\r\n");
    put_field(b, STR("upgrade"), head->protocol);
}

static bool is_method(const struct http_head *head, const char *name)
{
    return str_eq(head->method, str_of(name));
}

static void request_framing(struct h1 *h, const struct http_head *head, bool end)
{
    h->out_coding = CODING_NONE;
    if (end) {
        if (rules_expects_body(head->method) || head->length == 0)
            put_length(&h->heads, 0);
        return;
    }
    if (head->length >= 0) {
        h->out_coding = CODING_LENGTH;
        put_length(&h->heads, (uint64_t)head->length);
        return;
    }
    h->out_coding = CODING_CHUNKED;
    put(&h->heads, "transfer-encoding: chunked\r\n");
}

/* ---- a handshake whose other side speaks HTTP/2 */

static bool is_websocket(const struct http_head *head)
{
    return str_eq(head->protocol, STR("websocket"));
}

static void put_key(struct h1 *h)
{
    uint8_t random[16];
    char *key = arena_get(h->stream.mem, WEBSOCKET_KEY_BYTES);
    digest_random(random, sizeof random);
    websocket_key(random, key);
    h->key = (struct str){key, WEBSOCKET_KEY_BYTES};
    put_field(&h->heads, STR("sec-websocket-key"), h->key);
}

static void put_handshake(struct h1 *h, const struct http_head *head)
{
    h->key = STR_NONE;
    if (!head->keyless || !is_websocket(head))
        return;
    put_key(h);
    if (!head_get(head, STR("sec-websocket-version")))
        put(&h->heads, "sec-websocket-version: 13\r\n");
}

static void put_accept(struct h1 *h, const struct http_head *head)
{
    char accept[WEBSOCKET_ACCEPT_BYTES];
    const struct str *key = head_get(h->request, STR("sec-websocket-key"));
    if (!head->keyless || !is_websocket(head) || !key)
        return;
    websocket_accept(*key, accept);
    put_field(&h->heads, STR("sec-websocket-accept"), (struct str){accept, sizeof accept});
}

static void put_request(struct h1 *h, const struct http_head *head, bool end)
{
    struct buf *b = &h->heads;
    buf_str(b, head->method);
    buf_write(b, " ", 1);
    buf_str(b, head->path.n > 0 ? head->path : head->authority);
    put(b, " HTTP/1.1\r\n");
    put_field(b, STR("host"), head->authority);
    put_fields(b, head);
    put_handshake(h, head);
    if (head->protocol.n > 0)
        put_upgrade(b, head);
    if (head->te_trailers)
        put(b, head->protocol.n > 0 ? "te: trailers\r\n" : "te: trailers\r\nconnection: te\r\n");
    request_framing(h, head, end);
    put(b, "\r\n");
}

static bool bodyless(const struct h1 *h, const struct http_head *head)
{
    return head->status == 204 || head->status == 304 || head->status < 200 ||
           (h->request && is_method(h->request, "HEAD"));
}

/* Chooses the coding of the response and says so in b. */
static void response_framing(struct h1 *h, struct buf *b, const struct http_head *head)
{
    if (bodyless(h, head)) {
        h->out_coding = CODING_NONE;
        if (head->length >= 0 && head->status != 204 && head->status >= 200)
            put_length(b, (uint64_t)head->length);
        return;
    }
    if (head->length >= 0 || h->response_end) {
        h->out_coding = CODING_LENGTH;
        put_length(b, head->length >= 0 ? (uint64_t)head->length : 0);
        return;
    }
    if (h->minor == 0) {
        h->out_coding = CODING_EOF;
        h->we_keep = false;
        return;
    }
    h->out_coding = CODING_CHUNKED;
    put(b, "transfer-encoding: chunked\r\n");
}

static void put_connection(const struct h1 *h, struct buf *b)
{
    if (!h->we_keep)
        put(b, "connection: close\r\n");
    else if (h->minor == 0)
        put(b, "connection: keep-alive\r\n");
}

static void put_response(struct h1 *h, struct buf *b)
{
    const struct http_head *head = h->response;
    h->response = NULL;
    bool complete = h->in == IN_DONE;
    h->we_keep = h->we_keep && complete && h->in_framing.keep_alive && !h->draining && !h->peer_eof;
    put_status_line(b, head->status);
    put_fields(b, head);
    response_framing(h, b, head);
    put_connection(h, b);
    put(b, "\r\n");
}

static void put_interim(struct h1 *h, const struct http_head *head)
{
    if (h->minor == 0)
        return; /* RFC 9110 section 15.2: a 1.0 client knows none */
    put_status_line(&h->heads, head->status);
    put_fields(&h->heads, head);
    put(&h->heads, "\r\n");
}

/* ---- operations */

static void server_tunnel(struct h1 *h, const struct http_head *head)
{
    put_status_line(&h->heads, head->status);
    put_fields(&h->heads, head);
    put_accept(h, head);
    if (head->status == 101)
        put_upgrade(&h->heads, head);
    put(&h->heads, "\r\n");
    h->out = OUT_TUNNEL;
    h->out_coding = CODING_RAW;
    h->we_keep = false;
    h->in_framing.body = BODY_NONE;
    h->in = IN_TUNNEL;
    h->waits_tunnel = false;
    conn_read(h->s.conn, true); /* bytes right behind the request are the tunnel's */
}

static void server_head(struct h1 *h, const struct http_head *head, bool end)
{
    if (head->protocol.n > 0 && h->in == IN_DONE) {
        server_tunnel(h, head);
        return;
    }
    if (head->status ==
        101) { /* the request is not complete: nothing after it could be told apart */
        h1_close_conn(h, WHY_ORIGIN_PROTOCOL);
        return;
    }
    if (head->status < 200) {
        put_interim(h, head);
        return;
    }
    h->response = head;
    h->response_end = end;
    h->out = end ? OUT_LAST : OUT_BODY;
}

static void op_head(struct http_stream *s, const struct http_head *head, bool end)
{
    struct h1 *h = of(s);
    if (h->s.server) {
        server_head(h, head, end);
    } else {
        h->request = head;
        h->we_keep = true;
        put_request(h, head, end);
        h->out = end ? OUT_LAST : OUT_BODY;
    }
    conn_wake(h->s.conn);
}

static void op_data(struct http_stream *s, struct buf *b)
{
    struct h1 *h = of(s);
    buf_queue(&h->body, b);
    conn_wake(h->s.conn);
}

static void op_end(struct http_stream *s, const struct http_head *trailers)
{
    struct h1 *h = of(s);
    h->trailers = trailers;
    h->out = OUT_LAST;
    conn_wake(h->s.conn);
}

static void op_credit(struct http_stream *s, size_t n)
{
    struct h1 *h = of(s);
    assert(n <= h->unread);
    h->unread -= n;
    if (h->in == IN_BODY)
        h->window.size = window_next(&h->window, n, worker_now(h->s.w), h->s.limits->window,
                                     h->s.limits->window_max);
    if (conn_untaken(h->s.conn) > 0)
        conn_read(h->s.conn, true);
}

/* A response under way breaks off after what is queued. */
static void cut(struct h1 *h)
{
    h->out = OUT_CUT;
    h->in = IN_DISCARD;
    h->we_keep = false;
    timer_set(h->s.w, &h->timer, h->s.limits->linger_ms ? h->s.limits->linger_ms : 1);
    conn_read(h->s.conn, true); /* what would stay unread would make the close a reset, which takes
                                   the queue along */
    conn_wake(h->s.conn);
}

static void op_cancel(struct http_stream *s, enum why why)
{
    struct h1 *h = of(s);
    bool under_way =
        h->s.server && (h->out == OUT_BODY || h->out == OUT_LAST || h->out == OUT_TUNNEL);
    bool waits = why != WHY_CLIENT_GONE && why != WHY_REVOKED;
    h->has_stream = false;
    h->s.running = 0;
    h->trailers = NULL;
    h->released = NULL;
    if (h->response && under_way) /* the head's memory goes with the exchange */
        put_response(h, &h->heads);
    h->request = h->response = NULL;
    if (under_way && waits)
        cut(h);
    else if (h->s.server && h->out == OUT_DONE && waits &&
             (h->in != IN_TUNNEL || why == WHY_ORIGIN_GONE))
        h1_linger(h); /* all was said already, and may be on its way still */
    else
        h1_close_conn(h, why);
}

static enum http_left op_left(const struct http_stream *s)
{
    const struct h1 *h = container_of((struct http_stream *)(uintptr_t)s, struct h1, stream);
    if (h1_request_unsent(h))
        return HTTP_LEFT_NOTHING;
    return h->out == OUT_DONE && conn_unsent(h->s.conn) == 0 ? HTTP_LEFT_ALL : HTTP_LEFT_PART;
}

const struct http_ops h1_ops = {op_head,   op_data, op_end,  op_credit,
                                op_cancel, h1_lend, h1_back, op_left};

/* ---- what the conn pulls */

static void put_chunk_line(struct buf *b, size_t n)
{
    char text[20];
    size_t at = sizeof text;
    text[--at] = '\n';
    text[--at] = '\r';
    do {
        text[--at] = "0123456789abcdef"[n & 15];
        n >>= 4;
    } while (n > 0);
    buf_write(b, text + at, sizeof text - at);
}

static size_t fill_body(struct h1 *h, struct buf *out, size_t max)
{
    size_t n = h->body.len;
    if (h->out_coding == CODING_NONE) { /* a body where none may be: HEAD, 204, 304 */
        buf_clear(&h->body);
        return n;
    }
    if (n > max)
        n = max;
    if (n == 0)
        return 0;
    if (h->out_coding == CODING_CHUNKED)
        put_chunk_line(out, n);
    buf_move(out, &h->body, n);
    if (h->out_coding == CODING_CHUNKED)
        put(out, "\r\n");
    return n;
}

/* Nothing follows this answer on the connection, and nothing more is to come: FIN can go with its
 * last bytes. */
static bool is_last(const struct h1 *h)
{
    return h->s.server && !h->we_keep && h->in == IN_DONE;
}

static void fill_end(struct h1 *h, struct buf *out)
{
    if (h->out_coding == CODING_CHUNKED) {
        put(out, "0\r\n");
        if (h->trailers)
            put_fields(out, h->trailers);
        put(out, "\r\n");
    }
    h->trailers = NULL;
    h->out = OUT_DONE;
    if (h->out_coding == CODING_RAW || is_last(h))
        conn_finish(h->s.conn);
}

void h1_break_off(struct h1 *h)
{
    h1_close_conn(h, WHY_ORIGIN_GONE);
}

static void fill_cut(struct h1 *h, struct buf *out, size_t max)
{
    if (h->heads.len > 0)
        buf_move_all(out, &h->heads);
    fill_body(h, out, max);
    if (out->len == 0)
        h1_break_off(h);
}

/* What was filled the last time has left by now, or we would not be asked.  It is told this late so
 * that a window covers what waits in the conn, too. */
void h1_tell_sent(struct h1 *h)
{
    size_t n = h->flown;
    h->flown = 0;
    if (n > 0 && h->has_stream)
        h->stream.ev->sent(h->stream.user, n);
}

void h1_on_fill(void *user, struct buf *out, size_t max)
{
    struct h1 *h = user;
    h1_tell_sent(h);
    if (h->closing)
        return;
    if (h->out == OUT_CUT) {
        fill_cut(h, out, max);
        return;
    }
    if (h->released && h->heads.len + h->body.len + out->len == 0 && conn_unsent(h->s.conn) == 0) {
        h1_give_away(h);
        return;
    }
    if (h->heads.len > 0)
        buf_move_all(out, &h->heads);
    if (h->response)
        put_response(h, out);
    h->flown = fill_body(h, out, max);
    if (h->out == OUT_LAST && h->body.len == 0)
        fill_end(h, out);
    if (out->len == 0)
        h1_tell_sent(h); /* dropped: no body may be there */
    if (h->closing)
        return;
    /* the answer is over when the kernel has it all: then closing is no reset */
    if (h->out == OUT_DONE && out->len == 0)
        h1_settle(h);
}
