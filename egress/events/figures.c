/* figures.c — small files of the kernel, read whole.  The cgroup is looked for by the file system's
 * type, since either version may be mounted anywhere, and both at once. */
#include "egress/events/figures.h"

#include <fcntl.h>
#include <unistd.h>

#include "base/text.h"

enum { FILE_BYTES = 1 << 20, CPU_COLUMNS = 8, CPU_IDLE = 3, CPU_IOWAIT = 4, MOUNT_FIELDS = 5 };

/* ---- files and their lines ---- */

/* The text of root + folder + name; false if it cannot be read. */
static bool read_file(struct arena *a, const char *root, struct str folder, const char *name,
                      struct str *ret)
{
    struct str path = arena_printf(a, "%s%.*s%s", root, STR_ARG(folder), name);
    int fd = open(path.p, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    size_t n = 0, room = 0;
    ssize_t got = -1;
    char *p = NULL;
    while (fd >= 0 && n < FILE_BYTES) {
        if (n == room)
            p = mem_renew(p, room = room ? 2 * room : 4096);
        got = read(fd, p + n, room - n);
        if (got <= 0)
            break;
        n += (size_t)got;
    }
    if (fd >= 0)
        close(fd);
    *ret = arena_str(a, (struct str){p, n});
    mem_free(p);
    return got == 0;
}

/* The next word of *rest; false: there is none. */
static bool next_word(struct str *rest, struct str *ret)
{
    while (rest->n && (*rest->p == ' ' || *rest->p == '\t'))
        *rest = str_skip(*rest, 1);
    size_t n = 0;
    while (n < rest->n && rest->p[n] != ' ' && rest->p[n] != '\t')
        n++;
    *ret = str_head(*rest, n);
    *rest = str_skip(*rest, n);
    return n > 0;
}

/* The first number behind `name`, which begins a line. */
static bool number_of(struct str text, struct str name, uint64_t *ret)
{
    struct str line, word;
    while (str_next(&text, '\n', &line))
        if (next_word(&line, &word) && str_eq(word, name))
            return next_word(&line, &word) && text_u64(word, UINT64_MAX, ret);
    return false;
}

static bool number_in(struct arena *a, const char *root, struct str folder, const char *name,
                      uint64_t *ret)
{
    struct str text;
    return read_file(a, root, folder, name, &text) &&
           text_u64(str_head(text, text.n - (text.n && text.p[text.n - 1] == '\n')), UINT64_MAX,
                    ret);
}

/* ---- the node ---- */

static void read_node_memory(struct arena *a, const char *root, struct figures *ret)
{
    struct str text;
    uint64_t total, rest;
    if (!read_file(a, root, STR("/proc"), "/meminfo", &text) ||
        !number_of(text, STR("MemTotal:"), &total) ||
        (!number_of(text, STR("MemAvailable:"), &rest) &&
         !number_of(text, STR("MemFree:"), &rest)) ||
        rest > total || total > UINT64_MAX / 1024)
        return;
    ret->has_node_memory = true;
    ret->node_memory = (total - rest) * 1024;
}

static bool parse_ticks(struct str text, struct cpu_ticks *ret)
{
    struct str line, word;
    struct cpu_ticks t = {0};
    uint64_t v;
    if (!str_next(&text, '\n', &line) || !next_word(&line, &word) || !str_eq(word, STR("cpu")))
        return false;
    for (int i = 0; i < CPU_COLUMNS; i++) {
        if (!next_word(&line, &word) || !text_u64(word, UINT64_MAX / CPU_COLUMNS, &v))
            return false;
        t.total += v;
        t.idle += i == CPU_IDLE || i == CPU_IOWAIT ? v : 0;
    }
    *ret = t;
    return true;
}

static void read_node_cpu(struct arena *a, const char *root, struct cpu_ticks *last,
                          struct figures *ret)
{
    struct str text;
    struct cpu_ticks now, before = *last;
    if (!read_file(a, root, STR("/proc"), "/stat", &text) || !parse_ticks(text, &now))
        return;
    *last = now;
    /* iowait may go down */
    uint64_t total = now.total > before.total ? now.total - before.total : 0;
    uint64_t idle = now.idle > before.idle ? now.idle - before.idle : 0;
    ret->has_node_cpu = total > 0;
    ret->node_cpu = total > idle ? (double)(total - idle) / (double)total : 0;
}

/* ---- our cgroup ---- */

static bool has_word(struct str list, struct str word)
{
    struct str one;
    while (str_next(&list, ',', &one))
        if (str_eq(one, word))
            return true;
    return false;
}

/* Our path in the hierarchy of this controller; version 2's has none. */
static bool own_path(struct str cgroups, struct str controller, struct str *ret)
{
    struct str line, number, list;
    while (str_next(&cgroups, '\n', &line)) {
        if (!str_next(&line, ':', &number) || !line.p || !str_next(&line, ':', &list) || !line.p)
            continue;
        if (controller.n ? !has_word(list, controller) : list.n || !str_eq(number, STR("0")))
            continue;
        *ret = line;
        return true;
    }
    return false;
}

/* Root and place of a mount with this type, and this option if it is of version 1. */
static bool is_mount(struct str line, struct str type, struct str controller, struct str *ret_root,
                     struct str *ret_at)
{
    struct str word, field[MOUNT_FIELDS], fs, source, options;
    for (int i = 0; i < MOUNT_FIELDS; i++)
        if (!next_word(&line, &field[i]))
            return false;
    do
        if (!next_word(&line, &word))
            return false;
    while (!str_eq(word, STR("-")));
    if (!next_word(&line, &fs) || !next_word(&line, &source) || !next_word(&line, &options) ||
        !str_eq(fs, type) || (controller.n && !has_word(options, controller)))
        return false;
    *ret_root = field[3];
    *ret_at = field[4];
    return true;
}

/* The folder of our cgroup.  A mount shows its hierarchy from its root on; one that is not ours
 * shows nothing of us. */
static bool find_folder(struct arena *a, const char *root, struct str type, struct str controller,
                        struct str *ret)
{
    struct str cgroups, mounts, path, line, top, at;
    if (!read_file(a, root, STR("/proc/self"), "/cgroup", &cgroups) ||
        !read_file(a, root, STR("/proc/self"), "/mountinfo", &mounts) ||
        !own_path(cgroups, controller, &path))
        return false;
    while (str_next(&mounts, '\n', &line)) {
        if (!is_mount(line, type, controller, &top, &at))
            continue;
        size_t skip = str_eq(top, STR("/")) ? 0 : top.n;
        if (skip > path.n || !str_starts(path, str_head(top, skip)) ||
            (skip && skip < path.n && path.p[skip] != '/'))
            continue;
        *ret = arena_cat(a, at, str_skip(path, skip));
        return true;
    }
    return false;
}

static void read_v2(struct arena *a, const char *root, struct figures *ret)
{
    struct str folder, text;
    uint64_t us;
    if (!find_folder(a, root, STR("cgroup2"), STR_NONE, &folder))
        return;
    ret->has_memory = number_in(a, root, folder, "/memory.current", &ret->memory);
    ret->has_cpu =
        read_file(a, root, folder, "/cpu.stat", &text) && number_of(text, STR("usage_usec"), &us);
    if (ret->has_cpu)
        ret->cpu_s = (double)us / 1e6;
}

static void read_v1(struct arena *a, const char *root, struct figures *ret)
{
    struct str folder;
    uint64_t ns;
    if (!ret->has_memory && find_folder(a, root, STR("cgroup"), STR("memory"), &folder))
        ret->has_memory = number_in(a, root, folder, "/memory.usage_in_bytes", &ret->memory);
    if (ret->has_cpu || !find_folder(a, root, STR("cgroup"), STR("cpuacct"), &folder))
        return;
    ret->has_cpu = number_in(a, root, folder, "/cpuacct.usage", &ns);
    if (ret->has_cpu)
        ret->cpu_s = (double)ns / 1e9;
}

void figures_read(const char *root, struct cpu_ticks *last, struct figures *ret)
{
    struct arena a;
    arena_init(&a, NULL, 0);
    *ret = (struct figures){0};
    read_node_memory(&a, root, ret);
    read_node_cpu(&a, root, last, ret);
    read_v2(&a, root, ret);
    read_v1(&a, root, ret);
    arena_done(&a);
}
