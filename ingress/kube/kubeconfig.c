/* kubeconfig.c — where the API server is: the files that say so are found, read and merged here,
 * and those that they name are read too.  Everything read on the way lies in an arena that is
 * wiped; what comes out of it is the caller's. */
#include <stdlib.h>
#include <unistd.h>

#include "base/text.h"
#include "conf/sources.h"
#include "ingress/kube/kubeconfig_impl.h"
#include "net/resolve.h"

enum { FILE_BYTES = 1 << 20, FILES = 32 };

static bool read_named(struct str path, struct arena *a, struct str *ret, struct str *ret_error)
{
    return path.n == 0 || conf_read_file(path, FILE_BYTES, a, ret, ret_error);
}

/* The files that were named in place of data. */
static bool read_files(const struct kube_named *named, struct arena *a, struct kube_access *ret,
                       struct str *ret_error)
{
    return read_named(named->ca, a, &ret->ca_pem, ret_error) &&
           read_named(named->cert, a, &ret->cert_pem, ret_error) &&
           read_named(named->key, a, &ret->key_pem, ret_error);
}

/* With the source in front. */
static bool fault(struct str source, struct str text, struct arena *a, struct str *ret_error)
{
    *ret_error = arena_printf(a, "%.*s: %.*s", STR_ARG(source), STR_ARG(text));
    return false;
}

struct str kube_token_of(struct str text)
{
    while (text.n && (uint8_t)text.p[0] <= ' ')
        text = str_skip(text, 1);
    while (text.n && (uint8_t)text.p[text.n - 1] <= ' ')
        text.n--;
    return text_is_visible(text) ? text : STR_NONE;
}

/* Only looked at: it is read again whenever it is used. */
static bool check_token(struct str path, struct arena *a, struct str *ret_error)
{
    struct arena private;
    struct str token, error;
    arena_init_private(&private, NULL, 0);
    bool good = conf_read_file(path, FILE_BYTES, &private, &token, &error);
    if (!good)
        *ret_error = arena_str(a, error);
    else if (kube_token_of(token).n == 0)
        good = fault(path, STR("holds no token"), a, ret_error);
    arena_done(&private);
    return good;
}

/* A token file of a user that has no other token must be there from the start. */
static bool check_file(const struct kube_access *access, struct arena *a, struct str *ret_error)
{
    return access->token_file.n == 0 || access->token.n > 0 ||
           check_token(access->token_file, a, ret_error);
}

static bool pick(const struct kube_file *files, size_t n, struct str source, struct arena *a,
                 struct kube_access *ret, struct str *ret_error)
{
    struct kube_named named;
    struct str error;
    if (!kubeconfig_pick(files, n, a, ret, &named, &error) || !read_files(&named, a, ret, &error) ||
        !check_file(ret, a, &error))
        return fault(source, error, a, ret_error);
    ret->source = arena_str(a, source);
    return true;
}

bool kubeconfig_parse(struct str text, struct str dir, struct arena *a, struct kube_access *ret,
                      struct str *ret_error)
{
    struct kube_file file = {.dir = dir};
    struct arena private;
    struct str error;
    arena_init_private(&private, NULL, 0);
    bool good = text.n <= FILE_BYTES;
    if (!good)
        error = STR("larger than 1 MiB");
    good = good && kube_yaml_read(text, &private, &file.root, &error);
    if (good)
        good = pick(&file, 1, STR("kubeconfig"), a, ret, ret_error);
    else
        fault(STR("kubeconfig"), error, a, ret_error);
    arena_done(&private);
    return good;
}

/* ---- files ---- */

static struct str dir_of(struct str path)
{
    ptrdiff_t slash = str_rchr(path, '/');
    if (slash < 0)
        return STR(".");
    return slash == 0 ? STR("/") : str_head(path, (size_t)slash);
}

static bool exists(struct str path, struct arena *a)
{
    return access(arena_printf(a, "%.*s", STR_ARG(path)).p, F_OK) == 0;
}

static bool read_file(struct str path, struct arena *private, struct kube_file *ret,
                      struct arena *a, struct str *ret_error)
{
    struct str text, error;
    if (!conf_read_file(path, FILE_BYTES, private, &text, &error)) {
        *ret_error = arena_str(a, error);
        return false;
    }
    ret->dir = dir_of(path);
    return kube_yaml_read(text, private, &ret->root, &error) || fault(path, error, a, ret_error);
}

/* Files that are not there are passed over.  *ret_n: how many there were. */
static bool read_list(struct str list, char sep, struct arena *private, struct kube_file *ret,
                      size_t *ret_n, struct arena *a, struct str *ret_error)
{
    struct str path;
    *ret_n = 0;
    while (str_next(&list, sep, &path)) {
        if (path.n == 0 || !exists(path, private))
            continue;
        if (*ret_n == FILES)
            return fault(STR("KUBECONFIG"), STR("too many files"), a, ret_error);
        if (!read_file(path, private, &ret[*ret_n], a, ret_error))
            return false;
        (*ret_n)++;
    }
    return true;
}

/* One path is a list with a separator that no path has. */
static bool from_files(struct str list, char sep, struct arena *a, struct kube_access *ret,
                       struct str *ret_error)
{
    struct kube_file files[FILES];
    struct arena private;
    size_t n;
    arena_init_private(&private, NULL, 0);
    bool good = read_list(list, sep, &private, files, &n, a, ret_error);
    if (good && n == 0)
        good = fault(list, STR("no such file"), a, ret_error);
    if (good)
        good = pick(files, n, list, a, ret, ret_error);
    arena_done(&private);
    return good;
}

/* ---- the account of the pod ---- */

static bool server_of_pod(const struct kube_places *places, struct arena *a, struct url *ret)
{
    struct str host = places->service_host;
    uint64_t port;
    if (!text_u64(places->service_port, UINT16_MAX, &port) || port == 0 || !resolve_is_host(host))
        return false;
    bool v6 = str_chr(host, ':') >= 0;
    return url_parse(arena_printf(a, v6 ? "https://[%.*s]:%u" : "https://%.*s:%u", STR_ARG(host),
                                  (unsigned)port),
                     ret);
}

static bool from_pod(const struct kube_places *places, struct arena *a, struct kube_access *ret,
                     struct str *ret_error)
{
    struct kube_access access = {.source = STR("in-cluster account")};
    struct str dir = places->account_dir, ca = arena_printf(a, "%.*s/ca.crt", STR_ARG(dir));
    access.token_file = arena_printf(a, "%.*s/token", STR_ARG(dir));
    if (!server_of_pod(places, a, &access.server))
        return fault(STR("KUBERNETES_SERVICE_HOST"),
                     STR("no address or name, or KUBERNETES_SERVICE_PORT is no port"), a,
                     ret_error);
    if (!conf_read_file(ca, FILE_BYTES, a, &access.ca_pem, ret_error) ||
        !check_token(access.token_file, a, ret_error))
        return false;
    *ret = access;
    return true;
}

/* ---- the search ---- */

bool kube_access_search(const struct kube_places *places, struct arena *a, struct kube_access *ret,
                        struct str *ret_error)
{
    if (str_trim(places->kubeconfig).n)
        return from_files(places->kubeconfig, ':', a, ret, ret_error);
    struct str home = arena_printf(a, "%.*s/.kube/config", STR_ARG(places->home));
    if (places->home.n && exists(home, a))
        return from_files(home, '\0', a, ret, ret_error);
    if (places->service_host.n)
        return from_pod(places, a, ret, ret_error);
    *ret_error =
        STR("no API server: KUBECONFIG is not set, there is no ~/.kube/config, and this is "
            "no pod (KUBERNETES_SERVICE_HOST is not set)");
    return false;
}

bool kube_access_find(struct arena *a, struct kube_access *ret, struct str *ret_error)
{
    const struct kube_places places = {
        .kubeconfig = str_of(getenv("KUBECONFIG")),
        .home = str_of(getenv("HOME")),
        .service_host = str_of(getenv("KUBERNETES_SERVICE_HOST")),
        .service_port = str_of(getenv("KUBERNETES_SERVICE_PORT")),
        .account_dir = STR("/var/run/secrets/kubernetes.io/serviceaccount"),
    };
    return kube_access_search(&places, a, ret, ret_error);
}
