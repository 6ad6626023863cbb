/* routes_file.h — the JSON of --routes and of /routes (contract ingress 7.4) ↔ sandboxes.  Pure.
 *
 * What is written says what the gateway has understood, not how it was spelt: addresses and times
 * in their canonical form, Pausing and Stopping, which are served like Running, as Running. */
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
/* Where in the list an id stands, or would stand. */
size_t routes_list_find(const struct routes_list *l, struct str id, bool *ret_there);

/* One entry, the value of an id in such a file.  NULL: *ret_fault says where. */
struct sandbox *routes_parse_entry(struct str id, struct str text, struct json_fault *ret_fault);
/* May a sandbox be called so: 1 to 256 bytes of UTF-8, no control characters. */
bool routes_is_id(struct str id);

/* The entry as an object.  secrets: as it is read, with the token; else in place of a token stands
 * "secureAccess": true, which is not read. */
void routes_put_entry(struct json_out *o, const struct sandbox *s, bool secrets);
/* An id with its entry, as a member of an open object. */
void routes_put_member(struct json_out *o, const struct sandbox *s, bool secrets);
/* Bytes that this takes at most. */
size_t routes_member_room(const struct sandbox *s);

#endif
