/* upstreams.c — lists of servers, as they are written in settings and in resolv.conf.  A name would
 * have to be looked up by the very servers that are to be found, so only addresses count. */
#include "egress/dns/upstreams.h"

#include "base/text.h"
#include "net/hostfiles.h"
#include "policies/target.h"

enum { DNS_PORT = 53 };

/* "IP", "IP:port", "[IP]", "[IP]:port". */
static bool parse_one(struct str s, union addr *ret)
{
    struct ip ip;
    uint64_t port = DNS_PORT;
    struct str host = s, rest = STR("");
    ptrdiff_t end;
    if (ip_parse(s, &ip)) {
        addr_make(ret, &ip, DNS_PORT);
        return true;
    }
    if (s.n && s.p[0] == '[' && (end = str_chr(s, ']')) > 0) {
        host = (struct str){s.p + 1, (size_t)end - 1};
        rest = str_skip(s, (size_t)end + 1);
        if (str_chr(host, ':') < 0)
            return false;
    } else if ((end = str_rchr(s, ':')) > 0) {
        host = str_head(s, (size_t)end);
        rest = str_skip(s, (size_t)end);
        if (str_chr(host, ':') >= 0)
            return false;
    }
    if (!ip_parse(host, &ip))
        return false;
    if (rest.n &&
        (rest.p[0] != ':' || !text_u64(str_skip(rest, 1), UINT16_MAX, &port) || port == 0))
        return false;
    addr_make(ret, &ip, (uint16_t)port);
    return true;
}

static unsigned parts_of(struct str text)
{
    unsigned n = 1;
    for (size_t i = 0; i < text.n; i++)
        n += text.p[i] == ',';
    return n;
}

static bool has_addr(const union addr *list, unsigned n, const union addr *addr)
{
    for (unsigned i = 0; i < n; i++)
        if (addr_eq(&list[i].sa, &addr->sa))
            return true;
    return false;
}

bool upstreams_parse(struct str text, struct arena *a, struct upstreams *ret, struct str *ret_bad)
{
    union addr *list = arena_get(a, parts_of(text) * sizeof *list), addr;
    struct str rest = text, part;
    unsigned n = 0;
    while (str_next(&rest, ',', &part)) {
        part = target_trim(part);
        if (part.n == 0)
            continue;
        if (!parse_one(part, &addr)) {
            *ret_bad = part;
            return false;
        }
        if (!has_addr(list, n, &addr))
            list[n++] = addr;
    }
    *ret_bad = text;
    *ret = (struct upstreams){list, n};
    return n > 0;
}

void upstreams_of_resolv_conf(struct str text, struct arena *a, struct upstreams *ret)
{
    static const struct ip otherwise = {
        .b = {[10] = 0xff, [11] = 0xff, [12] = 8, [13] = 8, [14] = 8, [15] = 8}};
    struct resolv_conf c;
    resolv_conf_parse(text, a, &c);
    union addr *list = arena_get(a, (c.nservers + 1) * sizeof *list);
    unsigned n = 0;
    for (int loopback = 0; loopback <= 1; loopback++)
        for (unsigned i = 0; i < c.nservers; i++)
            if (ip_is_loopback(&c.server[i]) == loopback && !ip_is_unspecified(&c.server[i]))
                addr_make(&list[n++], &c.server[i], DNS_PORT);
    if (n == 0)
        addr_make(&list[n++], &otherwise, DNS_PORT);
    *ret = (struct upstreams){list, n};
}

bool upstreams_only_loopback(const struct upstreams *u)
{
    for (unsigned i = 0; i < u->n; i++) {
        struct ip ip;
        addr_ip(&u->at[i].sa, &ip);
        if (!ip_is_loopback(&ip))
            return false;
    }
    return true;
}

static void add_once(struct ip *list, size_t *n, const struct ip *ip)
{
    for (size_t i = 0; i < *n; i++)
        if (ip_eq(&list[i], ip))
            return;
    list[(*n)++] = *ip;
}

bool exempt_parse(struct str text, struct arena *a, const struct ip **ret, size_t *ret_n,
                  struct str *ret_bad)
{
    struct ip *list = arena_get(a, parts_of(text) * sizeof *list), ip;
    struct str rest = text, part;
    size_t n = 0;
    while (str_next(&rest, ',', &part)) {
        part = target_trim(part);
        if (part.n == 0)
            continue;
        if (!ip_parse(part, &ip)) {
            *ret_bad = part;
            return false;
        }
        add_once(list, &n, &ip);
    }
    *ret = list;
    *ret_n = n;
    return true;
}

bool probe_parse(struct str text, struct dns_question *ret)
{
    struct str name = str_trim(text);
    *ret = (struct dns_question){.name = {.n = 1}, .type = DNS_NS, .class = DNS_IN};
    if (name.n == 0 || str_eq(name, STR(".")))
        return true;
    ret->type = DNS_A;
    return dns_name_parse(name, &ret->name);
}
