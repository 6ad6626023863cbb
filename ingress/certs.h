/* certs.h — the gateway's certificates by name: pairs of files, or of a folder; exact names before
 * wildcards before the default (contract ingress 1.3, DESIGN 14).  Built whole beside the old set.
 */
#ifndef INGRESS_CERTS_H
#define INGRESS_CERTS_H

#include "ingress/settings.h"
#include "net/tls.h"

struct certs; /* immutable, counted, atomic */

/* Reads and pairs the files.  NULL: *ret_error is one line that names setting and file. */
struct certs *certs_load(const struct ingress_settings *s, struct arena *a, struct str *ret_error);
struct certs *certs_ref(struct certs *c);
void certs_unref(struct certs *c);
/* The pair for a name (lower case; empty: none was given); the default where none matches. */
struct tls_leaf *certs_find(const struct certs *c, struct str sni);
/* Calls each(user, path) for every file and folder whose change may mean another set; lent.  What
 * is in the folder now is looked at anew. */
void certs_paths(const struct ingress_settings *s, void (*each)(void *user, struct str path),
                 void *user);
/* Walks the pairs, for gauge and warning: first name (empty: it has none) and end of life. */
unsigned certs_count(const struct certs *c);
struct str certs_name(const struct certs *c, unsigned i);
int64_t certs_not_after(const struct certs *c, unsigned i);

#endif
