/* harden.h — secrets that came by the environment are not there any more once they are read
 * (contract egress-vault 17); the supervisor keeps them for a successor. */
#ifndef EGRESS_HARDEN_H
#define EGRESS_HARDEN_H

#include "conf/schema.h"

/* Overwrites, where they stand, the variables of all rows that are secret, and takes them out.
 * While no other thread looks at the environment; what settings hold are copies. */
void harden_environment(const struct schema *s);

#endif
