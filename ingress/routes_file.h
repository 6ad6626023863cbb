/* routes_file.h — the JSON of --routes → sandboxes (contract ingress 7.4).  Pure. */
#ifndef INGRESS_ROUTES_FILE_H
#define INGRESS_ROUTES_FILE_H

#include "base/json.h"
#include "ingress/resolver.h"

struct routes_list {
    struct sandbox **items; /* sorted by id */
    size_t n;
};

/* Strict: unknown or doubled members, wrong types, bad values are faults of the whole file.  False:
 * *ret_fault says where. */
bool routes_parse(struct str text, struct routes_list *ret, struct json_fault *ret_fault);
void routes_list_free(struct routes_list *l);

#endif
