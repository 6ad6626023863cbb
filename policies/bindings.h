/* bindings.h — which credential goes where: the grammar of bindings, conflicts among them, and
 * which one is a request's (contract egress-vault 4.2 to 4.4, 9).  Pure.
 *
 * A set is built once, checked as a whole and never changed; it copies what it is given.  It is
 * indexed by host: checking a thousand bindings takes milliseconds, choosing among them one look-up
 * for each label of the name and what stands there. */
#ifndef POLICIES_BINDINGS_H
#define POLICIES_BINDINGS_H

#include "base/mem.h"

enum { BINDING_METHODS_DEFAULT = 5 };

enum auth_type { AUTH_BEARER, AUTH_BASIC, AUTH_API_KEY, AUTH_CUSTOM_HEADERS, AUTH_PASSTHROUGH };

/* Bits. */
enum surface { SURFACE_PATH = 1, SURFACE_QUERY = 2, SURFACE_HEADER = 4, SURFACE_BODY = 8 };

struct auth_header {
    struct str name;       /* canonical form: Private-Token */
    struct str credential; /* name of it */
};

struct substitution {
    struct str credential, placeholder;
    unsigned in; /* of enum surface */
};

struct str_list {
    const struct str *at;
    unsigned n;
};

/* Normalised, with its defaults filled in: what GET shows. */
struct binding {
    struct str name;
    struct str_list schemes; /* "https", "http", in the order given */
    struct str_list hosts;   /* lower case; "*.x" */
    struct str_list methods, paths;
    enum auth_type type;
    /* What is set on a request: of bearer and basic one, Authorization; of passthrough none. */
    const struct auth_header *headers;
    unsigned nheaders;
    const struct substitution *substitutions;
    unsigned nsubstitutions;
};

bool binding_has_scheme(const struct binding *b, bool tls);
const char *auth_type_text(enum auth_type t);

/* A binding as it was sent: texts as they stand, absent members empty. */
struct binding_draft {
    struct str name;
    struct str_list schemes, hosts, methods, paths;
    const int64_t *ports;
    unsigned nports;
    struct str type, credential, header_name; /* header_name: auth.name */
    const struct auth_header *headers;
    unsigned nheaders;
    struct substitution_draft {
        struct str credential, placeholder;
        struct str_list in;
    } const *substitutions;
    unsigned nsubstitutions;
};

/* Normalises one (contract 4.2 to 4.4); texts are copied.  scoped:
 * E_CREDENTIAL_VAULT_REQUIRE_SCOPED_MATCH.  False: *ret_error is one line for the client, with the
 * prefix of the contract; all lies in the arena. */
bool binding_read(const struct binding_draft *d, bool scoped, struct arena *a, struct binding *ret,
                  struct str *ret_error);
/* Is this a host pattern in its normal form? */
bool binding_host_is_normal(struct str host);
/* Does a pattern match a raw path (contract 4.2, 9.1)? */
bool binding_path_matches(struct str pattern, struct str path);
/* Text in quotes, as error texts have it (contract 3.3). */
struct str binding_quoted(struct str text, struct arena *a);

struct bindings; /* immutable; of one owner */

/* A set; the bindings are copied and sorted by name in byte order, names are different.  NULL: two
 * of them can match the same request, *ret_error says which (contract 9.3). */
struct bindings *bindings_new(const struct binding *const *at, unsigned n, struct arena *a,
                              struct str *ret_error);
/* The same without that check; for tests of what must hold all the same. */
struct bindings *bindings_new_unchecked(const struct binding *const *at, unsigned n);
void bindings_free(struct bindings *s); /* NULL is fine */
unsigned bindings_count(const struct bindings *s);
/* By name order. */
const struct binding *bindings_at(const struct bindings *s, unsigned i);
/* Its place in that order. */
unsigned bindings_index(const struct bindings *s, const struct binding *b);
const struct binding *bindings_named(const struct bindings *s, struct str name);

/* Does a host pattern of a binding for that scheme match?  name: lower case, no final dot; s NULL:
 * no. */
bool bindings_bind_host(const struct bindings *s, struct str name, bool tls);

struct binding_request {
    bool tls;
    uint16_t port; /* dialled */
    struct str method;
    struct str host;   /* lower case, no final dot, no port; a name */
    struct str target; /* raw: path and query */
};

enum binding_choice {
    BINDING_NONE, /* none matches: forwarded as it is */
    BINDING_ONE,
    BINDING_AMBIGUOUS, /* 403 */
    BINDING_UNSAFE     /* 403: the path means more than one thing (contract 10 A, B) */
};
/* The one binding of a request (contract 9.1, 9.2), after the path was looked at in every decoding
 * (10). *ret with ONE, AMBIGUOUS and UNSAFE: (one of) those that match. */
enum binding_choice bindings_choose(const struct bindings *s, const struct binding_request *q,
                                    const struct binding **ret);

#endif
