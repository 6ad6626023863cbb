/* json_impl.h — the pre-scan, for the readers with a tree (json.c) and without one (json_cut.c). */
#ifndef BASE_JSON_IMPL_H
#define BASE_JSON_IMPL_H

#include "base/json.h"

/* A string of the text as it stands there. */
struct json_name {
    uint32_t at, len; /* between the quotes */
    bool escaped;
};

struct json_level;

/* Filled in are text, max_depth, fault and, where a tree is to follow, tree. */
struct json_scan {
    struct str text;
    size_t at;
    struct json_level *levels;
    unsigned depth, max_depth;
    bool tree;        /* note the places */
    uint32_t *places; /* of every value, in the order of the text */
    size_t place_count, place_room;
    struct json_name *names; /* of all open objects, the innermost last */
    size_t name_count, name_room;
    uint8_t key[16]; /* of the hash of names, drawn when it is needed first */
    bool has_key;
    struct json_fault *fault;
};

/* Is the text one JSON value and nothing else?  False: *fault says where it is not.  In any case
 * json_scan_done() gives back what was allocated. */
bool json_scan_document(struct json_scan *s, size_t max_bytes);
void json_scan_done(struct json_scan *s);
/* Always false: the fault at that place. */
bool json_scan_fail(struct json_scan *s, size_t at, const char *text);
/* The mark is at the opening quote; it ends behind the closing one. */
bool json_scan_string(struct json_scan *s, struct json_name *ret);
/* Line and column of a place. */
void json_place(struct json_fault *fault, struct str text, size_t at);
/* What a string says, without its escapes, which are known to be good; at most raw.n bytes go to
 * `out`.  Returns how many. */
size_t json_unescape(struct str raw, char *out);

#endif
