/* path.c — looks at paths without ever changing them.  The application gets the bytes that the
 * client sent; what an escape or a dot segment would mean to it is only looked at, to see whether
 * any reading of the path leaves the route. */
#include "http/path.h"

struct str path_without_query(struct str target, struct str *ret_query)
{
    ptrdiff_t at = str_chr(target, '?');
    size_t n = at < 0 ? target.n : (size_t)at;
    *ret_query = str_skip(target, n);
    return str_head(target, n);
}

bool path_segment(struct str *rest, struct str *ret_segment)
{
    if (rest->n == 0)
        return false;
    struct str s = rest->p[0] == '/' ? str_skip(*rest, 1) : *rest;
    ptrdiff_t at = str_chr(s, '/');
    size_t n = at < 0 ? s.n : (size_t)at;
    *ret_segment = str_head(s, n);
    *rest = str_skip(s, n);
    return true;
}

enum piece { PIECE_NAME, PIECE_DOT, PIECE_SLASH };

/* What the first byte or escape of s stands for; *ret_n is its length. */
static enum piece piece_at(struct str s, bool escaped_slashes, size_t *ret_n)
{
    *ret_n = 1;
    if (s.p[0] == '/')
        return PIECE_SLASH;
    if (s.p[0] == '.')
        return PIECE_DOT;
    if (s.p[0] != '%' || s.n < 3 || s.p[1] != '2')
        return PIECE_NAME;
    char c = ascii_lower(s.p[2]);
    if (c != 'e' && (c != 'f' || !escaped_slashes))
        return PIECE_NAME; /* of its '%' only: what follows may begin an escape */
    *ret_n = 3;
    return c == 'e' ? PIECE_DOT : PIECE_SLASH;
}

static bool walk_climbs(struct str rest, bool escaped_slashes)
{
    size_t depth = 0, dots = 0;
    bool name = false;
    for (;;) {
        size_t n = 0;
        enum piece piece = rest.n ? piece_at(rest, escaped_slashes, &n) : PIECE_SLASH;
        if (piece != PIECE_SLASH) {
            dots += piece == PIECE_DOT;
            name |= piece == PIECE_NAME || dots > 2;
            rest = str_skip(rest, n);
            continue;
        }
        if (name)
            depth++;
        else if (dots == 2 && depth-- == 0)
            return true;
        if (rest.n == 0)
            return false;
        dots = 0;
        name = false;
        rest = str_skip(rest, n);
    }
}

bool path_climbs(struct str rest)
{
    bool escapes = str_chr(rest, '%') >= 0;
    if (!escapes && str_chr(rest, '.') < 0)
        return false;
    return walk_climbs(rest, false) || (escapes && walk_climbs(rest, true));
}
