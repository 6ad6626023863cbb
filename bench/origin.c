/* origin.c — the fastest origin we can write, for bench/run.sh: it answers every request itself
 * with as many bytes as the path says (/1024, /10485760), a gRPC call with a message of that many
 * and a status, and accepts an upgrade and holds it; h1 and h2c on one port.  It is a user of
 * http_stream in the server role and nothing else, so what it costs is the codec and the kernel;
 * bodies are the same chunk again and again, never copied. */
#include <stdio.h>

#include "base/text.h"
#include "flags.h"
#include "http/session.h"
#include "http/websocket.h"
#include "net/listen.h"
#include "net/worker.h"

enum { QUEUED_BYTES = 256 * 1024, SMALL_BYTES = 8192, MAX_WORKERS = 64 };

struct origin {
    struct worker *w;
    struct reply *spare; /* a free list */
    struct buf pattern;  /* one chunk, full */
    char date[29];
    int64_t date_s;
};

/* One exchange, from the first byte of its request to closed(). */
struct reply {
    struct reply *next;
    struct origin *o;
    struct http_stream *s;
    struct http_head head, trailers;
    struct field fields[3], status;
    uint64_t left;   /* of the body, not given to the stream yet */
    uint64_t queued; /* given to it, not sent */
    bool answered, tunnel, grpc, ended;
    struct arena mem;
    char accept[WEBSOCKET_ACCEPT_BYTES];
    char first[4096];
};

static const struct http_limits limits = {.max_head_bytes = 65536,
                                          .window = 256 * 1024,
                                          .window_max = 1024 * 1024,
                                          .max_streams = 1000,
                                          .max_resets = INT32_MAX,
                                          .max_control = INT32_MAX,
                                          .keep_alive_ms = 3600000};

/* ---- bodies */

/* The next n bytes of the body. */
static void send_bytes(struct reply *r, size_t n)
{
    const struct slice *piece = r->o->pattern.head;
    struct buf b;
    buf_init(&b, worker_pool(r->o->w));
    r->left -= n;
    r->queued += n;
    if (n <= SMALL_BYTES) {
        buf_write(&b, piece->p, n);
        n = 0;
    }
    for (size_t part; n > 0; n -= part) {
        part = n < piece->n ? n : piece->n;
        buf_ref(&b, piece->chunk, piece->p, part);
    }
    r->s->ops->data(r->s, &b);
}

static void send_end(struct reply *r)
{
    r->ended = true;
    r->trailers = (struct http_head){.fields = &r->status};
    head_add(&r->trailers, STR("grpc-status"), STR("0"));
    r->s->ops->end(r->s, r->grpc ? &r->trailers : NULL);
}

static void send_more(struct reply *r)
{
    uint64_t room = r->queued < QUEUED_BYTES ? QUEUED_BYTES - r->queued : 0;
    uint64_t n = r->left < room ? r->left : room;
    if (n > 0)
        send_bytes(r, (size_t)n);
    if (r->left == 0 && !r->ended)
        send_end(r);
}

/* ---- heads */

static struct str date_of(struct origin *o)
{
    int64_t now = worker_unix_s(o->w);
    if (now != o->date_s)
        text_put_http_date(o->date, now);
    o->date_s = now;
    return (struct str){o->date, sizeof o->date};
}

/* The body's length is the number after the first '/'; what is none is a length of 0. */
static uint64_t length_of(struct str path)
{
    uint64_t n = 0;
    size_t end = 1;
    while (end < path.n && path.p[end] >= '0' && path.p[end] <= '9')
        end++;
    if (path.n > 1)
        text_u64((struct str){path.p + 1, end - 1}, INT64_MAX, &n);
    return n;
}

static void answer(struct reply *r, int status, uint64_t length)
{
    r->answered = true;
    r->head = (struct http_head){.status = status, .length = (int64_t)length, .fields = r->fields};
    head_add(&r->head, STR("Content-Type"), STR("application/octet-stream"));
    head_add(&r->head, STR("Date"), arena_str(&r->mem, date_of(r->o)));
    r->left = length;
    r->ended = length == 0;
    r->s->ops->head(r->s, &r->head, length == 0);
    if (length > 0)
        send_more(r);
}

/* As gRPC frames a message: not compressed, its length in four bytes, the message. */
static void answer_call(struct reply *r, uint32_t length)
{
    const uint8_t prefix[5] = {0, (uint8_t)(length >> 24), (uint8_t)(length >> 16),
                               (uint8_t)(length >> 8), (uint8_t)length};
    struct buf b;
    r->answered = true;
    r->head = (struct http_head){.status = 200, .length = -1, .fields = r->fields};
    head_add(&r->head, STR("Content-Type"), STR("application/grpc"));
    r->s->ops->head(r->s, &r->head, false);
    buf_init(&b, worker_pool(r->o->w));
    buf_write(&b, prefix, sizeof prefix);
    r->queued += sizeof prefix;
    r->s->ops->data(r->s, &b);
    r->left = length;
    send_more(r);
}

static void upgrade(struct reply *r, const struct http_head *request)
{
    const struct str *key = head_get(request, STR("Sec-WebSocket-Key"));
    r->answered = r->tunnel = true;
    r->head = (struct http_head){
        .status = 101, .length = -1, .protocol = STR("websocket"), .fields = r->fields};
    if (key) {
        websocket_accept(*key, r->accept);
        head_add(&r->head, STR("Sec-WebSocket-Accept"), (struct str){r->accept, sizeof r->accept});
    }
    r->s->ops->head(r->s, &r->head, false);
}

/* ---- events */

static void on_head(void *user, struct http_head *head, bool end)
{
    struct reply *r = user;
    if (head->protocol.n > 0) {
        upgrade(r, head);
        return;
    }
    const struct str *type = head_get(head, STR("Content-Type"));
    r->grpc = type && str_eq(*type, STR("application/grpc"));
    r->left = length_of(head->path);
    if (end)
        answer(r, 200, r->left);
}

/* What is sent to us is only counted, in the credit. */
static void on_data(void *user, struct buf *b)
{
    struct reply *r = user;
    size_t n = b->len;
    buf_clear(b);
    r->s->ops->credit(r->s, n);
}

static void on_end(void *user, struct http_head *trailers)
{
    struct reply *r = user;
    (void)trailers;
    if (r->tunnel)
        r->s->ops->end(r->s, NULL);
    else if (!r->answered && r->grpc)
        answer_call(r, (uint32_t)r->left);
    else if (!r->answered)
        answer(r, 200, r->left);
}

static void on_sent(void *user, size_t n)
{
    struct reply *r = user;
    r->queued -= n;
    if (!r->ended && r->queued < QUEUED_BYTES / 2)
        send_more(r);
}

static void on_fault(void *user, const struct http_fault *fault)
{
    struct reply *r = user;
    if (!r->answered)
        answer(r, fault->status, 0);
}

static void recycle(void *p)
{
    struct reply *r = p;
    arena_done(&r->mem);
    r->next = r->o->spare;
    r->o->spare = r;
}

static void on_closed(void *user, enum why why)
{
    struct reply *r = user;
    (void)why;
    worker_bury(r->o->w, recycle, r);
}

static const struct http_events stream_events = {on_head, on_data,  on_end,
                                                 on_sent, on_fault, on_closed};

/* ---- sessions */

static struct reply *reply_new(struct origin *o)
{
    struct reply *r = o->spare;
    if (!r)
        r = mem_new(sizeof *r);
    else
        o->spare = r->next;
    r->o = o;
    r->left = r->queued = 0;
    r->answered = r->tunnel = r->grpc = r->ended = false;
    arena_init(&r->mem, r->first, sizeof r->first);
    return r;
}

static void on_request(void *user, struct session *s, struct http_stream *stream)
{
    struct reply *r = reply_new(user);
    (void)s;
    r->s = stream;
    stream->ev = &stream_events;
    stream->user = r;
    stream->mem = &r->mem;
}

static void on_session_closed(void *user, struct session *s)
{
    (void)user;
    (void)s;
}

static const struct session_events session_events = {on_request, NULL, NULL, on_session_closed};

static void on_accept(void *user, struct conn *c)
{
    struct origin *o = user;
    session_start(o->w, c, &limits, &session_events, o);
}

/* ---- the program */

static void start_worker(unsigned index, int fd)
{
    static const char letters[] = "0123456789abcdefghijklmnopqrstuv";
    struct origin *o = mem_new(sizeof *o);
    o->w = worker_new(index);
    buf_init(&o->pattern, worker_pool(o->w));
    for (size_t n = 0; n < CHUNK_BYTES; n += sizeof letters - 1)
        buf_write(&o->pattern, letters, sizeof letters - 1);
    listener_start(o->w, fd, NULL, on_accept, o);
    worker_start(o->w);
}

static bool listen_all(uint64_t workers, uint64_t port, uint16_t *ret_port)
{
    static const struct ip loopback = {{[10] = 255, [11] = 255, 127, 0, 0, 1}};
    int fds[MAX_WORKERS];
    union addr at;
    struct arena a;
    struct str error;
    arena_init(&a, NULL, 0);
    addr_make(&at, &loopback, (uint16_t)port);
    for (uint64_t i = 0; i < workers; i++) {
        union addr bound;
        fds[i] = listen_bind(&at.sa, &bound, &a, &error);
        if (fds[i] < 0) {
            fprintf(stderr, "%.*s\n", STR_ARG(error));
            return false;
        }
        at = bound; /* with port 0 all take the first one's */
    }
    for (uint64_t i = 0; i < workers; i++)
        start_worker((unsigned)i, fds[i]);
    arena_done(&a);
    *ret_port = addr_port(&at.sa);
    return true;
}

static void on_signal(void *user, int signum)
{
    (void)signum;
    worker_stop(user);
}

int main(int argc, char **argv)
{
    uint64_t port = 0, workers = 1;
    uint16_t bound;
    const struct flag flags[] = {
        {"--port", FLAG_NUMBER, &port,
         "port on 127.0.0.1; 0 (default): any free one, which is printed"},
        {"--workers", FLAG_NUMBER, &workers, "threads that serve (default 1)"},
        {NULL, FLAG_SWITCH, NULL, NULL},
    };
    if (!flags_read(flags, argc, argv) || workers < 1 || workers > MAX_WORKERS || port > UINT16_MAX)
        return 2;
    flags_raise_descriptors();
    struct worker *keeper = worker_new(MAX_WORKERS);
    worker_signals(keeper, on_signal, keeper);
    if (!listen_all(workers, port, &bound))
        return 2;
    printf("listening on %u\n", bound);
    fflush(stdout);
    worker_run(keeper); /* the end of the process ends the workers too */
    return 0;
}
