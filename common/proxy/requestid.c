/* requestid.c — takes over a good id and replaces any other: what goes into logs and other people's
 * headers is of one safe form. */
#include "proxy/requestid.h"

#include "base/text.h"

static bool good(struct str id)
{
    if (id.n == 0 || id.n > 128)
        return false;
    for (size_t i = 0; i < id.n; i++) {
        char c = ascii_lower(id.p[i]);
        bool ok =
            (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '.' || c == '_' || c == '-';
        if (!ok)
            return false;
    }
    return true;
}

struct str request_id(const struct http_head *h, const uint8_t random[16], struct arena *a)
{
    const struct str *given = h ? head_get(h, STR("x-request-id")) : NULL;
    if (given && good(*given))
        return *given;
    char *text = arena_get(a, 32);
    text_put_hex(text, random, 16);
    return (struct str){text, 32};
}
