/* policy_rig.c — see policy_rig.h.  Client and server take turns on one thread, so that a test
 * decides how far each has come. */
#include "harness/policy_rig.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/text.h"
#include "conf/sources.h"
#include "egress/intercept/passlist.h"
#include "net/listen.h"

enum { PATIENCE_MS = 5000 };

uint64_t rig_now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static void nap(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL);
}

void rig_run(struct policy_rig *r, unsigned ms)
{
    for (uint64_t end = rig_now_ms() + ms; rig_now_ms() < end; nap())
        worker_turn(r->w);
}

bool rig_until(struct policy_rig *r, bool (*done)(void *user), void *user)
{
    for (uint64_t end = rig_now_ms() + PATIENCE_MS; rig_now_ms() < end; nap()) {
        worker_turn(r->w);
        if (done(user))
            return true;
    }
    return false;
}

/* ---- the fake kernel */

void rig_kernel_speak(struct policy_rig *r, int error)
{
    struct rig_kernel *k = &r->kernel;
    void (*done)(void *, int) = k->done;
    if (!done)
        return;
    k->done = NULL;
    if (!error)
        k->holds = k->fresh;
    if (error == -ENOBUFS)
        k->holds = NULL;
    done(k->arg, error);
}

static void on_post(struct worker *w, struct post *p)
{
    (void)w;
    struct policy_rig *r = container_of(p, struct policy_rig, kernel.post);
    struct rig_kernel *k = &r->kernel;
    bool fails = k->fail_all || k->applies == k->fail_at;
    rig_kernel_speak(r, !fails ? 0 : k->error ? k->error : -EINVAL);
}

static void kernel(void *user, const struct egress_view *old, const struct egress_view *fresh,
                   void (*done)(void *arg, int error), void *arg)
{
    struct policy_rig *r = user;
    struct rig_kernel *k = &r->kernel;
    assert(!k->done && fresh);
    k->applies++;
    k->asked_blind = old == NULL;
    k->fresh = fresh->policy;
    k->done = done;
    k->arg = arg;
    k->post.run = on_post;
    if (!k->silent)
        worker_post(r->w, &k->post);
}

static void publish(void *user, const struct egress_view *fresh, void (*in_force)(void *arg),
                    void *arg)
{
    struct policy_rig *r = user;
    struct snapshot *snap = view_snapshot(&r->set.core, fresh);
    worker_adopt(r->w, snap);
    snapshot_unref(r->snap);
    r->snap = snap;
    in_force(arg);
}

static void after(void *user, const struct egress_view *old, const struct egress_view *fresh,
                  void (*done)(void *arg), void *arg)
{
    struct policy_rig *r = user;
    assert(old->revision < fresh->revision);
    r->afters++;
    done(arg);
}

static void unsure(void *user, bool is)
{
    ((struct policy_rig *)user)->unsure = is;
}

static const char *not_enforced(void *user)
{
    return ((struct policy_rig *)user)->not_enforced;
}

static bool interception_ready(void *user)
{
    const struct policy_rig *r = user;
    return r->interception_ready && rig_now_ms() >= r->ready_at_ms;
}

static bool passed(void *user, struct str host)
{
    const struct policy_rig *r = user;
    return r->passlist && passlist_covers(r->passlist, host);
}

static void updated(void *user, const struct api_update *u)
{
    struct policy_rig *r = user;
    r->updates++;
    r->update_status = u->status;
}

/* ---- life */

void rig_init(struct policy_rig *r, const char *(*getenv_of)(const char *name))
{
    struct conf_input in = {0, NULL, getenv_of, true};
    enum conf_action action;
    struct str error = STR("");
    memset(r, 0, sizeof *r);
    arena_init(&r->a, NULL, 0);
    snprintf(r->folder, sizeof r->folder, "/tmp/policy_rig.XXXXXX");
    if (!mkdtemp(r->folder))
        abort();
    snprintf(r->file, sizeof r->file, "%s/policy.json", r->folder);
    r->w = worker_new(0);
    worker_private(r->w);
    r->interception_ready = true;
    bool good = conf_load(&egress_schema, &in, &r->a, &r->set, &action, &error) &&
                egress_settings_check(&r->set, &r->a, &error);
    if (!good) {
        fprintf(stderr, "settings of the rig: %.*s\n", STR_ARG(error));
        abort();
    }
    r->kernel.present = r->set.mode == EGRESS_DNS_NFT;
}

static bool start_listener(struct policy_rig *r, struct str *ret_error)
{
    union addr any = {.v6 = {.sin6_family = AF_INET6}}, bound;
    struct api_host host = {.set = &r->set,
                            .changes = r->changes,
                            .decisions = r->decisions,
                            .not_enforced = not_enforced,
                            .interception_ready = interception_ready,
                            .passed = passed,
                            .updated = updated,
                            .user = r};
    int fd = listen_bind(&any.sa, &bound, &r->a, ret_error);
    if (fd < 0) {
        any = (union addr){.v4 = {.sin_family = AF_INET}};
        fd = listen_bind(&any.sa, &bound, &r->a, ret_error);
    }
    if (fd < 0)
        return false;
    r->port = addr_port(&bound.sa);
    r->api = api_start(r->w, fd, &host);
    return true;
}

void rig_restart(struct policy_rig *r)
{
    struct str error;
    api_stop(r->api);
    rig_run(r, 5);
    bool good = start_listener(r, &error);
    assert(good);
}

bool rig_start(struct policy_rig *r, const struct document *user, struct str *ret_error)
{
    struct always_lists lists;
    struct document d;
    enum policy_source source;
    if (!always_read(str_of(r->folder), &lists, &r->a, ret_error))
        return false;
    bool good =
        user || policy_start(r->set.policy_file, r->set.rules, &d, &source, &r->a, ret_error);
    if (user)
        d = document_copy(user);
    struct egress_view *first = good ? view_new(&d, &lists, 1) : NULL;
    always_lists_done(&lists);
    if (!good)
        return false;
    document_done(&d);
    if (r->vault || r->lost) {
        struct egress_view *bare = first;
        first = r->vault ? view_with_vault(bare, r->vault) : view_with_lost(bare, r->lost);
        view_unref(bare);
    }
    r->snap = view_snapshot(&r->set.core, first);
    worker_adopt(r->w, r->snap);
    r->store = policy_store_new(r->w, r->set.policy_file);
    r->decisions = decisions_new();
    r->kernel.holds = first->policy;
    struct change_host host = {.w = r->w,
                               .store = r->store,
                               .kernel = r->kernel.present ? kernel : NULL,
                               .publish = publish,
                               .after = after,
                               .unsure = unsure,
                               .kernel_ms = settings_ms(r->set.kernel_timeout),
                               .user = r};
    r->changes = changes_new(&host, first);
    view_unref(first);
    return start_listener(r, ret_error);
}

/* ---- changes of the test's own */

struct forced {
    struct change change;
    const struct document *user;
    const struct always_lists *lists;
    bool over;
    int status;
};

static struct egress_view *forced_view(struct change *c, const struct egress_view *now,
                                       struct change_answer *ret)
{
    struct forced *f = container_of(c, struct forced, change);
    (void)ret;
    return f->user ? view_with_user(now, f->user) : view_with_always(now, f->lists);
}

static void on_forced(struct change *c, const struct change_answer *answer,
                      const struct egress_view *now)
{
    struct forced *f = container_of(c, struct forced, change);
    (void)now;
    f->status = answer->status;
    f->over = true;
}

static bool is_forced(void *user)
{
    return ((struct forced *)user)->over;
}

static bool force(struct policy_rig *r, struct forced *f)
{
    f->change = (struct change){.candidate = forced_view, .done = on_forced, .addresses = true};
    change_submit(r->changes, &f->change);
    bool over = rig_until(r, is_forced, f);
    assert(over);
    return f->status == 200;
}

bool rig_policy(struct policy_rig *r, const struct document *user)
{
    return force(r, &(struct forced){.user = user});
}

bool rig_lists(struct policy_rig *r, const struct always_lists *lists)
{
    return force(r, &(struct forced){.lists = lists});
}

static bool is_quiet(void *user)
{
    struct policy_rig *r = user;
    return !r->changes || !changes_busy(r->changes);
}

static void remove_folder(const char *path)
{
    char child[512];
    DIR *dir = opendir(path);
    for (struct dirent *e; dir && (e = readdir(dir));) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
            continue;
        snprintf(child, sizeof child, "%s/%s", path, e->d_name);
        if (unlink(child) < 0 && rmdir(child) < 0)
            fprintf(stderr, "%s stays\n", child);
    }
    if (dir)
        closedir(dir);
    rmdir(path);
}

void rig_stop(struct policy_rig *r)
{
    r->kernel.silent = false;
    rig_kernel_speak(r, 0);
    always_stop(r->always);
    bool quiet = rig_until(r, is_quiet, r);
    assert(quiet);
    api_stop(r->api);
    rig_run(r, 20);
    changes_free(r->changes);
    policy_store_free(r->store);
    decisions_free(r->decisions);
    snapshot_unref(r->snap);
    worker_free(r->w);
    arena_done(&r->a);
    remove_folder(r->folder);
}

/* ---- the client */

int rig_connect(struct policy_rig *r, const char *from)
{
    struct ip ip, loopback = {{[10] = 0xff, [11] = 0xff, 127, 0, 0, 1}};
    union addr to, me;
    if (!from || !ip_parse(str_of(from), &ip))
        ip = loopback;
    addr_make(&to, &ip, r->port);
    addr_make(&me, &ip, 0);
    int fd = socket(to.sa.sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0 && bind(fd, &me.sa, addr_len(&me.sa)) == 0 &&
        connect(fd, &to.sa, addr_len(&to.sa)) == 0 && fcntl(fd, F_SETFL, O_NONBLOCK) == 0)
        return fd;
    if (fd >= 0)
        close(fd);
    return -1;
}

void rig_send(struct policy_rig *r, int fd, struct str bytes)
{
    for (uint64_t end = rig_now_ms() + PATIENCE_MS; bytes.n && rig_now_ms() < end;) {
        ssize_t n = send(fd, bytes.p, bytes.n, MSG_NOSIGNAL);
        if (n < 0 && errno != EAGAIN)
            return; /* refused early */
        bytes = str_skip(bytes, n > 0 ? (size_t)n : 0);
        worker_turn(r->w);
    }
}

static size_t head_end(struct str s)
{
    const char *p = s.n ? memmem(s.p, s.n, "\r\n\r\n", 4) : NULL;
    return p ? (size_t)(p - s.p) + 4 : 0;
}

struct str rig_field(const struct rig_answer *answer, const char *name)
{
    struct str rest = answer->head, line;
    while (str_next(&rest, '\n', &line)) {
        ptrdiff_t colon = str_chr(line, ':');
        if (colon < 0 || !str_ieq(str_head(line, (size_t)colon), str_of(name)))
            continue;
        line = str_skip(line, (size_t)colon + 1);
        return str_trim(line.n && line.p[line.n - 1] == '\r' ? str_head(line, line.n - 1) : line);
    }
    return STR("");
}

/* Cuts off an interim answer. */
static struct str final_part(struct str s)
{
    size_t end = head_end(s);
    return end && str_starts(s, STR("HTTP/1.1 1")) ? str_skip(s, end) : s;
}

static bool is_whole(struct str s, bool head_only, struct rig_answer *ret)
{
    size_t end = head_end(s);
    uint64_t length = 0, status = 0;
    if (!end || s.n < 12 || !text_u64((struct str){s.p + 9, 3}, 999, &status))
        return false;
    ret->status = (int)status;
    ret->head = str_head(s, end);
    if (!head_only && !text_u64(rig_field(ret, "content-length"), 1 << 30, &length))
        length = 0;
    if (s.n - end < length)
        return false;
    ret->body = (struct str){s.p + end, length};
    return true;
}

struct rig_answer rig_read(struct policy_rig *r, int fd, bool head_only, struct arena *a)
{
    struct rig_answer answer = {0, STR_NONE, STR_NONE};
    size_t n = 0, room = 65536;
    char *bytes = arena_get(a, room);
    for (uint64_t end = rig_now_ms() + PATIENCE_MS; rig_now_ms() < end;) {
        worker_turn(r->w);
        if (n == room) {
            char *more = arena_get(a, 2 * room);
            memcpy(more, bytes, n);
            bytes = more;
            room *= 2;
        }
        ssize_t got = recv(fd, bytes + n, room - n, 0);
        n += got > 0 ? (size_t)got : 0;
        if (is_whole(final_part((struct str){bytes, n}), head_only, &answer))
            return answer;
        if (got == 0 || (got < 0 && errno != EAGAIN))
            break;
        if (got < 0)
            nap();
    }
    return (struct rig_answer){0, STR_NONE, STR_NONE};
}

struct rig_answer rig_ask(struct policy_rig *r, const char *from, struct str request,
                          struct arena *a)
{
    int fd = rig_connect(r, from);
    if (fd < 0)
        return (struct rig_answer){-1, STR_NONE, STR_NONE};
    rig_send(r, fd, request);
    struct rig_answer answer = rig_read(r, fd, str_starts(request, STR("HEAD ")), a);
    close(fd);
    return answer;
}

struct str rig_request(const char *method, const char *path, const char *more, struct str body,
                       struct arena *a)
{
    struct str head =
        arena_printf(a, "%s %s HTTP/1.1\r\nHost: localhost\r\n%s", method, path, more);
    struct str length =
        body.n || body.p ? arena_printf(a, "Content-Length: %zu\r\n\r\n", body.n) : STR("\r\n");
    return arena_cat(a, arena_cat(a, head, length), body);
}

void rig_write(struct policy_rig *r, const char *name, const char *text)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", r->folder, name);
    if (!text) {
        unlink(path);
        return;
    }
    FILE *f = fopen(path, "w");
    if (!f)
        abort();
    fputs(text, f);
    fclose(f);
}

struct str rig_file(const char *path, struct arena *a)
{
    struct str text, error;
    return conf_read_file(str_of(path), 1 << 26, a, &text, &error) ? text : STR_NONE;
}
