/* limits.c — requests per sandbox, counted once for the process.  A sandbox is one row, known by
 * namespace and id; a request in progress holds its row by counting in it, so a place is the row
 * itself and costs nothing.  Rows lie in shards with a lock each, because every request of every
 * worker comes by here twice; what nobody is using stands in its shard's list, quiet longest first,
 * and that is who makes room. */
#include "ingress/limits.h"

#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/digest.h"
#include "base/list.h"
#include "base/map.h"

/* Below MANY_KEYS there is one shard, so that who was quiet longest is exact where it matters. */
enum { SHARDS = 16, MANY_KEYS = 1024, MAX_KEYS = 16384, KEY_BYTES = 512, PER_REQUEST = 1000 };

struct limits_place {
    struct list link; /* in idle of its shard, while nothing is running */
    struct str key;   /* namespace, LF, id; behind the struct */
    size_t ns_bytes;
    uint64_t running, requests, refused, failed, bytes_in, bytes_out;
    uint64_t last_ms;
    uint64_t level;    /* of the bucket, in thousandths of a request ... */
    uint64_t level_ms; /* ... at this time */
};

struct shard {
    pthread_mutex_t lock;
    struct map *rows;
    struct list idle;
};

struct limits {
    struct limits_rules rules;
    uint8_t hash_key[16];
    _Atomic size_t known; /* rows, and the room for those that are being made */
    _Atomic uint64_t uncounted;
    unsigned nshards;
    struct shard shards[SHARDS];
};

struct limits *limits_new(const struct limits_rules *rules)
{
    struct limits *l = mem_new(sizeof *l);
    l->rules = *rules;
    if (l->rules.max_keys == 0)
        l->rules.max_keys = MAX_KEYS;
    l->nshards = l->rules.max_keys < MANY_KEYS ? 1 : SHARDS;
    digest_random(l->hash_key, sizeof l->hash_key);
    for (unsigned i = 0; i < l->nshards; i++) {
        pthread_mutex_init(&l->shards[i].lock, NULL);
        l->shards[i].rows = map_new();
        list_init(&l->shards[i].idle);
    }
    return l;
}

void limits_free(struct limits *l)
{
    if (!l)
        return;
    for (unsigned i = 0; i < l->nshards; i++) {
        struct shard *s = &l->shards[i];
        size_t at = 0;
        for (struct limits_place *p; (p = map_next(s->rows, &at));) {
            assert(p->running == 0);
            mem_free(p);
        }
        map_free(s->rows);
        pthread_mutex_destroy(&s->lock);
    }
    mem_free(l);
}

/* ---- rows ---- */

/* Neither part holds an LF. */
static struct str key_of(struct str ns, struct str id, char room[KEY_BYTES])
{
    size_t n = ns.n + 1 + id.n;
    char *p = n <= KEY_BYTES ? room : mem_renew(NULL, n);
    if (ns.n)
        memcpy(p, ns.p, ns.n);
    p[ns.n] = '\n';
    if (id.n)
        memcpy(p + ns.n + 1, id.p, id.n);
    return (struct str){p, n};
}

static void key_done(struct str key, const char *room)
{
    if (key.p != room)
        mem_free((void *)(uintptr_t)key.p);
}

static struct shard *shard_of(struct limits *l, struct str key)
{
    return &l->shards[map_hash(l->hash_key, key.p, key.n) % l->nshards];
}

static bool take_room(struct limits *l)
{
    size_t known = atomic_load_explicit(&l->known, memory_order_relaxed);
    while (known < l->rules.max_keys)
        if (atomic_compare_exchange_weak_explicit(&l->known, &known, known + 1,
                                                  memory_order_relaxed, memory_order_relaxed))
            return true;
    return false;
}

static void give_room(struct limits *l)
{
    atomic_fetch_sub_explicit(&l->known, 1, memory_order_relaxed);
}

/* True: a row of this shard has gone, its room is the caller's. */
static bool forget_one(struct shard *s)
{
    pthread_mutex_lock(&s->lock);
    struct list *first = list_first(&s->idle);
    struct limits_place *p = first ? container_of(first, struct limits_place, link) : NULL;
    if (p) {
        list_del(&p->link);
        map_del(s->rows, p->key);
    }
    pthread_mutex_unlock(&s->lock);
    mem_free(p);
    return p != NULL;
}

/* No lock is held. */
static bool make_room(struct limits *l, const struct shard *own)
{
    unsigned first = (unsigned)(own - l->shards);
    if (take_room(l))
        return true;
    for (unsigned i = 0; i < l->nshards; i++)
        if (forget_one(&l->shards[(first + i) % l->nshards]))
            return true;
    return false;
}

static struct limits_place *row_new(const struct limits *l, struct str key, size_t ns_bytes,
                                    uint64_t now_ms)
{
    struct limits_place *p = mem_new(sizeof *p + key.n);
    char *text = (char *)(p + 1);
    memcpy(text, key.p, key.n);
    p->key = (struct str){text, key.n};
    p->ns_bytes = ns_bytes;
    p->level = (uint64_t)l->rules.per_second * PER_REQUEST;
    p->level_ms = now_ms;
    list_init(&p->link);
    return p;
}

/* The lock is held, before and after, but not all the time.  NULL: there is no room. */
static struct limits_place *row_of(struct limits *l, struct shard *s, struct str key,
                                   size_t ns_bytes, uint64_t now_ms)
{
    struct limits_place *p = map_get(s->rows, key);
    if (p)
        return p;
    pthread_mutex_unlock(&s->lock);
    bool room = make_room(l, s);
    pthread_mutex_lock(&s->lock);
    p = map_get(s->rows, key); /* somebody else may have been here */
    if (p && room)
        give_room(l);
    if (p || !room)
        return p;
    p = row_new(l, key, ns_bytes, now_ms);
    map_put(s->rows, p->key, p);
    list_push(&s->idle, &p->link);
    return p;
}

/* ---- requests ---- */

/* Clocks of workers differ by a turn: time that goes back brings nothing. */
static bool take_token(const struct limits *l, struct limits_place *p, uint64_t now_ms)
{
    uint64_t rate = l->rules.per_second, full = rate * PER_REQUEST;
    if (rate == 0)
        return true;
    if (now_ms > p->level_ms) {
        uint64_t ms = now_ms - p->level_ms;
        p->level = ms >= 1000 || p->level + ms * rate > full ? full : p->level + ms * rate;
        p->level_ms = now_ms;
    }
    if (p->level < PER_REQUEST)
        return false;
    p->level -= PER_REQUEST;
    return true;
}

/* The lock is held. */
static enum limits_verdict judge(const struct limits *l, struct limits_place *p, uint64_t now_ms)
{
    enum limits_verdict v = LIMITS_OK;
    if (l->rules.max_running && p->running >= l->rules.max_running)
        v = LIMITS_BUSY;
    else if (!take_token(l, p, now_ms))
        v = LIMITS_RATE;
    if (v != LIMITS_OK) {
        p->refused++;
        return v;
    }
    p->requests++;
    p->running++;
    return LIMITS_OK;
}

enum limits_verdict limits_enter(struct limits *l, struct str ns, struct str id, uint64_t now_ms,
                                 struct limits_place **ret_place)
{
    char room[KEY_BYTES];
    struct str key = key_of(ns, id, room);
    struct shard *s = shard_of(l, key);
    enum limits_verdict v = LIMITS_OK;
    pthread_mutex_lock(&s->lock);
    struct limits_place *p = row_of(l, s, key, ns.n, now_ms);
    if (p) {
        v = judge(l, p, now_ms);
        p->last_ms = now_ms > p->last_ms ? now_ms : p->last_ms;
        list_del(&p->link);
        if (p->running == 0)
            list_push(&s->idle, &p->link);
    } else {
        atomic_fetch_add_explicit(&l->uncounted, 1, memory_order_relaxed);
    }
    pthread_mutex_unlock(&s->lock);
    key_done(key, room);
    *ret_place = v == LIMITS_OK ? p : NULL;
    return v;
}

void limits_leave(struct limits *l, struct limits_place *p, int status, uint64_t bytes_in,
                  uint64_t bytes_out)
{
    if (!p)
        return;
    struct shard *s = shard_of(l, p->key);
    pthread_mutex_lock(&s->lock);
    assert(p->running > 0);
    p->running--;
    p->failed += status == 0 || status >= 500;
    p->bytes_in += bytes_in;
    p->bytes_out += bytes_out;
    if (p->running == 0)
        list_push(&s->idle, &p->link);
    pthread_mutex_unlock(&s->lock);
}

/* ---- what is shown ---- */

static int by_requests(const void *a, const void *b)
{
    const struct limits_row *x = a, *y = b;
    if (x->requests != y->requests)
        return x->requests < y->requests ? 1 : -1;
    int order = str_cmp(x->id, y->id);
    return order ? order : str_cmp(x->ns, y->ns);
}

static void show(const struct limits_place *p, struct arena *a, struct limits_row *ret)
{
    struct str key = arena_str(a, p->key);
    *ret = (struct limits_row){.ns = str_head(key, p->ns_bytes),
                               .id = str_skip(key, p->ns_bytes + 1),
                               .requests = p->requests,
                               .running = p->running,
                               .refused = p->refused,
                               .failed = p->failed,
                               .bytes_in = p->bytes_in,
                               .bytes_out = p->bytes_out,
                               .last_ms = p->last_ms};
}

/* All rows, in no order; texts in the arena. */
static struct limits_row *collect(struct limits *l, struct arena *a, size_t *ret_n)
{
    struct limits_row *rows = NULL;
    size_t n = 0;
    for (unsigned i = 0; i < l->nshards; i++) {
        struct shard *s = &l->shards[i];
        size_t at = 0;
        pthread_mutex_lock(&s->lock);
        rows = mem_renew(rows, (n + map_size(s->rows) + 1) * sizeof *rows);
        for (struct limits_place *p; (p = map_next(s->rows, &at));)
            show(p, a, &rows[n++]);
        pthread_mutex_unlock(&s->lock);
    }
    *ret_n = n;
    return rows;
}

size_t limits_top(struct limits *l, size_t n, struct arena *a, const struct limits_row **ret)
{
    struct arena scratch;
    size_t known;
    arena_init(&scratch, NULL, 0);
    struct limits_row *all = collect(l, &scratch, &known);
    qsort(all, known, sizeof *all, by_requests);
    if (n == 0 || n > known)
        n = known;
    struct limits_row *top = arena_get(a, (n + 1) * sizeof *top);
    for (size_t i = 0; i < n; i++) {
        top[i] = all[i];
        top[i].ns = arena_str(a, all[i].ns);
        top[i].id = arena_str(a, all[i].id);
    }
    mem_free(all);
    arena_done(&scratch);
    *ret = top;
    return n;
}

uint64_t limits_uncounted(const struct limits *l)
{
    return atomic_load_explicit(&((struct limits *)(uintptr_t)l)->uncounted, memory_order_relaxed);
}
