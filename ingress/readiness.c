/* readiness.c — two windows side by side: the one that runs and the one just over, which late dials
 * still reach and readers see. Dials are rare compared with requests, so one lock for all workers
 * costs nothing that could be measured. */
#include "ingress/readiness.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>

#include "base/ip.h"
#include "base/map.h"

/* ---- classes ---- */

const char *dial_class_text(enum dial_class c)
{
    static const char *const texts[] = {
#define X(id, text) text,
        DIAL_CLASS_MAP(X)
#undef X
    };
    assert(c < DIAL_CLASSES);
    return texts[c];
}

static const struct {
    int err;
    enum dial_class c;
} errnos[] = {
    {ETIMEDOUT, DIAL_TIMEOUT},    {EHOSTUNREACH, DIAL_UNREACHABLE}, {ENETUNREACH, DIAL_UNREACHABLE},
    {ENETDOWN, DIAL_UNREACHABLE}, {EHOSTDOWN, DIAL_UNREACHABLE},    {ECONNREFUSED, DIAL_REFUSED},
};

enum dial_class dial_class_of(enum why why, int err, bool client_gone)
{
    if (why == WHY_OK)
        return DIAL_SUCCESS;
    for (size_t i = 0; i < sizeof errnos / sizeof errnos[0]; i++)
        if (errnos[i].err == err)
            return errnos[i].c;
    if (why == WHY_DNS)
        return DIAL_DNS_ERROR;
    if (why == WHY_DEADLINE)
        return DIAL_TIMEOUT;
    return client_gone || why == WHY_CLIENT_GONE ? DIAL_CANCELED : DIAL_OTHER;
}

/* ---- hosts ---- */

static struct str host_of(struct str target)
{
    ptrdiff_t end = target.n && target.p[0] == '[' ? str_chr(target, ']') : -1;
    if (end > 0)
        return (struct str){target.p + 1, (size_t)end - 1};
    ptrdiff_t colon = str_chr(target, ':');
    bool has_port =
        colon >= 0 && str_rchr(target, ':') == colon; /* more than one: an address without a port */
    return has_port ? str_head(target, (size_t)colon) : target;
}

size_t readiness_key(struct str target, char out[READINESS_KEY_BYTES])
{
    struct str host = host_of(target);
    struct ip ip;
    if (host.n && host.p[host.n - 1] == '.')
        host.n--;
    if (ip_parse(host, &ip)) {
        _Static_assert((int)READINESS_KEY_BYTES >= (int)IP_TEXT_BYTES, "an address fits");
        return ip_text(&ip, out);
    }
    size_t n = host.n < READINESS_KEY_BYTES ? host.n : READINESS_KEY_BYTES;
    for (size_t i = 0; i < n; i++)
        out[i] = ascii_lower(host.p[i]);
    return n;
}

/* ---- windows ---- */

struct target {
    bool signal;
    size_t n;
    char key[];
};

struct window {
    uint64_t number; /* time / window_ms */
    uint64_t attempts, signal_failures;
    size_t signal_targets;
    struct map *targets; /* key → target; NULL: none yet */
};

struct readiness {
    struct readiness_rules rules;
    pthread_mutex_t lock;
    struct window windows[2]; /* by number, odd and even */
};

static void window_clear(struct window *w)
{
    size_t at = 0;
    for (struct target *t; w->targets && (t = map_next(w->targets, &at));)
        mem_free(t);
    map_free(w->targets);
    *w = (struct window){0};
}

struct readiness *readiness_new(const struct readiness_rules *rules)
{
    assert(rules->window_ms > 0);
    struct readiness *r = mem_new(sizeof *r);
    r->rules = *rules;
    pthread_mutex_init(&r->lock, NULL);
    return r;
}

void readiness_free(struct readiness *r)
{
    if (!r)
        return;
    window_clear(&r->windows[0]);
    window_clear(&r->windows[1]);
    pthread_mutex_destroy(&r->lock);
    mem_free(r);
}

/* The window of that number, begun anew if its place held another one; NULL: it is over and the
 * place is taken by its successor.  A window that lies farther ahead than that was written before
 * the clock was set back. */
static struct window *window_at(struct readiness *r, uint64_t number)
{
    struct window *w = &r->windows[number % 2];
    if (w->number == number)
        return w;
    if (w->number == number + 2)
        return NULL;
    window_clear(w);
    w->number = number;
    return w;
}

static struct target *target_at(struct window *w, struct str key, size_t max)
{
    if (!w->targets)
        w->targets = map_new();
    struct target *t = map_get(w->targets, key);
    if (t || map_size(w->targets) >= max)
        return t;
    t = mem_new(sizeof *t + key.n);
    t->n = key.n;
    memcpy(t->key, key.p, key.n);
    map_put(w->targets, (struct str){t->key, t->n}, t);
    return t;
}

static void count(struct window *w, struct str key, size_t max, bool signal)
{
    struct target *t = target_at(w, key, max);
    w->attempts++;
    w->signal_failures += signal;
    if (!t || !signal || t->signal)
        return;
    t->signal = true;
    w->signal_targets++;
}

void readiness_record(struct readiness *r, struct str target, enum dial_class c,
                      uint64_t end_unix_ms)
{
    if (c == DIAL_CANCELED)
        return;
    char key[READINESS_KEY_BYTES];
    size_t n = readiness_key(target, key);
    pthread_mutex_lock(&r->lock);
    struct window *w = window_at(r, end_unix_ms / r->rules.window_ms);
    if (w)
        count(w, (struct str){key, n}, r->rules.max_targets,
              c == DIAL_TIMEOUT || c == DIAL_UNREACHABLE);
    pthread_mutex_unlock(&r->lock);
}

static void judge(const struct readiness_rules *rules, struct readiness_view *v)
{
    v->qualified =
        v->attempts > 0 && v->attempts >= rules->min_attempts && v->targets >= rules->min_targets;
    v->degraded = v->qualified && v->signal_targets >= rules->min_signal_targets &&
                  (double)v->signal_failures / (double)v->attempts >= rules->failure_ratio;
}

struct readiness_view readiness_read(struct readiness *r, uint64_t now_unix_ms)
{
    struct readiness_view v = {0};
    uint64_t running = now_unix_ms / r->rules.window_ms;
    pthread_mutex_lock(&r->lock);
    const struct window *w = &r->windows[(running + 1) % 2];
    if (w->number + 1 == running) {
        v.attempts = w->attempts;
        v.signal_failures = w->signal_failures;
        v.targets = w->targets ? map_size(w->targets) : 0;
        v.signal_targets = w->signal_targets;
    }
    pthread_mutex_unlock(&r->lock);
    judge(&r->rules, &v);
    return v;
}

struct str readiness_body(const struct readiness_view *v)
{
    return v->degraded ? STR("DEGRADED") : STR("OK");
}
