/* map.h — hash map from text to pointer, keyed so that peers cannot choose collisions. */
#ifndef BASE_MAP_H
#define BASE_MAP_H

#include <stddef.h>
#include <stdint.h>

#include "base/mem.h"

struct map;

/* An empty map with a random key of its own. */
struct map *map_new(void);
/* The values are the caller's. */
void map_free(struct map *m);
size_t map_size(const struct map *m);
/* The value under key, or NULL. */
void *map_get(const struct map *m, struct str key);
/* Puts value (not NULL) under key and returns what was there, or NULL.  The key's text is not
 * copied: it must live as long as the entry, so it usually lies in the value.  A value that
 * replaces another replaces its key's text too. */
void *map_put(struct map *m, struct str key, void *value);
/* Takes the entry out and returns its value, or NULL. */
void *map_del(struct map *m, struct str key);
/* Iterates: start with *at = 0; NULL at the end.  The entry just returned may be deleted, nothing
 * else changed. */
void *map_next(const struct map *m, size_t *at);

/* SipHash-2-4 of n bytes under a 16-byte key. */
uint64_t map_hash(const uint8_t key[16], const void *p, size_t n);

#endif
