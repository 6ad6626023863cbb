/* hello.c — two readers, one over the other: records give a message, the message gives what we want
 * to know.  The message is a stream of bytes: neither reads nor records nor packets say where it
 * ends, only its own length does. */
#include "egress/relay/hello.h"

enum {
    RECORD_HANDSHAKE = 22,
    RECORD_MAJOR = 3,
    RECORD_BYTES_MAX = 16384,
    MESSAGE_CLIENT_HELLO = 1,
    MESSAGE_HEADER = 4,
    RANDOM_BYTES = 32,
    SESSION_BYTES_MAX = 32,
    EXTENSIONS = 65536
};

enum extension {
    EXTENSION_SERVER_NAME = 0,
    EXTENSION_ALPN = 16,
    EXTENSION_SUPPORTED_VERSIONS = 43,
    EXTENSION_ECH = 0xfe0d
};

/* ---- the message */

static size_t number(const char *p, unsigned bytes)
{
    size_t v = 0;
    for (unsigned i = 0; i < bytes; i++)
        v = v << 8 | (uint8_t)p[i];
    return v;
}

static bool take(struct str *rest, size_t n, struct str *ret)
{
    if (n > rest->n)
        return false;
    *ret = str_head(*rest, n);
    *rest = str_skip(*rest, n);
    return true;
}

/* A vector with a length of so many bytes in front (RFC 8446 section 3.4). */
static bool take_vector(struct str *rest, unsigned length_bytes, struct str *ret)
{
    struct str length;
    return take(rest, length_bytes, &length) && take(rest, number(length.p, length_bytes), ret);
}

/* RFC 6066 section 3: a list, of names of different types, of which there is one. */
static bool read_server_name(struct str data, struct hello *h)
{
    struct str list, type, name;
    if (!take_vector(&data, 2, &list) || data.n > 0)
        return false;
    if (!take(&list, 1, &type) || type.p[0] != 0)
        return false;
    if (!take_vector(&list, 2, &name) || list.n > 0 || name.n == 0)
        return false;
    h->name = name;
    return true;
}

bool hello_next_protocol(struct str *rest, struct str *ret)
{
    return rest->n > 0 && take_vector(rest, 1, ret);
}

static bool read_alpn(struct str data, struct hello *h)
{
    struct str list, protocol;
    if (!take_vector(&data, 2, &list) || data.n > 0 || list.n == 0)
        return false;
    for (struct str rest = list; rest.n > 0;)
        if (!hello_next_protocol(&rest, &protocol) || protocol.n == 0)
            return false;
    h->protocols = list;
    return true;
}

static bool read_versions(struct str data, struct hello *h)
{
    struct str list;
    if (!take_vector(&data, 1, &list) || data.n > 0 || list.n == 0 || list.n % 2)
        return false;
    h->versions = list;
    return true;
}

static bool read_extension(size_t type, struct str data, struct hello *h)
{
    switch (type) {
    case EXTENSION_SERVER_NAME:
        return read_server_name(data, h);
    case EXTENSION_ALPN:
        return read_alpn(data, h);
    case EXTENSION_SUPPORTED_VERSIONS:
        return read_versions(data, h);
    case EXTENSION_ECH:
        h->ech = true;
        return true;
    default:
        return true;
    }
}

/* One bit for each type: none may come twice (RFC 8446 section 4.2), known to us or not. */
static bool read_extensions(struct str rest, struct hello *h)
{
    uint8_t met[EXTENSIONS / 8] = {0};
    while (rest.n > 0) {
        struct str type_bytes, data;
        if (!take(&rest, 2, &type_bytes) || !take_vector(&rest, 2, &data))
            return false;
        size_t type = number(type_bytes.p, 2);
        uint8_t bit = (uint8_t)(1u << type % 8);
        if (met[type / 8] & bit || !read_extension(type, data, h))
            return false;
        met[type / 8] |= bit;
    }
    return true;
}

bool hello_parse(struct str body, struct hello *ret)
{
    struct hello h = {.name = STR_NONE, .protocols = STR_NONE, .versions = STR_NONE};
    struct str version, random, session, suites, compressions, extensions;
    if (!take(&body, 2, &version) || version.p[0] != RECORD_MAJOR)
        return false;
    h.version = (uint16_t)number(version.p, 2);
    if (!take(&body, RANDOM_BYTES, &random))
        return false;
    if (!take_vector(&body, 1, &session) || session.n > SESSION_BYTES_MAX)
        return false;
    if (!take_vector(&body, 2, &suites) || suites.n == 0 || suites.n % 2)
        return false;
    if (!take_vector(&body, 1, &compressions) || compressions.n == 0)
        return false;
    if (body.n > 0) { /* before TLS 1.2 there may be none */
        if (!take_vector(&body, 2, &extensions) || body.n > 0)
            return false;
        if (!read_extensions(extensions, &h))
            return false;
    }
    *ret = h;
    return true;
}

bool hello_offers_protocol(const struct hello *h, struct str protocol)
{
    struct str rest = h->protocols, offered;
    while (hello_next_protocol(&rest, &offered))
        if (str_eq(offered, protocol))
            return true;
    return false;
}

/* Where there is a list, it alone counts (RFC 8446 section 4.2.1). */
bool hello_offers_version(const struct hello *h, uint16_t version)
{
    if (!h->versions.p)
        return version < HELLO_TLS13 && version <= h->version;
    for (struct str rest = h->versions; rest.n > 0; rest = str_skip(rest, 2))
        if (number(rest.p, 2) == version)
            return true;
    return false;
}

/* ---- its records */

void hello_init(struct hello_reader *r)
{
    *r = (struct hello_reader){.step = HELLO_MORE};
}

void hello_done(struct hello_reader *r)
{
    mem_free(r->message);
    hello_init(r);
}

static enum hello_step read_header(struct hello_reader *r, uint8_t byte)
{
    r->header[r->nheader++] = byte;
    if (r->nheader == 1 && byte != RECORD_HANDSHAKE)
        return HELLO_BAD;
    if (r->nheader == 2 && byte != RECORD_MAJOR)
        return HELLO_BAD;
    if (r->nheader < sizeof r->header)
        return HELLO_MORE;
    r->nheader = 0;
    r->left = (size_t)r->header[3] << 8 | r->header[4]; /* 0 is useless and does no harm */
    return r->left > RECORD_BYTES_MAX ? HELLO_BAD : HELLO_MORE;
}

static void collect(struct hello_reader *r, const uint8_t *p, size_t n)
{
    if (r->n + n > r->room) {
        size_t room = r->room ? r->room : 1024;
        while (room < r->n + n)
            room *= 2;
        r->message = mem_renew(r->message, room);
        r->room = room;
    }
    memcpy(r->message + r->n, p, n);
    r->n += n;
}

static enum hello_step judge_message(struct hello_reader *r)
{
    const char *p = (const char *)r->message;
    if (p[0] != MESSAGE_CLIENT_HELLO)
        return HELLO_BAD;
    if (r->n < MESSAGE_HEADER)
        return HELLO_MORE;
    size_t length = number(p + 1, 3), got = r->n - MESSAGE_HEADER;
    if (length > HELLO_BYTES_MAX)
        return HELLO_TOO_LARGE;
    if (got < length)
        return HELLO_MORE;
    if (got > length || r->left > 0)
        return HELLO_BAD;
    struct str body = {p + MESSAGE_HEADER, length};
    return hello_parse(body, &r->hello) ? HELLO_DONE : HELLO_BAD;
}

/* Takes the next bytes, at least one of n; how many. */
static size_t feed_some(struct hello_reader *r, const uint8_t *p, size_t n)
{
    if (r->left == 0) {
        r->step = read_header(r, *p);
        return 1;
    }
    size_t some = n < r->left ? n : r->left;
    r->left -= some;
    collect(r, p, some);
    r->step = judge_message(r);
    return some;
}

enum hello_step hello_feed(struct hello_reader *r, const void *p, size_t n)
{
    const uint8_t *at = p;
    while (n > 0 && r->step == HELLO_MORE) {
        size_t room = HELLO_BYTES_MAX - r->seen;
        if (room == 0)
            return r->step = HELLO_TOO_LARGE;
        size_t used = feed_some(r, at, n < room ? n : room);
        r->seen += used;
        at += used;
        n -= used;
    }
    return r->step;
}
