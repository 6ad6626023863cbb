/* short_policy.h — a user's policy in a few words: "+ok.test -10.0.0.0/8" allows one and denies the
 * other, in this order; the default is deny, with "*" in front allow. */
#ifndef HARNESS_SHORT_POLICY_H
#define HARNESS_SHORT_POLICY_H

#include "policies/document.h"

/* document_done() it. */
struct document short_policy(const char *text);

#endif
