/* objects.h — what stands in a Kubernetes object, a page of a list and an event of a watch, as far
 * as the gateway needs it (contract ingress 7.1 to 7.3).  Pure; what is read comes from whoever can
 * write objects, so a broken one is that sandbox's trouble and nobody else's.
 *
 * Only `metadata` and `status` are ever read as JSON values; the rest of an object is only walked
 * over. */
#ifndef INGRESS_KUBE_OBJECTS_H
#define INGRESS_KUBE_OBJECTS_H

#include "ingress/resolver.h"

enum kube_kind { KUBE_BATCHSANDBOX, KUBE_AGENT_SANDBOX };

/* Texts are slices of the JSON text or lie in the arena. */
struct kube_object {
    struct str ns, name, uid, version; /* metadata; version: resourceVersion */
    struct sandbox draft; /* for sandbox_new(): id = name, state, reason, token, ends */
    struct endpoint end;  /* draft.ends points here */
};
/* False: it is no object with a name (nothing can be done with it); *ret_error says why, for the
 * log. An object that has a name is always read: what is wrong with the rest makes it NOT_READY
 * with a reason. */
bool kube_object_read(struct str text, enum kube_kind kind, struct arena *a,
                      struct kube_object *ret, const char **ret_error);

/* A page of a list: `each` for every item, as text; then what comes next.  Of a page that is not a
 * whole one nothing is told; an item may still be no object that can be read. */
struct kube_page {
    struct str version, more; /* resourceVersion of the list; `continue`, empty: the last page */
};
bool kube_page_read(struct str text, struct arena *a, void (*each)(void *user, struct str object),
                    void *user, struct kube_page *ret, const char **ret_error);

/* One line of a watch. */
enum kube_event_type {
    KUBE_ADDED,
    KUBE_MODIFIED,
    KUBE_DELETED,
    KUBE_BOOKMARK, /* only version counts */
    KUBE_ERROR     /* code is that of the Status object; 410: list again */
};
struct kube_event {
    enum kube_event_type type;
    struct str object;  /* as text; ERROR: of the Status */
    struct str version; /* BOOKMARK */
    int code;
    struct str message; /* ERROR: for the log */
};
bool kube_event_read(struct str line, struct arena *a, struct kube_event *ret,
                     const char **ret_error);

/* Names of an agent-sandbox for an id, in the order they are tried (7.3); in the arena.  Returns
 * how many (1 to 3). */
unsigned agent_names(struct str id, struct arena *a, struct str ret[3]);
/* The DNS-1035 form. */
struct str agent_dns1035(struct str id, struct arena *a);

#endif
