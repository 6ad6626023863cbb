/* ca.h — the authority: loaded or made at start, exported before anything is redirected to us
 * (contract egress-vault 15, 16).  Its key signs leaves and does nothing else. */
#ifndef INTERCEPT_CA_H
#define INTERCEPT_CA_H

#include "net/tls.h"

#define CA_FOLDER "/var/lib/mitmproxy/.mitmproxy"
#define CA_EXPORT "/opt/opensandbox/mitmproxy-ca-cert.pem"
#define CA_SYSTEM "/usr/local/share/ca-certificates/opensandbox-mitmproxy-ca.crt"
#define CA_BUNDLE "/etc/ssl/certs/ca-certificates.crt"

enum ca_key { CA_KEY_EC, CA_KEY_RSA2048 };

/* Where things are; tests put others in. */
struct ca_paths {
    const char *folder; /* mitmproxy-ca.pem, 0600, and mitmproxy-ca-cert.pem, 0644 */
    const char *export; /* for the sandbox */
    const char *system; /* the sidecar's own trust; NULL: none */
    const char *bundle; /* a copy of the certificate is appended once; NULL: none */
};

struct ca; /* hides key and certificate; lives with the process */

/* Removes the export of a predecessor: first thing at start (E_MITMPROXY_TRANSPARENT or not). */
void ca_purge(const struct ca_paths *at);
/* Loads what is there, else makes it and writes it.  NULL: *ret_error is one line: expired, not an
 * authority, key does not belong, readable by others …  now_s: seconds since 1970. */
struct ca *ca_open(const struct ca_paths *at, enum ca_key kind, int64_t now_s, struct arena *a,
                   struct str *ret_error);
/* What is there now: *ret is another authority, or NULL where it is `old`'s.  False: it cannot be
 * one, *ret_error; it is not there: that is an error, too, and nothing is made. */
bool ca_again(const struct ca *old, const struct ca_paths *at, int64_t now_s, struct arena *a,
              struct ca **ret, struct str *ret_error) must_check;
/* Writes the export, by rename and without following a link; false: *ret_error.  Then the system
 * file and the bundle, each by rename: true with a *ret_error that is not empty is a warning about
 * one of these. */
bool ca_export(const struct ca *ca, const struct ca_paths *at, struct arena *a,
               struct str *ret_error);
/* PEM of the certificate; lives as long as the ca. */
struct str ca_pem(const struct ca *ca);
void ca_free(struct ca *ca); /* NULL is fine */

/* ---- mint.c: leaves by name */

struct mint; /* on one worker */
enum { MINT_NAMES = 256 };
/* Holds ca, which outlives it; makes one leaf key for all. */
struct mint *mint_new(const struct ca *ca, unsigned max_names);
void mint_free(struct mint *m); /* NULL is fine */
/* A leaf for exactly this name (lower case, no dot at its end) or address: from the cache or new
 * (some 0.2 ms).  Lent until the next call; conn_secure() counts it.  NULL: no certificate can name
 * it. */
struct tls_leaf *mint_leaf(struct mint *m, struct str name, int64_t now_s);
struct mint_counts {
    uint64_t made, hits;
    unsigned names;
};
struct mint_counts mint_counts(const struct mint *m);

#endif
