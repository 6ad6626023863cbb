/* objects_impl.h — what object.c hands to the readers of the two kinds. */
#ifndef INGRESS_KUBE_OBJECTS_IMPL_H
#define INGRESS_KUBE_OBJECTS_IMPL_H

#include "ingress/kube/objects.h"

/* Values as they stand in the JSON text; p is NULL where one is absent or null. */
struct kube_parts {
    struct str status;
    bool annotated; /* there are annotations */
    struct str endpoints;
};

/* Fill in state, reason and endpoint of ret->draft. */
void kube_read_batchsandbox(const struct kube_parts *p, struct arena *a, struct kube_object *ret);
void kube_read_agent_sandbox(const struct kube_parts *p, struct arena *a, struct kube_object *ret);

void kube_set_running(struct kube_object *o, struct str host);
/* The reason is formatted into the arena and bounded. */
void kube_set_not_ready(struct kube_object *o, struct arena *a, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* value.p is NULL or the value is null. */
bool kube_absent(struct str value);
/* A text of at least one byte; false: absent, null, empty or something else. */
bool kube_text(struct str value, struct arena *a, struct str *ret);

#endif
