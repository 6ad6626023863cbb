/* scrub.h — the body of an answer without secrets: decoded, searched, masked, coded again; a filter
 * of the exchange (contract egress-vault 14.2, 14.3).
 *
 * Only the longest end that could still become a match is held back.  Bytes of a plain body are
 * masked where they lie. */
#ifndef VAULT_SCRUB_H
#define VAULT_SCRUB_H

#include "egress/vault/coding.h"
#include "policies/redact.h"
#include "proxy/filter.h"

/* Holds a reference to r, which searches in bodies; c is NONE or one that is known.  hits: each
 * match counts once, when it goes out masked; may be NULL.  NULL: there may be no more decoders. */
struct filter *scrub_new(struct redaction *r, enum coding c, struct chunk_pool *pool,
                         uint64_t *hits);

#endif
