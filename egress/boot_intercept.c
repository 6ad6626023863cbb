/* boot_intercept.c — see boot_intercept.h.  Whatever cannot be as the settings want it ends the
 * start where connections are redirected to us (B2); the explicit proxy alone, which may run
 * without any privilege, goes on and refuses what it cannot read. */
#include "egress/boot_intercept.h"

#include <unistd.h>

#include "base/log.h"
#include "egress/boot_parent.h"
#include "egress/boot_tls.h"
#include "egress/intercept/ca.h"
#include "egress/intercept/intercept.h"
#include "egress/intercept/passlist.h"
#include "egress/state/file.h"
#include "net/tls.h"
#include "proxy/proxy.h"

enum { CONFIG_BYTES = 1 << 20, SESSIONS = 256 };

#define CONFIG CA_FOLDER "/config.yaml"

struct boot_intercept {
    struct egress_settings *set;
    struct boot *b;
    struct ca_paths paths;
    struct passlist *passlist;
    struct ca *ca;
    struct mint *mint;
    char *never; /* PEM of every authority that was ours since the start; NULL: there was none */
    struct tls_ctx **retired; /* what runs may still dial by them */
    unsigned nretired;
};

static void warn(const char *what, struct str error)
{
    char *text = mem_strdup(error);
    log_note(LOG_WARN, what, "error", text, NULL);
    mem_free(text);
}

/* ---- config.yaml */

static void warn_pattern(void *user, struct str pattern, struct str why)
{
    char *p = mem_strdup(pattern), *w = mem_strdup(why);
    (void)user;
    log_note(LOG_WARN, "ignore_hosts: a pattern is left out", "pattern", p, "error", w, NULL);
    mem_free(p);
    mem_free(w);
}

static void warn_others(const struct mitm_config *c)
{
    for (unsigned i = 0; i < c->nothers; i++) {
        char *key = mem_strdup(c->others[i]);
        log_note(LOG_WARN, "config.yaml: a key without effect here", "key", key, NULL);
        mem_free(key);
    }
}

/* A missing file says nothing. */
static bool read_config(struct mitm_config *ret, struct arena *a, struct str *ret_error)
{
    struct file_bytes f = {0};
    struct str error = STR("");
    int code = file_get(CONFIG, CONFIG_BYTES, &f);
    bool good = code == 0;
    *ret = (struct mitm_config){.stream_large_bodies = -1};
    if (!good)
        error = str_of(strerrordesc_np(-code));
    else if (f.exists)
        good = mitm_config_read(arena_str(a, (struct str){f.p, f.n}), a, ret, &error);
    if (!good)
        *ret_error = arena_printf(a, CONFIG ": %.*s", STR_ARG(error));
    file_bytes_done(&f);
    return good;
}

/* Of a proxy without any privilege: the state of whoever runs it. */
static const char *own_folder(struct arena *a)
{
    const char *state = egress_getenv("XDG_STATE_HOME"), *home = egress_getenv("HOME");
    if (state && *state == '/')
        return arena_printf(a, "%s/sallyport", state).p;
    return home && *home == '/' ? arena_printf(a, "%s/.local/state/sallyport", home).p : NULL;
}

/* What is not the sidecar's container is not to trust us by itself. */
static struct ca_paths paths_of(const struct egress_settings *set, struct arena *a)
{
    const char *own = set->mode == EGRESS_PROXY && geteuid() != 0 ? own_folder(a) : NULL;
    if (own)
        return (struct ca_paths){own, arena_printf(a, "%s/mitmproxy-ca-cert.pem", own).p, NULL,
                                 NULL};
    return (struct ca_paths){CA_FOLDER, CA_EXPORT, set->mitm ? CA_SYSTEM : NULL,
                             set->mitm ? CA_BUNDLE : NULL};
}

struct boot_intercept *boot_intercept_prepare(struct egress_settings *set, struct arena *a,
                                              struct str *ret_error)
{
    struct ca_paths paths = paths_of(set, a);
    struct mitm_config config;
    ca_purge(&paths);
    if (!read_config(&config, a, ret_error))
        return NULL;
    struct boot_intercept *p = mem_new(sizeof *p);
    p->set = set;
    p->paths = paths;
    warn_others(&config);
    egress_settings_config(set, config.stream_large_bodies);
    p->passlist = passlist_new(config.ignore_hosts, config.nignore_hosts, warn_pattern, NULL);
    if (set->parent.host.n == 0 || passlist_is_empty(p->passlist))
        return p;
    *ret_error = STR(CONFIG ": ignore_hosts must be empty with " EGRESS_VARIABLE "UPSTREAM_PROXY");
    boot_intercept_free(p);
    return NULL;
}

static void reload_config(struct boot_intercept *p, struct arena *a)
{
    struct mitm_config config;
    struct passlist *old = p->passlist;
    struct str error;
    if (!read_config(&config, a, &error)) {
        warn("config.yaml stays as it was read before", error);
        return;
    }
    p->passlist = passlist_new(config.ignore_hosts, config.nignore_hosts, warn_pattern, NULL);
    p->b->sc->passlist = p->passlist;
    passlist_free(old); /* nobody keeps it over a turn */
}

/* ---- the authority */

/* The sandbox must get it; what else should have it may not be ours to write. */
static bool give_out(const struct boot_intercept *p, const struct ca *ca, struct arena *a,
                     struct str *ret_error)
{
    *ret_error = STR("");
    if (!ca_export(ca, &p->paths, a, ret_error) && p->set->mitm)
        return false;
    if (ret_error->n)
        warn("the authority is not everywhere that it should be", *ret_error);
    return true;
}

static bool open_ca(struct boot_intercept *p, struct str *ret_error)
{
    struct arena *a = p->b->mem;
    enum ca_key kind = p->set->ca_key == EGRESS_CA_RSA2048 ? CA_KEY_RSA2048 : CA_KEY_EC;
    p->ca = ca_open(&p->paths, kind, worker_unix_s(p->b->w), a, ret_error);
    if (!p->ca)
        return false;
    p->never = mem_strdup(ca_pem(p->ca));
    return give_out(p, p->ca, a, ret_error);
}

struct str boot_intercept_never(const struct boot_intercept *p)
{
    return p->never ? str_of(p->never) : STR("");
}

/* ---- TLS of both sides */

static struct tls_ctx *to_clients(struct boot_intercept *p, struct str *ret_error)
{
    struct tls_tickets *tickets = tls_tickets_new();
    struct tls_server_rules rules = {.tickets = tickets, .h2 = true, .wipe = true};
    struct tls_ctx *ctx = tls_server_new(&rules, p->b->mem, ret_error);
    tls_tickets_unref(tickets);
    return ctx;
}

static bool make_intercept(struct boot_intercept *p, struct str *ret_error)
{
    struct sidecar *sc = p->b->sc;
    sc->origin_tls =
        boot_tls_client(p->set, boot_intercept_never(p), SESSIONS, p->b->mem, ret_error);
    struct tls_ctx *server = sc->origin_tls ? to_clients(p, ret_error) : NULL;
    if (!server)
        return false;
    p->mint = mint_new(p->ca, MINT_NAMES);
    struct intercept_setup setup = {.w = p->b->w,
                                    .sidecar = sc,
                                    .proxy = proxy_of(p->b->w),
                                    .mint = p->mint,
                                    .server = server,
                                    .handshake_ms = settings_ms(p->set->first_bytes_timeout)};
    sc->intercept = intercept_new(&setup);
    tls_ctx_unref(server);
    return true;
}

/* ---- another authority */

/* Everything that it needs, before anything changes. */
struct successor {
    struct ca *ca;
    char *never;
    struct tls_ctx *origins, *parent;
};

static void drop(struct successor *n)
{
    tls_ctx_unref(n->origins);
    tls_ctx_unref(n->parent);
    mem_free(n->never);
    ca_free(n->ca);
}

static bool make_successor(const struct boot_intercept *p, struct successor *n, struct arena *a,
                           struct str *ret_error)
{
    const struct egress_settings *set = p->set;
    struct str never = arena_cat(a, str_of(p->never), ca_pem(n->ca));
    n->never = mem_strdup(never);
    n->origins = boot_tls_client(set, never, SESSIONS, a, ret_error);
    if (!n->origins)
        return false;
    bool asks = p->b->parent && set->parent.tls;
    n->parent = asks ? boot_tls_client(set, never, 0, a, ret_error) : NULL;
    return (!asks || n->parent) && give_out(p, n->ca, a, ret_error);
}

static void retire(struct boot_intercept *p, struct tls_ctx *ctx)
{
    p->retired = mem_renew(p->retired, (p->nretired + 1) * sizeof(*p->retired));
    p->retired[p->nretired++] = ctx;
}

/* Connections that are up go on as they are. */
static void succeed(struct boot_intercept *p, const struct successor *n)
{
    struct sidecar *sc = p->b->sc;
    struct mint *mint = mint_new(n->ca, MINT_NAMES);
    intercept_mint(sc->intercept, mint);
    mint_free(p->mint);
    ca_free(p->ca);
    mem_free(p->never);
    p->mint = mint;
    p->ca = n->ca;
    p->never = n->never;
    retire(p, sc->origin_tls);
    sc->origin_tls = n->origins;
    if (n->parent)
        retire(p, boot_parent_renew(p->b->parent, n->parent));
    log_note(LOG_INFO, "another interception authority is in force", NULL);
}

static void reload_ca(struct boot_intercept *p, struct arena *a)
{
    struct successor n = {0};
    struct str error;
    bool good = ca_again(p->ca, &p->paths, worker_unix_s(p->b->w), a, &n.ca, &error);
    if (good && !n.ca)
        return;
    if (good && make_successor(p, &n, a, &error)) {
        succeed(p, &n);
        return;
    }
    drop(&n);
    warn("the interception authority stays as it was", error);
}

void boot_intercept_reload(struct boot_intercept *p)
{
    struct arena a;
    if (!p->b)
        return; /* nothing can be read */
    arena_init(&a, NULL, 0);
    reload_config(p, &a);
    if (p->b->sc->intercept)
        reload_ca(p, &a);
    arena_done(&a);
}

/* ---- life */

bool boot_intercept_start(struct boot_intercept *p, struct boot *b, struct str *ret_error)
{
    p->b = b;
    b->sc->passlist = p->passlist;
    if (open_ca(p, ret_error) && make_intercept(p, ret_error))
        return true;
    if (p->set->mitm)
        return false;
    warn("no TLS can be read: what a binding names is refused", *ret_error);
    return true;
}

void boot_intercept_stop(struct boot_intercept *p)
{
    if (!p->b)
        return;
    intercept_free(p->b->sc->intercept);
    p->b->sc->intercept = NULL;
}

void boot_intercept_free(struct boot_intercept *p)
{
    if (!p)
        return;
    mint_free(p->mint);
    if (p->b && p->b->sc->origin_tls)
        tls_ctx_unref(p->b->sc->origin_tls);
    for (unsigned i = 0; i < p->nretired; i++)
        tls_ctx_unref(p->retired[i]);
    mem_free(p->retired);
    mem_free(p->never);
    if (p->b)
        p->b->sc->origin_tls = NULL;
    ca_free(p->ca);
    passlist_free(p->passlist);
    mem_free(p);
}
