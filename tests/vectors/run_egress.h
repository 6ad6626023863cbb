/* run_egress.h — what the runners for the sidecar's state share. */
#ifndef TESTS_RUN_EGRESS_H
#define TESTS_RUN_EGRESS_H

#include "vectors/run_policy.h"

/* The row whose "env" row_getenv() reads. */
void set_env_row(struct row *r);
struct row *env_row(void);
/* As egress_getenv(), over the row. */
const char *row_getenv(const char *name);
/* Are two values the same, whatever the order of members? */
bool same_json(const struct json_doc *da, const struct json *a, const struct json_doc *db,
               const struct json *b);

#endif
