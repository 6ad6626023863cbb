/* run_redact.h — what run_redact.c and run_answer.c read of a row in the same way. */
#ifndef VECTORS_RUN_REDACT_H
#define VECTORS_RUN_REDACT_H

#include "vectors/run_policy.h"

/* [name, value] pairs as they stand: values here are any text. */
struct field *redact_fields_of(struct row *r, const struct json *list, unsigned *ret_n);
/* One line each; coded: without those that go with another coding. */
struct str redact_joined(struct row *r, const struct field *fields, unsigned n, bool coded);
struct str redact_from_base64(struct row *r, struct str text);

/* What the gate decides. */
bool run_answer(struct row *r);

#endif
