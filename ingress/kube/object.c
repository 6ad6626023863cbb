/* object.c — what all Kubernetes objects have: who it is and which annotations count.  An object
 * that cannot be named is nobody's and is refused; with one that can, whatever else is wrong keeps
 * that sandbox, and only that one, from being served. */
#include "base/json.h"
#include "ingress/kube/objects_impl.h"
#include "policies/signature.h"

enum {
    NAME_BYTES = 253,   /* the longest name that Kubernetes has */
    REASON_BYTES = 256, /* anybody who may write objects writes reasons */
};

void kube_set_running(struct kube_object *o, struct str host)
{
    o->end = (struct endpoint){.host = host};
    o->draft.state = SANDBOX_RUNNING;
    o->draft.reason = STR_NONE;
    o->draft.ends = &o->end;
    o->draft.nends = 1;
}

/* Cut where a character ends. */
static struct str bounded(struct str s)
{
    size_t n = REASON_BYTES;
    if (s.n <= n)
        return s;
    while (n > 0 && ((uint8_t)s.p[n] & 0xc0) == 0x80)
        n--;
    return str_head(s, n);
}

void kube_set_not_ready(struct kube_object *o, struct arena *a, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    o->draft.reason = bounded(arena_vprintf(a, format, args));
    va_end(args);
    o->draft.state = SANDBOX_NOT_READY;
    o->draft.ends = NULL;
    o->draft.nends = 0;
}

bool kube_absent(struct str value)
{
    return value.p == NULL || str_eq(value, STR("null"));
}

bool kube_text(struct str value, struct arena *a, struct str *ret)
{
    struct str text;
    if (kube_absent(value) || !json_cut_text(value, a, &text) || text.n == 0)
        return false;
    *ret = text;
    return true;
}

/* ---- who it is ---- */

enum { M_NAME, M_NAMESPACE, M_UID, M_VERSION, M_ANNOTATIONS, M_COUNT };

static bool read_name(struct str value, struct arena *a, struct str *ret)
{
    *ret = STR("");
    return kube_absent(value) || (json_cut_text(value, a, ret) && ret->n <= NAME_BYTES);
}

/* NULL, or why this object has no name that counts. */
static const char *read_names(struct str metadata, struct json_pick m[M_COUNT], struct arena *a,
                              struct kube_object *ret)
{
    const char *error = json_pick(metadata, m, M_COUNT);
    bool only_annotations = error && m[M_ANNOTATIONS].twice && !m[M_NAME].twice &&
                            !m[M_NAMESPACE].twice && !m[M_UID].twice && !m[M_VERSION].twice;
    if (error && !only_annotations)
        return "metadata is broken or has a doubled member";
    if (!read_name(m[M_NAME].value, a, &ret->name) || ret->name.n == 0)
        return "metadata has no name";
    if (!read_name(m[M_NAMESPACE].value, a, &ret->ns) || !read_name(m[M_UID].value, a, &ret->uid) ||
        !read_name(m[M_VERSION].value, a, &ret->version))
        return "metadata has a namespace, uid or resourceVersion that is no text or too long";
    return NULL;
}

/* ---- annotations ---- */

/* NULL, or why they cannot be relied on. */
static const char *read_annotations(const struct json_pick *annotations, struct arena *a,
                                    struct kube_parts *p, struct str *ret_token)
{
    enum { TOKEN, ENDPOINTS };
    struct json_pick rows[] = {
        {.name = STR("opensandbox.io/secure-access-token")},
        {.name = STR("sandbox.opensandbox.io/endpoints")},
    };
    *ret_token = STR("");
    if (annotations->twice)
        return "doubled annotations";
    if (kube_absent(annotations->value))
        return NULL;
    const char *error = json_pick(annotations->value, rows, 2);
    if (error)
        return error;
    p->annotated = true;
    p->endpoints = rows[ENDPOINTS].value;
    if (!rows[TOKEN].value.p)
        return NULL;
    if (!json_cut_text(rows[TOKEN].value, a, ret_token))
        return "the token is no text";
    *ret_token = signature_trim(*ret_token);
    return NULL;
}

/* ---- the whole ---- */

static void read_rest(const struct json_pick *annotations, const struct json_pick *status,
                      enum kube_kind kind, struct arena *a, struct kube_object *ret)
{
    struct kube_parts p = {.status = kube_absent(status->value) ? STR_NONE : status->value};
    const char *error = read_annotations(annotations, a, &p, &ret->draft.token);
    if (error)
        kube_set_not_ready(ret, a, "annotations: %s", error);
    else if (status->twice)
        kube_set_not_ready(ret, a, "doubled status");
    else if (kind == KUBE_BATCHSANDBOX)
        kube_read_batchsandbox(&p, a, ret);
    else
        kube_read_agent_sandbox(&p, a, ret);
}

bool kube_object_read(struct str text, enum kube_kind kind, struct arena *a,
                      struct kube_object *ret, const char **ret_error)
{
    enum { METADATA, STATUS };
    struct json_pick top[] = {{.name = STR("metadata")}, {.name = STR("status")}};
    struct json_pick m[M_COUNT] = {
        [M_NAME] = {.name = STR("name")},
        [M_NAMESPACE] = {.name = STR("namespace")},
        [M_UID] = {.name = STR("uid")},
        [M_VERSION] = {.name = STR("resourceVersion")},
        [M_ANNOTATIONS] = {.name = STR("annotations")},
    };
    const char *error = json_pick(text, top, 2);
    *ret = (struct kube_object){.draft = {.until_unix_s = INT64_MAX}};
    if (!error || top[STATUS].twice)
        error = top[METADATA].twice ? "doubled metadata" : NULL;
    if (!error)
        error = read_names(top[METADATA].value, m, a, ret);
    if (error) {
        *ret_error = error;
        return false;
    }
    ret->draft.id = ret->name;
    read_rest(&m[M_ANNOTATIONS], &top[STATUS], kind, a, ret);
    return true;
}
