/* secret.h — counted bytes in locked, non-dumpable pages, wiped at the last unref.
 *
 * Where the system lets us lock nothing more, the pages stay unlocked but are still kept out of
 * core dumps. */
#ifndef BASE_SECRET_H
#define BASE_SECRET_H

#include <stddef.h>

#include "base/mem.h"

struct secret;

/* A copy of n bytes; the caller wipes its own. */
struct secret *secret_new(const void *p, size_t n);
/* Counts are atomic. */
struct secret *secret_ref(struct secret *s);
void secret_unref(struct secret *s); /* NULL is fine */
/* The bytes; never to be logged or formatted. */
struct str secret_bytes(const struct secret *s);

#endif
