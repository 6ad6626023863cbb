/* cgroup_test.c — a process's cgroup is read from its file; one that others are in proves nothing.
 */
#include "egress/kernel/cgroup.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

static void the_line_of_version_2_is_found(void **state)
{
    static const struct {
        const char *file, *path;
    } rows[] = {
        {"0::/a/b\n", "a/b"},
        {"3:cpuset:/x\n1:cpu:/y\n0::/kubepods/pod1\n", "kubepods/pod1"},
        {"0::/a", "a"},
        {"0::/\n", ""},
        {"", ""},
        {"3:cpuset:/x\n", ""},
        {"10::/a\n", ""},
        {"0:name=systemd:/a\n", ""},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (!str_eq(cgroup_line(str_of(rows[i].file)), str_of(rows[i].path)))
            fail_msg("row %zu", i);
    }
}

static bool write_line(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");
    if (!f)
        return false;
    bool good = fputs(text, f) >= 0;
    return fclose(f) == 0 && good;
}

#define ROOT "/sys/fs/cgroup/unified/"

/* Where a hierarchy of version 2 may be changed, as in a machine of one's own. */
static void only_a_cgroup_of_our_own_counts(void **state)
{
    struct arena a;
    struct cgroup group;
    struct stat st;
    char folder[96], file[128], path[64], own[32];
    (void)state;
    snprintf(path, sizeof path, "sallyport_test_%d", (int)getpid());
    snprintf(folder, sizeof folder, ROOT "%s", path);
    snprintf(file, sizeof file, "%s/cgroup.procs", folder);
    snprintf(own, sizeof own, "%d", (int)getpid());
    if (mkdir(folder, 0755) != 0)
        skip();
    arena_init(&a, NULL, 0);
    bool moved = write_line(file, own);
    bool found = moved && cgroup_own(&a, &group);
    char nested[128];
    snprintf(nested, sizeof nested, "%s/below", folder);
    bool crowded = mkdir(nested, 0755) == 0 && cgroup_own(&a, &(struct cgroup){STR_NONE, 0});
    rmdir(nested);
    bool back = write_line(ROOT "cgroup.procs", own);
    bool root = cgroup_own(&a, &(struct cgroup){STR_NONE, 0});
    rmdir(folder);
    assert_true(back);
    assert_false(root);
    assert_true(stat("/proc/self/ns/cgroup", &st) == 0);
    assert_int_equal(found, moved && st.st_ino == 4026531835);
    if (found) {
        assert_true(str_eq(str_skip(group.path, 8), str_of(path)));
        assert_int_equal(group.level, 1);
    }
    assert_false(crowded);
    arena_done(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_line_of_version_2_is_found),
        cmocka_unit_test(only_a_cgroup_of_our_own_counts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
