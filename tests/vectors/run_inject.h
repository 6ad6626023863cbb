/* run_inject.h — a row's binding with its secrets, and heads compared as the rows ask for. */
#ifndef TESTS_RUN_INJECT_H
#define TESTS_RUN_INJECT_H

#include "policies/inject.h"
#include "vectors/vectors.h"

/* The row's auth as a binding of api.example.com, armed with its credentials. */
bool row_arm(struct row *r, struct secret_bag *bag, struct armed *ret);
/* Are the lines those of the list?  Names exactly; order counts among lines of one name; Connection
 * and Keep-Alive are left out. */
bool row_same_lines(struct row *r, const char *what, const struct field *fields, unsigned n,
                    const struct json *list);

#endif
