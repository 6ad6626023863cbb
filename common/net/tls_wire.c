/* tls_wire.c — a BIO whose two ends are bufs.  It never asks for the socket to become writable and
 * keeps nothing of its own, so OpenSSL knows one kind of waiting only (for more to read) and what
 * it holds is bounded by whoever fills and empties the bufs. */
#include "net/tls_impl.h"

enum { SEALED_FROM = 8192 /* a record of this length is one of many */ };

void tls_wire_init(struct tls_wire *w, struct chunk_pool *pool)
{
    *w = (struct tls_wire){0};
    buf_init(&w->in, pool);
    buf_init(&w->out, pool);
}

void tls_wire_begin(struct tls_wire *w, bool reserved)
{
    w->at = w->in.head;
    w->skip = w->taken = 0;
    w->reserved = reserved;
}

void tls_wire_end(struct tls_wire *w)
{
    w->reserved = false;
    buf_drop(&w->in, w->taken);
    w->taken = 0;
    if (!w->late)
        return;
    buf_write(&w->out, w->late, w->late_n);
    mem_free(w->late);
    w->late = NULL;
    w->late_n = 0;
}

void tls_wire_done(struct tls_wire *w)
{
    buf_clear(&w->in);
    buf_clear(&w->out);
    mem_free(w->late);
}

/* The length of the record that begins `at` bytes further on, its head included; 0: it is not here
 * whole. */
static size_t record_at(const struct tls_wire *w, size_t at)
{
    enum { HEAD = 5, LENGTH_AT = 3 };
    uint8_t length[2];
    if (w->in.len < at + HEAD)
        return 0;
    buf_peek_at(&w->in, at + LENGTH_AT, length, sizeof length);
    size_t n = HEAD + ((size_t)length[0] << 8 | length[1]);
    return w->in.len - at >= n ? n : 0;
}

size_t tls_wire_covered(const struct tls_wire *w)
{
    size_t n = record_at(w, 0);
    return n > 0 && record_at(w, n) >= n ? n : 0;
}

static int wire_read(BIO *b, char *to, size_t n, size_t *ret_n)
{
    struct tls_wire *w = BIO_get_data(b);
    size_t got = 0;
    BIO_clear_retry_flags(b);
    while (got < n && w->at) {
        size_t part = w->at->n - w->skip;
        if (part > n - got)
            part = n - got;
        memcpy(to + got, w->at->p + w->skip, part);
        got += part;
        w->skip += part;
        if (w->skip == w->at->n) {
            w->at = w->at->next;
            w->skip = 0;
        }
    }
    w->taken += got;
    *ret_n = got;
    if (got > 0)
        return 1;
    BIO_set_retry_read(b);
    return -1;
}

static int wire_write(BIO *b, const char *p, size_t n, size_t *ret_n)
{
    struct tls_wire *w = BIO_get_data(b);
    BIO_clear_retry_flags(b);
    *ret_n = n;
    if (!w->reserved && n >= SEALED_FROM) {
        buf_write_sealed(&w->out, p, n);
        return 1;
    }
    if (!w->reserved) {
        buf_write(&w->out, p, n);
        return 1;
    }
    w->late = mem_renew(w->late, w->late_n + n);
    memcpy(w->late + w->late_n, p, n);
    w->late_n += n;
    return 1;
}

static long wire_ctrl(BIO *b, int what, long n, void *p)
{
    (void)b;
    (void)n;
    (void)p;
    return what == BIO_CTRL_FLUSH;
}

static int wire_create(BIO *b)
{
    BIO_set_init(b, 1);
    return 1;
}

BIO_METHOD *tls_wire_method(void)
{
    BIO_METHOD *m = BIO_meth_new(BIO_TYPE_SOURCE_SINK, "wire");
    if (!m)
        return NULL;
    BIO_meth_set_read_ex(m, wire_read);
    BIO_meth_set_write_ex(m, wire_write);
    BIO_meth_set_ctrl(m, wire_ctrl);
    BIO_meth_set_create(m, wire_create);
    return m;
}
