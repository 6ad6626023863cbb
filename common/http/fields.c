/* fields.c — the walk over a head's field lines.  Each is classified by length and letters, and
 * what concerns one hop is swapped behind the others, so that the few lines that say something
 * (Connection, lengths, Upgrade) can be read afterwards without a copy. */
#include "http/fields.h"

#include "base/text.h"

enum { LONGEST_KNOWN = 19 };

/* ---- names ---- */

#define NAME(text)             \
    {                          \
        text, sizeof(text) - 1 \
    }

static const struct known {
    struct str name;
    enum field_kind kind;
} knowns[] = {
    /* by length: known_at[] has their places */
    {NAME("te"), FIELD_TE},
    {NAME("host"), FIELD_HOST},
    {NAME("expect"), FIELD_EXPECT},
    {NAME("upgrade"), FIELD_UPGRADE},
    {NAME("trailer"), FIELD_HOP},
    {NAME("connection"), FIELD_CONNECTION},
    {NAME("keep-alive"), FIELD_LINK},
    {NAME("content-length"), FIELD_LENGTH},
    {NAME("http2-settings"), FIELD_HOP},
    {NAME("idempotency-key"), FIELD_IDEMPOTENCY},
    {NAME("proxy-connection"), FIELD_LINK},
    {NAME("transfer-encoding"), FIELD_CODING},
    {NAME("x-idempotency-key"), FIELD_IDEMPOTENCY},
    {NAME("proxy-authenticate"), FIELD_HOP},
    {NAME("proxy-authorization"), FIELD_HOP},
};

/* Index of the first known name of each length. */
static const uint8_t known_at[LONGEST_KNOWN + 2] = {0, 0, 0, 1, 1, 2,  2,  3,  5,  5, 5,
                                                    7, 7, 7, 7, 9, 10, 11, 13, 14, 15};

/* Is `name`, of the same length, the known one?  In tokens this bit is the case of a letter and
 * nothing else that could match. */
static inline bool same_letters(const char *name, const char *known, size_t n)
{
    size_t i = 0;
    while (i < n && (name[i] | 0x20) == known[i])
        i++;
    return i == n;
}

enum field_kind fields_kind(struct str name)
{
    if (name.n > LONGEST_KNOWN)
        return FIELD_PLAIN;
    for (unsigned i = known_at[name.n]; i < known_at[name.n + 1]; i++)
        if (same_letters(name.p, knowns[i].name.p, name.n))
            return knowns[i].kind;
    return FIELD_PLAIN;
}

/* ---- bytes of values ---- */

typedef uint8_t bytes16 __attribute__((vector_size(16)));

static uint64_t load64(const char *p)
{
    uint64_t x;
    memcpy(&x, p, sizeof x);
    return x;
}

/* Up to eight bytes in one word, harmless ones where there are none. */
static uint64_t load_short(struct str v)
{
    uint32_t low, high;
    uint64_t x = 0x6161616161616161u;
    if (v.n >= 4) {
        memcpy(&low, v.p, sizeof low);
        memcpy(&high, v.p + v.n - sizeof high, sizeof high);
        return low | (uint64_t)high << 32;
    }
    for (size_t i = 0; i < v.n; i++)
        x = x << 8 | (unsigned char)v.p[i];
    return x;
}

/* Has x a byte below 0x20 or a DEL? */
static bool has_control(uint64_t x)
{
    const uint64_t ones = 0x0101010101010101u, high = 0x8080808080808080u;
    uint64_t del = x ^ ones * 0x7f;
    return (((x - ones * 0x20) & ~x) | ((del - ones) & ~del)) & high;
}

/* Values are most of a head, so they are looked at 16 bytes at a time, the ends overlapping. */
bool fields_may_hold_control(struct str v)
{
    bytes16 bad = {0}, x;
    if (v.n <= 8)
        return has_control(load_short(v));
    if (v.n < sizeof x)
        return has_control(load64(v.p)) || has_control(load64(v.p + v.n - 8));
    for (size_t at = 0; at < v.n; at += sizeof x) {
        memcpy(&x, v.p + (at + sizeof x <= v.n ? at : v.n - sizeof x), sizeof x);
        bad |= (bytes16)(x < 0x20) | (bytes16)(x == 0x7f);
    }
    uint64_t halves[2];
    memcpy(halves, &bad, sizeof halves);
    return halves[0] | halves[1];
}

bool fields_value_ok(struct str v, bool request)
{
    if (!fields_may_hold_control(v))
        return true;
    for (size_t i = 0; i < v.n; i++) {
        unsigned char c = (unsigned char)v.p[i];
        if (c == 0 || c == '\r' || c == '\n' || (request && c != '\t' && (c < 0x20 || c == 0x7f)))
            return false;
    }
    return true;
}

/* ---- one walk over the fields ---- */

static void note(struct field_scan *s, const struct field *f, enum field_kind kind)
{
    switch (kind) {
    case FIELD_HOST:
        s->hosts++;
        s->host = f->value;
        break;
    case FIELD_LENGTH:
        s->lengths++;
        s->length = f->value;
        break;
    case FIELD_CODING:
        s->codings++;
        s->coding = f->value;
        break;
    case FIELD_CONNECTION:
    case FIELD_TE:
    case FIELD_UPGRADE:
        s->others++;
        break;
    case FIELD_EXPECT:
        s->expect |= token_list_has(f->value, STR("100-continue"));
        break;
    case FIELD_IDEMPOTENCY:
        s->idempotent = true;
        break;
    case FIELD_PLAIN:
    case FIELD_HOP:
    case FIELD_LINK:
        break;
    }
}

bool fields_scan(struct field_scan *s, const struct http_raw *raw, bool request)
{
    *s = (struct field_scan){.fields = raw->fields, .nfields = raw->nfields};
    for (unsigned i = 0; i < raw->nfields; i++) {
        struct field f = raw->fields[i];
        if (!text_is_token(f.name) || !fields_value_ok(f.value, request))
            return false;
        enum field_kind kind = fields_kind(f.name);
        if (kind != FIELD_PLAIN)
            note(s, &f, kind);
        if (kind >= FIELD_HOP)
            continue;
        if (i != s->kept) { /* what was taken out moves up, so that its texts are not lost */
            raw->fields[i] = raw->fields[s->kept];
            raw->fields[s->kept] = f;
        }
        s->kept++;
    }
    return true;
}

/* ---- Content-Length ---- */

static bool read_length(struct str value, int64_t *ret)
{
    uint64_t length;
    if (!text_u64(value, INT64_MAX, &length))
        return false;
    *ret = (int64_t)length;
    return true;
}

/* One line's list elements, and what was said before, are all the same. */
static bool same_length(struct str value, int64_t *ret)
{
    struct str piece;
    int64_t length;
    if (value.n == 0)
        return false;
    while (str_next(&value, ',', &piece)) {
        if (!read_length(str_trim(piece), &length) || (*ret >= 0 && length != *ret))
            return false;
        *ret = length;
    }
    return true;
}

bool fields_length(const struct field_scan *s, bool request, int64_t *ret)
{
    *ret = -1;
    if (s->lengths == 0)
        return true;
    if (request)
        return s->lengths == 1 && read_length(s->length, ret);
    for (unsigned i = s->kept; i < s->nfields; i++)
        if (fields_kind(s->fields[i].name) == FIELD_LENGTH && !same_length(s->fields[i].value, ret))
            return false;
    return true;
}

/* ---- Connection, TE, Upgrade ---- */

static void take_option(struct hop *hop, struct str option, bool request)
{
    if (str_ieq(option, STR("close")))
        hop->close = true;
    else if (str_ieq(option, STR("keep-alive")))
        hop->keep_alive = true;
    else if (str_ieq(option, STR("upgrade")))
        hop->upgrade = true;
    else if (option.n == 0 || fields_kind(option) >= FIELD_HOP ||
             (request && str_ieq(option, STR("x-request-id"))))
        return;
    else if (hop->n == HOP_OPTIONS)
        hop->overflow = true;
    else
        hop->options[hop->n++] = option;
}

static bool is_option(const struct hop *hop, struct str name)
{
    for (unsigned i = 0; i < hop->n; i++)
        if (str_ieq(hop->options[i], name))
            return true;
    return false;
}

static void drop_options(struct field_scan *s, const struct hop *hop)
{
    unsigned kept = 0;
    s->expect = s->idempotent = false; /* said by a field that goes, it is not said */
    for (unsigned i = 0; i < s->kept; i++) {
        struct field f = s->fields[i];
        if (is_option(hop, f.name))
            continue;
        note(s, &f, fields_kind(f.name));
        s->fields[kept++] = f;
    }
    s->kept = kept;
}

static void read_hop(struct field_scan *s, struct hop *hop, bool request)
{
    hop->close = hop->keep_alive = hop->upgrade = hop->te_trailers = hop->overflow = false;
    hop->n = 0;
    if (s->others == 0)
        return;
    for (unsigned i = s->kept; i < s->nfields; i++) {
        struct str rest = s->fields[i].value, option;
        enum field_kind kind = fields_kind(s->fields[i].name);
        if (kind == FIELD_TE)
            hop->te_trailers |= token_list_has(rest, STR("trailers"));
        while (kind == FIELD_CONNECTION && str_next(&rest, ',', &option))
            take_option(hop, str_trim(option), request);
    }
}

bool fields_settle(struct field_scan *s, struct hop *hop, bool request, struct http_head *head)
{
    unsigned taken_out = s->kept;
    read_hop(s, hop, request);
    if (hop->overflow)
        return false;
    if (hop->n > 0)
        drop_options(s, hop);
    head->fields = s->fields;
    head->nfields = s->kept;
    s->kept = taken_out; /* Upgrade and length lines still stand behind it */
    return true;
}

/* protocol = name [ "/" version ] (RFC 9110 section 7.8). */
static bool is_protocol(struct str s)
{
    ptrdiff_t slash = str_chr(s, '/');
    if (slash < 0)
        return text_is_token(s);
    return text_is_token(str_head(s, (size_t)slash)) &&
           text_is_token(str_skip(s, (size_t)slash + 1));
}

/* The next element of the Upgrade lines; *at and *rest hold the place, from 0 and STR_NONE on. */
static bool next_protocol(const struct field_scan *s, unsigned *at, struct str *rest,
                          struct str *ret)
{
    for (;;) {
        while (str_next(rest, ',', ret)) {
            *ret = str_trim(*ret);
            if (ret->n > 0)
                return true;
        }
        while (s->kept + *at < s->nfields &&
               fields_kind(s->fields[s->kept + *at].name) != FIELD_UPGRADE)
            ++*at;
        if (s->kept + *at >= s->nfields)
            return false;
        *rest = s->fields[s->kept + (*at)++].value;
    }
}

struct str fields_wanted_protocol(const struct field_scan *s, struct str method)
{
    unsigned at = 0;
    struct str rest = STR_NONE, protocol, wanted = STR("");
    while (next_protocol(s, &at, &rest, &protocol)) {
        bool websocket = str_ieq(protocol, STR("websocket"));
        if (websocket && str_eq(method, STR("GET")))
            return STR("websocket");
        if (!websocket && wanted.n == 0 && !str_ieq(protocol, STR("h2c")) && is_protocol(protocol))
            wanted = protocol;
    }
    return wanted;
}

bool fields_grants(const struct field_scan *s, const struct hop *hop, struct str wanted)
{
    unsigned at = 0;
    struct str rest = STR_NONE, protocol;
    bool named = false;
    while (next_protocol(s, &at, &rest, &protocol)) {
        if (!str_ieq(protocol, wanted))
            return false;
        named = true;
    }
    return named && hop->upgrade && wanted.n > 0;
}
