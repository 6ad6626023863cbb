/* certwatch.c — what the passing of time does to certificates.  A change only says "build anew":
 * the view is made whole from what the files say then, so it does not matter which of them was seen
 * first, and a half-written pair is refused and asked for again with the next change. */
#include "ingress/certwatch.h"

#include <stdio.h>

#include "base/log.h"
#include "base/map.h"
#include "net/watch.h"
#include "net/worker.h"

enum {
    WATCHES = 1024,
    SHOWN = 64, /* labels, and lines at once */
    QUIET_MS = 250,
    DAY_S = 86400,
    WARN_DAYS = 14,
    DAY_MS = DAY_S * 1000,
    TURN_MS = DAY_MS / 2
};

struct watched {
    char *path;
    struct watch *watch;
};

struct certwatch {
    struct worker *w;
    const struct ingress_settings *set;
    const struct certwatch_events *ev;
    void *user;
    struct map *files; /* path → watched */
    struct timer quiet, day, turn;
};

/* ---- files */

static void on_change(void *user)
{
    struct certwatch *c = user;
    timer_set(c->w, &c->quiet, QUIET_MS);
}

static void forget(struct watched *x)
{
    watch_stop(x->watch);
    mem_free(x->path);
    mem_free(x);
}

struct renewal {
    struct certwatch *c;
    struct map *kept;
};

/* One that is watched already stays: a change that it has not seen yet would be lost. */
static void keep(void *user, struct str path)
{
    struct renewal *r = user;
    if (path.n == 0 || map_get(r->kept, path) || map_size(r->kept) >= WATCHES)
        return;
    struct watched *x = map_del(r->c->files, path);
    if (!x) {
        x = mem_new(sizeof *x);
        x->path = mem_strdup(path);
        x->watch = watch_start(r->c->w, path, on_change, r->c);
    }
    map_put(r->kept, str_of(x->path), x);
}

static void forget_all(struct map *files)
{
    size_t at = 0;
    for (struct watched *x; (x = map_next(files, &at));)
        forget(x);
    map_free(files);
}

static void watch_files(struct certwatch *c)
{
    struct renewal r = {c, map_new()};
    keep(&r, c->set->tls_client_ca);
    keep(&r, c->set->tls_ticket_keys_file);
    certs_paths(c->set, keep, &r);
    forget_all(c->files);
    c->files = r.kept;
}

/* Watched before it is read, so that no change falls between the two. */
static void on_quiet(struct timer *t)
{
    struct certwatch *c = container_of(t, struct certwatch, quiet);
    watch_files(c);
    c->ev->changed(c->user);
}

/* ---- clock */

static void on_day(struct timer *t)
{
    struct certwatch *c = container_of(t, struct certwatch, day);
    certwatch_warn(c->ev->view(c->user)->certs, worker_unix_s(c->w));
    timer_set(c->w, t, DAY_MS);
}

static void on_turn(struct timer *t)
{
    struct certwatch *c = container_of(t, struct certwatch, turn);
    tls_tickets_turn(c->ev->view(c->user)->tickets);
    timer_set(c->w, t, TURN_MS);
}

struct certwatch *certwatch_start(struct worker *w, const struct ingress_settings *s,
                                  const struct certwatch_events *ev, void *user)
{
    struct certwatch *c = mem_new(sizeof *c);
    c->w = w;
    c->set = s;
    c->ev = ev;
    c->user = user;
    c->files = map_new();
    timer_init(&c->quiet, on_quiet);
    timer_init(&c->day, on_day);
    timer_init(&c->turn, on_turn);
    timer_set(w, &c->day, DAY_MS);
    if (s->tls_ticket_keys_file.n == 0)
        timer_set(w, &c->turn, TURN_MS);
    watch_files(c);
    return c;
}

void certwatch_stop(struct certwatch *c)
{
    if (!c)
        return;
    timer_clear(c->w, &c->quiet);
    timer_clear(c->w, &c->day);
    timer_clear(c->w, &c->turn);
    forget_all(c->files);
    mem_free(c);
}

/* ---- the end of a certificate */

static void warn(struct str name, int64_t left_s)
{
    struct log_line l;
    if (!log_on(LOG_WARN))
        return;
    log_begin(&l, LOG_WARN,
              left_s > 0 ? "a certificate ends soon" : "a certificate is past its end");
    log_str(&l, "name", name);
    log_int(&l, "days_left", left_s / DAY_S);
    log_end(&l);
}

void certwatch_warn(const struct certs *certs, int64_t now_s)
{
    unsigned n = certs ? certs_count(certs) : 0;
    for (unsigned i = 0, lines = 0; i < n && lines < SHOWN; i++) {
        int64_t left_s = certs_not_after(certs, i) - now_s;
        if (left_s >= (int64_t)WARN_DAYS * DAY_S)
            continue;
        warn(certs_name(certs, i), left_s);
        lines++;
    }
}

/* False: a pair before it has the same name. */
static bool first_of_name(const struct certs *certs, unsigned i, int64_t *ret_not_after)
{
    struct str name = certs_name(certs, i);
    for (unsigned k = 0; k < i; k++)
        if (str_eq(certs_name(certs, k), name))
            return false;
    *ret_not_after = certs_not_after(certs, i);
    for (unsigned k = i + 1; k < certs_count(certs); k++)
        if (str_eq(certs_name(certs, k), name) && certs_not_after(certs, k) < *ret_not_after)
            *ret_not_after = certs_not_after(certs, k);
    return true;
}

/* A label's value is quoted, and a name may hold anything: what no host name has is shown as '_'.
 */
static void put_label(char *out, size_t room, struct str name)
{
    char text[256];
    size_t n = name.n < sizeof text ? name.n : sizeof text - 1;
    for (size_t i = 0; i < n; i++) {
        char c = ascii_lower(name.p[i]);
        bool plain =
            (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '.' || c == '*';
        text[i] = plain ? c : '_';
    }
    text[n] = '\0';
    snprintf(out, room, "name=\"%s\"", text);
}

void certwatch_metrics(const struct certs *certs, int64_t now_s, struct metrics_out *o)
{
    static const char family[] = "ingress.tls.certificate.left.seconds";
    char label[300];
    int64_t not_after;
    unsigned n = certs ? certs_count(certs) : 0;
    if (n == 0)
        return;
    metrics_family(o, family, "gauge", "Seconds until a certificate of the TLS listener ends");
    for (unsigned i = 0, shown = 0; i < n && shown < SHOWN; i++) {
        if (!first_of_name(certs, i, &not_after))
            continue;
        put_label(label, sizeof label, certs_name(certs, i));
        metrics_value(o, family, label, (double)(not_after - now_s));
        shown++;
    }
}
