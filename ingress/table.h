/* table.h — key → sandbox, one table per worker, fed by deltas from the resolver's owner.
 *
 * A delta is a counted list of records; each worker applies it in slices of some hundred a turn, so
 * that a list of 100,000 never holds up traffic.  When a record is replaced or removed,
 * gone(worker, sandbox, next) is called in that turn, next being the one in its place, or NULL: its
 * pools go (I6). */
#ifndef INGRESS_TABLE_H
#define INGRESS_TABLE_H

#include "ingress/resolver.h"

struct table;

enum { TABLE_SLICE = 256 };

/* put(worker, record): it is in force on this worker now, also when it is the one that was there.
 * gone as above.  Both may be NULL. */
struct table *table_new(struct worker *w,
                        void (*gone)(struct worker *w, const struct sandbox *s,
                                     const struct sandbox *next),
                        void (*put)(struct worker *w, const struct sandbox *s));
void table_free(struct table *t);
/* The record under this key, lent until the loop turns; NULL: unknown. */
const struct sandbox *table_get(const struct table *t, struct str key);
size_t table_size(const struct table *t);
/* Has the first complete list been applied here? */
bool table_ready(const struct table *t);

/* From the resolver's thread: takes a reference to each `put`, copies the keys of `gone`, and
 * carries them to all tables in order. first: with it the first complete list is in.  applied(user)
 * is called on `owner` when every table has applied it (NULL: nobody asks). */
void table_publish(struct table *const *tables, unsigned n, const struct sandbox *const *put,
                   size_t nput, const struct str *gone, size_t ngone, bool first,
                   struct worker *owner, void (*applied)(void *user), void *user);

#endif
