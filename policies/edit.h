/* edit.h — what POST, PUT, PATCH and DELETE of /policy make of a document (contract egress-policy
 * 2.4, 2.5).  Pure. */
#ifndef POLICIES_EDIT_H
#define POLICIES_EDIT_H

#include "policies/document.h"

enum edit_kind { EDIT_REPLACE, EDIT_PATCH, EDIT_DELETE };

enum edit_result {
    EDIT_DONE,
    EDIT_RESET,    /* a blank body: deny, with an answer of its own */
    EDIT_NOTHING,  /* no target matched: nothing is to be written or applied */
    EDIT_WRONG,    /* 400 */
    EDIT_TOO_MANY, /* 413 */
};

enum { EDIT_TEXT_BYTES = 256 };

/* Applies a request body, as it came, to `base`.  max_rules 0: no limit; DELETE has none.  With
 * EDIT_DONE and EDIT_RESET *ret is the document afterwards, the caller's; otherwise it is
 * untouched, and after a refusal `text` holds the one line to answer with, without a line feed. */
must_check enum edit_result edit_apply(enum edit_kind kind, const struct document *base,
                                       struct str body, unsigned max_rules, struct document *ret,
                                       char text[EDIT_TEXT_BYTES]);

#endif
