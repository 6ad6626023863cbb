/* schema.c — reads, shows and explains one setting by its row.  Everything that is known of a
 * setting stands in the row, so there is one function per type here and none per setting: a new
 * flag is a new line in a table, and its messages and help come along. */
#include "conf/schema.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/text.h"

#define SECOND INT64_C(1000000000)

static const struct setting special_rows[] = {
    {"help", NULL, SET_BOOL, offsetof(struct schema_actions, help), "false", 0, 0, NULL, 0,
     "Actions", "print this text, whatever else is given", 0},
    {"version", NULL, SET_BOOL, offsetof(struct schema_actions, version), "false", 0, 0, NULL, 0,
     "Actions", "print version, commit and build time", 0},
    {"check", NULL, SET_BOOL, offsetof(struct schema_actions, check), "false", 0, 0, NULL, 0,
     "Actions", "judge all settings and files, start nothing", 0},
    {"print-config", NULL, SET_BOOL, offsetof(struct schema_actions, print), "false", 0, 0, NULL, 0,
     "Actions", "print the effective settings as JSON, secrets masked", 0},
};

const struct schema schema_specials = {
    .program = "",
    .usage = "",
    .rows = special_rows,
    .nrows = sizeof special_rows / sizeof special_rows[0],
    .settings_bytes = sizeof(struct schema_actions),
};

union value {
    bool b;
    int64_t i;
    double d;
    int choice;
    struct str s;
};

const struct setting *schema_find(const struct schema *s, struct str name)
{
    for (size_t i = 0; i < s->nrows; i++)
        if (str_eq(name, str_of(s->rows[i].name)))
            return &s->rows[i];
    return NULL;
}

/* --- reading --- */

static bool read_bool(struct str text, bool *ret)
{
    static const struct {
        const char *word;
        bool value;
    } words[] = {{"1", true},    {"t", true},      {"T", true},      {"TRUE", true},
                 {"true", true}, {"True", true},   {"0", false},     {"f", false},
                 {"F", false},   {"FALSE", false}, {"false", false}, {"False", false}};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        if (str_eq(text, str_of(words[i].word))) {
            *ret = words[i].value;
            return true;
        }
    }
    return false;
}

static bool read_word(struct str text, bool *ret)
{
    static const char *const words[] = {"0",   "1", "false", "true", "no",
                                        "yes", "n", "y",     "off",  "on"};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        if (str_ieq(text, str_of(words[i]))) {
            *ret = i % 2 == 1;
            return true;
        }
    }
    return false;
}

static bool read_decimal(struct str text, int64_t unit, int64_t *ret)
{
    uint64_t v;
    if (!text_u64(text, (uint64_t)(INT64_MAX / unit), &v))
        return false;
    *ret = (int64_t)v * unit;
    return true;
}

static bool read_choice(const struct setting *row, struct str text, int *ret)
{
    for (int i = 0; row->choices[i]; i++) {
        struct str word = str_of(row->choices[i]);
        if (row->flags & SETTING_ANY_CASE ? str_ieq(text, word) : str_eq(text, word)) {
            *ret = i;
            return true;
        }
    }
    return false;
}

static bool in_range(const struct setting *row, double v)
{
    if (row->min == 0 && row->max == 0)
        return true;
    return (row->flags & SETTING_EXCLUSIVE ? v > row->min : v >= row->min) && v <= row->max;
}

static bool read_bytes(struct str text, int64_t *ret)
{
    uint64_t v;
    if (!text_bytes(text, &v) || v > INT64_MAX)
        return false;
    *ret = (int64_t)v;
    return true;
}

static bool read_value(const struct setting *row, struct str text, union value *ret)
{
    bool plain = row->flags & SETTING_PLAIN;
    switch (row->type) {
    case SET_BOOL:
        return plain ? read_word(text, &ret->b) : read_bool(text, &ret->b);
    case SET_INT:
        return (plain ? read_decimal(text, 1, &ret->i) : text_go_int(text, &ret->i)) &&
               in_range(row, (double)ret->i);
    case SET_DURATION:
        return (plain ? read_decimal(text, SECOND, &ret->i) : text_duration(text, &ret->i)) &&
               in_range(row, (double)ret->i);
    case SET_BYTES:
        return read_bytes(text, &ret->i) && in_range(row, (double)ret->i);
    case SET_DOUBLE:
        return text_double(text, &ret->d) && in_range(row, ret->d);
    case SET_CHOICE:
        return read_choice(row, text, &ret->choice);
    case SET_TEXT:
        ret->s = text;
        return true;
    }
    return false;
}

static void store(const struct setting *row, void *settings, const union value *v, struct arena *a)
{
    void *place = (char *)settings + row->offset;
    switch (row->type) {
    case SET_BOOL:
        *(bool *)place = v->b;
        return;
    case SET_INT:
    case SET_DURATION:
    case SET_BYTES:
        *(int64_t *)place = v->i;
        return;
    case SET_DOUBLE:
        *(double *)place = v->d;
        return;
    case SET_CHOICE:
        *(int *)place = v->choice;
        return;
    case SET_TEXT:
        *(struct str *)place = v->s.n ? arena_str(a, v->s) : STR_NONE;
        return;
    }
}

/* --- showing --- */

static struct str show_duration(int64_t ns, struct arena *a)
{
    char text[32];
    return arena_str(a, str_head(str_of(text), text_put_duration(text, ns)));
}

static struct str show_bytes(int64_t v, struct arena *a)
{
    static const char *const units[] = {"", "KiB", "MiB", "GiB"};
    unsigned unit = 0;
    while (v != 0 && v % 1024 == 0 && unit < 3) {
        v /= 1024;
        unit++;
    }
    return arena_printf(a, "%lld%s", (long long)v, units[unit]);
}

/* The shortest text that reads back as the same number. */
static struct str show_double(double v, struct arena *a)
{
    char text[32];
    int precision = 1;
    do
        snprintf(text, sizeof text, "%.*g", precision, v);
    while (strtod(text, NULL) != v && ++precision <= 17);
    return arena_str(a, str_of(text));
}

struct str schema_show(const struct setting *row, const void *settings, bool plain, struct arena *a)
{
    const void *place = (const char *)settings + row->offset;
    switch (row->type) {
    case SET_BOOL:
        return *(const bool *)place ? STR("true") : STR("false");
    case SET_INT:
        return arena_printf(a, "%lld", (long long)*(const int64_t *)place);
    case SET_DURATION:
        return row->flags & SETTING_PLAIN
                   ? arena_printf(a, "%lld", (long long)(*(const int64_t *)place / SECOND))
                   : show_duration(*(const int64_t *)place, a);
    case SET_BYTES:
        return show_bytes(*(const int64_t *)place, a);
    case SET_DOUBLE:
        return show_double(*(const double *)place, a);
    case SET_CHOICE:
        return str_of(row->choices[*(const int *)place]);
    case SET_TEXT:
        break;
    }
    struct str text = *(const struct str *)place;
    return row->flags & SETTING_SECRET && !plain && text.n ? STR("***") : text;
}

struct str schema_quote(struct arena *a, struct str text)
{
    enum { SHOWN = 100 };
    char escaped[6 * SHOWN];
    bool cut = text.n > SHOWN;
    size_t n = text_put_json(escaped, sizeof escaped, cut ? str_head(text, SHOWN) : text);
    return arena_printf(a, "\"%.*s%s\"", (int)n, escaped, cut ? "…" : "");
}

/* --- explaining --- */

static struct str show_limit(const struct setting *row, double v, struct arena *a)
{
    switch (row->type) {
    case SET_DURATION:
        return show_duration((int64_t)v, a);
    case SET_BYTES:
        return show_bytes((int64_t)v, a);
    default:
        return arena_printf(a, "%.15g", v);
    }
}

/* " from 1 to 9", " of at least 1", " above 0s and at most 1" … */
static struct str range_text(const struct setting *row, struct arena *a)
{
    if (row->min == 0 && row->max == 0)
        return STR_NONE;
    if (isinf(row->min))
        return isinf(row->max) ? STR_NONE
                               : arena_cat(a, STR(" of at most "), show_limit(row, row->max, a));
    struct str min = show_limit(row, row->min, a);
    bool above = row->flags & SETTING_EXCLUSIVE;
    if (isinf(row->max))
        return arena_cat(a, above ? STR(" above ") : STR(" of at least "), min);
    struct str max = show_limit(row, row->max, a);
    return arena_printf(a, above ? " above %.*s, at most %.*s" : " from %.*s to %.*s", STR_ARG(min),
                        STR_ARG(max));
}

static struct str choices_text(const struct setting *row, const char *between, struct arena *a)
{
    struct str text = str_of(row->choices[0]);
    for (int i = 1; row->choices[i]; i++)
        text = arena_printf(a, "%.*s%s%s", STR_ARG(text), between, row->choices[i]);
    return text;
}

static struct str allowed_text(const struct setting *row, struct arena *a)
{
    static const char *const kinds[] = {
        [SET_BOOL] = "true or false",
        [SET_INT] = "an integer",
        [SET_DURATION] = "a duration such as 50ms or 1m30s",
        [SET_BYTES] = "bytes such as 65536 or 64KiB",
        [SET_DOUBLE] = "a number",
        [SET_TEXT] = "a text",
        [SET_CHOICE] = "one of ",
    };
    bool seconds = row->type == SET_DURATION && row->flags & SETTING_PLAIN;
    struct str kind = seconds ? STR("whole seconds") : str_of(kinds[row->type]);
    return arena_cat(a, kind,
                     row->type == SET_CHOICE ? choices_text(row, ", ", a) : range_text(row, a));
}

bool schema_set(const struct setting *row, void *settings, struct str text, struct arena *a,
                struct str *ret_error)
{
    struct str bare = row->flags & SETTING_TRIM ? str_trim(text) : text;
    union value v;
    if (read_value(row, bare, &v)) {
        store(row, settings, &v, a);
        return true;
    }
    struct str shown = row->flags & SETTING_SECRET ? STR("***") : schema_quote(a, text);
    struct str allowed = allowed_text(row, a);
    *ret_error = arena_printf(a, "%s: %.*s is wrong; allowed: %.*s", row->name, STR_ARG(shown),
                              STR_ARG(allowed));
    return false;
}

/* --- --help --- */

static const char *type_word(const struct setting *row)
{
    static const char *const words[] = {
        [SET_BOOL] = "",        [SET_INT] = " INT",    [SET_DURATION] = " DURATION",
        [SET_BYTES] = " BYTES", [SET_DOUBLE] = " NUM", [SET_TEXT] = " TEXT",
        [SET_CHOICE] = " ",
    };
    return words[row->type];
}

static void help_row(FILE *out, const struct setting *row, struct arena *a)
{
    if (row->flags & SETTING_VARIABLE) {
        fprintf(out, "  variable %s\n      %s", row->env, row->help);
        fprintf(out, *row->def ? " (default %s)\n" : "%s\n", row->def);
        return;
    }
    struct str choices = row->type == SET_CHOICE ? choices_text(row, "|", a) : STR_NONE;
    fprintf(out, "  --%s%s%.*s\n      %s", row->name, type_word(row), STR_ARG(choices), row->help);
    if (*row->def && row->type != SET_BOOL)
        fprintf(out, " (default %s)", row->def);
    if (row->type == SET_BOOL && str_eq(str_of(row->def), STR("true")))
        fputs(" (default true)", out);
    if (row->env)
        fprintf(out, " (variable %s)", row->env);
    fputc('\n', out);
}

/* Rows of one group need not stand together: each group is printed where its first row stands. */
static void help_rows(FILE *out, const struct schema *s, size_t n, struct arena *a)
{
    for (size_t i = 0; i < n; i++) {
        struct str group = str_of(s->rows[i].group);
        bool printed = false;
        for (size_t k = 0; k < i && !printed; k++)
            printed = str_eq(group, str_of(s->rows[k].group));
        if (printed)
            continue;
        fprintf(out, "\n%.*s:\n", STR_ARG(group));
        for (size_t k = i; k < n; k++)
            if (str_eq(group, str_of(s->rows[k].group)))
                help_row(out, &s->rows[k], a);
    }
}

struct str schema_help(const struct schema *s, struct arena *a)
{
    char *text = NULL;
    size_t n = 0;
    FILE *out = open_memstream(&text, &n);
    if (!out)
        abort();
    fprintf(out, "Usage: %s\n", s->usage);
    help_rows(out, s, s->nrows, a);
    help_rows(out, &schema_specials, s->help_only ? 1 : schema_specials.nrows,
              a); /* help is the first */
    fclose(out);
    struct str help = arena_str(a, (struct str){text, n});
    free(text);
    return help;
}

bool schema_refuse(struct arena *a, struct str *ret_error, const char *name, struct str value,
                   const char *allowed)
{
    struct str shown = schema_quote(a, value);
    *ret_error = arena_printf(a, "%s: %.*s is wrong; allowed: %s", name, STR_ARG(shown), allowed);
    return false;
}

bool schema_refuse_because(struct arena *a, struct str *ret_error, const char *name,
                           const char *why)
{
    *ret_error = arena_printf(a, "%s: %s", name, why);
    return false;
}
