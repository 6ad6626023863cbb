/* conn_tls.c — TLS inside a connection.  Cipher text that came is decrypted when it is offered, and
 * what fill() says is encrypted when the last batch is gone: nothing is encrypted that may be
 * thrown away, and one batch bounds what lies here. */
#include <assert.h>
#include <openssl/err.h>

#include "net/conn_impl.h"
#include "net/tls_impl.h"

enum {
    RECORD_BYTES = 16384,
    BATCH_BYTES = 12 * CHUNK_BYTES, /* what was read in whole chunks goes as whole records */
    FIRST_RECORD_BYTES = 4096,      /* while the peer's window is small: read before all has come */
    BURST_BYTES = 65536,
    BURST_ENDS_MS = 1000,
    MAX_REPLIES = 16384 /* answers to the peer's own control messages that it does not read */
};

enum shake { SHAKING, UP, OVER /* the peer's close_notify came */ };

struct conn_tls {
    struct tls_wire wire;
    struct buf plain; /* what fill() said, while it is being encrypted */
    SSL *ssl;
    struct tls_ctx *ctx;
    char *name;   /* server role: asked for; client role: verified */
    size_t burst; /* sent since the connection was last idle */
    enum shake state;
    bool notified; /* our close_notify is made */
};

void conn_tls_start(struct conn *c, struct tls_ctx *ctx, const struct tls_to *to)
{
    struct conn_tls *t = mem_new(sizeof *t);
    assert(!c->tls);
    tls_wire_init(&t->wire, c->w->pool);
    buf_init(&t->plain, c->w->pool);
    t->ctx = tls_ctx_ref(ctx);
    t->ssl = tls_ssl_new(ctx, &t->wire, to, &t->name);
    buf_move_all(&t->wire.in, &c->in);
    c->tls = t;
    c->info.tls = true;
    if (!t->ssl)
        conn_close(c, WHY_TLS);
}

/* OpenSSL throws a session away that was not shut down (T9), and locks the context for it. */
void conn_tls_free(struct conn_tls *t)
{
    if (!t)
        return;
    if (t->ssl)
        SSL_set_shutdown(t->ssl, SSL_SENT_SHUTDOWN | SSL_RECEIVED_SHUTDOWN);
    SSL_free(t->ssl);
    tls_ctx_unref(t->ctx);
    tls_wire_done(&t->wire);
    buf_clear(&t->plain);
    mem_free(t->name);
    mem_free(t);
}

/* An old error on the thread's list would be taken for one of this call (T1). */
static void begin(struct conn_tls *t, bool reserved)
{
    ERR_clear_error();
    tls_wire_begin(&t->wire, reserved);
}

/* ---- the end */

void conn_tls_bye(struct conn *c)
{
    struct conn_tls *t = c->tls;
    if (t->state == SHAKING || t->notified || c->flying || c->out.len > 0 || t->plain.len > 0)
        return;
    t->notified = true;
    begin(t, false);
    SSL_shutdown(t->ssl);
    tls_wire_end(&t->wire);
    buf_move_all(&c->out, &t->wire.out);
    conn_send_last(c);
}

/* The alert goes first, if OpenSSL made one. */
static void fail(struct conn *c, enum why why)
{
    struct conn_tls *t = c->tls;
    if (!c->flying && c->out.len == 0) {
        buf_move_all(&c->out, &t->wire.out);
        conn_send_last(c);
    }
    conn_discard(c);
    conn_close(c, why);
}

/* ---- reading */

static void come_up(struct conn *c)
{
    struct conn_tls *t = c->tls;
    const uint8_t *alpn;
    unsigned n;
    t->state = UP;
    SSL_get0_alpn_selected(t->ssl, &alpn, &n);
    c->info.alpn = (struct str){(const char *)alpn, n};
    if (t->ctx->server)
        c->info.sni = str_of(t->name);
    else if (t->ctx->verify)
        c->info.verified = str_of(t->name);
    conn_wake(c); /* fill() was not asked so far */
    if (c->ev->ready)
        c->ev->ready(c->user);
}

/* True: the handshake is done. */
static bool shake(struct conn *c)
{
    struct conn_tls *t = c->tls;
    begin(t, false);
    int done = SSL_do_handshake(t->ssl);
    int error = done == 1 ? SSL_ERROR_NONE : SSL_get_error(t->ssl, done);
    tls_wire_end(&t->wire);
    if (t->wire.out.len > 0)
        conn_wake(c);
    if (error == SSL_ERROR_WANT_READ)
        return false;
    if (error != SSL_ERROR_NONE || !tls_ssl_proved(t->ctx, t->ssl)) {
        fail(c, WHY_TLS);
        return false;
    }
    come_up(c);
    return !c->closing;
}

/* True: there may be more. */
static bool decrypt(struct conn *c)
{
    struct conn_tls *t = c->tls;
    size_t room, n = 0;
    uint8_t *p = buf_reserve(c->w->pool, c->bulk, &room);
    begin(t, true);
    int done = SSL_read_ex(t->ssl, p, room, &n);
    int error = done == 1 ? SSL_ERROR_NONE : SSL_get_error(t->ssl, done);
    buf_commit(&c->in, done == 1 ? n : 0);
    tls_wire_end(&t->wire);
    if (t->wire.out.len > 0)
        conn_wake(c); /* reading makes answers too (T4) */
    if (t->wire.out.len > MAX_REPLIES)
        error = SSL_ERROR_SSL;
    if (error == SSL_ERROR_NONE)
        return t->wire.in.len > 0 || SSL_has_pending(t->ssl);
    if (error == SSL_ERROR_ZERO_RETURN)
        t->state = OVER;
    else if (error != SSL_ERROR_WANT_READ)
        fail(c, conn_gone(c));
    return false;
}

bool conn_tls_read(struct conn *c)
{
    struct conn_tls *t = c->tls;
    if (t->state == SHAKING && !shake(c))
        return false;
    bool more = t->state == UP;
    while (more && c->in.len < conn_read_bound(c))
        more = decrypt(c);
    if (t->state == OVER)
        buf_clear(&t->wire.in); /* nothing counts after close_notify */
    return more;
}

/* ---- writing */

/* Records end where a batch ends; slices that are no good record by themselves are joined. */
static bool encrypt(struct conn_tls *t)
{
    uint8_t joined[RECORD_BYTES];
    while (t->plain.len > 0) {
        size_t most = t->burst < BURST_BYTES ? FIRST_RECORD_BYTES : RECORD_BYTES, done;
        size_t n = t->plain.len < most ? t->plain.len : most, first = t->plain.head->n;
        const uint8_t *p = t->plain.head->p;
        if (first < n && first >= most / 2) {
            n = first;
        } else if (first < n) {
            buf_peek(&t->plain, joined, n);
            p = joined;
        }
        begin(t, false);
        bool good = SSL_write_ex(t->ssl, p, n, &done) == 1 && done == n;
        tls_wire_end(&t->wire);
        if (!good)
            return false;
        buf_drop(&t->plain, n);
        t->burst += n;
    }
    return true;
}

static void say(struct conn *c)
{
    struct conn_tls *t = c->tls;
    if (c->ev->fill)
        c->ev->fill(c->user, &t->plain, BATCH_BYTES);
    if (c->closing)
        return;
    if (t->plain.len == 0) {
        if (!c->finishing)
            return;
        t->notified = true;
        begin(t, false);
        SSL_shutdown(t->ssl);
        tls_wire_end(&t->wire);
        return;
    }
    if (worker_now(c->w) - c->last_write_ms > BURST_ENDS_MS)
        t->burst = 0;
    if (!encrypt(t))
        conn_close(c, conn_gone(c));
}

void conn_tls_fill(struct conn *c)
{
    struct conn_tls *t = c->tls;
    if (t->state != SHAKING && !t->notified)
        say(c);
    if (!c->closing)
        buf_move_all(&c->out, &t->wire.out);
}

/* ---- what conn.c asks */

bool conn_tls_up(const struct conn_tls *t)
{
    return t->state != SHAKING;
}

bool conn_tls_over(const struct conn_tls *t)
{
    return t->state == OVER;
}

bool conn_tls_notified(const struct conn_tls *t)
{
    return t->notified;
}

struct buf *conn_tls_in(struct conn_tls *t)
{
    return &t->wire.in;
}
