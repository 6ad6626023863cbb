/* ca_store.c — the authority's files.  The folder of the export can be written by the workload, so
 * no link there is followed: a file is made under a name nobody can guess and takes the place of
 * whatever stands under the right one. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/digest.h"
#include "base/text.h"
#include "egress/intercept/ca_impl.h"
#include "egress/state/file.h"

#define WHOLE_NAME "mitmproxy-ca.pem"
#define CERT_NAME "mitmproxy-ca-cert.pem"

enum {
    CA_FILE_BYTES = 1 << 20,
    BUNDLE_BYTES = 32 << 20,
    KEY_MODE = 0600,
    CERT_MODE = 0644,
    FOLDER_MODE = 0755,
    TAG_BYTES = 8
};

static bool fail(const char *path, const char *what, struct arena *a, struct str *ret_error)
{
    *ret_error = arena_printf(a, "%s: %s", path, what);
    return false;
}

static bool fail_errno(const char *path, int error, struct arena *a, struct str *ret_error)
{
    return fail(path, strerrordesc_np(-error), a, ret_error);
}

/* ---- writing */

/* All folders of a path, up to its last slash. */
static int make_folders(const char *path)
{
    char at[PATH_MAX];
    if (strlen(path) >= sizeof at)
        return -ENAMETOOLONG;
    for (const char *p = strchr(path + 1, '/'); p; p = strchr(p + 1, '/')) {
        snprintf(at, sizeof at, "%.*s", (int)(p - path), path);
        /* whatever the umask says */
        if (mkdir(at, FOLDER_MODE) == 0 ? chmod(at, FOLDER_MODE) < 0 : errno != EEXIST)
            return -errno;
    }
    return 0;
}

static int fill(int fd, struct str bytes, mode_t mode)
{
    while (bytes.n > 0) {
        ssize_t n = write(fd, bytes.p, bytes.n);
        if (n < 0 && errno != EINTR)
            return -errno;
        bytes = str_skip(bytes, n > 0 ? (size_t)n : 0);
    }
    return fchmod(fd, mode) < 0 || fsync(fd) < 0 ? -errno : 0;
}

static int put_at(int dir, const char *name, struct str bytes, mode_t mode)
{
    uint8_t tag[TAG_BYTES];
    char hex[2 * TAG_BYTES + 1] = "", temporary[NAME_MAX + 1];
    digest_random(tag, sizeof tag);
    text_put_hex(hex, tag, sizeof tag);
    int n = snprintf(temporary, sizeof temporary, ".%s.%s", name, hex);
    if (n < 0 || (size_t)n >= sizeof temporary)
        return -ENAMETOOLONG;
    int fd = openat(dir, temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, KEY_MODE);
    if (fd < 0)
        return -errno;
    int error = fill(fd, bytes, mode);
    if (close(fd) < 0 && !error)
        error = -errno;
    if (!error && renameat(dir, temporary, dir, name) < 0)
        error = -errno;
    if (error)
        unlinkat(dir, temporary, 0);
    else
        (void)!fsync(dir); /* some file systems have nothing to say about folders */
    return error;
}

/* Whole or not at all. */
static int put(const char *path, struct str bytes, mode_t mode)
{
    char folder[PATH_MAX];
    const char *slash = strrchr(path, '/');
    if (!slash || (size_t)(slash - path) + 1 >= sizeof folder)
        return slash ? -ENAMETOOLONG : -EINVAL;
    int error = make_folders(path);
    if (error)
        return error;
    snprintf(folder, sizeof folder, "%.*s", (int)(slash - path) + 1, path);
    int dir = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir < 0)
        return -errno;
    error = put_at(dir, slash + 1, bytes, mode);
    close(dir);
    return error;
}

/* ---- the authority's folder */

static const char *path_of(const struct ca_paths *at, const char *name, struct arena *a)
{
    return arena_printf(a, "%s/%s", at->folder, name).p;
}

/* For people and programs that look for it there; nothing of ours depends on it, and the folder may
 * be one that only can be read. */
static void put_cert(const struct ca *ca, const struct ca_paths *at, struct arena *a)
{
    const char *path = path_of(at, CERT_NAME, a);
    struct file_bytes f = {.exists = false};
    int error = file_get(path, CA_FILE_BYTES, &f);
    if (error || !f.exists || !str_eq((struct str){f.p, f.n}, ca_pem(ca)))
        (void)!put(path, ca_pem(ca), CERT_MODE);
    file_bytes_done(&f);
}

static struct ca *take(struct file_bytes *f, const char *path, int64_t now_s, struct arena *a,
                       struct str *ret_error)
{
    const char *fault;
    if (f->mode & 077) {
        *ret_error = arena_printf(a, "%s: it is open to group or others (mode %04o, not 0600)",
                                  path, (unsigned)f->mode);
        return NULL;
    }
    struct ca *ca = ca_read((struct str){f->p, f->n}, now_s, &fault);
    if (!ca)
        fail(path, fault, a, ret_error);
    return ca;
}

static struct ca *make(const char *path, enum ca_key kind, int64_t now_s, struct arena *a,
                       struct str *ret_error)
{
    size_t n;
    struct ca *ca = ca_make(kind, now_s);
    char *whole = ca_whole_pem(ca, &n);
    int error = put(path, (struct str){whole, n}, KEY_MODE);
    digest_wipe(whole, n);
    mem_free(whole);
    if (!error)
        return ca;
    fail_errno(path, error, a, ret_error);
    ca_free(ca);
    return NULL;
}

struct ca *ca_open(const struct ca_paths *at, enum ca_key kind, int64_t now_s, struct arena *a,
                   struct str *ret_error)
{
    const char *path = path_of(at, WHOLE_NAME, a);
    struct file_bytes f = {.exists = false};
    int error = file_get(path, CA_FILE_BYTES, &f);
    if (error) {
        fail_errno(path, error, a, ret_error);
        return NULL;
    }
    struct ca *ca =
        f.exists ? take(&f, path, now_s, a, ret_error) : make(path, kind, now_s, a, ret_error);
    if (f.n)
        digest_wipe(f.p, f.n);
    file_bytes_done(&f);
    if (ca)
        put_cert(ca, at, a);
    return ca;
}

bool ca_again(const struct ca *old, const struct ca_paths *at, int64_t now_s, struct arena *a,
              struct ca **ret, struct str *ret_error)
{
    const char *path = path_of(at, WHOLE_NAME, a);
    struct file_bytes f = {.exists = false};
    int error = file_get(path, CA_FILE_BYTES, &f);
    if (error)
        return fail_errno(path, error, a, ret_error);
    struct ca *ca = f.exists ? take(&f, path, now_s, a, ret_error) : NULL;
    if (f.n)
        digest_wipe(f.p, f.n);
    if (!f.exists)
        fail(path, "it is gone", a, ret_error);
    file_bytes_done(&f);
    if (!ca)
        return false;
    bool same = str_eq(ca_pem(ca), ca_pem(old));
    if (same)
        ca_free(ca);
    else
        put_cert(ca, at, a);
    *ret = same ? NULL : ca;
    return true;
}

/* ---- the export */

void ca_purge(const struct ca_paths *at)
{
    (void)!unlink(at->export);
}

/* Behind what is there, once.  No bundle: nobody reads one. */
static int append(const char *bundle, struct str pem)
{
    struct file_bytes f = {.exists = false};
    char *real = realpath(bundle, NULL);
    int error = real ? file_get(real, BUNDLE_BYTES, &f) : 0;
    if (!error && f.exists && !memmem(f.p, f.n, pem.p, pem.n)) {
        bool open_line = f.n > 0 && f.p[f.n - 1] != '\n';
        size_t n = f.n + open_line;
        f.p = mem_renew(f.p, n + pem.n);
        if (open_line)
            f.p[f.n] = '\n';
        memcpy(f.p + n, pem.p, pem.n);
        error = put(real, (struct str){f.p, n + pem.n}, f.mode);
    }
    file_bytes_done(&f);
    free(real);
    return error;
}

/* What the sidecar itself trusts; the sandbox does not wait for it. */
static bool trust(const struct ca *ca, const struct ca_paths *at, struct arena *a,
                  struct str *ret_error)
{
    int error = at->system ? put(at->system, ca_pem(ca), CERT_MODE) : 0;
    if (error)
        return fail_errno(at->system, error, a, ret_error);
    error = at->bundle ? append(at->bundle, ca_pem(ca)) : 0;
    return !error || fail_errno(at->bundle, error, a, ret_error);
}

bool ca_export(const struct ca *ca, const struct ca_paths *at, struct arena *a,
               struct str *ret_error)
{
    int error = put(at->export, ca_pem(ca), CERT_MODE);
    if (error)
        return fail_errno(at->export, error, a, ret_error);
    *ret_error = STR_NONE;
    (void)trust(ca, at, a, ret_error);
    return true;
}
