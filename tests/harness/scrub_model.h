/* scrub_model.h — what a body without secrets must be, found the slow way: every string is tried at
 * every place of the whole text. */
#ifndef HARNESS_SCRUB_MODEL_H
#define HARNESS_SCRUB_MODEL_H

#include "base/mem.h"

/* Each byte of each occurrence of a string becomes a star in ret, which holds text.n bytes. */
void scrub_model(const struct str *strings, unsigned n, struct str text, char *ret);
/* How many bytes at the end of text must wait, since they could begin a string that goes on. */
size_t scrub_model_held(const struct str *strings, unsigned n, struct str text);

#endif
