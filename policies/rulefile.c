/* rulefile.c — the operator's rule files.  A line is a target or nothing; there are no trailing
 * comments, so that a '#' in a target is never taken for one. */
#include "policies/rulefile.h"

#include <stdio.h>

#include "base/text.h"
#include "policies/domains.h"

struct reader {
    const char *path;
    char *error; /* RULEFILE_ERROR_BYTES */
    unsigned line;
};

static bool fail(const struct reader *r, const char *what, struct str target)
{
    char shown[100];
    size_t n = text_put_json(shown, sizeof shown, target);
    int length = snprintf(r->error, RULEFILE_ERROR_BYTES, "%.120s line %u: ", r->path, r->line);
    if (target.n)
        length += snprintf(r->error + length, (size_t)(RULEFILE_ERROR_BYTES - length), "\"%.*s\" ",
                           (int)n, shown);
    snprintf(r->error + length, (size_t)(RULEFILE_ERROR_BYTES - length), "%s", what);
    return false;
}

static bool read_line(const struct reader *r, enum rulefile file, struct str line,
                      struct rules *rules)
{
    static const char *const faults[] = {
        [TARGET_OK] = "",
        [TARGET_EMPTY] = "",
        [TARGET_CONTROL] = "holds a control character",
        [TARGET_NO_ALABEL] = "has no form in A-labels",
    };
    if (line.n > RULEFILE_LINE_BYTES)
        return fail(r, "longer than 64 KiB", STR(""));
    line = target_trim(line);
    if (line.n == 0 || line.p[0] == '#')
        return true;
    enum target_fault fault = rules_add(rules, file == RULEFILE_ALLOW, line);
    if (fault != TARGET_OK)
        return fail(r, faults[fault], line);
    if (file == RULEFILE_LOG_SKIP && rules->at[rules->n - 1].target.kind != TARGET_NAME)
        return fail(r, "is not a domain pattern; only host/domain entries are supported", line);
    return true;
}

bool rulefile_parse(enum rulefile file, const char *path, struct str text, const struct rules **ret,
                    char error[RULEFILE_ERROR_BYTES])
{
    struct reader r = {path, error, 1};
    struct rules *rules = rules_new();
    struct str line;
    for (; str_next(&text, '\n', &line); r.line++) {
        if (!read_line(&r, file, line, rules)) {
            rules_unref(rules);
            return false;
        }
    }
    *ret = rules;
    return true;
}

struct patterns *rulefile_patterns(const struct rules *r)
{
    struct patterns *names = patterns_new();
    for (unsigned i = 0; i < r->n; i++)
        if (r->at[i].target.kind == TARGET_NAME && !r->at[i].target.inert)
            patterns_add(names, r->at[i].target.name, r->at[i].target.below, (int)i);
    return names;
}
