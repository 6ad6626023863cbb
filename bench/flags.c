/* flags.c — reads the command lines of the bench tools.  They take a few plain flags and no
 * configuration, so the programs' own settings table would be more than they need. */
#include "flags.h"

#include <stdio.h>
#include <sys/resource.h>

#include "base/text.h"

static bool usage(const struct flag *flags, const char *program)
{
    static const char *const values[] = {
        [FLAG_NUMBER] = "N", [FLAG_TEXT] = "TEXT", [FLAG_SWITCH] = ""};
    fprintf(stderr, "usage: %s [flags]\n", program);
    for (const struct flag *f = flags; f->name; f++)
        fprintf(stderr, "  %s %s\n        %s\n", f->name, values[f->kind], f->help);
    return false;
}

static const struct flag *find(const struct flag *flags, const char *name)
{
    while (flags->name && strcmp(flags->name, name) != 0)
        flags++;
    return flags->name ? flags : NULL;
}

static bool set(const struct flag *f, const char *value)
{
    if (f->kind == FLAG_TEXT)
        *(struct str *)f->to = str_of(value);
    return f->kind == FLAG_TEXT || text_u64(str_of(value), INT64_MAX, f->to);
}

bool flags_read(const struct flag *flags, int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        const struct flag *f = find(flags, argv[i]);
        if (!f)
            return usage(flags, argv[0]);
        if (f->kind == FLAG_SWITCH)
            *(bool *)f->to = true;
        else if (++i == argc || !set(f, argv[i]))
            return usage(flags, argv[0]);
    }
    return true;
}

void flags_raise_descriptors(void)
{
    struct rlimit r;
    if (getrlimit(RLIMIT_NOFILE, &r) < 0)
        return;
    r.rlim_cur = r.rlim_max;
    setrlimit(RLIMIT_NOFILE, &r);
}
