/* firstbytes.c — TLS, HTTP or something else.  What lenient servers would take for a request line
 * (empty lines before it, several blanks in it) is HTTP here: then its Host is judged, and the
 * codec refuses what is malformed.  Taken for something else it would be relayed unread. */
#include "egress/relay/firstbytes.h"

#include "base/text.h"

static const struct str preface = {"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 24};

enum { RECORD_HANDSHAKE = 22, RECORD_MAJOR = 3 };

static enum firstbytes look_tls(struct str s)
{
    if (s.n < 2)
        return FIRST_MORE;
    return s.p[1] == RECORD_MAJOR ? FIRST_TLS : FIRST_OTHER;
}

/* Cuts leading bytes that are among `set` off; how many. */
static size_t skip_all(struct str *s, struct str set)
{
    size_t n = 0;
    while (n < s->n && str_chr(set, s->p[n]) >= 0)
        n++;
    *s = str_skip(*s, n);
    return n;
}

static bool is_scheme_byte(char c)
{
    c = ascii_lower(c);
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '+' || c == '-' || c == '.';
}

/* "/path", "*" or "scheme://"; of CONNECT anything. */
static enum firstbytes look_target(struct str s, struct str method)
{
    static const struct str mark = {"://", 3};
    size_t n = 0;
    if (s.n == 0)
        return FIRST_MORE;
    if (s.p[0] == '/' || s.p[0] == '*' || str_ieq(method, STR("CONNECT")))
        return FIRST_H1;
    while (n < s.n && is_scheme_byte(s.p[n]))
        n++;
    struct str rest = str_skip(s, n);
    if (n == 0 || memcmp(rest.n ? rest.p : "", mark.p, rest.n < mark.n ? rest.n : mark.n) != 0)
        return FIRST_OTHER;
    return rest.n < mark.n ? FIRST_MORE : FIRST_H1;
}

static enum firstbytes look_request(struct str s)
{
    size_t n = 0;
    skip_all(&s, STR("\r\n"));
    while (n < s.n && text_tchar[(uint8_t)s.p[n]])
        n++;
    struct str method = str_head(s, n);
    s = str_skip(s, n);
    if (s.n == 0)
        return FIRST_MORE;
    if (n == 0 || skip_all(&s, STR(" \t\v\f\r")) == 0) /* RFC 9112 section 3 */
        return FIRST_OTHER;
    return look_target(s, method);
}

enum firstbytes firstbytes_look(const void *p, size_t n)
{
    struct str s = {p, n < FIRSTBYTES_MAX ? n : FIRSTBYTES_MAX};
    if (s.n == 0)
        return FIRST_MORE;
    if (s.p[0] == RECORD_HANDSHAKE)
        return look_tls(s);
    size_t common = s.n < preface.n ? s.n : preface.n;
    if (memcmp(s.p, preface.p, common) == 0)
        return common == preface.n ? FIRST_H2 : FIRST_MORE;
    enum firstbytes seen = look_request(s);
    return seen == FIRST_MORE && s.n == FIRSTBYTES_MAX ? FIRST_OTHER : seen;
}
