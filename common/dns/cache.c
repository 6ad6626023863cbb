/* cache.c — a map and a list by last use.  Entries are not timed: one that is over its stale time
 * goes when it is asked for or when room is needed, whichever comes first. */
#include "dns/cache.h"

#include <assert.h>

#include "base/list.h"
#include "base/map.h"

enum { KEY_BYTES = 4 + DNS_NAME_MAX };

struct entry {
    struct list link; /* in by_use */
    uint64_t fresh_until, kept_until;
    size_t key_bytes, n;
    char bytes[]; /* key, then value */
};

struct dns_cache {
    struct map *map;
    struct list by_use; /* last used last */
    unsigned max;
    uint64_t stale_ms;
};

struct dns_cache *dns_cache_new(unsigned max_entries, uint64_t stale_ms)
{
    assert(max_entries > 0);
    struct dns_cache *c = mem_new(sizeof *c);
    c->map = map_new();
    c->max = max_entries;
    c->stale_ms = stale_ms;
    list_init(&c->by_use);
    return c;
}

static struct str entry_key(const struct entry *e)
{
    return (struct str){e->bytes, e->key_bytes};
}

static void drop(struct dns_cache *c, struct entry *e)
{
    map_del(c->map, entry_key(e));
    list_del(&e->link);
    mem_free(e);
}

void dns_cache_clear(struct dns_cache *c)
{
    for (struct list *l; (l = list_first(&c->by_use));)
        drop(c, container_of(l, struct entry, link));
}

void dns_cache_free(struct dns_cache *c)
{
    if (!c)
        return;
    dns_cache_clear(c);
    map_free(c->map);
    mem_free(c);
}

size_t dns_cache_size(const struct dns_cache *c)
{
    return map_size(c->map);
}

static struct str make_key(char out[KEY_BYTES], const struct dns_name *name, uint32_t kind)
{
    for (size_t i = 0; i < 4; i++)
        out[i] = (char)(kind >> 8 * i);
    for (size_t i = 0; i < name->n; i++)
        out[4 + i] = ascii_lower((char)name->b[i]);
    return (struct str){out, 4u + name->n};
}

static struct entry *find(struct dns_cache *c, const struct dns_name *name, uint32_t kind)
{
    char key[KEY_BYTES];
    return map_get(c->map, make_key(key, name, kind));
}

void dns_cache_put(struct dns_cache *c, const struct dns_name *name, uint32_t kind,
                   struct str value, uint64_t ttl_ms, uint64_t now_ms)
{
    char key[KEY_BYTES];
    struct str k = make_key(key, name, kind);
    struct entry *e = map_get(c->map, k);
    if (e)
        drop(c, e);
    else if (map_size(c->map) >= c->max)
        drop(c, container_of(list_first(&c->by_use), struct entry, link));
    e = mem_new(sizeof *e + k.n + value.n);
    e->fresh_until = now_ms + ttl_ms;
    e->kept_until = e->fresh_until + c->stale_ms;
    e->key_bytes = k.n;
    e->n = value.n;
    memcpy(e->bytes, k.p, k.n);
    if (value.n)
        memcpy(e->bytes + k.n, value.p, value.n);
    list_push(&c->by_use, &e->link);
    map_put(c->map, entry_key(e), e);
}

bool dns_cache_get(struct dns_cache *c, const struct dns_name *name, uint32_t kind, uint64_t now_ms,
                   struct str *ret_value, bool *ret_fresh)
{
    struct entry *e = find(c, name, kind);
    if (!e)
        return false;
    if (now_ms >= e->kept_until) {
        drop(c, e);
        return false;
    }
    list_del(&e->link);
    list_push(&c->by_use, &e->link);
    *ret_value = (struct str){e->bytes + e->key_bytes, e->n};
    *ret_fresh = now_ms < e->fresh_until;
    return true;
}

void dns_cache_extend(struct dns_cache *c, const struct dns_name *name, uint32_t kind, uint64_t ms,
                      uint64_t now_ms)
{
    struct entry *e = find(c, name, kind);
    if (!e || now_ms < e->fresh_until)
        return;
    uint64_t until = now_ms + ms;
    e->fresh_until = until < e->kept_until ? until : e->kept_until;
}
