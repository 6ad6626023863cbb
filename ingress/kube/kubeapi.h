/* kubeapi.h — requests to the API server of a cluster, as who kubeconfig.h says we are (contract
 * ingress 1.4): its TLS, our certificate or token, and no more of them than KUBE_API_QPS and
 * KUBE_API_BURST allow. */
#ifndef INGRESS_KUBE_KUBEAPI_H
#define INGRESS_KUBE_KUBEAPI_H

#include "proxy/call.h"

struct kubeapi;

/* NULL: one line without any secret. */
struct kubeapi *kubeapi_new(struct worker *w, struct arena *a, struct str *ret_error);
/* Ends its calls without a word to their users. */
void kubeapi_free(struct kubeapi *k);
/* --check: would kubeapi_new() find all it needs? */
bool kubeapi_check(struct arena *a, struct str *ret_error);

/* Takes the right to send one more request: 0, or in how many ms to ask again. */
uint64_t kubeapi_turn(struct kubeapi *k);
/* GET; the token is read from its file each time.  Fields of r that concern the request itself are
 * set here; target and times count. */
struct call *kubeapi_get(struct kubeapi *k, const struct call_request *r,
                         const struct call_events *ev, void *user);
/* The server does not take us for who we are, or we do not take it for what it is: certificates,
 * authority and token are read again.  What cannot be read changes nothing; false: *ret_error. */
bool kubeapi_renew(struct kubeapi *k, struct arena *a, struct str *ret_error);
/* For the log: host and port, and where that was found. */
struct str kubeapi_server(const struct kubeapi *k);
struct str kubeapi_source(const struct kubeapi *k);

#endif
