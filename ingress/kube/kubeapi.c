/* kubeapi.c — a caller with who we are in front of each request.  Tokens of a pod's account change
 * every hour or so, and nobody says when: so the file is read before each request, of which there
 * are few.  Certificates are read again when somebody does not believe them. */
#include "ingress/kube/kubeapi.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "app/command.h"
#include "base/text.h"
#include "ingress/kube/kubeconfig.h"
#include "net/resolve.h"
#include "net/tls.h"
#include "net/worker.h"

enum { CONNECT_MS = 10000, IDLE_MS = 60000, IDLE_MAX = 2, TOKEN_BYTES = 65536, FIELDS = 3 };
enum { QPS = 5, BURST = 10, RATE_MAX = 1000000 };

struct kubeapi {
    struct worker *w;
    struct names *names; /* our own; NULL: the worker has some */
    struct caller *caller;
    struct arena mem; /* of access */
    struct kube_access access;
    struct str token; /* the last that was read from the file; on the heap */
    double qps, burst, left;
    uint64_t left_ms; /* when `left` was true */
};

/* ---- who we are */

static struct tls_ctx *tls_of(const struct kube_access *from, struct arena *a,
                              struct str *ret_error)
{
    struct str fault;
    struct tls_ctx *ctx = tls_client_new(&(struct tls_client_rules){.roots_pem = from->ca_pem,
                                                                    .cert_pem = from->cert_pem,
                                                                    .key_pem = from->key_pem,
                                                                    .insecure = from->insecure},
                                         a, &fault);
    if (!ctx)
        *ret_error = arena_printf(a, "%.*s: %.*s", STR_ARG(from->source), STR_ARG(fault));
    return ctx;
}

/* *ret_tls: NULL for http. */
static bool find(struct arena *mem, struct kube_access *ret, struct tls_ctx **ret_tls,
                 struct arena *a, struct str *ret_error)
{
    struct str error = STR_NONE;
    *ret_tls = NULL;
    arena_init_private(mem, NULL, 0);
    bool good = kube_access_find(mem, ret, &error) &&
                (!ret->server.tls || (*ret_tls = tls_of(ret, mem, &error)));
    if (good)
        return true;
    *ret_error = arena_str(a, error);
    arena_done(mem);
    return false;
}

/* ---- how often */

static bool read_rate(const char *name, double usual, double *ret, struct arena *a,
                      struct str *ret_error)
{
    const char *text = getenv(name);
    int64_t n = 0;
    if (text && *text && (!text_go_int(str_of(text), &n) || n < 0 || n > RATE_MAX)) {
        *ret_error = arena_printf(a, "%s: \"%.40s\" is not allowed, it must be 0 to %d", name, text,
                                  RATE_MAX);
        return false;
    }
    *ret = n == 0 ? usual : (double)n;
    return true;
}

static bool read_rates(struct kubeapi *k, struct arena *a, struct str *ret_error)
{
    return read_rate("KUBE_API_QPS", QPS, &k->qps, a, ret_error) &&
           read_rate("KUBE_API_BURST", BURST, &k->burst, a, ret_error);
}

uint64_t kubeapi_turn(struct kubeapi *k)
{
    uint64_t now = worker_now(k->w);
    k->left += (double)(now - k->left_ms) * k->qps / 1000;
    k->left = k->left < k->burst ? k->left : k->burst;
    k->left_ms = now;
    if (k->left < 1)
        return (uint64_t)((1 - k->left) * 1000 / k->qps) + 1;
    k->left -= 1;
    return 0;
}

/* ---- life */

bool kubeapi_check(struct arena *a, struct str *ret_error)
{
    struct kubeapi k = {0};
    struct tls_ctx *tls;
    if (!read_rates(&k, a, ret_error) || !find(&k.mem, &k.access, &tls, a, ret_error))
        return false;
    tls_ctx_unref(tls);
    arena_done(&k.mem);
    return true;
}

struct kubeapi *kubeapi_new(struct worker *w, struct arena *a, struct str *ret_error)
{
    struct kubeapi *k = mem_new(sizeof *k);
    struct tls_ctx *tls;
    if (!read_rates(k, a, ret_error) || !find(&k->mem, &k->access, &tls, a, ret_error)) {
        mem_free(k);
        return NULL;
    }
    k->w = w;
    k->left = k->burst;
    k->left_ms = worker_now(w);
    k->names = worker_get(w, SLOT_NAMES) ? NULL : names_new(w, NULL);
    k->caller = caller_start(w, &(struct caller_rules){.url = k->access.server,
                                                       .names = k->names,
                                                       .tls = tls,
                                                       .tls_name = k->access.tls_name,
                                                       .idle_max = IDLE_MAX,
                                                       .idle_ms = IDLE_MS,
                                                       .connect_ms = CONNECT_MS});
    tls_ctx_unref(tls);
    return k;
}

static void forget_token(struct kubeapi *k)
{
    mem_free_wiped((void *)(uintptr_t)k->token.p);
    k->token = STR_NONE;
}

void kubeapi_free(struct kubeapi *k)
{
    if (!k)
        return;
    caller_free(k->caller);
    if (k->names)
        names_free(k->names);
    forget_token(k);
    arena_done(&k->mem);
    mem_free(k);
}

struct str kubeapi_server(const struct kubeapi *k)
{
    return k->access.server.authority;
}

struct str kubeapi_source(const struct kubeapi *k)
{
    return k->access.source;
}

static bool same_server(const struct kube_access *a, const struct kube_access *b)
{
    return a->server.tls == b->server.tls && str_ieq(a->server.host, b->server.host) &&
           a->server.port == b->server.port && str_eq(a->server.rest, b->server.rest) &&
           str_eq(a->tls_name, b->tls_name);
}

bool kubeapi_renew(struct kubeapi *k, struct arena *a, struct str *ret_error)
{
    struct arena mem;
    struct kube_access access = {0};
    struct tls_ctx *tls;
    if (!find(&mem, &access, &tls, a, ret_error))
        return false;
    if (!same_server(&k->access, &access)) {
        *ret_error =
            arena_printf(a, "%.*s: another server takes a restart", STR_ARG(access.source));
        tls_ctx_unref(tls);
        arena_done(&mem);
        return false;
    }
    if (tls)
        caller_set_tls(k->caller, tls);
    tls_ctx_unref(tls);
    arena_done(&k->mem);
    k->mem = mem;
    k->access = access;
    return true;
}

/* ---- requests */

/* Files of a pod's account are small and in memory: nothing is waited for. */
static void read_token(struct kubeapi *k)
{
    char text[TOKEN_BYTES], *path = mem_strdup(k->access.token_file);
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text);
    struct str token = kube_token_of((struct str){text, n > 0 ? (size_t)n : 0});
    if (token.n && (size_t)n < sizeof text) {
        forget_token(k);
        k->token = (struct str){mem_strdup(token), token.n};
    }
    mem_wipe(text, n > 0 ? (size_t)n : 0);
    if (fd >= 0)
        close(fd);
    mem_free(path);
}

static struct str basic_of(const struct kube_access *from, struct arena *a)
{
    struct str plain =
        arena_printf(a, "%.*s:%.*s", STR_ARG(from->username), STR_ARG(from->password));
    char *text = arena_get(a, 4 * ((plain.n + 2) / 3));
    return arena_cat(a, STR("Basic "), (struct str){text, text_put_base64(text, plain.p, plain.n)});
}

static struct str authorization_of(struct kubeapi *k, struct arena *a)
{
    if (k->access.token_file.n)
        read_token(k);
    struct str token = k->token.n ? k->token : k->access.token;
    if (token.n)
        return arena_cat(a, STR("Bearer "), token);
    return k->access.username.n ? basic_of(&k->access, a) : STR_NONE;
}

struct call *kubeapi_get(struct kubeapi *k, const struct call_request *r,
                         const struct call_events *ev, void *user)
{
    struct arena a;
    struct call_request own = *r;
    arena_init_private(&a, NULL, 0);
    struct field fields[FIELDS] = {
        {STR("accept"), STR("application/json")},
        {STR("user-agent"), arena_printf(&a, "opensandbox-ingress/%s", command_build.commit)},
        {STR("authorization"), authorization_of(k, &a)}};
    own.method = STR("GET");
    own.fields = fields;
    own.nfields = fields[FIELDS - 1].value.n ? FIELDS : FIELDS - 1;
    struct call *call = call_start(k->caller, &own, ev, user);
    arena_done(&a);
    return call;
}
