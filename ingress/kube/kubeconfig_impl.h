/* kubeconfig_impl.h — the parts of the kubeconfig reader: a small tree of YAML, and what is picked
 * from such trees. */
#ifndef INGRESS_KUBE_KUBECONFIG_IMPL_H
#define INGRESS_KUBE_KUBECONFIG_IMPL_H

#include "ingress/kube/kubeconfig.h"

enum kube_node_type { KUBE_NODE_TEXT, KUBE_NODE_LIST, KUBE_NODE_MAP };

struct kube_node {
    enum kube_node_type type;
    struct str name; /* of a member of a map */
    struct str text; /* null is the empty text */
    const struct kube_node *first, *next;
};

/* The one document of the text, or NULL for an empty one.  Refused beside what is no YAML: anchors,
 * aliases and tags, doubled members, more than one document, too much depth and too many values.
 * False: *ret_error is a line without any content of the text. */
bool kube_yaml_read(struct str text, struct arena *a, const struct kube_node **ret,
                    struct str *ret_error);

struct kube_file {
    struct str dir; /* what relative paths in it are relative to */
    const struct kube_node *root;
};

/* Files that the chosen entries name, as paths that can be opened; empty: none. */
struct kube_named {
    struct str ca, cert, key;
};

/* The current context of several files, of which the first one that has an entry of a name counts.
 * Pure; copies everything into the arena. */
bool kubeconfig_pick(const struct kube_file *files, size_t n, struct arena *a,
                     struct kube_access *ret, struct kube_named *ret_named, struct str *ret_error);

#endif
