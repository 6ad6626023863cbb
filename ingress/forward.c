/* forward.c — the head that goes on.  One walk copies the fields that stay and lays aside what a
 * trusted proxy has said; then our own are added, which is why nothing a client sends can take
 * their place.  What names a sandbox or opens it never stays, whoever the peer is. */
#include "ingress/forward.h"

#include "base/text.h"
#include "ingress/resolver.h"

enum { ADDED_FIELDS = 8, LONGEST_KNOWN = 31 };

enum kind {
    PLAIN,
    DROP,
    API_KEY,
    FROM_PROXY, /* stays, if a trusted proxy sent it */
    FORWARDED_FOR,
    FORWARDED_HOST,
    FORWARDED_PROTO,
    FORWARDED_PORT,
    FORWARDED_PREFIX
};

#define NAME(text)             \
    {                          \
        text, sizeof(text) - 1 \
    }

/* Every field that is not simply passed on. */
static const struct known {
    struct str name;
    enum kind kind;
} knowns[] = {
    {NAME("opensandbox-ingress-to"), DROP},
    {NAME("open-sandbox-ingress"), DROP},
    {NAME("opensandbox-secure-access"), DROP},
    {NAME("opensandbox-access-renew"), DROP},
    {NAME("x-fast-sandbox-route-credential"), DROP},
    {NAME("x-request-id"), DROP},
    {NAME("open-sandbox-api-key"), API_KEY},
    {NAME("forwarded"), FROM_PROXY},
    {NAME("x-real-ip"), FROM_PROXY},
    {NAME("x-forwarded-for"), FORWARDED_FOR},
    {NAME("x-forwarded-host"), FORWARDED_HOST},
    {NAME("x-forwarded-proto"), FORWARDED_PROTO},
    {NAME("x-forwarded-port"), FORWARDED_PORT},
    {NAME("x-forwarded-prefix"), FORWARDED_PREFIX},
};

#define LENGTH(n) (1u << (n))
static const uint32_t known_lengths = LENGTH(9) | LENGTH(12) | LENGTH(15) | LENGTH(16) |
                                      LENGTH(17) | LENGTH(18) | LENGTH(20) | LENGTH(22) |
                                      LENGTH(24) | LENGTH(25) | LENGTH(31);

static enum kind kind_of(struct str name)
{
    if (name.n > LONGEST_KNOWN || !(known_lengths & LENGTH(name.n)))
        return PLAIN;
    for (size_t i = 0; i < sizeof knowns / sizeof *knowns; i++)
        if (name.n == knowns[i].name.n && ascii_lower(name.p[0]) == knowns[i].name.p[0] &&
            str_ieq(name, knowns[i].name))
            return knowns[i].kind;
    return PLAIN;
}

/* What a trusted proxy has said; empty texts are nothing said. */
struct said {
    bool trusted;
    size_t for_bytes; /* of all X-Forwarded-For lines, each with its ", " */
    struct str host, proto, port, prefix;
};

static void keep_first(struct str *to, struct str value)
{
    if (to->n == 0)
        *to = value;
}

static void note(struct said *said, enum kind kind, struct str value)
{
    if (!said->trusted || value.n == 0)
        return;
    if (kind == FORWARDED_FOR)
        said->for_bytes += value.n + 2;
    else if (kind == FORWARDED_HOST)
        keep_first(&said->host, value);
    else if (kind == FORWARDED_PROTO)
        keep_first(&said->proto, value);
    else if (kind == FORWARDED_PORT)
        keep_first(&said->port, value);
    else if (kind == FORWARDED_PREFIX)
        keep_first(&said->prefix, value);
}

static bool stays(const struct forward_rules *rules, const struct said *said, enum kind kind)
{
    return kind == PLAIN || (kind == API_KEY && rules->forward_api_key) ||
           (kind == FROM_PROXY && said->trusted);
}

/* Does the provider set a field of that name? */
static bool is_set(const struct endpoint_url *url, struct str name)
{
    for (unsigned i = 0; i < url->nadd; i++)
        if (name.n == url->add[i].name.n && str_ieq(name, url->add[i].name))
            return true;
    return false;
}

static void copy_fields(const struct forward_rules *rules, const struct endpoint_url *url,
                        const struct http_head *h, struct http_head *out, struct said *said)
{
    out->nfields = 0;
    for (unsigned i = 0; i < h->nfields; i++) {
        enum kind kind = kind_of(h->fields[i].name);
        if (!stays(rules, said, kind))
            note(said, kind, h->fields[i].value);
        else if (!url || !is_set(url, h->fields[i].name))
            out->fields[out->nfields++] = h->fields[i];
    }
}

/* ---- our own fields ---- */

/* The peer, behind what a trusted proxy's lines say: counted before and copied once, since a client
 * decides how many there are. */
static struct str peers_text(const struct said *said, const struct ip *peer,
                             const struct http_head *h, struct arena *a)
{
    char text[IP_TEXT_BYTES];
    size_t n = ip_text(peer, text), at = 0;
    char *out = arena_get(a, said->for_bytes + n);
    for (unsigned i = 0; i < h->nfields && at < said->for_bytes; i++) {
        struct str value = h->fields[i].value;
        if (value.n == 0 || kind_of(h->fields[i].name) != FORWARDED_FOR)
            continue;
        memcpy(out + at, value.p, value.n);
        memcpy(out + at + value.n, ", ", 2);
        at += value.n + 2;
    }
    memcpy(out + at, text, n);
    return (struct str){out, at + n};
}

static struct str port_text(uint16_t port, struct arena *a)
{
    char digits[20];
    return arena_str(a, (struct str){digits, text_put_u64(digits, port)});
}

/* A trusted proxy's prefix comes before ours. */
static struct str prefix_text(struct str theirs, struct str ours, struct arena *a)
{
    if (theirs.n == 0 || ours.n == 0)
        return theirs.n ? theirs : ours;
    while (theirs.n && theirs.p[theirs.n - 1] == '/')
        theirs.n--;
    return arena_cat(a, theirs, ours);
}

static void add_forwarded(struct http_head *out, const struct said *said,
                          const struct forward_facts *facts, const struct http_head *h,
                          struct arena *a)
{
    struct str prefix = prefix_text(said->prefix, facts->prefix, a);
    head_add(out, STR("X-Forwarded-For"), peers_text(said, &facts->peer, h, a));
    if (said->host.n || h->authority.n)
        head_add(out, STR("X-Forwarded-Host"), said->host.n ? said->host : h->authority);
    head_add(out, STR("X-Forwarded-Proto"),
             said->proto.n ? said->proto
             : facts->tls  ? STR("https")
                           : STR("http"));
    head_add(out, STR("X-Forwarded-Port"),
             said->port.n ? said->port : port_text(facts->local_port, a));
    if (prefix.n)
        head_add(out, STR("X-Forwarded-Prefix"), prefix);
}

struct str forward_join(const struct endpoint_url *url, struct str path, struct arena *a)
{
    if (url->path.n == 0 && url->query.n == 0)
        return path;
    ptrdiff_t mark = str_chr(path, '?');
    struct str query = mark < 0 ? STR_NONE : str_skip(path, (size_t)mark + 1);
    bool both = url->query.n && query.n, bare = mark >= 0 && query.n == 0 && url->query.n == 0;
    path = str_head(path, mark < 0 ? path.n : (size_t)mark);
    return arena_printf(a, "%.*s%.*s%s%.*s%s%.*s", STR_ARG(url->path), STR_ARG(path),
                        url->query.n || query.n || bare ? "?" : "", STR_ARG(url->query),
                        both ? "&" : "", STR_ARG(query));
}

static void set_fields(struct http_head *out, const struct forward_facts *facts)
{
    head_add(out, STR("X-Request-Id"), facts->request_id);
    if (facts->credential.n)
        head_add(out, STR("X-Fast-Sandbox-Route-Credential"), facts->credential);
    for (unsigned i = 0; facts->url && i < facts->url->nadd; i++)
        head_add(out, facts->url->add[i].name, facts->url->add[i].value);
}

struct http_head *forward_request(const struct forward_rules *rules,
                                  const struct forward_facts *facts, const struct http_head *h,
                                  struct arena *a)
{
    struct said said = {.trusted = rules->trusted.n && cidr_set_has(&rules->trusted, &facts->peer)};
    const struct endpoint_url *url = facts->url;
    struct http_head *out = arena_get(a, sizeof *out);
    size_t nadded = ADDED_FIELDS + (url ? url->nadd : 0);
    *out = *h;
    out->fields = arena_get(a, (h->nfields + nadded) * sizeof *out->fields);
    copy_fields(rules, url, h, out, &said);
    out->path = url ? forward_join(url, facts->path, a) : facts->path;
    /* of the connection that carries it (RFC 9113 section 8.3.1) */
    out->scheme = facts->to_tls ? STR("https") : STR("http");
    if (!rules->preserve_host || h->authority.n == 0)
        out->authority = url && url->authority.n ? url->authority : facts->target;
    add_forwarded(out, &said, facts, h, a);
    set_fields(out, facts);
    return out;
}

/* ---- the way back ---- */

const struct field forward_powered_by = {NAME("Reverse-Proxy-Server-Powerby"),
                                         NAME("OpenSandbox-ingress")};

struct http_head *forward_response(const struct http_head *h, struct str request_id,
                                   struct str http_date, struct arena *a)
{
    const struct field *powered_by = &forward_powered_by;
    struct http_head *out = head_copy(h, 3, a);
    bool interim = h->status < 200 && h->protocol.n == 0, granted = h->protocol.n > 0;
    if (interim)
        return out;
    bool powered = false, has_id = false, has_date = false;
    for (unsigned i = 0; i < h->nfields; i++) {
        const struct field *f = &h->fields[i];
        powered |= f->name.n == powered_by->name.n && str_ieq(f->name, powered_by->name) &&
                   str_eq(f->value, powered_by->value);
        has_id |= f->name.n == 12 && str_ieq(f->name, STR("X-Request-Id"));
        has_date |= f->name.n == 4 && str_ieq(f->name, STR("Date"));
    }
    if (!has_id)
        head_add(out, STR("X-Request-Id"), request_id);
    if (!powered && !granted)
        head_add(out, powered_by->name, powered_by->value);
    if (!has_date && !granted)
        head_add(out, STR("Date"), arena_str(a, http_date));
    return out;
}

/* ---- who asks ---- */

/* The address at the end of *list, which is cut off it; false: the list is used up. */
static bool last_element(struct str *list, struct str *ret)
{
    while (list->n) {
        ptrdiff_t comma = str_rchr(*list, ',');
        *ret = str_trim(comma < 0 ? *list : str_skip(*list, (size_t)comma + 1));
        *list = str_head(*list, comma < 0 ? 0 : (size_t)comma);
        if (ret->n)
            return true;
    }
    return false;
}

/* Walks one line from the right; false: the walk ends here. */
static bool walk_line(const struct cidr_set *trusted, struct str list, struct ip *client)
{
    struct str element;
    while (last_element(&list, &element)) {
        struct ip ip;
        if (!ip_parse(element, &ip))
            return false;
        *client = ip;
        if (!cidr_set_has(trusted, &ip))
            return false;
    }
    return true;
}

struct ip forward_client_ip(const struct cidr_set *trusted, const struct ip *peer,
                            const struct http_head *h)
{
    struct ip client = *peer;
    if (trusted->n == 0 || !cidr_set_has(trusted, peer))
        return client;
    for (unsigned i = h->nfields; i-- > 0;)
        if (kind_of(h->fields[i].name) == FORWARDED_FOR &&
            !walk_line(trusted, h->fields[i].value, &client))
            break;
    return client;
}
