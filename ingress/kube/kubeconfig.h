/* kubeconfig.h — where the API server is and who we are there: a kubeconfig (KUBECONFIG, a list of
 * files; else ~/.kube/config), else the account of the pod (contract ingress 1.4).  YAML or JSON.
 * What a kubeconfig can say and we cannot do (exec plugins, auth providers, impersonation, proxies)
 * is a fault that names it. */
#ifndef INGRESS_KUBE_KUBECONFIG_H
#define INGRESS_KUBE_KUBECONFIG_H

#include "http/url.h"

/* All of it lies in the arena it was read with, which should be a private one: keys, tokens and
 * passwords are among it. */
struct kube_access {
    struct url
        server; /* rest: a path in front of every other, or empty; no user, query, fragment */
    struct str tls_name;          /* tls-server-name; empty: the host */
    struct str ca_pem;            /* empty: the system's */
    bool insecure;                /* insecure-skip-tls-verify; then there is no ca_pem */
    struct str cert_pem, key_pem; /* client certificate; empty: none, never one without the other */
    struct str token;             /* visible ASCII; empty: none, or token_file */
    struct str token_file;        /* read again from time to time; what it holds, without blanks
                                     around, counts before token */
    struct str username, password; /* without control bytes; never beside a token */
    struct str source;             /* for messages: the files, or "in-cluster account" */
};

/* One kubeconfig; files it names are read relative to dir.  False: *ret_error is one line without
 * any secret.  For tests. */
bool kubeconfig_parse(struct str text, struct str dir, struct arena *a, struct kube_access *ret,
                      struct str *ret_error);

/* Where to look. */
struct kube_places {
    struct str kubeconfig; /* paths with ':' between them; blank: not set */
    struct str home;       /* empty: none */
    struct str service_host, service_port;
    struct str account_dir; /* of token and ca.crt */
};
/* Of several files the first one that has an entry of a name, or a current context, counts; files
 * that are not there are passed over, but one must be. */
bool kube_access_search(const struct kube_places *places, struct arena *a, struct kube_access *ret,
                        struct str *ret_error);
/* The same with what the environment says. */
bool kube_access_find(struct arena *a, struct kube_access *ret, struct str *ret_error);

/* The token in what a token file holds: without blanks around it.  Empty: there is none, or none
 * that may stand in a head. */
struct str kube_token_of(struct str text);

#endif
