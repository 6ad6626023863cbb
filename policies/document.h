/* document.h — the user's policy as a document: ordered rules as they were written, and a default
 * action (contract egress-policy 2.3, 2.6, 3.1, 3.7).  Pure. */
#ifndef POLICIES_DOCUMENT_H
#define POLICIES_DOCUMENT_H

#include "base/json.h"
#include "policies/rules.h"

enum {
    DOCUMENT_DEPTH_MAX = 8,
    DOCUMENT_VALUES_MAX = 131072 /* JSON values in one body, whatever its bytes */
};

struct document {
    const struct rules *rules; /* one reference, the document's */
    bool allow;                /* the default action */
};

/* Deny, without rules. */
struct document document_deny(void);
/* Another reference to the same rules. */
struct document document_copy(const struct document *d);
void document_done(struct document *d);
/* Reads a policy.  Blank text and null are deny without rules.  False: *ret_fault says what is
 * wrong and where; its text is what follows the prefixes of 2.4. */
must_check bool document_parse(struct str text, struct document *ret, struct json_fault *ret_fault);
/* "allow_all", "deny_all" or "enforcing" (2.3); static. */
const char *document_mode(const struct document *d);
/* Writes {"egress":[…],"defaultAction":…}. */
void document_put(struct json_out *o, const struct document *d);
/* The bytes of the policy file (3.7); the caller ends `o` with json_out_done(). */
void document_put_file(struct json_out *o, const struct document *d);

/* ---- for edits, which read lists of rules without a policy around them */

/* As json_parse(), with the limits above. */
struct json_doc *document_json(struct str text, struct json_fault *ret_fault);
/* Is this an array of rule objects: known members, of the right types? */
must_check bool document_rules_shape(const struct json_doc *d, const struct json *array,
                                     struct json_fault *ret_fault);
/* Appends the rules of such an array; false: an action or a target is wrong. */
must_check bool document_rules_read(const struct json_doc *d, const struct json *array,
                                    struct rules *ret, struct json_fault *ret_fault);

#endif
