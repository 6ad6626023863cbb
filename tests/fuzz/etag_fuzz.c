/* etag_fuzz.c — any text as If-Match: what is taken as a list finds each of its own tags, and a
 * text with a stray byte behind it is none. */
#include <assert.h>

#include "ingress/etag.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static bool read_list(struct str text, struct arena *a, struct etag_list *ret)
{
    struct field f = {STR("If-Match"), text};
    struct http_head h = {.fields = &f, .nfields = 1};
    return etag_read(&h, STR("if-match"), a, ret);
}

/* Tags hold no quotes, so they stand between the odd and the even ones. */
static void check_tags(const struct etag_list *l)
{
    struct str rest = l->tags;
    for (ptrdiff_t at; (at = str_chr(rest, '"')) >= 0;) {
        rest = str_skip(rest, (size_t)at);
        ptrdiff_t end = str_chr(str_skip(rest, 1), '"');
        assert(end >= 0);
        assert(etag_listed(l, str_head(rest, (size_t)end + 2), true));
        rest = str_skip(rest, (size_t)end + 2);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct str text = {(const char *)data, size};
    struct etag_list l, spoilt;
    struct arena a;
    arena_init(&a, NULL, 0);
    if (read_list(text, &a, &l)) {
        assert(l.given);
        if (!l.any)
            check_tags(&l);
        assert(!read_list(arena_cat(&a, text, STR("x")), &a, &spoilt));
        assert(!etag_allows(&l, &(struct etag_list){.given = false}, STR_NONE));
    }
    arena_done(&a);
    return 0;
}
