/* inject.h — a request with its credential: fields replaced, placeholders filled in (contract
 * egress-vault 10 C, 11, 12).  Pure but for the memory of secrets.
 *
 * What a binding puts into requests is rendered once, when the vault is written; a request only
 * points to it. */
#ifndef POLICIES_INJECT_H
#define POLICIES_INJECT_H

#include "policies/bindings.h"
#include "policies/substitute.h"

/* A binding with its secrets in every form that it needs; immutable, owned by the vault. */
struct armed {
    const struct binding *binding;
    const struct field *headers; /* name canonical, value in the memory of secrets, its ends trimmed
                                    (RFC 9110 section 5.5) */
    unsigned nheaders;
    struct replacements path, query, header; /* each encoded for its surface */
    struct replacements body[ENCODINGS];
    bool buffers; /* there are pairs for bodies */
};

/* Lends the value of a credential of that name, which exists. */
struct values {
    struct str (*value)(void *user, struct str credential);
    void *user;
};
/* All of it lies in the arena, but secrets in the bag. */
void arm(const struct binding *b, const struct values *v, struct arena *a, struct secret_bag *bag,
         struct armed *ret);

struct inject_request {
    const struct field *fields; /* end-to-end ones, hop-by-hop are gone (rules.h) */
    unsigned nfields;
    struct str target; /* raw, origin form */
    bool scrubs;       /* the answer's body will be looked into: Accept-Encoding is narrowed */
};

struct injected {
    struct field *fields;
    unsigned nfields;
    struct str target;
    unsigned hits; /* of enum surface: where something was put in */
    unsigned sets; /* headers set */
    /* Texts that this request alone has made of secrets: to be scrubbed out of its answer. */
    struct str made[4];
    unsigned nmade;
};

enum { INJECT_HEAD_MOST = 4 << 20, INJECT_BODY_MOST = 4 << 20 }; /* bytes of what is put together */
enum inject_fault {
    INJECT_OK,
    INJECT_UNSAFE, /* 403: the path after substitution */
    INJECT_LONG    /* 431: so many placeholders make more than INJECT_HEAD_MOST */
};
/* Only with OK the request may go out.  fields and texts lie in the arena or are those of q,
 * secrets in the bag. */
enum inject_fault inject_head(const struct armed *x, const struct inject_request *q,
                              struct arena *a, struct secret_bag *bag, struct injected *ret);
/* Only the codings that we can read (contract 12, Accept-Encoding), for requests to bound hosts
 * that no binding matched. In place; *nfields may shrink. */
void inject_accept_coding(struct field *fields, unsigned *nfields, struct arena *a);
/* Takes the binding's headers out of trailers. */
void inject_trailers(const struct armed *x, struct field *fields, unsigned *nfields);

enum body_look {
    BODY_TAKEN,   /* nothing found: as it is */
    BODY_CHANGED, /* *ret */
    BODY_PASSED   /* as it is, not looked into: coded, multipart, not UTF-8, or what is put together
                     would be over INJECT_BODY_MOST */
};
/* May this body be looked into, by what its head says?  False: BODY_PASSED whatever it holds. */
bool inject_reads_body(const struct field *fields, unsigned nfields);
/* The whole body of a request with these fields. */
enum body_look inject_body(const struct armed *x, const struct field *fields, unsigned nfields,
                           struct str body, struct secret_bag *bag, struct str *ret);

#endif
