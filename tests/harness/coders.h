/* coders.h — other people's coders, for both ends: what they make is what we must read, and what we
 * make they must read at once. */
#ifndef HARNESS_CODERS_H
#define HARNESS_CODERS_H

#include "egress/vault/coding.h"

/* text in that coding, freed by the caller.  flush_every: as pieces of so many bytes that can be
 * read each as it is there (0: in one). */
uint8_t *coder_make(enum coding c, struct str text, size_t flush_every, size_t *ret_n);

/* A reader that takes its input bit by bit. */
struct coder_reader;
struct coder_reader *coder_reader_new(enum coding c);
void coder_reader_free(struct coder_reader *r);
/* Reads n bytes; false: it is no such coding. */
bool coder_read(struct coder_reader *r, const void *p, size_t n);
/* All that came out so far; lent. */
struct str coder_text(const struct coder_reader *r);
/* Has it come to its end? */
bool coder_ended(const struct coder_reader *r);

#endif
