/* chunked.c — one byte, one transition: nothing is looked up ahead, so nothing can be read
 * differently when the bytes come in other pieces. */
#include "http/chunked.h"

#include "base/text.h"

static bool ext_byte(char c)
{
    return c == '\t' || ((unsigned char)c >= ' ' && c != 127);
}

static enum chunked_state after_size(const struct chunked *c, char byte, bool *ret_bad)
{
    *ret_bad = c->digits == 0;
    if (byte == '\r')
        return CHUNKED_SIZE_LF;
    if (byte == ';')
        return CHUNKED_EXT;
    *ret_bad = true;
    return CHUNKED_SIZE;
}

/* False: not allowed here. */
static bool size_byte(struct chunked *c, char byte)
{
    int v = text_hex(byte);
    if (++c->line > CHUNK_LINE_BYTES)
        return false;
    if (v < 0) {
        bool bad;
        c->state = after_size(c, byte, &bad);
        return !bad;
    }
    if (++c->digits > 16 || c->left >> 59 != 0)
        return false;
    c->left = c->left << 4 | (unsigned)v;
    return true;
}

static bool line_byte(struct chunked *c, char byte)
{
    switch (c->state) {
    case CHUNKED_SIZE:
        return size_byte(c, byte);
    case CHUNKED_EXT:
        if (byte == '\r')
            c->state = CHUNKED_SIZE_LF;
        return ++c->line <= CHUNK_LINE_BYTES && (byte == '\r' || ext_byte(byte));
    case CHUNKED_SIZE_LF:
        c->state = c->left > 0 ? CHUNKED_BODY : CHUNKED_TRAILER;
        return byte == '\n';
    case CHUNKED_BODY_CR:
        c->state = CHUNKED_BODY_LF;
        return byte == '\r';
    default: /* CHUNKED_BODY_LF */
        *c = (struct chunked){.state = CHUNKED_SIZE};
        return byte == '\n';
    }
}

static enum chunked_event body(struct chunked *c, const char *p, size_t n, size_t at,
                               size_t *ret_used, struct str *ret_span)
{
    size_t len = n - at;
    if (len > c->left)
        len = (size_t)c->left;
    *ret_span = (struct str){p + at, len};
    *ret_used = at + len;
    c->left -= len;
    if (c->left == 0)
        c->state = CHUNKED_BODY_CR;
    return CHUNKED_DATA;
}

enum chunked_event chunked_step(struct chunked *c, const char *p, size_t n, size_t *ret_used,
                                struct str *ret_span)
{
    for (size_t at = 0; at < n; at++) {
        if (c->state == CHUNKED_BODY)
            return body(c, p, n, at, ret_used, ret_span);
        if (!line_byte(c, p[at]))
            return CHUNKED_BAD;
        if (c->state == CHUNKED_TRAILER) {
            *ret_used = at + 1;
            return CHUNKED_TRAILERS;
        }
    }
    *ret_used = n;
    return CHUNKED_MORE;
}
