/* app_drain.c — the end of a program in order: nothing new, what runs comes to its end, and after a
 * deadline what still runs is cut. */
#include "app/app_impl.h"
#include "base/log.h"

static void check_drained(struct app *app)
{
    if (app->draining > 0 || app->drained)
        return;
    timer_clear(app->main, &app->deadline);
    app->drained = true;
    app_stop_when_done(app);
}

static void on_worker_drained(struct worker *w, struct post *p)
{
    (void)w;
    struct told *t = (struct told *)p;
    struct app *app = t->app;
    mem_free(t);
    app->draining--;
    check_drained(app);
}

void app_hold(struct app *app)
{
    app->draining++;
    app->holds++;
}

static void on_unhold(struct worker *w, struct post *p)
{
    (void)w;
    struct word *word = container_of(p, struct word, post);
    struct app *app = word->app;
    mem_free(word);
    if (app->holds == 0)
        return; /* the deadline came first */
    app->holds--;
    app->draining--;
    check_drained(app);
}

void app_unhold(struct app *app)
{
    app_tell_main(app, on_unhold, NULL);
}

static void on_drained(void *user)
{
    struct told *t = user;
    t->post.run = on_worker_drained;
    worker_post(t->app->main, &t->post);
}

static void on_drain(struct worker *w, struct post *p)
{
    proxy_drain(proxy_of(w), on_drained, p);
}

static void on_cut(struct worker *w, struct post *p)
{
    proxy_cut(proxy_of(w));
    mem_free(p);
}

void app_on_deadline(struct timer *t)
{
    struct app *app = container_of(t, struct app, deadline);
    log_note(LOG_WARN, "drain-timeout has passed: what still runs is cut", NULL);
    app_tell_all(app, on_cut, NULL);
    app->draining -= app->holds;
    app->holds = 0;
    check_drained(app);
}

void app_drain(struct app *app)
{
    log_note(LOG_INFO, "stopping: draining", NULL);
    app->phase = APP_DRAINING;
    app->draining = app->nworkers;
    timer_clear(app->main, &app->remind);
    uint64_t ms = settings_ms(app_settings(app)->drain_timeout);
    timer_set(app->main, &app->deadline, ms ? ms : 1);
    if (app->product->drain)
        app->product->drain(app);
    app_tell_all(app, on_drain, NULL);
}
