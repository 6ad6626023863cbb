/* app.c — the life of a process, in order: command line, log, configuration, sockets, workers,
 * resolver, listeners; and back again on SIGTERM: readiness, listeners, sessions, deadline. */
#include "app/app_impl.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "app/admin.h"
#include "base/log.h"
#include "net/resolve.h"

enum { REMIND_MS = 10000, WINDOW_BYTES = 65536, WINDOW_MAX_BYTES = 196608, DRAIN_IDLE_MS = 2000 };

const struct settings *app_settings(const struct app *app)
{
    return app->settings;
}

struct worker *app_main(struct app *app)
{
    return app->main;
}

unsigned app_nworkers(const struct app *app)
{
    return app->nworkers;
}

struct worker *app_worker(struct app *app, unsigned i)
{
    return app->workers[i];
}

void *app_product(const struct app *app)
{
    return app->product_data;
}

void app_set_product(struct app *app, void *p)
{
    app->product_data = p;
}

enum app_phase app_phase(const struct app *app)
{
    return app->phase;
}

const struct product *app_product_of(const struct app *app)
{
    return app->product;
}

const struct accept_gate *app_accept_gate(const struct app *app)
{
    return &app->gate;
}

struct app_times app_times(const struct app *app)
{
    uint64_t now = worker_now_us(app->main);
    return (struct app_times){(now - app->started_us) / 1000000, (now - app->adopted_us) / 1000000,
                              app->snap->revision, app->reload_faults};
}

/* ---- telling all workers */

void app_tell_all(struct app *app, void (*run)(struct worker *w, struct post *p),
                  const struct snapshot *snap)
{
    for (unsigned i = 0; i < app->nworkers; i++) {
        struct told *t = mem_new(sizeof *t);
        t->post.run = run;
        t->app = app;
        t->i = i;
        t->snap = snap ? snapshot_ref(snap) : NULL;
        worker_post(app->workers[i], &t->post);
    }
}

struct collection {
    void (*each)(struct worker *w, void *arg);
    void (*done)(void *user);
    void *user;
    unsigned left; /* touched by the main worker only */
    struct app *app;
    struct ask {
        struct post there, back;
        struct collection *c;
        void *arg;
    } asks[];
};

/* Not while a question is on its way: it would come to a worker that is gone. */
void app_stop_when_done(struct app *app)
{
    if (!app->drained || app->collections > 0)
        return;
    for (unsigned i = 0; i < app->nworkers; i++)
        worker_stop(app->workers[i]);
    worker_stop(app->main);
}

static void on_collected(struct worker *w, struct post *p)
{
    (void)w;
    struct ask *a = container_of(p, struct ask, back);
    struct collection *c = a->c;
    if (--c->left > 0)
        return;
    c->done(c->user);
    c->app->collections--;
    app_stop_when_done(c->app);
    mem_free(c);
}

static void on_ask(struct worker *w, struct post *p)
{
    struct ask *a = container_of(p, struct ask, there);
    a->c->each(w, a->arg);
    a->back.run = on_collected;
    worker_post(a->c->app->main, &a->back);
}

bool app_collect(struct app *app, void (*each)(struct worker *w, void *arg), void *args,
                 size_t arg_bytes, void (*done)(void *user), void *user)
{
    if (app->drained)
        return false;
    app->collections++;
    struct collection *c = mem_new(sizeof *c + app->nworkers * sizeof *c->asks);
    c->each = each;
    c->done = done;
    c->user = user;
    c->left = app->nworkers;
    c->app = app;
    for (unsigned i = 0; i < app->nworkers; i++) {
        c->asks[i].c = c;
        c->asks[i].arg = (char *)args + i * arg_bytes;
        c->asks[i].there.run = on_ask;
        worker_post(app->workers[i], &c->asks[i].there);
    }
    return true;
}

/* ---- listeners */

static void note_serving(struct app *app)
{
    static const char *const keys[APP_LISTENERS] = {"listen", "listen_tls"};
    struct log_line l;
    log_begin(&l, LOG_INFO, "serving");
    for (unsigned i = 0; i < app->nlisteners; i++)
        log_str(&l, keys[i], app->where[i]);
    if (app->admin)
        log_str(&l, "admin", app_settings(app)->admin_addr);
    log_end(&l);
}

static void on_listening(struct worker *w, struct post *p)
{
    (void)w;
    struct told *t = (struct told *)p;
    struct app *app = t->app;
    mem_free(t);
    if (--app->closed > 0 || app->phase != APP_STARTING)
        return;
    app->phase = APP_SERVING;
    note_serving(app);
}

static void on_listen(struct worker *w, struct post *p)
{
    struct told *t = (struct told *)p;
    struct proxy *proxy = proxy_of(w);
    for (unsigned l = 0; l < t->app->nlisteners; l++)
        proxy_add_listener(
            proxy, listener_start(w, t->app->fds[t->i][l], &t->app->gate, proxy_accept, proxy));
    t->post.run = on_listening;
    worker_post(t->app->main, &t->post);
}

/* Who reads that we are ready may connect at once: it is said when all workers listen. */
void app_ready(struct app *app)
{
    if (app->phase != APP_STARTING || app->opening)
        return;
    app->opening = true;
    app->closed = app->nworkers;
    timer_clear(app->main, &app->remind);
    app_tell_all(app, on_listen, NULL);
}

static struct str without_end(struct str s)
{
    return s.n && s.p[s.n - 1] == '\n' ? str_head(s, s.n - 1) : s;
}

static void on_remind(struct timer *t)
{
    struct app *app = container_of(t, struct app, remind);
    struct arena a;
    arena_init(&a, NULL, 0);
    struct str said = app->product->unready ? app->product->unready(app, &a) : STR_NONE;
    struct log_line line;
    log_begin(&line, LOG_WARN, "not serving yet");
    log_str(&line, "reason", said.n ? without_end(said) : str_of(app->product->not_ready));
    log_end(&line);
    arena_done(&a);
    timer_set(app->main, t, REMIND_MS);
}

/* ---- workers */

static struct http_limits limits(const struct settings *s)
{
    return (struct http_limits){.max_head_bytes = (size_t)s->max_head_bytes,
                                .window = WINDOW_BYTES,
                                .window_max = WINDOW_MAX_BYTES,
                                .max_streams = (unsigned)s->h2_max_streams,
                                .max_resets = (unsigned)s->h2_max_resets,
                                .max_control = (unsigned)s->h2_max_control,
                                .keep_alive_ms = settings_ms(s->keep_alive_timeout),
                                .head_ms = settings_ms(s->head_timeout),
                                .linger_ms = settings_ms(s->linger_timeout),
                                .drain_idle_ms = DRAIN_IDLE_MS};
}

static struct proxy_rules rules(const struct app *app, int64_t descriptors)
{
    const struct settings *s = app_settings(app);
    struct proxy_rules r = {.gate = app->product->gate,
                            .client = limits(s),
                            .origin = limits(s),
                            .look_ms = app->product->look_ms};
    if (app->product->moved_ms)
        r.moved_ms = app->product->moved_ms(s);
    if (app->product->move_ms)
        r.move_ms = app->product->move_ms(s);
    r.client.max_fields = (unsigned)s->max_fields;
    r.client.two_names = app->product->two_names;
    r.max_memory = r.client.max_memory = (size_t)s->max_memory / app->nworkers;
#define X(id, text, timeout) r.timeout_ms[X_##id] = settings_ms(s->timeout);
    XSTATE_MAP(X)
#undef X
    r.half_close_ms = settings_ms(s->half_close_timeout);
    r.pools = (struct origin_rules){.idle_ms = settings_ms(s->backend_idle_timeout),
                                    .idle_max = (unsigned)s->backend_idle_max,
                                    .idle_cap = (unsigned)(descriptors / 4 / app->nworkers) + 1};
    return r;
}

static struct names *names_of(struct app *app, struct worker *w)
{
    struct names_files files = {0};
    return app->product->names ? app->product->names(app, w) : names_new(w, &files);
}

static void make_workers(struct app *app, int64_t descriptors)
{
    struct proxy_rules r = rules(app, descriptors);
    for (unsigned i = 0; i < app->nworkers; i++) {
        struct worker *w = app->workers[i] = worker_new(i);
        worker_set(w, SLOT_NAMES, names_of(app, w));
        worker_adopt(w, app->snap);
        app->product->worker_init(app, w);
        proxy_new(w, &r);
    }
}

static unsigned worker_number(const struct app *app)
{
    const struct settings *s = app_settings(app);
    unsigned n = s->workers > 0 ? (unsigned)s->workers : worker_cores();
    unsigned max = app->product->max_workers ? app->product->max_workers : APP_WORKERS;
    return n > max ? max : n;
}

/* ---- reload */

static void on_adopt(struct worker *w, struct post *p)
{
    struct told *t = (struct told *)p;
    worker_adopt(w, t->snap);
    snapshot_unref(t->snap);
    mem_free(t);
}

const struct snapshot *app_snapshot(const struct app *app)
{
    return app->snap;
}

static void take_over(struct app *app, const struct snapshot *fresh)
{
    snapshot_unref(app->snap);
    app->snap = fresh;
    app->adopted_us = worker_now_us(app->main);
}

static void on_published(struct worker *w, struct post *p)
{
    (void)w;
    struct word *word = container_of(p, struct word, post);
    take_over(word->app, word->snap);
    mem_free(word);
}

void app_tell_main(struct app *app, void (*run)(struct worker *w, struct post *p),
                   const struct snapshot *snap)
{
    struct word *word = mem_new(sizeof *word);
    word->post.run = run;
    word->app = app;
    word->snap = snap;
    worker_post(app->main, &word->post);
}

void app_published(struct app *app, const struct snapshot *snap)
{
    app_tell_main(app, on_published, snapshot_ref(snap));
}

static void remark(struct app *app, const struct snapshot *s)
{
    if (app->product->remarks)
        app->product->remarks(app, s);
}

void app_renew(struct app *app)
{
    struct arena a;
    if (app->phase == APP_DRAINING)
        return;
    struct str error;
    arena_init(&a, NULL, 0);
    struct snapshot *fresh = snapshot_rebuild(app->snap, &a, &error);
    if (!fresh) {
        app->reload_faults++;
        char *text = mem_strdup(error);
        log_note(LOG_ERROR, "reload refused, nothing changed", "error", text, NULL);
        mem_free(text);
    } else {
        remark(app, fresh);
        app_tell_all(app, on_adopt, fresh);
        take_over(app, fresh);
        log_note(LOG_INFO, "reloaded", NULL);
    }
    arena_done(&a);
}

/* ---- signals */

static void on_signal(void *user, int signum)
{
    struct app *app = user;
    if (signum == SIGHUP) {
        if (!app->product->publishes)
            app_renew(app);
        if (app->phase != APP_DRAINING)
            app->product->reload(app);
        return;
    }
    if (app->phase == APP_DRAINING) {
        log_stop();
        _exit(1); /* asked twice: at once */
    }
    app_drain(app);
}

/* ---- start and end */

static int refuse(const struct app *app, struct str error)
{
    fprintf(stderr, "%s: %.*s\n", app->product->command.schema->program, STR_ARG(error));
    return 2;
}

void app_fail(struct app *app, struct str error)
{
    log_stop();
    _exit(refuse(app, error)); /* as a start that fails */
}

static bool open_log(struct app *app, struct str *ret_error)
{
    static const enum log_level levels[] = {LOG_DEBUG, LOG_INFO,  LOG_WARN,
                                            LOG_WARN,  LOG_ERROR, LOG_FATAL};
    char error[256];
    const char *outputs = getenv("OPENSANDBOX_LOG_OUTPUT");
    if (log_start(app->product->logger, str_of(outputs), levels[app_settings(app)->log_level],
                  error, sizeof error))
        return true;
    *ret_error = arena_printf(&app->mem, "OPENSANDBOX_LOG_OUTPUT: %s", error);
    return false;
}

/* Order of contract ingress 1.5; false: one line and exit 2. */
static bool start(struct app *app, struct str *ret_error)
{
    int64_t descriptors = app_descriptors();
    app->nworkers = worker_number(app);
    if (!open_log(app, ret_error))
        return false;
    if (app->product->prepare && !app->product->prepare(app, app->settings, &app->mem, ret_error))
        return false;
    if (!app_bind(app, ret_error))
        return false;
    app->snap = snapshot_build(app_settings(app), app->product->view, &app->mem, ret_error);
    if (!app->snap)
        return false;
    accept_gate_init(&app->gate, app_connection_limit(app, descriptors), SURPLUS_CONNECTIONS);
    app->main = worker_new(APP_WORKERS);
    remark(app, app->snap);
    app->started_us = app->adopted_us = worker_now_us(app->main);
    timer_init(&app->deadline, app_on_deadline);
    timer_init(&app->remind, on_remind);
    make_workers(app, descriptors);
    if (app->admin_fd >= 0)
        app->admin = admin_start(app, app->admin_fd);
    if (!app->product->start(app, &app->mem, ret_error))
        return false;
    if (!app->opening)
        timer_set(app->main, &app->remind, REMIND_MS);
    worker_signals(app->main, on_signal, app);
    return true;
}

static void end(struct app *app)
{
    for (unsigned i = 0; i < app->nworkers; i++)
        worker_join(app->workers[i]);
    admin_stop(app->admin);
    app->product->stop(app);
    worker_turn(app->main);
    for (unsigned i = 0; i < app->nworkers; i++) {
        struct worker *w = app->workers[i];
        proxy_free(proxy_of(w));
        names_free(worker_get(w, SLOT_NAMES));
        app->product->worker_done(w);
        worker_free(w);
    }
    worker_free(app->main);
    snapshot_unref(app->snap);
    log_note(LOG_INFO, "stopped", NULL);
    log_stop();
}

/* During the start they wait for whoever takes them: by default they would end us in the middle of
 * it, and the first process of a container would never hear of them. */
static void hold_signals(int how)
{
    sigset_t ours;
    sigemptyset(&ours);
    sigaddset(&ours, SIGTERM);
    sigaddset(&ours, SIGINT);
    sigaddset(&ours, SIGHUP);
    pthread_sigmask(how, &ours, NULL);
}

/* B5: keys and tokens are in our memory. */
static void forbid_dumps(void)
{
#ifndef __SANITIZE_ADDRESS__ /* its leak check looks at us as a debugger does */
    prctl(PR_SET_DUMPABLE, 0);
#endif
    setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
}

int app_run(const struct product *product, int argc, char **argv)
{
    struct str error;
    bool run;
    /* U6: a write to a peer that left is an error code, not the end of us */
    signal(SIGPIPE, SIG_IGN);
    forbid_dumps();
    struct app *app = mem_new(sizeof *app);
    arena_init(&app->mem, NULL, 0);
    app->product = product;
    app->settings = mem_new(product->command.schema->settings_bytes);
    int status = command_line(&product->command, argc, argv, &app->mem, app->settings, &run);
    if (status == 2 && argc == 1 && product->refused)
        product->refused();
    if (run) {
        hold_signals(SIG_BLOCK);
        command_banner(stdout, product->title);
        fflush(stdout);
        if (!start(app, &error)) {
            log_stop();
            _exit(refuse(app, error)); /* what has begun ends with the process */
        }
        for (unsigned i = 0; i < app->nworkers; i++)
            worker_start(app->workers[i]);
        hold_signals(SIG_UNBLOCK);
        worker_run(app->main);
        end(app);
        status = 0;
    }
    arena_done(&app->mem);
    mem_free(app->settings);
    mem_free(app);
    return status;
}
