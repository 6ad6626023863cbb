/* conn_tls.c — TLS inside a connection.  Cipher text that came is decrypted when it is offered, and
 * what fill() says is encrypted when the last batch is gone: nothing is encrypted that may be
 * thrown away, and one batch bounds what lies here.  A second layer takes what the first one has
 * decrypted for its wire, and hands it its cipher text to be encrypted once more. */
#include <assert.h>
#include <openssl/err.h>

#include "net/conn_impl.h"
#include "net/tls_impl.h"

enum {
    RECORD_BYTES = 16384,
    BATCH_BYTES = 12 * RECORD_BYTES,
    FIRST_RECORD_BYTES = 4096, /* while the peer's window is small: read before all has come */
    BURST_BYTES = 65536,
    BURST_ENDS_MS = 1000,
    MAX_REPLIES = 16384 /* answers to the peer's own control messages that it does not read */
};

enum shake { SHAKING, UP, OVER /* the peer's close_notify came */ };

struct conn_tls {
    struct tls_wire wire;
    struct buf plain; /* what fill() said, while it is being encrypted */
    SSL *ssl;
    struct tls_side side;
    struct conn_tls *outer; /* carries this one; NULL: the socket does */
    size_t burst;           /* sent since the connection was last idle */
    enum shake state;
    bool heard;    /* something was decrypted */
    bool lasting;  /* OpenSSL keeps its buffers, as they are */
    bool notified; /* our close_notify is made */
};

/* What is known of the peer is from now on what this layer says. */
static void set_layer(struct conn *c, struct conn_tls *t)
{
    assert(!c->tls || (c->tls->state != SHAKING && !c->tls->outer && c->tls->plain.len == 0));
    t->outer = c->tls;
    c->tls = t;
    c->info.tls = true;
    c->info.alpn = c->info.sni = c->info.verified = STR_NONE;
}

void conn_tls_start(struct conn *c, struct tls_ctx *ctx, const struct tls_to *to,
                    const struct tls_as *as)
{
    struct conn_tls *t = mem_new(sizeof *t);
    tls_wire_init(&t->wire, c->w->pool);
    buf_init(&t->plain, c->w->pool);
    t->side.ctx = tls_ctx_ref(ctx);
    if (as)
        t->side.as = (struct tls_as){tls_leaf_ref(as->leaf), as->alpn};
    t->ssl = tls_ssl_new(&t->side, &t->wire, to);
    buf_move_all(&t->wire.in, &c->in);
    set_layer(c, t);
    if (t->ssl)
        return;
    c->info.fault = tls_fault_name(&t->side);
    conn_close(c, WHY_TLS);
}

/* OpenSSL throws a session away that was not shut down (T9), and locks the context for it. */
static void free_layer(struct conn_tls *t)
{
    if (t->ssl)
        SSL_set_shutdown(t->ssl, SSL_SENT_SHUTDOWN | SSL_RECEIVED_SHUTDOWN);
    SSL_free(t->ssl);
    tls_side_done(&t->side);
    tls_wire_done(&t->wire);
    buf_clear(&t->plain);
    mem_free(t);
}

void conn_tls_free(struct conn_tls *t)
{
    for (struct conn_tls *outer; t; t = outer) {
        outer = t->outer;
        free_layer(t);
    }
}

/* An old error on the thread's list would be taken for one of this call (T1). */
static void begin(struct conn_tls *t, bool reserved)
{
    ERR_clear_error();
    tls_wire_begin(&t->wire, reserved);
}

/* Between the records of one batch OpenSSL's buffers are neither given back nor wiped: the next one
 * takes their place. */
static void set_lasting(struct conn_tls *t, bool on)
{
    if (on == t->lasting)
        return;
    t->lasting = on;
    if (on)
        SSL_clear_mode(t->ssl, SSL_MODE_RELEASE_BUFFERS);
    else
        SSL_set_mode(t->ssl, SSL_MODE_RELEASE_BUFFERS);
    if (on && t->side.ctx->wipe)
        SSL_clear_options(t->ssl, SSL_OP_CLEANSE_PLAINTEXT);
    else if (t->side.ctx->wipe)
        SSL_set_options(t->ssl, SSL_OP_CLEANSE_PLAINTEXT);
}

/* ---- cipher text on its way out */

static void notify(struct conn_tls *t)
{
    t->notified = true;
    begin(t, false);
    SSL_shutdown(t->ssl);
    tls_wire_end(&t->wire);
}

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
        set_lasting(t, n < t->plain.len);
        begin(t, false);
        bool good = SSL_write_ex(t->ssl, p, n, &done) == 1 && done == n;
        tls_wire_end(&t->wire);
        if (p == joined && t->side.ctx->wipe)
            OPENSSL_cleanse(joined, n);
        if (!good)
            return false;
        buf_drop(&t->plain, n);
        t->burst += n;
    }
    return true;
}

/* All that is ready to go: through the layer around this one, if there is one. */
static bool seal(struct conn *c)
{
    struct conn_tls *t = c->tls, *o = t->outer;
    if (!o) {
        buf_move_all(&c->out, &t->wire.out);
        return true;
    }
    buf_move_all(&o->plain, &t->wire.out);
    if (!encrypt(o))
        return false;
    if (t->notified && !o->notified)
        notify(o);
    buf_move_all(&c->out, &o->wire.out);
    return true;
}

/* ---- the end */

void conn_tls_bye(struct conn *c)
{
    struct conn_tls *t = c->tls;
    if (t->state == SHAKING || t->notified || c->flying || c->out.len > 0 || t->plain.len > 0)
        return;
    notify(t);
    if (seal(c))
        conn_send_last(c);
}

/* The alert goes first, if OpenSSL made one. */
static void fail(struct conn *c, struct conn_tls *t, enum why why)
{
    if (!c->flying && c->out.len == 0) {
        if (t != c->tls)
            buf_move_all(&c->out, &t->wire.out);
        else if (!seal(c))
            buf_clear(&c->out);
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
    if (t->side.ctx->server)
        c->info.sni = str_of(t->side.name);
    else if (t->side.ctx->verify)
        c->info.verified = str_of(t->side.name);
    conn_wake(c); /* fill() was not asked so far */
    if (c->ev->ready)
        c->ev->ready(c->user);
}

static void shake_failed(struct conn *c)
{
    struct conn_tls *t = c->tls;
    c->info.fault = tls_fault(&t->side, t->ssl);
    tls_side_forget(&t->side);
    fail(c, t, WHY_TLS);
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
    if (error != SSL_ERROR_NONE || !tls_ssl_proved(t->side.ctx, t->ssl)) {
        shake_failed(c);
        return false;
    }
    come_up(c);
    return !c->closing && c->tls == t;
}

/* A server of 1.3 that misses a client's certificate says so when our handshake is long done. */
static void read_failed(struct conn *c, struct conn_tls *t)
{
    struct str fault = t->side.asked && !t->heard ? tls_fault(&t->side, t->ssl) : STR_NONE;
    if (!tls_fault_is_no_client(fault)) {
        fail(c, t, conn_gone(c));
        return;
    }
    c->info.fault = fault;
    fail(c, t, WHY_TLS);
}

/* Will the next record be written over, in this very call of pull()?  Small ones may be control
 * messages, behind which OpenSSL reads on by itself; in the middle of a body long ones are not. */
static bool is_covered(const struct conn *c, const struct conn_tls *t, const struct buf *to)
{
    if (!c->bulk || SSL_has_pending(t->ssl) || SSL_rstate_string(t->ssl)[1] != 'H')
        return false; /* the last two: in does not begin with a record */
    size_t n = tls_wire_covered(&t->wire);
    return n >= RECORD_BYTES / 2 && to->len + n < conn_read_bound(c);
}

/* True: there may be more. */
static bool decrypt(struct conn *c, struct conn_tls *t, struct buf *to)
{
    size_t room, n = 0;
    set_lasting(t, is_covered(c, t, to));
    uint8_t *p = buf_reserve(c->w->pool, c->bulk, &room);
    begin(t, true);
    int done = SSL_read_ex(t->ssl, p, room, &n);
    int error = done == 1 ? SSL_ERROR_NONE : SSL_get_error(t->ssl, done);
    buf_commit(to, done == 1 ? n : 0);
    tls_wire_end(&t->wire);
    t->heard |= n > 0;
    if (t->wire.out.len > 0)
        conn_wake(c); /* reading makes answers too (T4) */
    if (t->wire.out.len > MAX_REPLIES)
        error = SSL_ERROR_SSL;
    if (error == SSL_ERROR_NONE)
        return t->wire.in.len > 0 || SSL_has_pending(t->ssl);
    if (error == SSL_ERROR_ZERO_RETURN)
        t->state = OVER;
    else if (error != SSL_ERROR_WANT_READ)
        read_failed(c, t);
    return false;
}

/* Messages between records of data (tickets, mostly) leave OpenSSL before 3.2 with a buffer for our
 * next record, 16 KiB until then.  Not while it waits for the rest of a record: before 3.0.14 it
 * would free what it still reads.  From 3.2 on nothing is left, and with SSL_OP_CLEANSE_PLAINTEXT
 * it would wipe a buffer that is gone.  What is linked now counts, not what was built with. */
static void give_back(const struct conn_tls *t)
{
    if (OpenSSL_version_num() < 0x30200000UL && SSL_rstate_string(t->ssl)[1] == 'H' &&
        !SSL_has_pending(t->ssl))
        SSL_free_buffers(t->ssl);
}

/* True: there is more, but `to` is full. */
static bool pull(struct conn *c, struct conn_tls *t, struct buf *to)
{
    bool more = t->state == UP;
    while (more && to->len < conn_read_bound(c))
        more = decrypt(c, t, to);
    if (!more && t->state == UP)
        give_back(t);
    if (t->state == OVER)
        buf_clear(&t->wire.in); /* nothing counts after close_notify */
    return more;
}

bool conn_tls_read(struct conn *c)
{
    struct conn_tls *t = c->tls;
    for (;;) {
        bool more = t->outer && pull(c, t->outer, &t->wire.in);
        if (c->closing)
            return false;
        if ((t->state != SHAKING || shake(c)) && pull(c, t, &c->in))
            return true;
        if (!more || c->closing || c->tls != t)
            return false;
    }
}

/* ---- writing */

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
        notify(t);
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
    if (!c->closing && !seal(c))
        conn_close(c, conn_gone(c));
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
    return t->outer ? t->outer->notified : t->notified;
}

bool conn_tls_cut(const struct conn_tls *t)
{
    return t->outer && t->outer->state == OVER;
}

bool conn_tls_heard(const struct conn_tls *t)
{
    return t->heard;
}

struct str conn_tls_lost(const struct conn_tls *t)
{
    return t->heard ? STR_NONE : tls_fault_lost(&t->side, t->state == SHAKING);
}

struct buf *conn_tls_in(struct conn_tls *t)
{
    return t->outer ? &t->outer->wire.in : &t->wire.in;
}

size_t conn_tls_lying(const struct conn_tls *t)
{
    return t->wire.in.len + (t->outer ? t->outer->wire.in.len : 0);
}
