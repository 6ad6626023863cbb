/* handover.c — see handover.h.  A socket that cannot be left is not worth refusing the start for:
 * the sidecar serves all the same, and a line says what a crash would cost. */
#include "egress/handover.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/log.h"
#include "egress/kernel/enforce.h"
#include "egress/kernel/ruleset.h"
#include "net/listen.h"
#include "net/udp.h"

enum { TEXT_MAX = 64 << 20 };

struct handover {
    struct keep *keep; /* NULL: nobody keeps anything */
    struct kept_list found;
    struct arena *a;
    pthread_mutex_t lock; /* a change is left by a thread of the pool, the rest by the worker's */
};

static void warn(const char *name, enum why why)
{
    log_note(LOG_WARN, "the supervisor does not keep this for a successor", "what", name, "why",
             why_text(why), NULL);
}

struct handover *handover_open(struct arena *a)
{
    struct handover *h = mem_new(sizeof *h);
    h->a = a;
    pthread_mutex_init(&h->lock, NULL);
    h->keep = keep_open(getenv(KEEP_VARIABLE));
    if (!h->keep)
        return h;
    enum why why = keep_load(h->keep, a, &h->found);
    if (why != WHY_OK) {
        warn("anything", why);
        keep_close(h->keep);
        h->keep = NULL;
        h->found = (struct kept_list){0};
    }
    return h;
}

void handover_close(struct handover *h)
{
    if (!h)
        return;
    keep_done(&h->found);
    if (h->keep)
        keep_close(h->keep);
    pthread_mutex_destroy(&h->lock);
    mem_free(h);
}

bool handover_kept(const struct handover *h)
{
    return h->keep != NULL;
}

bool handover_succeeds(const struct handover *h)
{
    return h->found.n > 0;
}

static void leave(struct handover *h, const char *name, struct str blob, int fd)
{
    pthread_mutex_lock(&h->lock);
    enum why why = h->keep ? keep_put(h->keep, str_of(name), blob, fd) : WHY_OK;
    pthread_mutex_unlock(&h->lock);
    if (why != WHY_OK)
        warn(name, why);
}

/* ---- marks */

/* The low bits tell the three apart, whatever chance says. */
static uint32_t fresh_mark(uint32_t kind)
{
    uint32_t random = 0;
    if (getrandom(&random, sizeof random, 0) != sizeof random)
        abort(); /* marks that can be guessed are none */
    return random << 2 | kind;
}

struct marks handover_marks(struct handover *h)
{
    struct marks m = {fresh_mark(1) | RULESET_OURS_BIT, fresh_mark(2), fresh_mark(3),
                      fresh_mark(1)};
    struct kept *k = keep_find(&h->found, STR("marks"));
    if (k && k->blob.n == sizeof m) {
        memcpy(&m, k->blob.p, sizeof m);
        return m;
    }
    leave(h, "marks", (struct str){(const char *)&m, sizeof m}, -1);
    return m;
}

/* ---- descriptors */

static int take(struct handover *h, const char *name)
{
    struct kept *k = keep_find(&h->found, str_of(name));
    int fd = k ? k->fd : -1;
    if (k)
        k->fd = -1;
    return fd;
}

void handover_leave(struct handover *h, const char *name, int fd)
{
    if (fd >= 0) {
        leave(h, name, STR(""), fd);
        return;
    }
    pthread_mutex_lock(&h->lock);
    enum why why = h->keep ? keep_drop(h->keep, str_of(name)) : WHY_OK;
    pthread_mutex_unlock(&h->lock);
    if (why != WHY_OK)
        warn(name, why);
}

unsigned handover_guards(struct handover *h, const char *prefix, struct enforce_guard *ret)
{
    unsigned n = 0;
    for (unsigned i = 0; i < h->found.n && n < HANDOVER_GUARDS; i++) {
        struct kept *k = &h->found.at[i];
        if (k->fd < 0 || !str_starts(k->name, str_of(prefix)))
            continue;
        ret[n++] = (struct enforce_guard){k->name, k->fd};
        k->fd = -1;
    }
    return n;
}

/* Does it still belong to the address that the settings name?  They may be others after an upgrade
 * of the program. */
static bool bound_to(int fd, const union addr *at)
{
    union addr now = {0};
    socklen_t n = sizeof now;
    struct ip a, b;
    if (getsockname(fd, &now.sa, &n) < 0 || addr_port(&now.sa) != addr_port(&at->sa))
        return false;
    addr_ip(&now.sa, &a);
    addr_ip(&at->sa, &b);
    static const struct ip any4 = {{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 255, 255, 0, 0, 0, 0}},
                           any6 = {{0}};
    return ip_eq(&a, &b) || (ip_eq(&a, &any4) && ip_eq(&b, &any6));
}

static int take_bound(struct handover *h, const char *name, const union addr *at)
{
    int fd = take(h, name);
    if (fd < 0 || bound_to(fd, at))
        return fd;
    close(fd);
    handover_leave(h, name, -1); /* the supervisor's copy may be in the new one's way */
    return -1;
}

/* A machine without IPv6 has no `::`: then all addresses are those of IPv4. */
static int listen_new(const union addr *at, struct arena *a, struct str *ret_error)
{
    static const struct ip any4 = {{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 255, 255, 0, 0, 0, 0}},
                           any6 = {{0}};
    struct ip ip;
    union addr bound, four;
    int fd = listen_bind_alone(&at->sa, &bound, a, ret_error);
    addr_ip(&at->sa, &ip);
    if (fd >= 0 || !ip_eq(&ip, &any6) || (errno != EAFNOSUPPORT && errno != EADDRNOTAVAIL))
        return fd;
    addr_make(&four, &any4, addr_port(&at->sa));
    return listen_bind_alone(&four.sa, &bound, a, ret_error);
}

int handover_listen(struct handover *h, const char *name, const union addr *at, struct arena *a,
                    struct str *ret_error)
{
    int fd = take_bound(h, name, at);
    if (fd >= 0)
        return fd;
    fd = listen_new(at, a, ret_error);
    if (fd >= 0)
        handover_leave(h, name, fd);
    return fd;
}

int handover_udp(struct handover *h, const char *name, const union addr *at, struct arena *a,
                 struct str *ret_error)
{
    union addr bound;
    int fd = take_bound(h, name, at);
    if (fd >= 0)
        return fd;
    fd = udp_bind(&at->sa, &bound, a, ret_error);
    if (fd >= 0)
        handover_leave(h, name, fd);
    return fd;
}

/* ---- texts */

bool handover_text(struct handover *h, const char *name, struct str *ret)
{
    struct kept *k = keep_find(&h->found, str_of(name));
    return k && keep_text(k, TEXT_MAX, h->a, ret);
}

bool handover_leave_text(struct handover *h, const char *name, struct str text)
{
    pthread_mutex_lock(&h->lock);
    enum why why = h->keep ? keep_put_text(h->keep, str_of(name), text) : WHY_OK;
    pthread_mutex_unlock(&h->lock);
    if (why != WHY_OK)
        warn(name, why);
    return why == WHY_OK;
}

bool handover_leave_policy(struct handover *h, const struct document *d)
{
    struct json_out o;
    if (!h->keep)
        return true;
    json_out_init(&o);
    document_put(&o, d);
    bool good = handover_leave_text(h, HANDOVER_POLICY, (struct str){o.p, o.n});
    json_out_done(&o);
    return good;
}
