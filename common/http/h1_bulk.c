/* h1_bulk.c — lending the connection of an HTTP/1 stream, for bytes that are body and nothing else.
 * A length is lent but for its last bytes: those come by the codec as ever, and with them the end
 * of the message, so that ends are handled in one place. */
#include <assert.h>

#include "http/h1_impl.h"

enum { KEPT_BYTES = 4096, LEAST_BYTES = 65536 };

static struct h1 *of(struct http_stream *s)
{
    return container_of(s, struct h1, stream);
}

/* How many bytes come that only have to be moved: -1 until EOF, 0 none. */
static int64_t plain_bytes(const struct h1 *h)
{
    if (h->peer_eof || h->unread > 0)
        return 0;
    if (h->in == IN_TUNNEL)
        return -1;
    if (h->in != IN_BODY)
        return 0;
    if (h->in_framing.body == BODY_EOF)
        return -1;
    bool long_enough = h->in_framing.body == BODY_LENGTH && h->left > LEAST_BYTES + KEPT_BYTES;
    return long_enough ? h->left - KEPT_BYTES : 0;
}

static bool takes_plain(const struct h1 *h)
{
    if (h->heads.len > 0 || h->body.len > 0 || h->flown > 0 || h->response)
        return false;
    return h->out == OUT_TUNNEL ||
           (h->out == OUT_BODY && (h->out_coding == CODING_LENGTH || h->out_coding == CODING_EOF));
}

struct conn *h1_lend(struct http_stream *s, bool in, int64_t *ret_n)
{
    struct h1 *h = of(s);
    *ret_n = -1;
    if (h->closing || !h->has_stream || conn_info(h->s.conn)->tls)
        return NULL;
    if (!in)
        return takes_plain(h) ? h->s.conn : NULL;
    *ret_n = plain_bytes(h);
    return *ret_n != 0 ? h->s.conn : NULL;
}

void h1_back(struct http_stream *s, bool in, int64_t moved)
{
    struct h1 *h = of(s);
    if (!in)
        return;
    h->body_in += (uint64_t)moved;
    if (h->in == IN_BODY && h->in_framing.body == BODY_LENGTH) {
        assert(moved <= h->left - KEPT_BYTES);
        h->left -= moved;
    }
}
