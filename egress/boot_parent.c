/* boot_parent.c — see boot_parent.h.  Its name is looked up outside of the policy; what comes of it
 * is told to the kernel before it is dialled, since only our own traffic may go there, and only to
 * its port. */
#include "egress/boot_parent.h"

#include "egress/state/file.h"
#include "net/dial.h"
#include "net/tls.h"

enum { PEM_BYTES = 4 << 20, KNOWN_S = 360, AGAIN_MS = 120000 };

struct boot_parent {
    struct boot *b;
    struct dial_parent dial;
    struct names *names;
    struct ip literal; /* its host is no name */
    struct timer again;
};

/* A look-up under way. */
struct look {
    struct boot_parent *p;
    void *asked;
    void (*done)(void *arg, const struct ip *ips, unsigned count, enum why why);
    void *arg;
};

static void on_found(void *user, const struct ip *ips, unsigned n, enum why why)
{
    struct look *l = user;
    struct boot *b = l->p->b;
    if (n > 0 && b->sc->enforce)
        enforce_parent(b->sc->enforce, ips, n, KNOWN_S);
    l->done(l->arg, ips, n, why);
    worker_bury(b->w, mem_free, l);
}

static void *start(void *user, struct str host, uint64_t timeout_ms,
                   void (*done)(void *arg, const struct ip *ips, unsigned count, enum why why),
                   void *arg)
{
    struct boot_parent *p = user;
    struct look *l = mem_new(sizeof *l);
    l->p = p;
    l->done = done;
    l->arg = arg;
    l->asked = resolve_start(p->b->names, host, timeout_ms, on_found, l);
    return l;
}

static void cancel(void *user, void *asked)
{
    struct look *l = asked;
    (void)user;
    resolve_cancel(l->asked);
    worker_bury(l->p->b->w, mem_free, l);
}

/* A literal address is never looked up: the kernel hears of it here. */
static void on_again(struct timer *t)
{
    struct boot_parent *p = container_of(t, struct boot_parent, again);
    enforce_parent(p->b->sc->enforce, &p->literal, 1, KNOWN_S);
    timer_set(p->b->w, t, AGAIN_MS);
}

static bool make_tls(struct boot_parent *p, struct str *ret_error)
{
    const struct egress_settings *set = p->b->set;
    struct file_bytes pem = {0};
    char *path = set->extra_ca.n ? mem_strdup(set->extra_ca) : NULL;
    int error = path ? file_get(path, PEM_BYTES, &pem) : 0;
    mem_free(path);
    if (error || (set->extra_ca.n && !pem.exists)) {
        *ret_error =
            arena_printf(p->b->mem, EGRESS_VARIABLE "MITMPROXY_UPSTREAM_EXTRA_CA: %.*s: %s",
                         STR_ARG(set->extra_ca), error ? strerrordesc_np(-error) : "no such file");
        return false;
    }
    struct tls_client_rules rules = {
        .roots_pem = {pem.p, pem.n}, .roots_dir = set->trust_dir, .insecure = set->ssl_insecure};
    p->dial.tls = tls_client_new(&rules, p->b->mem, ret_error);
    file_bytes_done(&pem);
    return p->dial.tls != NULL;
}

struct boot_parent *boot_parent_new(struct boot *b, struct str *ret_error)
{
    const struct egress_parent *to = &b->set->parent;
    *ret_error = STR("");
    if (to->host.n == 0)
        return NULL;
    struct boot_parent *p = mem_new(sizeof *p);
    struct names_source source = {start, cancel, p};
    p->b = b;
    p->dial = (struct dial_parent){
        .host = to->host, .port = to->port, .authorization = b->set->parent_auth};
    if (to->tls && !make_tls(p, ret_error)) {
        mem_free(p);
        return NULL;
    }
    p->dial.names = p->names = names_through(b->w, &source);
    timer_init(&p->again, on_again);
    if (b->sc->enforce && ip_parse(p->dial.host, &p->literal))
        timer_set(b->w, &p->again, 1);
    return p;
}

const struct dial_parent *boot_parent_dial(const struct boot_parent *p)
{
    return p ? &p->dial : NULL;
}

void boot_parent_free(struct boot_parent *p)
{
    if (!p)
        return;
    timer_clear(p->b->w, &p->again);
    names_free(p->names);
    if (p->dial.tls)
        tls_ctx_unref(p->dial.tls);
    mem_free(p);
}
