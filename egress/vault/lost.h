/* lost.h — hosts that were bound by a vault which a crash took away (contract egress-vault 13.1):
 * names and schemes only, as they are left with the supervisor.  Immutable, counted. */
#ifndef VAULT_LOST_H
#define VAULT_LOST_H

#include "policies/bindings.h"

struct lost;
/* The text of a vault's hosts: one "https name" or "http *.name" a line, sorted, each once; of
 * NULL nothing. */
struct str lost_text(const struct bindings *b, struct arena *a);
/* NULL: nothing in it.  Lines in any order, empty ones and doubles are fine.  A line that cannot be
 * read, or has no end, makes every host lost: fail closed. */
struct lost *lost_read(struct str text);
struct lost *lost_ref(const struct lost *l);
void lost_unref(const struct lost *l); /* NULL is fine */
/* l NULL: no. */
bool lost_binds(const struct lost *l, struct str name, bool tls);

#endif
