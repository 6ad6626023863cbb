/* limits.c — failures of the last minute by key.  Each key has one small count per second, so the
 * window slides without timers and costs the same whatever the limit is.  Keys are known by a keyed
 * hash only: nobody can choose two that meet, and nothing of a peer's is kept.  A set of eight
 * neighbours shares a lock and, when full, forgets its quietest member. */
#include "policies/limits.h"

#include <assert.h>
#include <pthread.h>

#include "base/digest.h"
#include "base/map.h"

enum { WINDOW_S = 60, WAYS = 8, LOCKS = 64 };

struct key {
    uint64_t hash; /* 0: unused */
    uint64_t last_s;
    unsigned sum; /* of counts */
    uint16_t counts[WINDOW_S];
};

struct failures {
    uint8_t hash_key[16];
    pthread_mutex_t locks[LOCKS];
    size_t sets; /* a power of two */
    struct key *keys;
};

struct failures *failures_new(unsigned max_keys)
{
    struct failures *f = mem_new(sizeof *f);
    size_t keys = WAYS;
    while (keys < max_keys)
        keys *= 2;
    f->sets = keys / WAYS;
    f->keys = mem_new(keys * sizeof *f->keys);
    digest_random(f->hash_key, sizeof f->hash_key);
    for (unsigned i = 0; i < LOCKS; i++)
        pthread_mutex_init(&f->locks[i], NULL);
    return f;
}

void failures_free(struct failures *f)
{
    if (!f)
        return;
    for (unsigned i = 0; i < LOCKS; i++)
        pthread_mutex_destroy(&f->locks[i]);
    mem_free(f->keys);
    mem_free(f);
}

static uint64_t hash_of(const struct failures *f, struct str key)
{
    uint64_t hash = map_hash(f->hash_key, key.p, key.n);
    return hash ? hash : 1;
}

static size_t set_of(const struct failures *f, uint64_t hash)
{
    return (size_t)hash & (f->sets - 1);
}

static struct key *find(struct failures *f, uint64_t hash)
{
    struct key *set = f->keys + set_of(f, hash) * WAYS;
    for (unsigned i = 0; i < WAYS; i++)
        if (set[i].hash == hash)
            return &set[i];
    return NULL;
}

/* A place for a new key: an unused one, or the one that has been quiet longest. */
static struct key *take(struct failures *f, uint64_t hash)
{
    struct key *set = f->keys + set_of(f, hash) * WAYS, *best = set;
    for (unsigned i = 0; i < WAYS && best->hash; i++)
        if (!set[i].hash || set[i].last_s < best->last_s)
            best = &set[i];
    *best = (struct key){.hash = hash};
    return best;
}

/* Moves the window on to now_s.  Another thread may have been a second ahead: time never goes back.
 */
static void slide(struct key *k, uint64_t now_s)
{
    if (now_s <= k->last_s)
        return;
    if (now_s - k->last_s >= WINDOW_S) {
        memset(k->counts, 0, sizeof k->counts);
        k->sum = 0;
        k->last_s = now_s;
        return;
    }
    while (k->last_s < now_s) {
        uint16_t *oldest = &k->counts[++k->last_s % WINDOW_S];
        k->sum -= *oldest;
        *oldest = 0;
    }
}

/* Slides a copy of nothing but the numbers: reading must not make a quiet key look busy. */
static unsigned sum_at(const struct key *k, uint64_t now_s)
{
    if (now_s <= k->last_s)
        return k->sum;
    if (now_s - k->last_s >= WINDOW_S)
        return 0;
    unsigned sum = k->sum;
    for (uint64_t s = k->last_s + 1; s <= now_s; s++)
        sum -= k->counts[s % WINDOW_S];
    return sum;
}

static pthread_mutex_t *lock(struct failures *f, uint64_t hash)
{
    pthread_mutex_t *mutex = &f->locks[set_of(f, hash) % LOCKS];
    int rc = pthread_mutex_lock(mutex);
    assert(rc == 0);
    return mutex;
}

unsigned failures_recent(struct failures *f, struct str key, uint64_t now_s)
{
    uint64_t hash = hash_of(f, key);
    pthread_mutex_t *mutex = lock(f, hash);
    const struct key *k = find(f, hash);
    unsigned sum = k ? sum_at(k, now_s) : 0;
    pthread_mutex_unlock(mutex);
    return sum;
}

void failures_add(struct failures *f, struct str key, uint64_t now_s)
{
    uint64_t hash = hash_of(f, key);
    pthread_mutex_t *mutex = lock(f, hash);
    struct key *k = find(f, hash);
    if (!k)
        k = take(f, hash);
    slide(k, now_s);
    uint16_t *count = &k->counts[k->last_s % WINDOW_S];
    if (*count < UINT16_MAX) {
        ++*count;
        k->sum++;
    }
    pthread_mutex_unlock(mutex);
}
