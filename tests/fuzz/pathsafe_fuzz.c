/* pathsafe_fuzz.c — the views of a path against a slow reading of contract egress-vault 10: decode
 * into fresh memory until nothing changes, split each view, look for what must not be there. */
#include "policies/pathsafe.h"

#include <stdint.h>
#include <stdlib.h>

#include "base/text.h"

#define CHECK(what)  \
    do {             \
        if (!(what)) \
            abort(); \
    } while (0)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct str decoded(struct str s, struct arena *a)
{
    char *out = arena_get(a, s.n + 1);
    size_t n = 0;
    for (size_t i = 0; i < s.n; i++) {
        bool valid =
            s.p[i] == '%' && s.n - i > 2 && text_hex(s.p[i + 1]) >= 0 && text_hex(s.p[i + 2]) >= 0;
        out[n++] = valid ? (char)(text_hex(s.p[i + 1]) * 16 + text_hex(s.p[i + 2])) : s.p[i];
        i += valid ? 2 : 0;
    }
    return (struct str){out, n};
}

static bool has(struct str s, const char *word)
{
    for (size_t i = 0; i + strlen(word) <= s.n; i++)
        if (str_istarts(str_skip(s, i), str_of(word)))
            return true;
    return false;
}

static bool climbs(struct str s, struct arena *a)
{
    char *framed = arena_get(a, s.n + 2);
    framed[0] = framed[s.n + 1] = '/';
    if (s.n)
        memcpy(framed + 1, s.p, s.n);
    return has((struct str){framed, s.n + 2}, "/../");
}

static bool is_safe_slowly(struct str path, bool strict, struct arena *a)
{
    for (int i = 0; i < PATH_DECODINGS_MAX; i++) {
        if (has(path, "\\") || has(path, "%5c") || climbs(path, a) || (strict && has(path, "%2f")))
            return false;
        struct str next = decoded(path, a);
        if (str_eq(next, path))
            return true;
        path = next;
    }
    return false;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct str path = {(const char *)data, size}, expected = path;
    struct path_views v;
    struct arena a;
    unsigned n = 0;
    arena_init(&a, NULL, 0);
    path_views_init(&v, path, &a);
    for (; path_views_next(&v); n++) {
        CHECK(n == v.decodings && str_eq(v.view, expected));
        expected = decoded(expected, &a);
    }
    CHECK(n > 0 && n <= PATH_DECODINGS_MAX);
    CHECK(path_is_safe(path, false, &a) == is_safe_slowly(path, false, &a));
    CHECK(path_is_safe(path, true, &a) == is_safe_slowly(path, true, &a));
    arena_done(&a);
    return 0;
}
