/* substitute.h — placeholders in texts: one scan from left to right, the longest that matches wins,
 * what was put in is not looked at again (contract egress-vault 11).  Pure but for the memory of
 * secrets that its results lie in. */
#ifndef POLICIES_SUBSTITUTE_H
#define POLICIES_SUBSTITUTE_H

#include "base/secret.h"

/* A value as the place it goes to has it. */
enum encoding {
    ENCODE_RAW,
    ENCODE_PERCENT, /* path, query: all but letters, digits, -._~ */
    ENCODE_FORM,    /* the same with + for a blank */
    ENCODE_JSON,    /* the content of a JSON string, ASCII only */
    ENCODINGS
};
/* In the memory of secrets. */
struct str encode_value(enum encoding e, struct str value, struct secret_bag *bag);

struct replacement {
    struct str placeholder; /* not empty */
    struct str value;       /* encoded */
};
struct replacements {
    const struct replacement *at;
    unsigned n;
};

enum substituted {
    SUBSTITUTE_NOTHING, /* nothing was found */
    SUBSTITUTE_DONE,
    SUBSTITUTE_LONG /* the result would be longer than it may be */
};

/* Only with DONE *ret is set: a text in the bag, of at most `most` bytes: whoever sends the
 * placeholders chooses how many there are. */
enum substituted substitute(const struct replacements *p, struct str text, size_t most,
                            struct secret_bag *bag, struct str *ret);
/* The value of an Authorization field: `Basic` and base64 of UTF-8 text in which something is found
 * (contract 11, Basic).  *ret_text: what was encoded; *ret_token: the end of *ret that encodes it.
 */
enum substituted substitute_basic(const struct replacements *p, struct str value, size_t most,
                                  struct secret_bag *bag, struct str *ret, struct str *ret_token,
                                  struct str *ret_text);

#endif
