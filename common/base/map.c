/* map.c — entries lie dense in one array, found through a table of slots with linear probing.
 * Taking an entry out closes the gap in its run of slots, so there are no tombstones, and moves the
 * last entry into its place, so that walking the array from the end allows the entry just seen to
 * be taken out.  The hash is keyed: peers choose many of the names. */
#include "base/map.h"

#include <assert.h>

#include "base/digest.h"

enum { FIRST_SLOTS = 16 };

struct slot {
    uint32_t hash;
    uint32_t entry; /* number of the entry plus 1; 0: free */
};

struct entry {
    struct str key;
    void *value;
};

struct map {
    struct slot *slots;
    struct entry *entries;
    uint32_t mask; /* slots - 1 */
    uint32_t count, room;
    uint8_t key[16];
};

/* ---- SipHash-2-4 (Aumasson, Bernstein 2012) ---- */

struct sip {
    uint64_t v0, v1, v2, v3;
};

static uint64_t little64(const uint8_t *p)
{
    uint64_t v = 0;
    for (size_t i = 0; i < 8; i++)
        v |= (uint64_t)p[i] << (8 * i);
    return v;
}

static uint64_t rotl(uint64_t v, unsigned n)
{
    return v << n | v >> (64 - n);
}

static inline void sip_round(struct sip *s)
{
    s->v0 += s->v1;
    s->v1 = rotl(s->v1, 13) ^ s->v0;
    s->v0 = rotl(s->v0, 32);
    s->v2 += s->v3;
    s->v3 = rotl(s->v3, 16) ^ s->v2;
    s->v0 += s->v3;
    s->v3 = rotl(s->v3, 21) ^ s->v0;
    s->v2 += s->v1;
    s->v1 = rotl(s->v1, 17) ^ s->v2;
    s->v2 = rotl(s->v2, 32);
}

static inline void sip_word(struct sip *s, uint64_t word)
{
    s->v3 ^= word;
    sip_round(s);
    sip_round(s);
    s->v0 ^= word;
}

uint64_t map_hash(const uint8_t key[16], const void *p, size_t n)
{
    uint64_t k0 = little64(key), k1 = little64(key + 8);
    struct sip s = {k0 ^ 0x736f6d6570736575, k1 ^ 0x646f72616e646f6d, k0 ^ 0x6c7967656e657261,
                    k1 ^ 0x7465646279746573};
    const uint8_t *at = p;
    uint64_t last = (uint64_t)n << 56;
    for (; n >= 8; at += 8, n -= 8)
        sip_word(&s, little64(at));
    for (size_t i = 0; i < n; i++)
        last |= (uint64_t)at[i] << (8 * i);
    sip_word(&s, last);
    s.v2 ^= 0xff;
    for (unsigned i = 0; i < 4; i++)
        sip_round(&s);
    return s.v0 ^ s.v1 ^ s.v2 ^ s.v3;
}

/* ---- the map ---- */

struct map *map_new(void)
{
    struct map *m = mem_new(sizeof *m);
    digest_random(m->key, sizeof m->key);
    return m;
}

void map_free(struct map *m)
{
    if (!m)
        return;
    mem_free(m->slots);
    mem_free(m->entries);
    mem_free(m);
}

size_t map_size(const struct map *m)
{
    return m->count;
}

static uint32_t hash_of(const struct map *m, struct str key)
{
    return (uint32_t)map_hash(m->key, key.p, key.n);
}

/* The slot of the key, or the free one where it would go. */
static uint32_t find(const struct map *m, struct str key, uint32_t hash)
{
    uint32_t i = hash & m->mask;
    for (; m->slots[i].entry != 0; i = (i + 1) & m->mask)
        if (m->slots[i].hash == hash && str_eq(m->entries[m->slots[i].entry - 1].key, key))
            break;
    return i;
}

void *map_get(const struct map *m, struct str key)
{
    if (m->count == 0)
        return NULL;
    uint32_t entry = m->slots[find(m, key, hash_of(m, key))].entry;
    return entry ? m->entries[entry - 1].value : NULL;
}

static void place(struct map *m, uint32_t hash, uint32_t entry)
{
    uint32_t i = hash & m->mask;
    while (m->slots[i].entry != 0)
        i = (i + 1) & m->mask;
    m->slots[i] = (struct slot){hash, entry};
}

/* Twice the slots; they are at most three quarters full. */
static void grow(struct map *m)
{
    struct slot *old = m->slots;
    uint32_t before = old ? m->mask + 1 : 0, slots = old ? before * 2 : FIRST_SLOTS;
    assert(slots != 0);
    m->slots = mem_new(slots * sizeof *m->slots);
    m->mask = slots - 1;
    m->room = slots / 4 * 3;
    m->entries = mem_renew(m->entries, m->room * sizeof *m->entries);
    for (uint32_t i = 0; i < before; i++)
        if (old[i].entry != 0)
            place(m, old[i].hash, old[i].entry);
    mem_free(old);
}

void *map_put(struct map *m, struct str key, void *value)
{
    assert(value);
    if (m->count == m->room)
        grow(m);
    uint32_t hash = hash_of(m, key), at = find(m, key, hash);
    if (m->slots[at].entry != 0) {
        struct entry *e = &m->entries[m->slots[at].entry - 1];
        void *before = e->value;
        e->key = key;
        e->value = value;
        return before;
    }
    m->entries[m->count++] = (struct entry){key, value};
    m->slots[at] = (struct slot){hash, m->count};
    return NULL;
}

/* Frees slot i and moves up those behind it which may not be left of a gap. */
static void close_gap(struct map *m, uint32_t gap)
{
    for (uint32_t i = (gap + 1) & m->mask; m->slots[i].entry != 0; i = (i + 1) & m->mask) {
        uint32_t home = m->slots[i].hash & m->mask;
        if (((i - home) & m->mask) < ((i - gap) & m->mask))
            continue;
        m->slots[gap] = m->slots[i];
        gap = i;
    }
    m->slots[gap] = (struct slot){0, 0};
}

static void fill_from_last(struct map *m, uint32_t entry)
{
    uint32_t last = m->count--;
    if (entry == last)
        return;
    uint32_t i = hash_of(m, m->entries[last - 1].key) & m->mask;
    while (m->slots[i].entry != last)
        i = (i + 1) & m->mask;
    m->slots[i].entry = entry;
    m->entries[entry - 1] = m->entries[last - 1];
}

void *map_del(struct map *m, struct str key)
{
    if (m->count == 0)
        return NULL;
    uint32_t at = find(m, key, hash_of(m, key)), entry = m->slots[at].entry;
    if (entry == 0)
        return NULL;
    void *value = m->entries[entry - 1].value;
    close_gap(m, at);
    fill_from_last(m, entry);
    return value;
}

void *map_next(const struct map *m, size_t *at)
{
    /* *at is the number of the entry just returned plus 1, so that a fresh walk (0) begins at the
     * end */
    size_t n = *at == 0 ? m->count : *at - 1;
    if (n == 0) {
        *at = 1;
        return NULL;
    }
    *at = n;
    return m->entries[n - 1].value;
}
