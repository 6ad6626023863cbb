/* secret.h — counted bytes in locked, non-dumpable pages, wiped at the last unref.
 *
 * Secrets share regions of such pages, so that a thousand of them need no thousand pages and a
 * request that makes some needs no system call.  Where the system lets us lock nothing more, the
 * pages stay unlocked but are still kept out of core dumps.  All of it from any thread. */
#ifndef BASE_SECRET_H
#define BASE_SECRET_H

#include <stddef.h>

#include "base/mem.h"

struct secret;

/* A copy of n bytes; the caller wipes its own. */
struct secret *secret_new(const void *p, size_t n);
/* n zero bytes for the caller to fill before anybody else has the secret. */
struct secret *secret_make(size_t n, char **ret_bytes);
/* Counts are atomic. */
struct secret *secret_ref(struct secret *s);
void secret_unref(struct secret *s); /* NULL is fine */
/* The bytes; never to be logged or formatted. */
struct str secret_bytes(const struct secret *s);

/* Does p point into a secret?  Such texts are never indexed by a codec nor written to a log.  Quick
 * enough to be asked for each field. */
bool secret_covers(const void *p);
/* Could everything so far be locked? */
bool secret_all_locked(void);
/* Bytes of secrets alive, of whatever owner. */
size_t secret_held(void);

/* Secrets that are given back together: of one exchange, of one vault. */
struct secret_bag {
    struct secret **at;
    unsigned n, room;
};
void secret_bag_init(struct secret_bag *b); /* allocates nothing */
/* Room for n bytes that lives as long as the bag; not zeroed. */
char *secret_bag_get(struct secret_bag *b, size_t n);
/* A copy of s. */
struct str secret_bag_str(struct secret_bag *b, struct str s);
/* Puts one more in: its reference is the bag's now. */
void secret_bag_put(struct secret_bag *b, struct secret *s);
void secret_bag_done(struct secret_bag *b);

#endif
