/* policy_store.h — where the user's policy comes from at the start, and the file that keeps it
 * (contract egress-policy 3.7, 2.7). */
#ifndef STATE_POLICY_STORE_H
#define STATE_POLICY_STORE_H

#include "base/why.h"
#include "policies/document.h"

struct worker;
struct policy_store;

enum policy_source { POLICY_FROM_DEFAULT, POLICY_FROM_VARIABLE, POLICY_FROM_FILE };

/* The policy to start with: the file at `path` unless it is missing or blank, else `rules`
 * (E_RULES), else deny.  False: one line that names the variable and the place; it lies in `a`.
 * Blocks. */
must_check bool policy_start(struct str path, struct str rules, struct document *ret,
                             enum policy_source *ret_source, struct arena *a,
                             struct str *ret_error);

/* path empty: nothing is kept. */
struct policy_store *policy_store_new(struct worker *w, struct str path);
/* No call may be under way. */
void policy_store_free(struct policy_store *s);
bool policy_store_keeps(const struct policy_store *s);
/* Replaces the file and remembers what stood there.  done(user, 0 or a negative errno) on the
 * worker's loop, never within this call; after an error the file is what it was.  One call at a
 * time. */
void policy_store_write(struct policy_store *s, const struct document *d,
                        void (*done)(void *user, int error), void *user);
/* Puts back what stood there before the last write that succeeded, permissions included. */
void policy_store_undo(struct policy_store *s, void (*done)(void *user, int error), void *user);

#endif
