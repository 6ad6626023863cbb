/* run_request.h — what the runners for whole requests share. */
#ifndef TESTS_RUN_REQUEST_H
#define TESTS_RUN_REQUEST_H

#include "ingress/faults.h"
#include "ingress/route.h"
#include "vectors/vectors.h"

/* mode, base_domain and lenient_ports of the row. */
struct route_rules row_route_rules(struct row *r);
/* Is the refusal the one the row expects (status, code, and message where given)? */
bool row_same_fault(struct row *r, const struct fault *fault);

#endif
