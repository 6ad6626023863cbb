/* index.h — the objects of a cluster by name, and what tables should say of them.
 *
 * What is told of an object belongs to an instance of it (uid, resourceVersion), not to its name:
 * late news about an earlier instance, or about an earlier state of this one, change nothing (cases
 * LIFE-01).  Versions are put in order where both are decimal numbers.  A name that objects of
 * several namespaces have is one AMBIGUOUS record as long as they have it. */
#ifndef INGRESS_KUBE_INDEX_H
#define INGRESS_KUBE_INDEX_H

#include "ingress/kube/objects.h"

struct kube_index;

struct kube_index *kube_index_new(void);
void kube_index_free(struct kube_index *x);
size_t kube_index_objects(const struct kube_index *x);
/* Names of several objects. */
size_t kube_index_ambiguous(const struct kube_index *x);

/* It is there, and so: an item of a list, or ADDED or MODIFIED.  False: that was known already, or
 * something newer is. */
bool kube_index_put(struct kube_index *x, const struct kube_object *o);
/* DELETED.  False: another instance is there, or none. */
bool kube_index_del(struct kube_index *x, const struct kube_object *o);

/* A list begins (anew, if another one has not come to its end).  back: the store has gone back in
 * time, so that from now on older versions count as well. */
void kube_index_list_begin(struct kube_index *x, bool back);
/* The list is complete: what was not put since it began is gone. */
void kube_index_list_end(struct kube_index *x);

/* What tables do not know yet.  A name is in it once at most.  While a list is under way, a name
 * that may only seem to have several objects is left for later.  All of it is lent until the next
 * call. */
struct kube_delta {
    const struct sandbox *const *put;
    const struct str *gone;
    size_t nput, ngone;
};
struct kube_delta kube_index_take(struct kube_index *x);

#endif
