/* boot_parent.c — see boot_parent.h.  Its name is looked up outside of the policy; what comes of it
 * is told to the kernel before it is dialled, since only our own traffic may go there, and only to
 * its port. */
#include "egress/boot_parent.h"

#include "base/secret.h"
#include "egress/boot_tls.h"
#include "net/dial.h"
#include "net/tls.h"

enum { KNOWN_S = 360, AGAIN_MS = 120000 };

struct boot_parent {
    struct boot *b;
    struct dial_parent dial;
    struct secret *auth; /* dial.authorization; NULL: none */
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

static void keep_auth(struct boot_parent *p, struct str text)
{
    if (text.n == 0)
        return;
    p->auth = secret_new(text.p, text.n);
    p->dial.authorization = secret_bytes(p->auth);
}

struct boot_parent *boot_parent_new(struct boot *b, struct str never_pem, struct str *ret_error)
{
    const struct egress_parent *to = &b->set->parent;
    *ret_error = STR("");
    if (to->host.n == 0)
        return NULL;
    struct boot_parent *p = mem_new(sizeof *p);
    struct names_source source = {start, cancel, p};
    p->b = b;
    p->dial = (struct dial_parent){.host = to->host, .port = to->port};
    keep_auth(p, b->set->parent_auth);
    if (to->tls)
        p->dial.tls = boot_tls_client(b->set, never_pem, 0, b->mem, ret_error);
    if (to->tls && !p->dial.tls) {
        secret_unref(p->auth);
        mem_free(p);
        return NULL;
    }
    p->dial.names = p->names = names_through(b->w, &source);
    timer_init(&p->again, on_again);
    if (b->sc->enforce && ip_parse(p->dial.host, &p->literal))
        timer_set(b->w, &p->again, 1);
    return p;
}

struct tls_ctx *boot_parent_renew(struct boot_parent *p, struct tls_ctx *tls)
{
    struct tls_ctx *old = p->dial.tls;
    p->dial.tls = tls;
    return old;
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
    secret_unref(p->auth);
    if (p->dial.tls)
        tls_ctx_unref(p->dial.tls);
    mem_free(p);
}
