/* path_fuzz.c — dot segments against a slow reading of the same rule, and a split that must lose
 * nothing. */
#include "http/path.h"

#include <stdint.h>
#include <stdlib.h>

#define CHECK(what)  \
    do {             \
        if (!(what)) \
            abort(); \
    } while (0)

/* Contract ingress 3.7 word by word: decode %2e (and %2f, in the second walk), then split and
 * count. */
static bool climbs_slowly(struct str rest, bool slashes, struct arena *a)
{
    char *plain = arena_get(a, rest.n + 1);
    size_t n = 0;
    for (size_t i = 0; i < rest.n; i++) {
        bool escape = rest.n - i >= 3 && rest.p[i] == '%' && rest.p[i + 1] == '2';
        char third = escape ? ascii_lower(rest.p[i + 2]) : 0;
        if (third == 'e' || (third == 'f' && slashes)) {
            plain[n++] = third == 'e' ? '.' : '/';
            i += 2;
            continue;
        }
        plain[n++] = rest.p[i];
    }
    struct str all = {plain, n}, segment;
    long depth = 0;
    while (str_next(&all, '/', &segment)) {
        if (str_eq(segment, STR("..")))
            depth--;
        else if (segment.n && !str_eq(segment, STR(".")))
            depth++;
        if (depth < 0)
            return true;
    }
    return false;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct str target = {(const char *)data, size}, query, segment;
    struct arena a;
    arena_init(&a, NULL, 0);
    struct str path = path_without_query(target, &query), rest = path;
    CHECK(path.n + query.n == size && str_chr(path, '?') < 0 &&
          (query.n == 0 || query.p[0] == '?'));
    CHECK(path_climbs(path) == (climbs_slowly(path, false, &a) || climbs_slowly(path, true, &a)));
    size_t seen = 0;
    while (path_segment(&rest, &segment)) {
        seen += segment.n + (segment.p > (const char *)data && segment.p[-1] == '/');
        CHECK(str_chr(segment, '/') < 0 && (rest.n == 0 || rest.p[0] == '/'));
    }
    CHECK(seen == path.n);
    arena_done(&a);
    return 0;
}
