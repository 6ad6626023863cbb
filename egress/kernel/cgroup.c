/* cgroup.c — finds our cgroup, and whether it is ours alone.  A rule counts levels from the root of
 * the hierarchy, so only a process that sees the true root, in the first cgroup namespace, can say
 * how deep it lies: elsewhere there is no cgroup in the rules, the random mark and the uid remain.
 */
#include "egress/kernel/cgroup.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/text.h"

/* nft looks below this folder; version 2 is mounted here, or beside version 1 (K14). */
#define MOUNT "/sys/fs/cgroup"

enum { FILE_MAX = 16384, PATH_LONGEST = 1024, LEVEL_MAX = 255 };

static const char *const hierarchies[] = {"", "unified"};

static struct str read_file(const char *path, char out[FILE_MAX])
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    size_t n = 0;
    while (fd >= 0 && n < FILE_MAX) {
        ssize_t got = read(fd, out + n, FILE_MAX - n);
        if (got == 0 || (got < 0 && errno != EINTR))
            break;
        n += got > 0 ? (size_t)got : 0;
    }
    if (fd >= 0)
        close(fd);
    return (struct str){out, n};
}

struct str cgroup_line(struct str file)
{
    struct str line;
    while (str_next(&file, '\n', &line)) {
        if (str_starts(line, STR("0::/")))
            return str_skip(line, 4);
    }
    return STR_NONE;
}

static bool sees_true_root(void)
{
    /* The number of the first cgroup namespace is fixed (PROC_CGROUP_INIT_INO). */
    static const ino_t first = 0xeffffffb;
    struct stat st;
    return stat("/proc/self/ns/cgroup", &st) == 0 && st.st_ino == first;
}

static bool is_version2(const char *folder)
{
    struct statfs fs;
    return statfs(folder, &fs) == 0 && fs.f_type == CGROUP2_SUPER_MAGIC;
}

/* Only we, and who started us? */
static bool is_ours_alone(struct str pids)
{
    struct str line;
    bool self = false;
    while (str_next(&pids, '\n', &line)) {
        uint64_t pid;
        if (line.n == 0)
            continue;
        if (!text_u64(line, INT32_MAX, &pid))
            return false;
        if (pid == (uint64_t)getpid())
            self = true;
        else if (pid != (uint64_t)getppid())
            return false;
    }
    return self;
}

/* What lies below counts as ours, too, for a rule. */
static bool has_children(const char *folder)
{
    DIR *d = opendir(folder);
    bool found = !d;
    for (const struct dirent *e; d && !found && (e = readdir(d));)
        found = e->d_type == DT_DIR && e->d_name[0] != '.';
    if (d)
        closedir(d);
    return found;
}

static unsigned depth(struct str path)
{
    struct str part;
    unsigned n = 0;
    while (str_next(&path, '/', &part))
        n += part.n > 0;
    return n;
}

static bool look_below(const char *hierarchy, struct str path, struct arena *a, struct cgroup *ret)
{
    char folder[PATH_LONGEST], file[PATH_LONGEST + 16], pids[FILE_MAX];
    const char *slash = *hierarchy ? "/" : "";
    int n = snprintf(folder, sizeof folder, MOUNT "/%s%s%.*s", hierarchy, slash, STR_ARG(path));
    if (n < 0 || n >= (int)sizeof folder || !is_version2(folder))
        return false;
    snprintf(file, sizeof file, "%s/cgroup.procs", folder);
    if (!is_ours_alone(read_file(file, pids)) || has_children(folder))
        return false;
    ret->path = arena_printf(a, "%s%s%.*s", hierarchy, slash, STR_ARG(path));
    ret->level = depth(path);
    return ret->level <= LEVEL_MAX;
}

bool cgroup_own(struct arena *a, struct cgroup *ret)
{
    char text[FILE_MAX];
    struct str path = cgroup_line(read_file("/proc/self/cgroup", text));
    if (path.n == 0 || !sees_true_root())
        return false;
    for (size_t i = 0; i < sizeof hierarchies / sizeof *hierarchies; i++) {
        if (look_below(hierarchies[i], path, a, ret))
            return true;
    }
    return false;
}
