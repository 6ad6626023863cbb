/* pathsafe.c — every reading of a path, one after the other.  Each reader between us and the
 * resource may decode once more than we think, so what one of them could take for another path is
 * refused, and so is what would have to be decoded without end. */
#include "policies/pathsafe.h"

#include "base/text.h"

/* The byte that the escape at the front of s stands for, or -1. */
static int escaped_byte(struct str s)
{
    if (s.n < 3 || s.p[0] != '%')
        return -1;
    int high = text_hex(s.p[1]), low = text_hex(s.p[2]);
    return high < 0 || low < 0 ? -1 : high << 4 | low;
}

/* Writes s decoded once to out, which may be where s lies; invalid escapes stay. */
static size_t decode_once(struct str s, char *out)
{
    size_t n = 0;
    while (s.n) {
        int byte = escaped_byte(s);
        out[n++] = byte < 0 ? s.p[0] : (char)byte;
        s = str_skip(s, byte < 0 ? 1 : 3);
    }
    return n;
}

void path_views_init(struct path_views *v, struct str path, struct arena *a)
{
    *v = (struct path_views){.view = path};
    if (str_chr(path, '%') >= 0)
        v->buffer = arena_get(a, path.n);
}

bool path_views_next(struct path_views *v)
{
    if (!v->begun) {
        v->begun = true;
        return true;
    }
    if (!v->buffer || v->endless)
        return false;
    size_t n = decode_once(v->view, v->buffer);
    if (n == v->view.n) /* each escape makes it shorter */
        return false;
    v->view = (struct str){v->buffer, n};
    v->endless = ++v->decodings == PATH_DECODINGS_MAX;
    return !v->endless;
}

static bool has_escape(struct str s, char byte)
{
    for (ptrdiff_t at; (at = str_chr(s, '%')) >= 0; s = str_skip(s, (size_t)at + 1))
        if (escaped_byte(str_skip(s, (size_t)at)) == (unsigned char)byte)
            return true;
    return false;
}

static bool has_climb(struct str s)
{
    struct str segment;
    while (str_next(&s, '/', &segment))
        if (str_eq(segment, STR("..")))
            return true;
    return false;
}

bool path_view_is_safe(struct str view, bool strict)
{
    if (str_chr(view, '\\') >= 0 || has_escape(view, '\\') || has_climb(view))
        return false;
    return !strict || !has_escape(view, '/');
}

bool path_is_safe(struct str path, bool strict, struct arena *a)
{
    struct path_views v;
    path_views_init(&v, path, a);
    while (path_views_next(&v))
        if (!path_view_is_safe(v.view, strict))
            return false;
    return !v.endless;
}
