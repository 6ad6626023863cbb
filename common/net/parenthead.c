/* parenthead.c — reads a head byte by byte and takes not one too many: what follows it is the
 * target's.  Strict as the codec is: each line ends in CR LF, none begins with a blank, nothing in
 * it is a control byte; a proxy that cannot say 200 cleanly is not trusted with a tunnel. */
#include "net/parenthead.h"

#include <stdint.h>

#include "base/text.h"

enum { START, NAME, VALUE, LF, LAST_LF, DONE, BAD };

static const char pattern[] = "HTTP/1.v ddd"; /* v: 0 or 1, d: a digit */

/* The status line up to its status. */
static int in_start(struct parenthead *h, char c)
{
    char want = pattern[h->in_line];
    bool digit = c >= '0' && c <= '9';
    if (want == 'v')
        return c == '0' || c == '1' ? START : BAD;
    if (want != 'd')
        return c == want ? START : BAD;
    if (!digit)
        return BAD;
    h->status = 10 * h->status + (c - '0');
    return START;
}

static int in_value(char c)
{
    if (c == '\r')
        return LF;
    return ((unsigned char)c >= ' ' && c != 127) || c == '\t' ? VALUE : BAD;
}

/* A reason is optional, and so, in practice, is the blank in front of none (RFC 9112 section 4). */
static int after_status(struct parenthead *h, char c)
{
    bool good = h->status >= 100 && h->status != 101 && (c == ' ' || c == '\r');
    return good ? in_value(c) : BAD;
}

static int in_name(const struct parenthead *h, char c)
{
    if (c == '\r')
        return h->in_line == 0 ? LAST_LF : BAD;
    if (c == ':')
        return h->in_line > 0 ? VALUE : BAD;
    return text_tchar[(uint8_t)c] ? NAME : BAD;
}

static int after_head(struct parenthead *h)
{
    if (h->status >= 200)
        return DONE;
    h->status = 0;
    return START;
}

static int next_state(struct parenthead *h, char c)
{
    switch (h->state) {
    case START:
        return h->in_line < sizeof pattern - 1 ? in_start(h, c) : after_status(h, c);
    case NAME:
        return in_name(h, c);
    case VALUE:
        return in_value(c);
    case LF:
        return c == '\n' ? NAME : BAD;
    case LAST_LF:
        return c == '\n' ? after_head(h) : BAD;
    default:
        return BAD;
    }
}

enum parenthead_result parenthead_read(struct parenthead *h, const char *p, size_t n,
                                       size_t *ret_used)
{
    size_t at = 0;
    while (at < n && h->state != DONE && h->state != BAD) {
        char c = p[at++];
        h->state = ++h->bytes > PARENTHEAD_MAX ? BAD : next_state(h, c);
        h->in_line = c == '\n' ? 0 : h->in_line + 1;
    }
    *ret_used = at;
    if (h->state == BAD)
        return PARENTHEAD_BAD;
    return h->state == DONE ? PARENTHEAD_DONE : PARENTHEAD_MORE;
}
