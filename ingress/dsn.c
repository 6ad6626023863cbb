/* dsn.c — takes a Redis DSN apart.  It is cut from the outside in (scheme, query, authority, path),
 * each piece is judged by itself, and what is not provably good is refused, since a DSN that is
 * half understood connects to the wrong place with the right password. */
#include "ingress/dsn.h"

#include "base/ip.h"
#include "base/text.h"

enum option_type { NUMBER, DURATION, BOOL };

static const struct {
    const char *name;
    enum option_type type;
    int64_t def;
} options[DSN_OPTIONS] = {
#define X(id, name, type, def) [DSN_##id] = {name, type, def},
    DSN_OPTION_MAP(X)
#undef X
};

enum { SOCKET_PATH_BYTES = 107 }; /* sun_path less its terminator */

#define REFUSE(ret_error, text) (*(ret_error) = (text), false)

enum dsn_option dsn_option_by_name(struct str name)
{
    for (int i = 0; i < DSN_OPTIONS; i++)
        if (str_eq(name, str_of(options[i].name)))
            return (enum dsn_option)i;
    return DSN_OPTIONS;
}

static bool decode(struct str s, struct arena *a, struct str *ret)
{
    char *out = arena_get(a, s.n + 1);
    size_t n;
    if (!text_percent(s, out, &n))
        return false;
    *ret = (struct str){out, n};
    return true;
}

static bool all_of(struct str s, const char *extra)
{
    for (size_t i = 0; i < s.n; i++) {
        char c = ascii_lower(s.p[i]);
        if (!((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || (c && strchr(extra, c))))
            return false;
    }
    return true;
}

/* --- options --- */

/* "max_retries=-1" switches off in O, so a sign is allowed. */
static bool option_number(struct str value, int64_t *ret)
{
    bool minus = value.n && value.p[0] == '-';
    uint64_t v;
    if (!text_u64(str_skip(value, value.n && (minus || value.p[0] == '+')), INT32_MAX, &v))
        return false;
    *ret = minus ? -(int64_t)v : (int64_t)v;
    return true;
}

static bool option_duration(struct str value, int64_t *ret)
{
    int64_t v;
    if (option_number(value, &v)) {
        *ret = v <= 0 ? -1 : v * 1000;
        return true;
    }
    if (!text_duration(value, &v))
        return false;
    *ret = v <= 0 ? -1 : v / 1000000 + (v % 1000000 != 0);
    return true;
}

static bool option_bool(struct str value, int64_t *ret)
{
    *ret = str_eq(value, STR("true")) || str_eq(value, STR("1"));
    return *ret || str_eq(value, STR("false")) || str_eq(value, STR("0"));
}

static bool option_value(enum dsn_option option, struct str value, int64_t *ret)
{
    switch (options[option].type) {
    case NUMBER:
        return option_number(value, ret);
    case DURATION:
        return option_duration(value, ret);
    case BOOL:
        return option_bool(value, ret);
    }
    return false;
}

/* In a query a plus sign is a blank. */
static bool decode_query(struct str s, struct arena *a, struct str *ret)
{
    char *bytes = arena_get(a, s.n + 1);
    for (size_t i = 0; i < s.n; i++)
        bytes[i] = s.p[i] == '+' ? ' ' : s.p[i];
    return decode((struct str){bytes, s.n}, a, ret);
}

static bool parse_option(struct str name, struct str value, struct arena *a, struct dsn *d,
                         bool *db_given, const char **ret_error)
{
    if (!decode_query(name, a, &name) || !decode_query(value, a, &value))
        return REFUSE(ret_error, "an escape in an option is broken");
    if (str_eq(name, STR("client_name"))) {
        d->client_name = value;
        return true;
    }
    enum dsn_option option = dsn_option_by_name(name);
    if (option == DSN_OPTIONS || (option == DSN_SKIP_VERIFY && !d->tls))
        return REFUSE(ret_error, "an option is unknown for this scheme");
    int64_t v = options[option].def; /* an empty value is one that is not given */
    if (value.n && !option_value(option, value, &v))
        return REFUSE(ret_error, option == DSN_DB ? "the option db must be digits"
                                                  : "an option has a value that it cannot have");
    if (option == DSN_DB && v < 0)
        return REFUSE(ret_error, "the option db must be digits");
    if (option == DSN_PROTOCOL && value.n && v != 2 && v != 3)
        return REFUSE(ret_error, "the option protocol must be 2 or 3");
    if (option == DSN_DB)
        *db_given = value.n > 0;
    d->option[option] = v;
    return true;
}

static bool parse_options(struct str query, struct arena *a, struct dsn *d, const char **ret_error)
{
    bool db_given = false;
    for (struct str pair; str_next(&query, '&', &pair);) {
        if (pair.n == 0)
            continue;
        ptrdiff_t equals = str_chr(pair, '=');
        struct str name = equals < 0 ? pair : str_head(pair, (size_t)equals);
        struct str value = equals < 0 ? STR_NONE : str_skip(pair, (size_t)equals + 1);
        if (!parse_option(name, value, a, d, &db_given, ret_error))
            return false;
    }
    if (db_given)
        d->db = d->option[DSN_DB];
    d->option[DSN_DB] = d->db;
    return true;
}

/* --- address --- */

static bool parse_user(struct str user, struct arena *a, struct dsn *d, const char **ret_error)
{
    if (!all_of(user, "-._~!$&'()*+,;=:%@"))
        return REFUSE(ret_error, "user or password has a character that must be percent-encoded");
    ptrdiff_t colon = str_chr(user, ':');
    struct str name = colon < 0 ? user : str_head(user, (size_t)colon);
    struct str password = colon < 0 ? STR_NONE : str_skip(user, (size_t)colon + 1);
    if (!decode(name, a, &d->username) || !decode(password, a, &d->password))
        return REFUSE(ret_error, "an escape in user or password is broken");
    return true;
}

static bool parse_port(struct str port, struct dsn *d, const char **ret_error)
{
    uint64_t v;
    if (!text_u64(port, UINT16_MAX, &v) || v == 0)
        return REFUSE(ret_error, "the port must be 1 to 65535");
    d->port = (uint16_t)v;
    return true;
}

static bool parse_host(struct str host, struct arena *a, struct dsn *d, const char **ret_error)
{
    bool bracket = host.n && host.p[0] == '[';
    ptrdiff_t end = bracket ? str_chr(host, ']') : str_chr(host, ':');
    if (bracket && end < 0)
        return REFUSE(ret_error, "a bracket of the address is missing");
    struct str name = bracket   ? str_head(str_skip(host, 1), (size_t)end - 1)
                      : end < 0 ? host
                                : str_head(host, (size_t)end);
    struct str rest = bracket   ? str_skip(host, (size_t)end + 1)
                      : end < 0 ? STR_NONE
                                : str_skip(host, (size_t)end);
    struct ip ip;
    if (bracket && (!ip_parse(name, &ip) || str_chr(name, ':') < 0))
        return REFUSE(ret_error, "what stands in brackets is no IPv6 address");
    if (!bracket && !all_of(name, "-._"))
        return REFUSE(ret_error,
                      "the host must be a name, an IPv4 address or an IPv6 address in brackets");
    if (rest.n && rest.p[0] != ':')
        return REFUSE(ret_error, "only a port may follow the bracket");
    d->port = 6379;
    if (rest.n > 1 && !parse_port(str_skip(rest, 1), d, ret_error))
        return false;
    d->host = name.n ? arena_str(a, name) : STR("localhost");
    d->address = arena_printf(a, bracket ? "[%.*s]:%u" : "%.*s:%u", STR_ARG(d->host), d->port);
    d->server_name = d->tls ? d->host : STR_NONE;
    return true;
}

/* At most one segment, of digits; empty ones do not count. */
static bool parse_database(struct str path, struct dsn *d, const char **ret_error)
{
    struct str database = STR_NONE;
    for (struct str segment; str_next(&path, '/', &segment);) {
        if (segment.n == 0)
            continue;
        if (database.n)
            return REFUSE(ret_error, "the path has more than a database number");
        database = segment;
    }
    uint64_t v = 0;
    if (database.n && !text_u64(database, INT32_MAX, &v))
        return REFUSE(ret_error, "the database must be digits");
    d->db = (int64_t)v;
    return true;
}

static bool parse_socket(struct str host, struct str path, struct arena *a, struct dsn *d,
                         const char **ret_error)
{
    if (host.n)
        return REFUSE(ret_error, "a socket has no host");
    if (!decode(path, a, &path) || (path.n && memchr(path.p, 0, path.n)))
        return REFUSE(ret_error, "an escape in the socket's path is broken");
    if (str_trim(path).n == 0 || path.n > SOCKET_PATH_BYTES)
        return REFUSE(ret_error, "the path of the socket is missing or too long");
    d->host = d->address = path;
    return true;
}

/* --- the whole --- */

/* Cuts "scheme://" off. */
static bool parse_scheme(struct str *rest, struct dsn *d, const char **ret_error)
{
    static const struct {
        struct str prefix;
        bool tls, unix_socket;
    } schemes[] = {{{"redis://", 8}, false, false},
                   {{"rediss://", 9}, true, false},
                   {{"unix://", 7}, false, true}};
    for (size_t i = 0; i < sizeof schemes / sizeof schemes[0]; i++) {
        if (!str_istarts(*rest, schemes[i].prefix))
            continue;
        d->tls = schemes[i].tls;
        d->unix_socket = schemes[i].unix_socket;
        *rest = str_skip(*rest, schemes[i].prefix.n);
        return true;
    }
    return REFUSE(ret_error, "it must begin with redis://, rediss:// or unix://");
}

static bool plain_bytes(struct str text)
{
    for (size_t i = 0; i < text.n; i++)
        if ((unsigned char)text.p[i] <= ' ' || text.p[i] == 127 || text.p[i] == '#')
            return false;
    return true;
}

bool dsn_parse(struct str text, struct arena *a, struct dsn *ret, const char **ret_error)
{
    struct dsn d = {0};
    for (int i = 0; i < DSN_OPTIONS; i++)
        d.option[i] = options[i].def;
    if (!parse_scheme(&text, &d, ret_error))
        return false;
    if (!plain_bytes(text))
        return REFUSE(ret_error, "blanks, control characters and '#' must be percent-encoded");
    ptrdiff_t mark = str_chr(text, '?');
    struct str query = mark < 0 ? STR_NONE : str_skip(text, (size_t)mark + 1);
    text = mark < 0 ? text : str_head(text, (size_t)mark);
    ptrdiff_t slash = str_chr(text, '/');
    struct str authority = slash < 0 ? text : str_head(text, (size_t)slash);
    struct str path = slash < 0 ? STR_NONE : str_skip(text, (size_t)slash);
    ptrdiff_t at = str_rchr(authority, '@');
    struct str host = at < 0 ? authority : str_skip(authority, (size_t)at + 1);
    if (at >= 0 && !parse_user(str_head(authority, (size_t)at), a, &d, ret_error))
        return false;
    if (d.unix_socket ? !parse_socket(host, path, a, &d, ret_error)
                      : !parse_host(host, a, &d, ret_error) || !parse_database(path, &d, ret_error))
        return false;
    if (!parse_options(query, a, &d, ret_error))
        return false;
    *ret = d;
    return true;
}
