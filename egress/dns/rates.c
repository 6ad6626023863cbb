/* rates.c — buckets that fill with time.  There is a fixed number of them, and which domains share
 * one nobody outside can tell. */
#include "egress/dns/rates.h"

#include "base/digest.h"
#include "base/map.h"

enum { DOMAINS = 256 };

struct bucket {
    uint64_t spent_m; /* thousandths of a question, not yet given back */
    uint64_t at;
};

struct rates {
    struct rate all, per_domain;
    struct bucket whole, domain[DOMAINS];
    uint8_t key[16];
};

struct rates *rates_new(struct rate all, struct rate per_domain)
{
    struct rates *r = mem_new(sizeof *r);
    r->all = all;
    r->per_domain = per_domain;
    digest_random(r->key, sizeof r->key);
    return r;
}

void rates_free(struct rates *r)
{
    mem_free(r);
}

static struct str domain_of(struct str name)
{
    unsigned dots = 0;
    for (size_t i = name.n; i > 0; i--)
        if (name.p[i - 1] == '.' && ++dots == 2)
            return str_skip(name, i);
    return name;
}

/* Gives back what time has given back; is there room for one more? */
static bool has_room(struct bucket *b, struct rate rate, uint64_t now_ms)
{
    uint64_t back = (now_ms - b->at) * rate.per_s;
    b->spent_m = b->spent_m > back ? b->spent_m - back : 0;
    b->at = now_ms;
    return b->spent_m + 1000 <= 1000ull * rate.burst;
}

bool rates_take(struct rates *r, struct str name, uint64_t now_ms)
{
    struct str domain = domain_of(name);
    struct bucket *b = &r->domain[map_hash(r->key, domain.p, domain.n) % DOMAINS];
    if (r->all.per_s && !has_room(&r->whole, r->all, now_ms))
        return false;
    if (r->per_domain.per_s && !has_room(b, r->per_domain, now_ms))
        return false;
    r->whole.spent_m += r->all.per_s ? 1000 : 0;
    b->spent_m += r->per_domain.per_s ? 1000 : 0;
    return true;
}
