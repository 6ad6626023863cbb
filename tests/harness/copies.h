/* copies.h — where in this process a text still stands, freed memory included: what was secret must
 * be nowhere but in the memory of secrets. */
#ifndef HARNESS_COPIES_H
#define HARNESS_COPIES_H

#include "base/secret.h"

/* The text whose bytes are those of `masked` with 0x55 over them: so that the test's own constant
 * is no copy of it. */
struct secret *copies_unmask(struct str masked);
/* How often it stands in memory that can be written, the stack and the memory of secrets left out.
 */
unsigned copies_count(const struct secret *text);

#endif
