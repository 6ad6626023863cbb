/* answer.c — follows the aliases of a reply from its question to the addresses at the end.  The
 * records may stand in any order, so each step walks the section again; eight steps at most keep
 * that cheap and end every circle. */
#include "dns/answer.h"

#include <assert.h>

static uint32_t least(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

enum { LOOKS = 256 }; /* records of the answer section that are looked at, in each step */

/* The next record of the answer section. */
static bool next_in_answer(struct dns_reader *r, struct dns_record *rec)
{
    int seen = r->count[DNS_ANSWER] - r->left[DNS_ANSWER];
    return seen < LOOKS && dns_next_record(r, rec) && rec->section == DNS_ANSWER;
}

/* If `name` is an alias, makes it what it stands for. */
static bool follow(const void *p, size_t n, struct dns_name *name, uint32_t *ttl)
{
    struct dns_reader r;
    struct dns_record rec;
    dns_read(&r, p, n);
    while (next_in_answer(&r, &rec)) {
        struct dns_name target;
        if (rec.type != DNS_CNAME || !dns_name_eq(&rec.name, name) ||
            !dns_record_target(&r, &rec, &target))
            continue;
        *name = target;
        *ttl = least(*ttl, rec.ttl);
        return true;
    }
    return false;
}

static bool known(const struct dns_answer *a, const struct ip *ip)
{
    for (unsigned i = 0; i < a->n; i++)
        if (ip_eq(&a->ip[i], ip))
            return true;
    return false;
}

static void collect(const void *p, size_t n, const struct dns_name *name, uint16_t type,
                    struct dns_answer *ret)
{
    struct dns_reader r;
    struct dns_record rec;
    struct ip ip;
    dns_read(&r, p, n);
    while (ret->n < DNS_ADDRESSES_MAX && next_in_answer(&r, &rec)) {
        if (rec.type != type || !dns_name_eq(&rec.name, name) || !dns_record_ip(&rec, &ip) ||
            known(ret, &ip))
            continue;
        ret->ip[ret->n++] = ip;
        ret->ttl = least(ret->ttl, rec.ttl);
    }
}

/* RFC 2308 section 5: the lesser of the SOA's own TTL and its minimum; without a SOA nothing is
 * known. */
static uint32_t negative_ttl(const void *p, size_t n)
{
    struct dns_reader r;
    struct dns_record rec;
    struct dns_soa soa;
    dns_read(&r, p, n);
    while (dns_next_record(&r, &rec))
        if (rec.section == DNS_AUTHORITY && dns_record_soa(&r, &rec, &soa))
            return least(rec.ttl, soa.minimum);
    return 0;
}

uint32_t dns_reply_ttl(const void *p, size_t n, uint16_t type)
{
    struct dns_reader r;
    struct dns_record rec;
    uint32_t ttl = UINT32_MAX;
    bool positive = false;
    if (!dns_read(&r, p, n))
        return 0;
    while (dns_next_record(&r, &rec)) {
        if (rec.type == DNS_OPT)
            continue;
        ttl = least(ttl, rec.ttl);
        positive |= rec.section == DNS_ANSWER && (rec.type == type || type == DNS_ANY);
    }
    if (!dns_read_whole(&r))
        return 0;
    return positive ? ttl : least(ttl, negative_ttl(p, n));
}

int dns_reply_rcode(const void *p, size_t n)
{
    struct dns_reader r;
    struct dns_record rec;
    struct dns_edns edns;
    if (!dns_read(&r, p, n))
        return -1;
    int high = 0;
    while (dns_next_record(&r, &rec))
        if (dns_record_edns(&rec, &edns))
            high = edns.rcode_high << 4;
    return dns_read_whole(&r) ? high | (r.flags & DNS_RCODE_MASK) : -1;
}

void dns_answer(const void *p, size_t n, const struct dns_name *name, uint16_t type,
                struct dns_answer *ret)
{
    assert(type == DNS_A || type == DNS_AAAA);
    *ret = (struct dns_answer){.finding = DNS_USELESS};
    int rcode = dns_reply_rcode(p, n);
    if (rcode != DNS_NOERROR && rcode != DNS_NXDOMAIN)
        return;
    struct dns_name at = *name;
    uint32_t ttl = UINT32_MAX;
    unsigned steps = 0;
    while (follow(p, n, &at, &ttl))
        if (++steps > DNS_CHAIN_MAX)
            return;
    if (rcode == DNS_NXDOMAIN) {
        ret->finding = DNS_NO_NAME;
        ret->ttl = least(ttl, negative_ttl(p, n));
        return;
    }
    ret->ttl = ttl;
    collect(p, n, &at, type, ret);
    ret->finding = ret->n > 0 ? DNS_FOUND : DNS_NODATA;
    if (ret->n == 0)
        ret->ttl = least(ttl, negative_ttl(p, n));
}
