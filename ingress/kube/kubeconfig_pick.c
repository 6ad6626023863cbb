/* kubeconfig_pick.c — one way to an API server out of the many that kubeconfigs can name: the
 * current context, its cluster, its user.  What is not chosen is not looked at; what is chosen and
 * asks for something that we do not do is a fault rather than a connection without it. */
#include "base/text.h"
#include "ingress/kube/kubeconfig_impl.h"
#include "net/resolve.h"

enum { SHOWN_BYTES = 80 };

/* An entry of one of the lists, with the folder of its file. */
struct entry {
    const struct kube_node *node; /* the map that describes it */
    struct str dir;
};

struct picker {
    const struct kube_file *files;
    size_t n;
    struct arena *a;
    struct str *error;
};

__attribute__((format(printf, 2, 3))) static bool fault(struct picker *p, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    *p->error = arena_vprintf(p->a, format, args);
    va_end(args);
    return false;
}

/* A name that stands in a file, made fit for a line. */
static struct str shown(struct picker *p, struct str name)
{
    char *out = arena_get(p->a, SHOWN_BYTES);
    return (struct str){out, text_put_json(out, SHOWN_BYTES, name)};
}

/* ---- members ---- */

static const struct kube_node *member(const struct kube_node *map, struct str name)
{
    if (!map || map->type != KUBE_NODE_MAP)
        return NULL;
    for (const struct kube_node *m = map->first; m; m = m->next)
        if (str_eq(m->name, name))
            return m;
    return NULL;
}

/* Null, an empty text, list or map say nothing. */
static bool says_something(const struct kube_node *v)
{
    return v && (v->first || v->text.n);
}

/* Absent is the empty text. */
static bool text_of(struct picker *p, const char *where, const struct kube_node *map,
                    const char *name, struct str *ret)
{
    const struct kube_node *v = member(map, str_of(name));
    *ret = STR("");
    if (!says_something(v))
        return true;
    if (v->type != KUBE_NODE_TEXT)
        return fault(p, "%s.%s must be a text", where, name);
    *ret = arena_str(p->a, v->text);
    return true;
}

struct wanted {
    const char *name;
    struct str *ret;
};

static bool texts_of(struct picker *p, const char *where, const struct kube_node *map,
                     const struct wanted *rows, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!text_of(p, where, map, rows[i].name, rows[i].ret))
            return false;
    return true;
}

/* ---- entries ---- */

/* How many entries of that name the list of this file has. */
static unsigned count_in(const struct kube_file *f, const char *list, struct str name,
                         const struct kube_node **ret)
{
    const struct kube_node *all = member(f->root, str_of(list));
    unsigned n = 0;
    if (!all || all->type != KUBE_NODE_LIST)
        return 0;
    for (const struct kube_node *item = all->first; item; item = item->next) {
        const struct kube_node *its = member(item, STR("name"));
        if (!its || its->type != KUBE_NODE_TEXT || !str_eq(its->text, name))
            continue;
        *ret = item;
        n++;
    }
    return n;
}

/* The list is named like "clusters", what describes an entry like "cluster". */
static bool find(struct picker *p, const char *list, const char *what, struct str name,
                 struct entry *ret)
{
    for (size_t i = 0; i < p->n; i++) {
        const struct kube_node *item = NULL;
        unsigned n = count_in(&p->files[i], list, name, &item);
        if (n > 1)
            return fault(p, "%s has \"%.*s\" twice", list, STR_ARG(shown(p, name)));
        if (n == 0)
            continue;
        *ret = (struct entry){member(item, str_of(what)), p->files[i].dir};
        if (says_something(ret->node) && ret->node->type != KUBE_NODE_MAP)
            return fault(p, "%s \"%.*s\" must be an object", what, STR_ARG(shown(p, name)));
        return true;
    }
    return fault(p, "there is no %s \"%.*s\"", what, STR_ARG(shown(p, name)));
}

/* A member of several files: the first that says something. */
static bool find_current(struct picker *p, struct str *ret)
{
    for (size_t i = 0; i < p->n; i++) {
        if (!text_of(p, "kubeconfig", p->files[i].root, "current-context", ret))
            return false;
        if (ret->n)
            return true;
    }
    return fault(p, "no current-context");
}

static struct str path_of(struct picker *p, struct str dir, struct str path)
{
    if (path.n == 0 || path.p[0] == '/' || dir.n == 0)
        return path;
    return arena_printf(p->a, "%.*s/%.*s", STR_ARG(dir), STR_ARG(path));
}

/* Base64, which goes before a path that is named too. */
static bool decode(struct picker *p, const char *where, struct str data, struct str *path,
                   struct str *ret)
{
    size_t n = 0;
    *ret = STR("");
    if (data.n == 0)
        return true;
    uint8_t *bytes = arena_get(p->a, data.n);
    if (!text_base64(data, bytes, &n) || n == 0)
        return fault(p, "%s must be base64", where);
    *ret = (struct str){(char *)bytes, n};
    *path = STR("");
    return true;
}

/* ---- the server ---- */

static bool read_server(struct picker *p, struct str server, struct kube_access *ret)
{
    if (server.n == 0)
        return fault(p, "cluster.server is missing");
    if (!url_parse(server, &ret->server) || ret->server.user.p)
        return fault(p, "cluster.server must be an http or https URL without user");
    if (str_chr(ret->server.rest, '?') >= 0 || str_chr(ret->server.rest, '#') >= 0)
        return fault(p, "cluster.server must have no query");
    return true;
}

static bool read_insecure(struct picker *p, struct str text, bool *ret)
{
    *ret = str_ieq(text, STR("true"));
    return *ret || text.n == 0 || str_ieq(text, STR("false")) ||
           fault(p, "cluster.insecure-skip-tls-verify must be true or false");
}

static bool read_cluster(struct picker *p, const struct entry *e, struct kube_access *ret,
                         struct kube_named *named)
{
    struct str server, data, insecure, proxy;
    const struct wanted rows[] = {
        {"server", &server},
        {"certificate-authority", &named->ca},
        {"certificate-authority-data", &data},
        {"insecure-skip-tls-verify", &insecure},
        {"tls-server-name", &ret->tls_name},
        {"proxy-url", &proxy},
    };
    if (!texts_of(p, "cluster", e->node, rows, sizeof rows / sizeof rows[0]) ||
        !read_server(p, server, ret) || !read_insecure(p, insecure, &ret->insecure) ||
        !decode(p, "cluster.certificate-authority-data", data, &named->ca, &ret->ca_pem))
        return false;
    named->ca = path_of(p, e->dir, named->ca);
    if (proxy.n)
        return fault(p, "cluster.proxy-url is not supported");
    if (ret->insecure && (ret->ca_pem.n || named->ca.n))
        return fault(p, "cluster has both an authority and insecure-skip-tls-verify");
    return ret->tls_name.n == 0 || resolve_is_host(ret->tls_name) ||
           fault(p, "cluster.tls-server-name must be a host name");
}

/* ---- the user ---- */

static bool refuse(struct picker *p, const struct kube_node *user)
{
    static const char *const names[] = {"exec",   "auth-provider", "as",
                                        "as-uid", "as-groups",     "as-user-extra"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (says_something(member(user, str_of(names[i]))))
            return fault(p, "user.%s is not supported", names[i]);
    return true;
}

static bool is_clean(struct str s)
{
    for (size_t i = 0; i < s.n; i++)
        if ((unsigned char)s.p[i] < ' ' || s.p[i] == 127)
            return false;
    return true;
}

static bool check_user(struct picker *p, const struct kube_access *u,
                       const struct kube_named *named)
{
    bool cert = u->cert_pem.n || named->cert.n, key = u->key_pem.n || named->key.n;
    if (cert != key)
        return fault(p, "user has a client-certificate without client-key, or the other way round");
    if (u->token.n && !text_is_visible(u->token))
        return fault(p, "user.token has a character that no token has");
    if (!is_clean(u->username) || !is_clean(u->password) || str_chr(u->username, ':') >= 0)
        return fault(p, "user.username or user.password has a character that is not allowed");
    if (u->username.n == 0 && u->password.n)
        return fault(p, "user.password without user.username");
    if (u->username.n && (u->token.n || u->token_file.n))
        return fault(p, "user has both a token and a username");
    return true;
}

static bool read_user(struct picker *p, const struct entry *e, struct kube_access *ret,
                      struct kube_named *named)
{
    struct str cert, key;
    const struct wanted rows[] = {
        {"client-certificate", &named->cert},
        {"client-certificate-data", &cert},
        {"client-key", &named->key},
        {"client-key-data", &key},
        {"token", &ret->token},
        {"tokenFile", &ret->token_file},
        {"username", &ret->username},
        {"password", &ret->password},
    };
    if (!refuse(p, e->node) || !texts_of(p, "user", e->node, rows, sizeof rows / sizeof rows[0]) ||
        !decode(p, "user.client-certificate-data", cert, &named->cert, &ret->cert_pem) ||
        !decode(p, "user.client-key-data", key, &named->key, &ret->key_pem))
        return false;
    named->cert = path_of(p, e->dir, named->cert);
    named->key = path_of(p, e->dir, named->key);
    ret->token_file = path_of(p, e->dir, ret->token_file);
    return check_user(p, ret, named);
}

/* ---- the whole ---- */

static bool check_roots(struct picker *p)
{
    for (size_t i = 0; i < p->n; i++) {
        const struct kube_node *root = p->files[i].root, *kind = member(root, STR("kind"));
        bool config = !says_something(kind) || str_eq(kind->text, STR("Config"));
        if (!config || (root && says_something(root) && root->type != KUBE_NODE_MAP))
            return fault(p, "is no kubeconfig");
    }
    return true;
}

bool kubeconfig_pick(const struct kube_file *files, size_t n, struct arena *a,
                     struct kube_access *ret, struct kube_named *ret_named, struct str *ret_error)
{
    struct picker p = {files, n, a, ret_error};
    struct kube_access access = {.insecure = false};
    struct kube_named named = {.ca = STR("")};
    struct str context, cluster, user;
    struct entry entry;
    if (!check_roots(&p) || !find_current(&p, &context) ||
        !find(&p, "contexts", "context", context, &entry) ||
        !text_of(&p, "context", entry.node, "cluster", &cluster) ||
        !text_of(&p, "context", entry.node, "user", &user) ||
        !find(&p, "clusters", "cluster", cluster, &entry) ||
        !read_cluster(&p, &entry, &access, &named))
        return false;
    if (user.n &&
        (!find(&p, "users", "user", user, &entry) || !read_user(&p, &entry, &access, &named)))
        return false;
    *ret = access;
    *ret_named = named;
    return true;
}
