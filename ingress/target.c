/* target.c — the last check before a connection is made, on the very address that is dialled.  Our
 * own listeners come first and cannot be allowed by any setting: a gateway that dials itself is a
 * loop. */
#include "ingress/target.h"

#include <stdlib.h>

#include "base/text.h"
#include "policies/signature.h"

static bool is_local(const struct target_rules *rules, const struct ip *ip)
{
    for (unsigned i = 0; i < rules->nlocal; i++)
        if (ip_eq(&rules->local[i], ip))
            return true;
    return ip_is_loopback(ip) || ip_is_unspecified(ip);
}

static bool is_own(const struct target_rules *rules, const struct ip *ip, uint16_t port)
{
    for (unsigned i = 0; i < rules->nown; i++) {
        const struct own_listener *own = &rules->own[i];
        if (own->port != port)
            continue;
        if (own->any ? is_local(rules, ip)
                     : ip_eq(&own->ip, ip) || (ip_is_unspecified(ip) && ip_is_loopback(&own->ip)))
            return true;
    }
    return false;
}

bool target_allowed(const struct target_rules *rules, const struct ip *ip, uint16_t port)
{
    if (is_own(rules, ip, port))
        return false;
    if (!cidr_is_special(ip))
        return true;
    return (rules->loopback && ip_is_loopback(ip)) || cidr_set_has(&rules->allow, ip);
}

/* ---- closed ports ---- */

static bool parse_range(struct str s, struct port_range *ret)
{
    ptrdiff_t dash = str_chr(s, '-');
    struct str from = dash < 0 ? s : str_trim(str_head(s, (size_t)dash));
    struct str to = dash < 0 ? s : str_trim(str_skip(s, (size_t)dash + 1));
    return signature_port(from, false, &ret->from) && signature_port(to, false, &ret->to) &&
           ret->from <= ret->to;
}

static int by_start(const void *a, const void *b)
{
    const struct port_range *x = a, *y = b;
    return (x->from > y->from) - (x->from < y->from);
}

/* Sorts and merges what overlaps or touches; returns how many are left. */
static unsigned merge(struct port_range *ranges, unsigned n)
{
    unsigned kept = 0;
    qsort(ranges, n, sizeof *ranges, by_start);
    for (unsigned i = 0; i < n; i++) {
        if (kept && ranges[i].from <= ranges[kept - 1].to + 1u) {
            if (ranges[i].to > ranges[kept - 1].to)
                ranges[kept - 1].to = ranges[i].to;
            continue;
        }
        ranges[kept++] = ranges[i];
    }
    return kept;
}

bool port_set_parse(struct str list, struct arena *a, struct port_set *ret, struct str *ret_bad)
{
    unsigned pieces = 1, n = 0;
    struct str piece;
    if (str_trim(list).n == 0) {
        *ret = (struct port_set){NULL, 0};
        return true;
    }
    for (size_t i = 0; i < list.n; i++)
        pieces += list.p[i] == ',';
    struct port_range *ranges = arena_get(a, pieces * sizeof *ranges);
    while (str_next(&list, ',', &piece)) {
        if (!parse_range(str_trim(piece), &ranges[n++])) {
            *ret_bad = str_trim(piece);
            return false;
        }
    }
    *ret = (struct port_set){ranges, merge(ranges, n)};
    return true;
}

bool port_set_has(const struct port_set *s, uint16_t port)
{
    unsigned low = 0, high = s->n;
    while (low < high) {
        unsigned middle = low + (high - low) / 2;
        const struct port_range *r = &s->ranges[middle];
        if (port >= r->from && port <= r->to)
            return true;
        if (port < r->from)
            high = middle;
        else
            low = middle + 1;
    }
    return false;
}
