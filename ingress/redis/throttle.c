/* throttle.c — when each sandbox last counted.  A sandbox is known by a keyed hash only, in a set
 * of eight neighbours; a new one takes an unused place there, or that of the oldest mark, so
 * nothing has to be swept.  A lock is held for eight comparisons and is shared by few, so that no
 * worker waits for another. */
#include "ingress/redis/throttle.h"

#include <pthread.h>

#include "base/digest.h"
#include "base/map.h"

enum { WAYS = 8, LOCKS = 64 };

struct mark {
    uint64_t hash; /* 0: unused */
    uint64_t at_ms;
};

struct throttle {
    uint8_t id_key[16], ns_key[16];
    uint64_t interval_ms;
    pthread_mutex_t locks[LOCKS];
    size_t sets; /* a power of two */
    struct mark *marks;
};

struct throttle *throttle_new(uint64_t interval_ms, unsigned max)
{
    if (interval_ms == 0)
        return NULL;
    struct throttle *t = mem_new(sizeof *t);
    size_t marks = (size_t)WAYS;
    while (marks < max)
        marks *= 2;
    t->interval_ms = interval_ms;
    t->sets = marks / WAYS;
    t->marks = mem_new(marks * sizeof *t->marks);
    digest_random(t->id_key, sizeof t->id_key);
    digest_random(t->ns_key, sizeof t->ns_key);
    for (unsigned i = 0; i < LOCKS; i++)
        pthread_mutex_init(&t->locks[i], NULL);
    return t;
}

void throttle_free(struct throttle *t)
{
    if (!t)
        return;
    for (unsigned i = 0; i < LOCKS; i++)
        pthread_mutex_destroy(&t->locks[i]);
    mem_free(t->marks);
    mem_free(t);
}

/* Two keys, so that no id can stand for a namespace. */
static uint64_t hash_of(const struct throttle *t, struct str ns, struct str id)
{
    uint64_t hash = map_hash(t->id_key, id.p, id.n) ^ map_hash(t->ns_key, ns.p, ns.n);
    return hash ? hash : 1;
}

static pthread_mutex_t *lock_of(struct throttle *t, uint64_t hash)
{
    return &t->locks[(hash & (t->sets - 1)) % LOCKS];
}

/* The sandbox's own place, else the one that it may take. */
static struct mark *place(struct throttle *t, uint64_t hash)
{
    struct mark *set = t->marks + (hash & (t->sets - 1)) * WAYS, *best = set;
    for (unsigned i = 0; i < WAYS; i++) {
        if (set[i].hash == hash)
            return &set[i];
        if (best->hash && (!set[i].hash || set[i].at_ms < best->at_ms))
            best = &set[i];
    }
    return best;
}

bool throttle_take(struct throttle *t, struct str ns, struct str id, uint64_t now_ms)
{
    if (!t)
        return true;
    uint64_t hash = hash_of(t, ns, id);
    pthread_mutex_t *lock = lock_of(t, hash);
    pthread_mutex_lock(lock);
    struct mark *m = place(t, hash);
    /* Workers' clocks differ by a turn: one may be behind the mark of another. */
    bool counts = m->hash != hash || now_ms >= m->at_ms + t->interval_ms;
    if (counts)
        *m = (struct mark){hash, now_ms};
    pthread_mutex_unlock(lock);
    return counts;
}

void throttle_give_back(struct throttle *t, struct str ns, struct str id, uint64_t now_ms)
{
    if (!t)
        return;
    uint64_t hash = hash_of(t, ns, id);
    pthread_mutex_t *lock = lock_of(t, hash);
    pthread_mutex_lock(lock);
    struct mark *m = place(t, hash);
    if (m->hash == hash && m->at_ms == now_ms)
        m->hash = 0;
    pthread_mutex_unlock(lock);
}
