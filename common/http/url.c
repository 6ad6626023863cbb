/* url.c — cuts a URL where RFC 3986 cuts it, from left to right, each byte once: what two readers
 * could cut differently is refused. */
#include "http/url.h"

#include "base/ip.h"
#include "base/text.h"
#include "net/resolve.h"

/* Cuts the scheme off. */
static bool cut_scheme(struct str *text, bool *ret_tls)
{
    *ret_tls = str_istarts(*text, STR("https://"));
    if (!*ret_tls && !str_istarts(*text, STR("http://")))
        return false;
    *text = str_skip(*text, *ret_tls ? 8 : 7);
    return true;
}

static bool is_clean(struct str text)
{
    for (size_t i = 0; i < text.n; i++)
        if ((unsigned char)text.p[i] <= ' ' || text.p[i] == 127 || text.p[i] == '\\')
            return false;
    return true;
}

/* "host", "host:port", "[address]", "[address]:port" */
static bool cut_authority(struct str s, struct url *ret)
{
    bool bracket = s.n > 0 && s.p[0] == '[';
    ptrdiff_t end = str_chr(s, bracket ? ']' : ':');
    struct ip ip;
    if (bracket && end < 0)
        return false;
    size_t host_end = end < 0 ? s.n : (size_t)end;
    struct str port = str_skip(s, host_end + bracket);
    uint64_t number = ret->tls ? 443 : 80;
    if (port.n > 0 && (port.p[0] != ':' || !text_u64(str_skip(port, 1), UINT16_MAX, &number)))
        return false;
    ret->host = str_head(str_skip(s, bracket), host_end - bracket);
    ret->port = (uint16_t)number;
    if (number == 0)
        return false;
    if (bracket)
        return str_chr(ret->host, ':') >= 0 && ip_parse(ret->host, &ip);
    return resolve_is_host(ret->host);
}

bool url_parse(struct str text, struct url *ret)
{
    struct url u = {.user = STR_NONE};
    size_t end = 0;
    if (!is_clean(text) || !cut_scheme(&text, &u.tls))
        return false;
    while (end < text.n && !strchr("/?#", text.p[end]))
        end++;
    u.authority = str_head(text, end);
    u.rest = str_skip(text, end);
    ptrdiff_t at = str_rchr(u.authority, '@');
    if (at >= 0) {
        u.user = str_head(u.authority, (size_t)at);
        u.authority = str_skip(u.authority, (size_t)at + 1);
    }
    if (!text_whole_escapes(u.user) || !cut_authority(u.authority, &u))
        return false;
    *ret = u;
    return true;
}

/* Of RFC 3986; the rest has to be escaped. */
static bool may_stand(unsigned char c)
{
    return (ascii_lower((char)c) >= 'a' && ascii_lower((char)c) <= 'z') || (c >= '0' && c <= '9') ||
           (c && strchr("-._~!$&'()*+,;=:@/?%", c));
}

struct str url_target(const struct url *u, struct arena *a)
{
    static const char hex[] = "0123456789ABCDEF";
    char *text = arena_get(a, 3 * u->rest.n + 1);
    size_t n = 0;
    if (u->rest.n == 0 || u->rest.p[0] != '/')
        text[n++] = '/';
    for (size_t i = 0; i < u->rest.n && u->rest.p[i] != '#'; i++) {
        unsigned char c = (unsigned char)u->rest.p[i];
        if (may_stand(c)) {
            text[n++] = (char)c;
            continue;
        }
        text[n++] = '%';
        text[n++] = hex[c >> 4];
        text[n++] = hex[c & 15];
    }
    return (struct str){text, n};
}

struct str url_basic(const struct url *u, struct arena *a)
{
    static const char scheme[] = "Basic ";
    const size_t front = sizeof scheme - 1;
    ptrdiff_t colon = str_chr(u->user, ':');
    size_t name = colon < 0 ? u->user.n : (size_t)colon, n = 0, rest = 0;
    if (u->user.n == 0)
        return STR_NONE;
    char *plain = arena_get(a, u->user.n + 1);
    char *text = arena_get(a, front + 4 * ((u->user.n + 3) / 3));
    bool whole = text_percent(str_head(u->user, name), plain, &n);
    plain[n++] = ':';
    if (colon >= 0)
        whole &= text_percent(str_skip(u->user, name + 1), plain + n, &rest);
    if (!whole)
        return STR_NONE;
    memcpy(text, scheme, front);
    return (struct str){text, front + text_put_base64(text + front, plain, n + rest)};
}
