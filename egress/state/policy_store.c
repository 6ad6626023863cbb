/* policy_store.c — the file of the user's policy.  The bytes that a write replaces are kept until
 * the next one, so that a change which fails later can be taken back to the byte. */
#include "egress/state/policy_store.h"

#include <assert.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "egress/settings.h"
#include "egress/state/file.h"
#include "net/worker.h"

enum { POLICY_FILE_BYTES = 64 << 20, NEW_MODE = 0600 };

struct policy_store {
    struct worker *w;
    char *path; /* NULL: nothing is kept */
    struct file_bytes before, fresh;
    bool busy;
    int error;
    void (*done)(void *user, int error);
    void *user;
};

/* ---- the start */

static bool fail_at(const char *what, const struct json_fault *fault, struct arena *a,
                    struct str *ret_error)
{
    *ret_error = arena_printf(a, "%s:%u:%u: %s", what, fault->line, fault->column, fault->text);
    return false;
}

/* *ret_blank: there is nothing in it to read. */
static bool read_file(const char *path, struct document *ret, bool *ret_blank, struct arena *a,
                      struct str *ret_error)
{
    struct file_bytes f;
    struct json_fault fault;
    int error = file_get(path, POLICY_FILE_BYTES, &f);
    if (error) {
        *ret_error =
            arena_printf(a, EGRESS_VARIABLE "POLICY_FILE: %s: %s", path, strerrordesc_np(-error));
        return false;
    }
    struct str text = {f.p, f.n};
    *ret_blank = !f.exists || target_trim(text).n == 0;
    bool good = *ret_blank || document_parse(text, ret, &fault);
    file_bytes_done(&f);
    return good || fail_at(arena_printf(a, EGRESS_VARIABLE "POLICY_FILE: %s", path).p, &fault, a,
                           ret_error);
}

bool policy_start(struct str path, struct str rules, struct document *ret,
                  enum policy_source *ret_source, struct arena *a, struct str *ret_error)
{
    struct json_fault fault;
    bool blank = true;
    path = target_trim(path);
    if (path.n && !read_file(arena_printf(a, "%.*s", STR_ARG(path)).p, ret, &blank, a, ret_error))
        return false;
    *ret_source = POLICY_FROM_FILE;
    if (!blank)
        return true;
    *ret_source = target_trim(rules).n ? POLICY_FROM_VARIABLE : POLICY_FROM_DEFAULT;
    return document_parse(rules, ret, &fault) ||
           fail_at(EGRESS_VARIABLE "RULES", &fault, a, ret_error);
}

/* ---- writing */

struct policy_store *policy_store_new(struct worker *w, struct str path)
{
    struct policy_store *s = mem_new(sizeof *s);
    s->w = w;
    s->path = path.n ? mem_strdup(path) : NULL;
    return s;
}

void policy_store_free(struct policy_store *s)
{
    if (!s)
        return;
    assert(!s->busy);
    file_bytes_done(&s->before);
    file_bytes_done(&s->fresh);
    mem_free(s->path);
    mem_free(s);
}

bool policy_store_keeps(const struct policy_store *s)
{
    return s->path != NULL;
}

static void on_done(void *user)
{
    struct policy_store *s = user;
    s->busy = false;
    s->done(s->user, s->error);
}

static void begin(struct policy_store *s, void (*work)(void *), void (*done)(void *, int),
                  void *user)
{
    assert(s->path && !s->busy);
    s->busy = true;
    s->done = done;
    s->user = user;
    worker_call(s->w, work, on_done, s);
}

static bool same(const struct file_bytes *a, const struct file_bytes *b)
{
    return a->exists && b->exists && str_eq((struct str){a->p, a->n}, (struct str){b->p, b->n});
}

/* Written in place the file may be a mixture now; the old bytes had room before. */
static void mend(const struct policy_store *s, const struct file_bytes *before)
{
    struct file_bytes now;
    if (file_get(s->path, POLICY_FILE_BYTES, &now) < 0)
        return;
    bool whole = now.exists == before->exists && (!now.exists || same(&now, before));
    if (!whole && file_put(s->path, before) < 0)
        log_note(LOG_ERROR, "policy file may be damaged", "path", s->path, NULL);
    file_bytes_done(&now);
}

/* On a thread of the pool, like undo_work(). */
static void write_work(void *user)
{
    struct policy_store *s = user;
    struct file_bytes before;
    s->error = file_get(s->path, POLICY_FILE_BYTES, &before);
    if (s->error)
        return;
    s->fresh.mode = before.exists ? before.mode : NEW_MODE;
    s->fresh.uid = before.exists ? before.uid : geteuid();
    s->fresh.gid = before.exists ? before.gid : getegid();
    if (!same(&before, &s->fresh))
        s->error = file_put(s->path, &s->fresh);
    if (s->error)
        mend(s, &before);
    struct file_bytes *unused = s->error ? &before : &s->before;
    file_bytes_done(unused);
    if (!s->error)
        s->before = before;
}

static void undo_work(void *user)
{
    struct policy_store *s = user;
    s->error = file_put(s->path, &s->before);
}

void policy_store_write(struct policy_store *s, const struct document *d,
                        void (*done)(void *user, int error), void *user)
{
    struct json_out o;
    json_out_init(&o);
    document_put_file(&o, d);
    assert(!s->busy);
    file_bytes_done(&s->fresh);
    s->fresh =
        (struct file_bytes){.exists = true, .p = mem_strdup((struct str){o.p, o.n}), .n = o.n};
    json_out_done(&o);
    begin(s, write_work, done, user);
}

void policy_store_undo(struct policy_store *s, void (*done)(void *user, int error), void *user)
{
    begin(s, undo_work, done, user);
}
