/* run_policy.h — what the runners for policies share. */
#ifndef TESTS_RUN_POLICY_H
#define TESTS_RUN_POLICY_H

#include "policies/policy.h"
#include "vectors/vectors.h"

/* A policy of a row ({"defaultAction", "egress"}, or NULL: none) as a document; false: the row
 * failed. */
bool row_document(struct row *r, const struct json *v, struct document *ret);
/* policy, deny_always and allow_always of the row as what is in force; NULL: the row failed. */
struct policy *row_policy(struct row *r);
/* A JSON value as text again, so that it can be parsed by what is tested. */
void row_put(struct json_out *o, const struct row *r, const struct json *v);
/* Is the document the expected one, as GET shows it? */
bool row_same_document(struct row *r, const struct document *got, const struct json *expected);
/* body, body_b64 or body_parts of the row. */
struct str row_body(struct row *r, const char *name);
/* A setting of the row's environment, or "". */
struct str row_env(struct row *r, const char *name);
bool row_has(struct str text, struct str piece);

#endif
