/* product.c — puts the sidecar together for app_run(): settings, gate, the steps of boot.c,
 * metrics. */
#include "egress/product.h"

#include <stdio.h>

#include "egress/boot.h"
#include "egress/events/metrics.h"
#include "egress/gate.h"
#include "egress/kernel/enforce.h"
#include "egress/state/always_files.h"
#include "egress/state/policy_store.h"
#include "egress/vault/coding.h"

static bool check(void *settings, struct arena *a, struct str *ret_error)
{
    return egress_settings_check(settings, a, ret_error);
}

static struct str warnings(const void *settings, struct arena *a)
{
    return egress_settings_warnings(settings, a);
}

static struct str missing(const void *settings, struct arena *a)
{
    return egress_settings_missing(settings, a);
}

/* --check looks at the files a start would read. */
static bool check_files(const void *settings, struct arena *a, struct str *ret_error)
{
    const struct egress_settings *s = settings;
    void *view = boot_view(&s->core, NULL, a, ret_error);
    view_unref(view);
    return view != NULL;
}

static void drop_view(void *view)
{
    view_unref(view);
}

static const struct maker view_maker = {boot_view, drop_view};

/* A sidecar that cannot start must not leave its sandbox open (E2). */
static void refused(void)
{
    struct arena a;
    struct str error, mode = str_of(egress_getenv(EGRESS_VARIABLE "MODE"));
    if (str_ieq(str_trim(mode), STR("proxy")))
        return;
    arena_init(&a, NULL, 0);
    if (!enforce_close(NULL, &a, &error))
        fprintf(stderr, "%s: the kernel cannot be closed: %.*s\n", egress_schema.program,
                STR_ARG(error));
    arena_done(&a);
}

static bool prepare(struct app *app, void *settings, struct arena *a, struct str *ret_error)
{
    coding_limit((size_t)((const struct egress_settings *)settings)->scrub_memory);
    return boot_prepare(app, settings, a, ret_error);
}

static void bound(void *settings, const union addr *listeners, const union addr *admin,
                  struct arena *a)
{
    struct egress_settings *s = settings;
    char text[ADDR_TEXT_BYTES];
    (void)listeners;
    if (admin)
        s->core.admin_addr = arena_str(a, (struct str){text, addr_text(&admin->sa, text)});
}

/* boot_start() fills what this makes room for. */
static void worker_init(struct app *app, struct worker *w)
{
    (void)app;
    worker_set(w, SLOT_PRODUCT, mem_new(sizeof(struct sidecar)));
}

static void worker_done(struct worker *w)
{
    mem_free(sidecar_of(w));
}

static void metrics(struct app *app, struct metrics_out *o)
{
    egress_metrics(sidecar_of(app_worker(app, 0)), o);
}

const struct product egress_product = {
    .title = "OpenSandbox Egress",
    .logger = "opensandbox.egress",
    .command = {.schema = &egress_schema,
                .environment_only = true,
                .getenv = egress_getenv,
                .check = check,
                .check_files = check_files,
                .warnings = warnings,
                .missing = missing},
    .refused = refused,
    .view = &view_maker,
    .gate = &egress_gate,
    .look_ms = GATE_SILENCE_MS,
    .two_names = true,
    .max_workers = 1,
    .publishes = true,
    .not_ready = "not everything is in force yet",
    .prepare = prepare,
    .bound = bound,
    .names = boot_names,
    .worker_init = worker_init,
    .worker_done = worker_done,
    .start = boot_start,
    .reload = boot_reload,
    .drain = boot_drain,
    .stop = boot_stop,
    .unready = boot_unready,
    .metrics = metrics,
};
