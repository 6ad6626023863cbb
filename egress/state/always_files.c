/* always_files.c — looks at the rule files and makes a change of what is new in them.  They are
 * always read whole and compared with what is in force: so nothing has to be remembered, and what a
 * fault held up is simply tried again at the next look. */
#include "egress/state/always_files.h"

#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "egress/state/file.h"
#include "net/watch.h"
#include "net/worker.h"
#include "policies/rulefile.h"

enum { FILES = 3, RULES_BYTES = 16 << 20, LOOK_MS = 60000 };

static const char *const names[FILES] = {
    [RULEFILE_DENY] = "deny.always",
    [RULEFILE_ALLOW] = "allow.always",
    [RULEFILE_LOG_SKIP] = "log_skip.always",
};

enum state { FILES_WAIT, FILES_READ, FILES_CHANGE };

struct always_files {
    struct worker *w;
    struct changes *q;
    char *paths[FILES];
    struct watch *watch; /* of all three */
    struct timer timer;
    enum state state;
    bool again;   /* something was said while a look was under way */
    bool stopped; /* freed when the look is through */

    const struct rules *read[FILES]; /* NULL: see faults */
    char faults[FILES][RULEFILE_ERROR_BYTES];
    char told[FILES][RULEFILE_ERROR_BYTES]; /* the warning given last */
    struct change change;
};

/* False: *error says what is wrong. */
static bool read_rules(enum rulefile file, const char *path, const struct rules **ret,
                       char error[RULEFILE_ERROR_BYTES])
{
    struct file_bytes f;
    int fault = file_get(path, RULES_BYTES, &f);
    if (fault) {
        snprintf(error, RULEFILE_ERROR_BYTES, "%.200s: %s", path, strerrordesc_np(-fault));
        return false;
    }
    bool good = rulefile_parse(file, path, (struct str){f.p, f.n}, ret, error);
    file_bytes_done(&f);
    return good;
}

bool always_read(struct str folder, struct always_lists *ret, struct arena *a,
                 struct str *ret_error)
{
    struct always_lists lists = {NULL, NULL, NULL};
    const struct rules **places[FILES] = {&lists.deny, &lists.allow, &lists.log_skip};
    char error[RULEFILE_ERROR_BYTES];
    for (int i = 0; i < FILES; i++) {
        const char *path = arena_printf(a, "%.*s/%s", STR_ARG(folder), names[i]).p;
        if (read_rules((enum rulefile)i, path, places[i], error))
            continue;
        *ret_error = arena_str(a, str_of(error));
        always_lists_done(&lists);
        return false;
    }
    *ret = lists;
    return true;
}

/* ---- the look */

static void drop_read(struct always_files *f)
{
    for (int i = 0; i < FILES; i++) {
        if (f->read[i])
            rules_unref(f->read[i]);
        f->read[i] = NULL;
    }
}

static void destroy(struct always_files *f)
{
    drop_read(f);
    for (int i = 0; i < FILES; i++)
        mem_free(f->paths[i]);
    mem_free(f);
}

static void look(struct always_files *f);

static void settle(struct always_files *f)
{
    f->state = FILES_WAIT;
    drop_read(f);
    if (f->stopped) {
        destroy(f);
        return;
    }
    timer_set(f->w, &f->timer, LOOK_MS);
    if (!f->again)
        return;
    f->again = false;
    look(f);
}

/* A list that is as it should be, or the one in force. */
static const struct rules *wanted(const struct always_files *f, enum rulefile file,
                                  const struct rules *in_force)
{
    bool held = file != RULEFILE_LOG_SKIP && (!f->read[RULEFILE_DENY] || !f->read[RULEFILE_ALLOW]);
    return f->read[file] && !held ? f->read[file] : in_force;
}

static struct always_lists wanted_lists(const struct always_files *f,
                                        const struct always_lists *in_force)
{
    return (struct always_lists){wanted(f, RULEFILE_DENY, in_force->deny),
                                 wanted(f, RULEFILE_ALLOW, in_force->allow),
                                 wanted(f, RULEFILE_LOG_SKIP, in_force->log_skip)};
}

static bool same_addresses(const struct always_lists *a, const struct always_lists *b)
{
    return rules_same(a->deny, b->deny) && rules_same(a->allow, b->allow);
}

static struct egress_view *candidate(struct change *c, const struct egress_view *now,
                                     struct change_answer *ret)
{
    (void)ret;
    struct always_files *f = container_of(c, struct always_files, change);
    struct always_lists lists = wanted_lists(f, &now->always);
    c->addresses = !same_addresses(&lists, &now->always);
    return c->addresses || !rules_same(lists.log_skip, now->always.log_skip)
               ? view_with_always(now, &lists)
               : NULL;
}

static void on_changed(struct change *c, const struct change_answer *answer,
                       const struct egress_view *now)
{
    struct always_files *f = container_of(c, struct always_files, change);
    if (answer->status != 200)
        log_note(LOG_WARN, "rule files are not in force", "error", answer->text, NULL);
    else
        log_note(LOG_INFO, "rule files in force", NULL);
    (void)now;
    settle(f);
}

/* One warning for a fault, however often it is met. */
static void tell_faults(struct always_files *f)
{
    for (int i = 0; i < FILES; i++) {
        if (f->faults[i][0] && strcmp(f->faults[i], f->told[i]) != 0)
            log_note(LOG_WARN, "rule file not taken", "error", f->faults[i], NULL);
        memcpy(f->told[i], f->faults[i], sizeof f->told[i]);
    }
}

static void on_read(void *user)
{
    struct always_files *f = user;
    if (f->stopped) {
        settle(f);
        return;
    }
    tell_faults(f);
    const struct always_lists *now = &changes_now(f->q)->always;
    struct always_lists lists = wanted_lists(f, now);
    if (same_addresses(&lists, now) && rules_same(lists.log_skip, now->log_skip)) {
        settle(f);
        return;
    }
    f->state = FILES_CHANGE;
    f->change = (struct change){.candidate = candidate, .done = on_changed};
    change_submit(f->q, &f->change);
}

/* On a thread of the pool. */
static void read_all(void *user)
{
    struct always_files *f = user;
    for (int i = 0; i < FILES; i++) {
        f->faults[i][0] = '\0';
        if (!read_rules((enum rulefile)i, f->paths[i], &f->read[i], f->faults[i]))
            f->read[i] = NULL;
    }
}

static void look(struct always_files *f)
{
    if (f->state != FILES_WAIT) {
        f->again = true;
        return;
    }
    f->state = FILES_READ;
    timer_clear(f->w, &f->timer);
    worker_call(f->w, read_all, on_read, f);
}

static void on_seen(void *user)
{
    look(user);
}

static void on_minute(struct timer *t)
{
    look(container_of(t, struct always_files, timer));
}

struct always_files *always_start(struct worker *w, struct changes *q, struct str folder)
{
    struct always_files *f = mem_new(sizeof *f);
    struct str paths[FILES];
    f->w = w;
    f->q = q;
    timer_init(&f->timer, on_minute);
    for (int i = 0; i < FILES; i++) {
        char path[4096];
        int n = snprintf(path, sizeof path, "%.*s/%s", STR_ARG(folder), names[i]);
        f->paths[i] = mem_strdup((struct str){path, (size_t)n < sizeof path ? (size_t)n : 0});
        paths[i] = str_of(f->paths[i]);
    }
    f->watch = watch_start_all(w, paths, FILES, on_seen, f);
    look(f);
    return f;
}

void always_reload(struct always_files *f)
{
    look(f);
}

void always_stop(struct always_files *f)
{
    if (!f)
        return;
    watch_stop(f->watch);
    timer_clear(f->w, &f->timer);
    f->stopped = true;
    if (f->state == FILES_WAIT)
        destroy(f);
}
