/* redis.c — keeps one link to Redis and carries one pipeline at a time over it.  The pipeline is
 * kept encoded until it is answered or its time is up, so a link that breaks only costs a link: the
 * next one carries it again.  Who waits here is never a request, so patience is short and plain. */
#include "ingress/redis/redis.h"

#include <assert.h>
#include <stdio.h>

#include "base/secret.h"
#include "ingress/redis/redis_impl.h"
#include "net/resolve.h"
#include "net/tls.h"

enum { BACKOFF_MAX_MS = 5000, SETTLED_MS = 10000, SHIFT_MAX = 16 };

struct pipeline {
    char *bytes; /* NULL: none is under way */
    size_t n, room, sent;
    unsigned commands, answered;
    int64_t attempts; /* links that took it and broke */
    uint64_t deadline_ms, moved_ms;
    void (*done)(void *user, const struct resp_reply *replies, unsigned n);
    void *user;
    struct resp_reply replies[REDIS_PIPELINE];
};

struct redis {
    struct worker *w;
    struct redis_rules rules;
    struct dsn dsn;
    struct arena texts; /* of dsn */
    struct secret *password;
    struct tls_ctx *tls;
    struct names *names;
    struct redis_link *link; /* NULL: between two attempts */
    bool up;
    bool told_down;     /* the user knows that it is not up */
    uint64_t up_at_ms;  /* of this link */
    unsigned fails;     /* in a row */
    struct timer again; /* the next attempt */
    struct timer watch; /* of the pipeline */
    struct pipeline pipe;
    char trouble[96];
};

/* ---- links come and go */

static void set_trouble(struct redis *r, struct str text)
{
    snprintf(r->trouble, sizeof r->trouble, "%.*s", STR_ARG(text));
}

static uint64_t backoff_ms(const struct redis *r)
{
    const int64_t *o = r->dsn.option;
    uint64_t first = o[DSN_MIN_RETRY_BACKOFF] > 0 ? (uint64_t)o[DSN_MIN_RETRY_BACKOFF] : 1;
    uint64_t most = o[DSN_MAX_RETRY_BACKOFF] > 0 ? (uint64_t)o[DSN_MAX_RETRY_BACKOFF] : first;
    unsigned n = r->fails > 0 ? r->fails - 1 : 0;
    if ((int64_t)r->fails > o[DSN_MAX_RETRIES] || most > BACKOFF_MAX_MS)
        most = BACKOFF_MAX_MS;
    uint64_t ms = first << (n < SHIFT_MAX ? n : (unsigned)SHIFT_MAX);
    return ms < most ? ms : most;
}

static void tell(struct redis *r, bool up)
{
    bool news = up != r->up || (!up && !r->told_down);
    r->up = up;
    r->told_down = !up;
    if (news && r->rules.changed)
        r->rules.changed(r->rules.user, up);
}

static void finish(struct redis *r, bool answered)
{
    struct pipeline p = r->pipe;
    mem_free(p.bytes);
    timer_clear(r->w, &r->watch);
    r->pipe.bytes = NULL;
    p.done(p.user, answered ? p.replies : NULL, answered ? p.commands : 0);
}

/* A link that took it is gone. */
static void rewind_pipe(struct redis *r)
{
    struct pipeline *p = &r->pipe;
    bool taken = p->sent > 0;
    p->sent = p->answered = 0;
    if (p->bytes && taken && ++p->attempts > r->dsn.option[DSN_MAX_RETRIES])
        finish(r, false);
}

static void lost(struct redis *r)
{
    bool settled = r->up && worker_now(r->w) - r->up_at_ms >= SETTLED_MS;
    r->link = NULL;
    r->fails = settled ? 1 : r->fails + 1;
    timer_set(r->w, &r->again, backoff_ms(r));
    tell(r, false);
    rewind_pipe(r);
}

static void on_down(void *user, const char *trouble)
{
    struct redis *r = user;
    set_trouble(r, str_of(trouble));
    lost(r);
}

/* Of our own accord. */
static void drop(struct redis *r, struct str trouble)
{
    set_trouble(r, trouble);
    link_drop(r->link);
    lost(r);
}

static void on_up(void *user)
{
    struct redis *r = user;
    r->up_at_ms = r->pipe.moved_ms = worker_now(r->w);
    tell(r, true);
    if (r->pipe.bytes)
        link_wake(r->link);
}

/* ---- the pipeline */

static void on_fill(void *user, struct buf *out, size_t max)
{
    struct redis *r = user;
    struct pipeline *p = &r->pipe;
    size_t n = p->bytes ? p->n - p->sent : 0;
    if (n > max)
        n = max;
    if (n == 0)
        return;
    buf_write(out, p->bytes + p->sent, n);
    p->sent += n;
    p->moved_ms = worker_now(r->w);
    if (p->sent < p->n)
        link_wake(r->link);
}

/* What says that this server will take nothing, or not from us: another may stand behind the name
 * by now. */
static bool is_stale(const struct resp_reply *replies, unsigned n, const struct resp_reply **ret)
{
    static const char *const codes[] = {"READONLY", "LOADING", "MASTERDOWN", "NOAUTH",
                                        "UNKILLABLE"};
    for (unsigned i = 0; i < n; i++)
        for (size_t k = 0; k < sizeof codes / sizeof *codes; k++)
            if (resp_is_error(&replies[i], codes[k])) {
                *ret = &replies[i];
                return true;
            }
    return false;
}

static void on_answered(struct redis *r)
{
    const struct resp_reply *stale;
    if (is_stale(r->pipe.replies, r->pipe.commands, &stale)) {
        struct str code = resp_text(stale);
        r->pipe.sent = 0; /* is not sent again */
        drop(r, code);
    } else {
        r->fails = 0;
    }
    finish(r, true);
}

static bool on_reply(void *user, const struct resp_reply *reply)
{
    struct redis *r = user;
    struct pipeline *p = &r->pipe;
    bool last = p->answered + 1 == p->commands;
    if (!p->bytes || p->sent == 0 || (last && p->sent < p->n)) /* the last was asked, too */
        return false;
    p->replies[p->answered++] = *reply;
    p->moved_ms = worker_now(r->w);
    if (last)
        on_answered(r);
    return true;
}

static const struct redis_link_events link_events = {on_up, on_fill, on_reply, on_down};

static void on_again(struct timer *t)
{
    struct redis *r = container_of(t, struct redis, again);
    struct redis_link_rules rules = {.w = r->w,
                                     .dsn = &r->dsn,
                                     .tls = r->tls,
                                     .names = r->names,
                                     .password = r->password,
                                     .events = &link_events,
                                     .user = r};
    r->link = link_new(&rules);
}

/* UINT64_MAX: the DSN has switched it off. */
static uint64_t silence_ms(const struct redis *r)
{
    bool writing = r->pipe.sent < r->pipe.n || link_unsent(r->link) > 0;
    int64_t ms = r->dsn.option[writing ? DSN_WRITE_TIMEOUT : DSN_READ_TIMEOUT];
    return ms > 0 ? (uint64_t)ms : UINT64_MAX;
}

static void watch(struct redis *r)
{
    uint64_t now = worker_now(r->w), end = r->pipe.deadline_ms;
    uint64_t left = end > now ? end - now : 0, silence = r->up ? silence_ms(r) : UINT64_MAX;
    if (silence < left)
        left = silence; /* looked at again then */
    timer_set(r->w, &r->watch, left);
}

static void on_watch(struct timer *t)
{
    struct redis *r = container_of(t, struct redis, watch);
    uint64_t now = worker_now(r->w);
    bool over = now >= r->pipe.deadline_ms;
    bool silent = r->up && now - r->pipe.moved_ms >= silence_ms(r);
    bool owed = r->link && r->pipe.sent > 0; /* answers nobody would wait for */
    if (!over && !silent) {
        watch(r);
        return;
    }
    if (over)
        r->pipe.sent = 0; /* is not sent again */
    if (owed)
        drop(r, STR("deadline"));
    else if (over && r->up)
        set_trouble(r, STR("deadline"));
    if (over)
        finish(r, false);
    else if (r->pipe.bytes)
        watch(r);
}

static void add(struct pipeline *p, const struct resp_command *c)
{
    size_t n;
    char *text = resp_encode(c, &n);
    if (n > p->room - p->n) {
        p->room = 2 * p->room + n;
        p->bytes = mem_renew(p->bytes, p->room);
    }
    memcpy(p->bytes + p->n, text, n);
    p->n += n;
    mem_free(text);
}

void redis_send(struct redis *r, const struct resp_command *commands, unsigned n, uint64_t limit_ms,
                void (*done)(void *user, const struct resp_reply *replies, unsigned n), void *user)
{
    struct pipeline *p = &r->pipe;
    assert(!p->bytes && n > 0 && n <= REDIS_PIPELINE);
    p->n = p->room = p->sent = 0;
    p->commands = n;
    p->answered = 0;
    p->attempts = 0;
    for (unsigned i = 0; i < n; i++)
        add(p, &commands[i]);
    p->moved_ms = worker_now(r->w);
    p->deadline_ms = p->moved_ms + limit_ms;
    p->done = done;
    p->user = user;
    watch(r);
    if (r->up)
        link_wake(r->link);
}

void redis_forget(struct redis *r)
{
    bool owed = r->pipe.bytes && r->pipe.sent > 0;
    mem_free(r->pipe.bytes);
    r->pipe.bytes = NULL;
    r->pipe.sent = 0;
    timer_clear(r->w, &r->watch);
    if (owed && r->link)
        drop(r, STR("dropped"));
}

bool redis_busy(const struct redis *r)
{
    return r->pipe.bytes != NULL;
}

bool redis_up(const struct redis *r)
{
    return r->up;
}

const char *redis_trouble(const struct redis *r)
{
    return r->trouble;
}

/* ---- life */

static void destroy(void *p)
{
    struct redis *r = p;
    secret_unref(r->password);
    tls_ctx_unref(r->tls);
    arena_done(&r->texts);
    mem_free(r);
}

static void copy_dsn(struct redis *r, const struct dsn *d)
{
    arena_init(&r->texts, NULL, 0);
    r->dsn = *d;
    r->dsn.host = arena_str(&r->texts, d->host);
    r->dsn.server_name = arena_str(&r->texts, d->server_name);
    r->dsn.username = arena_str(&r->texts, d->username);
    r->dsn.client_name = arena_str(&r->texts, d->client_name);
    r->dsn.address = r->dsn.password = STR_NONE;
    if (d->password.n == 0)
        return;
    r->password = secret_new(d->password.p, d->password.n);
    worker_private(r->w);
}

struct redis *redis_new(struct worker *w, const struct redis_rules *rules, struct arena *a,
                        struct str *ret_error)
{
    struct redis *r = mem_new(sizeof *r);
    const struct dsn *d = rules->dsn;
    r->w = w;
    r->rules = *rules;
    timer_init(&r->again, on_again);
    timer_init(&r->watch, on_watch);
    copy_dsn(r, d);
    if (d->tls) {
        struct tls_client_rules tls = {.insecure = d->option[DSN_SKIP_VERIFY] == 1,
                                       .wipe = r->password != NULL};
        r->tls = tls_client_new(&tls, a, ret_error);
    }
    if (d->tls && !r->tls) {
        destroy(r);
        return NULL;
    }
    r->names = d->unix_socket ? NULL : names_new(w, NULL);
    timer_set(w, &r->again, 0);
    return r;
}

void redis_free(struct redis *r)
{
    if (!r)
        return;
    timer_clear(r->w, &r->again);
    timer_clear(r->w, &r->watch);
    link_drop(r->link);
    mem_free(r->pipe.bytes);
    r->pipe.bytes = NULL;
    if (r->names)
        names_free(r->names);
    worker_bury(r->w, destroy, r);
}
