/* authority.c — reads how a peer names a host.  One form comes out of all spellings, so that names
 * can be compared byte by byte wherever they came from. */
#include "policies/authority.h"

#include "base/text.h"

enum { PORT_MAX = 65535, PORT_DIGITS = 5 };

struct str host_name(const struct host *h)
{
    return h->kind == HOST_NAME ? (struct str){h->text, h->n} : STR("");
}

bool host_same(const struct host *a, const struct host *b)
{
    if (a->kind != b->kind || a->kind == HOST_NONE)
        return false;
    return a->kind == HOST_ADDRESS ? ip_eq(&a->ip, &b->ip) : str_eq(host_name(a), host_name(b));
}

static bool has_empty_label(struct str name)
{
    struct str label;
    while (str_next(&name, '.', &label))
        if (label.n == 0)
            return true;
    return false;
}

static struct str without_final_dot(struct str s)
{
    return str_head(s, s.n - (s.n > 0 && s.p[s.n - 1] == '.'));
}

/* An address literal without brackets, or else a name, whatever its labels hold. */
static bool read_plain(struct str text, struct host *ret)
{
    struct host h = {.kind = HOST_NAME};
    text = without_final_dot(text);
    if (text.n > NAME_BYTES_MAX || has_empty_label(text))
        return false;
    if (ip_parse(text, &h.ip)) {
        h.kind = HOST_ADDRESS;
    } else {
        h.n = (uint8_t)text.n;
        for (size_t i = 0; i < text.n; i++)
            h.text[i] = ascii_lower(text.p[i]);
    }
    *ret = h;
    return true;
}

static bool is_label(struct str label)
{
    for (size_t i = 0; i < label.n; i++) {
        char c = ascii_lower(label.p[i]);
        if (!(c >= 'a' && c <= 'z') && !(c >= '0' && c <= '9') && c != '-' && c != '_')
            return false;
    }
    return label.n > 0 && label.n <= LABEL_BYTES_MAX;
}

bool host_read(struct str text, struct host *ret)
{
    struct host h;
    struct str label;
    if (!read_plain(text, &h))
        return false;
    for (struct str rest = host_name(&h); rest.n > 0 && str_next(&rest, '.', &label);)
        if (!is_label(label))
            return false;
    *ret = h;
    return true;
}

/* ---- with a port */

static bool may_hold(struct str text)
{
    for (size_t i = 0; i < text.n; i++)
        if (text.p[i] <= ' ' || text.p[i] > '~' || memchr(",@/\\?#%", text.p[i], 7))
            return false;
    return true;
}

static bool read_port(struct str digits, uint16_t *ret)
{
    uint64_t port;
    if (digits.n == 0 || digits.n > PORT_DIGITS || digits.p[0] == '0')
        return false;
    if (!text_u64(digits, PORT_MAX, &port))
        return false;
    *ret = (uint16_t)port;
    return true;
}

/* "" or ":port". */
static bool read_tail(struct str tail, uint16_t *ret)
{
    *ret = 0;
    if (tail.n == 0)
        return true;
    return tail.p[0] == ':' && read_port(str_skip(tail, 1), ret);
}

static bool read_brackets(struct str text, struct host *ret, uint16_t *ret_port)
{
    struct host h = {.kind = HOST_ADDRESS};
    ptrdiff_t end = str_chr(text, ']');
    if (end < 0)
        return false;
    struct str literal = str_skip(str_head(text, (size_t)end), 1);
    if (str_chr(literal, ':') < 0 || !ip_parse(literal, &h.ip))
        return false;
    if (!read_tail(str_skip(text, (size_t)end + 1), ret_port))
        return false;
    *ret = h;
    return true;
}

bool authority_read(struct str text, struct host *ret, uint16_t *ret_port)
{
    struct host h;
    uint16_t port;
    if (text.n == 0 || !may_hold(text))
        return false;
    if (text.p[0] == '[') {
        if (!read_brackets(text, &h, &port))
            return false;
    } else {
        ptrdiff_t colon = str_chr(text, ':');
        size_t n = colon < 0 ? text.n : (size_t)colon;
        if (str_chr(text, '[') >= 0 || str_chr(text, ']') >= 0)
            return false;
        if (!read_tail(str_skip(text, n), &port) || !read_plain(str_head(text, n), &h))
            return false;
    }
    *ret = h;
    *ret_port = port;
    return true;
}
