/* sources.c — where values come from: the command line, the environment, one JSON file.  The words
 * of the command line are taken apart in one place, so that what is read and what is wiped cannot
 * differ; then defaults, file, variables and flags are applied in that order, each judged, so that
 * the last one wins and a wrong one never goes unseen. */
#include "conf/sources.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/json.h"
#include "base/text.h"

enum { CONFIG_FILE_BYTES = 1 << 20, CONFIG_FILE_DEPTH = 4 };

/* --- the command line, word by word --- */

enum word_kind {
    WORD_NONE,
    WORD_FLAG,
    WORD_ACTION,
    WORD_HELP,
    WORD_STRAY,
    WORD_MALFORMED,
    WORD_UNKNOWN,
    WORD_INCOMPLETE
};

struct words {
    const struct schema *schema;
    int argc, at;
    char **argv;
    bool actions_only;
    const struct setting *last; /* the flag before this word */
};

struct word {
    enum word_kind kind;
    const struct setting *row; /* WORD_FLAG, WORD_ACTION, WORD_INCOMPLETE */
    struct str name;           /* as written, without dashes and value */
    char *value;               /* NULL: a bare boolean */
};

static bool is_help_name(struct str name)
{
    return str_eq(name, STR("help")) || str_eq(name, STR("h"));
}

/* The name behind one or two dashes, up to '='; empty if the word has not that form. */
static struct str flag_name(const char *word)
{
    if (word[0] != '-')
        return STR_NONE;
    const char *name = word + (word[1] == '-' ? 2 : 1);
    if (*name == '-' || *name == '=')
        return STR_NONE;
    return (struct str){name, strcspn(name, "=")};
}

static const struct setting *flag_row(const struct words *w, struct str name)
{
    const struct setting *row = w->actions_only ? NULL : schema_find(w->schema, name);
    return row && !(row->flags & SETTING_VARIABLE) ? row : NULL;
}

static void take_value(struct words *w, struct word *ret)
{
    if (ret->value || ret->row->type == SET_BOOL)
        return;
    if (w->at == w->argc)
        ret->kind = WORD_INCOMPLETE;
    else if (is_help_name(flag_name(w->argv[w->at])))
        ret->kind = WORD_HELP; /* contract 1.1: whatever else is given */
    else
        ret->value = w->argv[w->at++];
}

static struct word next_word(struct words *w)
{
    if (w->at == w->argc)
        return (struct word){.kind = WORD_NONE};
    char *text = w->argv[w->at++];
    if (strcmp(text, "--") == 0) {
        if (w->at == w->argc)
            return (struct word){.kind = WORD_NONE};
        text = w->argv[w->at];
        w->at = w->argc; /* nothing behind it is a flag */
        return (struct word){.kind = WORD_STRAY, .name = str_of(text)};
    }
    if (text[0] != '-' || !text[1])
        return (struct word){.kind = WORD_STRAY, .name = str_of(text)};
    struct str name = flag_name(text);
    if (name.n == 0)
        return (struct word){.kind = WORD_MALFORMED, .name = str_of(text)};
    if (is_help_name(name))
        return (struct word){.kind = WORD_HELP};
    char *value = text + (name.p - text) + name.n;
    struct word word = {.kind = WORD_ACTION, .name = name, .value = *value ? value + 1 : NULL};
    word.row = w->schema->help_only ? NULL : schema_find(&schema_specials, name);
    if (word.row)
        return word;
    word.row = flag_row(w, name);
    word.kind = word.row ? WORD_FLAG : WORD_UNKNOWN;
    if (word.row)
        take_value(w, &word);
    w->last = word.row;
    return word;
}

/* What may be shown of a stray word: it can be half of a list of keys that a blank broke in two
 * (B5). */
static struct str stray_text(const struct words *w, struct str word, struct arena *a)
{
    if (w->last && w->last->flags & SETTING_SECRET)
        return arena_printf(a, "the word behind --%s", w->last->name);
    ptrdiff_t equals = str_chr(word, '=');
    return schema_quote(a, equals < 0 ? word : str_head(word, (size_t)equals));
}

static struct str word_fault(const struct words *w, const struct word *word, struct arena *a)
{
    struct str name =
        word->kind == WORD_UNKNOWN ? schema_quote(a, word->name) : stray_text(w, word->name, a);
    switch (word->kind) {
    case WORD_STRAY:
        return arena_printf(a, "%.*s is no flag", STR_ARG(name));
    case WORD_MALFORMED:
        return arena_printf(a, "%.*s is no flag: a name must follow the dashes", STR_ARG(name));
    case WORD_INCOMPLETE:
        return arena_printf(a, "--%s: the value is missing", word->row->name);
    default:
        return arena_printf(a, "unknown flag %.*s", STR_ARG(name));
    }
}

/* --- flags --- */

struct given {
    const struct setting *row;
    struct str value;
};

struct line { /* a command line whose names are known to be good */
    struct given *flags;
    size_t n;
    struct schema_actions actions;
};

static bool read_line(const struct schema *schema, const struct conf_input *in, struct arena *a,
                      struct line *line, struct str *ret_error)
{
    struct words w = {schema, in->argc, 0, in->argv, in->environment_only, NULL};
    struct str fault = STR_NONE;
    line->flags = arena_get(a, sizeof *line->flags * ((size_t)in->argc + 1));
    for (struct word word; (word = next_word(&w)).kind != WORD_NONE;) {
        struct str value = word.value ? str_of(word.value) : STR("true"), error = STR_NONE;
        if (word.kind == WORD_HELP)
            line->actions.help = true;
        else if (word.kind == WORD_FLAG)
            line->flags[line->n++] = (struct given){word.row, value};
        else if (word.kind != WORD_ACTION)
            error = word_fault(&w, &word, a);
        else if (!schema_set(word.row, &line->actions, value, a, &error))
            error = arena_cat(a, STR("--"), error);
        if (fault.n == 0)
            fault = error;
    }
    *ret_error = fault;
    return fault.n == 0 || line->actions.help;
}

static bool set(const struct setting *row, void *settings, struct str value, struct arena *a,
                struct str *ret_error)
{
    if (!schema_set(row, settings, value, a, ret_error))
        return false;
    if (row->given)
        *(bool *)((char *)settings + row->given) = true;
    return true;
}

static bool apply_flags(const struct line *line, void *settings, struct arena *a,
                        struct str *ret_error)
{
    for (size_t i = 0; i < line->n; i++) {
        struct str error;
        if (set(line->flags[i].row, settings, line->flags[i].value, a, &error))
            continue;
        *ret_error = arena_cat(a, STR("--"), error);
        return false;
    }
    return true;
}

/* --- environment --- */

static bool apply_variables(const struct schema *schema, const struct conf_input *in,
                            void *settings, struct arena *a, struct str *ret_error)
{
    for (size_t i = 0; i < schema->nrows; i++) {
        const struct setting *row = &schema->rows[i];
        const char *value = !row->env ? NULL : in->getenv ? in->getenv(row->env) : getenv(row->env);
        struct str error;
        if (!value || !*value || set(row, settings, str_of(value), a, &error))
            continue;
        *ret_error = strcmp(row->env, row->name) == 0 /* then it is named already */
                         ? error
                         : arena_printf(a, "variable %s: %.*s", row->env, STR_ARG(error));
        return false;
    }
    return true;
}

/* --- file --- */

/* Reads to the end, or to one byte more than max_bytes; an errno on a fault. */
static int read_all(int fd, size_t max_bytes, struct arena *a, struct str *ret)
{
    struct stat st;
    if (fstat(fd, &st) < 0)
        return errno;
    size_t n = 0, room = 4096;
    if (S_ISREG(st.st_mode) && (uint64_t)st.st_size < max_bytes)
        room = (size_t)st.st_size + 1; /* one more, to see the end without growing */
    char *bytes = arena_get(a, room);
    for (ssize_t got = 1; got != 0 && n <= max_bytes;) {
        if (n == room) {
            char *more = arena_get(a, room * 2);
            memcpy(more, bytes, n);
            bytes = more;
            room *= 2;
        }
        got = read(fd, bytes + n, room - n);
        if (got < 0 && errno != EINTR)
            return errno;
        n += got > 0 ? (size_t)got : 0;
    }
    *ret = (struct str){bytes, n};
    return 0;
}

bool conf_read_file(struct str path, size_t max_bytes, struct arena *a, struct str *ret,
                    struct str *ret_error)
{
    struct str z = arena_printf(a, "%.*s", STR_ARG(path)), text = STR_NONE;
    int fd = open(z.p, O_RDONLY | O_CLOEXEC);
    int error = fd < 0 ? errno : read_all(fd, max_bytes, a, &text);
    if (fd >= 0)
        close(fd);
    if (error)
        *ret_error = arena_printf(a, "%s: %s", z.p, strerror(error));
    else if (text.n > max_bytes)
        *ret_error = arena_printf(a, "%s: larger than %zu bytes", z.p, max_bytes);
    else
        *ret = text;
    return !error && text.n <= max_bytes;
}

/* The value in flag syntax; false if the JSON type does not fit. */
static bool member_text(const struct json_doc *doc, const struct json *v, const struct setting *row,
                        struct arena *a, struct str *ret)
{
    int64_t i;
    switch (json_type(v)) {
    case JSON_STRING:
        *ret = json_string(v);
        return true;
    case JSON_BOOL:
        *ret = json_bool(v) ? STR("true") : STR("false");
        return row->type == SET_BOOL;
    case JSON_NUMBER:
        if (row->type == SET_DOUBLE) {
            *ret = arena_printf(a, "%.17g", json_double(v));
            return true;
        }
        if ((row->type != SET_INT && row->type != SET_BYTES) || !json_int(doc, v, &i))
            return false;
        *ret = arena_printf(a, "%lld", (long long)i);
        return true;
    default:
        return false;
    }
}

static bool apply_member(const struct schema *schema, const struct json_doc *doc,
                         const struct json *v, void *settings, struct arena *a,
                         struct str *ret_error)
{
    const struct setting *row = schema_find(schema, json_name(v));
    struct str name = schema_quote(a, json_name(v)), text;
    if (!row)
        *ret_error = arena_printf(a, "unknown member %.*s", STR_ARG(name));
    else if (row->flags & (SETTING_VARIABLE | SETTING_NO_FILE))
        *ret_error = arena_printf(a, "%.*s cannot be set in a file", STR_ARG(name));
    else if (!member_text(doc, v, row, a, &text))
        *ret_error = arena_printf(a, "%s: a value of this type (%s) is not allowed", row->name,
                                  json_type_name(json_type(v)));
    else
        return set(row, settings, text, a, ret_error);
    return false;
}

/* False: *fault is the place; *ret_error is what is wrong there, or left alone if fault says that
 * too. */
static bool apply_members(const struct schema *schema, struct str text, void *settings,
                          struct arena *a, struct json_fault *fault, struct str *ret_error)
{
    struct json_doc *doc = json_parse(text, CONFIG_FILE_BYTES, CONFIG_FILE_DEPTH, fault);
    if (!doc)
        return false;
    const struct json *at = json_root(doc);
    bool good = json_type(at) == JSON_OBJECT;
    for (const struct json *v = good ? json_first(at) : NULL; v && good; v = json_next(v)) {
        good = apply_member(schema, doc, v, settings, a, ret_error);
        at = v;
    }
    if (!good)
        json_fault_at(doc, at, fault, "one object is expected");
    json_free(doc);
    return good;
}

static bool apply_file(const struct schema *schema, const struct line *line, void *settings,
                       struct arena *a, struct str *ret_error)
{
    struct str path = STR_NONE, text, error;
    for (size_t i = 0; i < line->n; i++)
        if (str_eq(str_of(line->flags[i].row->name), STR("config")))
            path = line->flags[i].value;
    if (path.n == 0)
        return true;
    if (!conf_read_file(path, CONFIG_FILE_BYTES, a, &text, &error)) {
        *ret_error = arena_cat(a, STR("--config: "), error);
        return false;
    }
    struct json_fault fault;
    error = STR_NONE;
    if (apply_members(schema, text, settings, a, &fault, &error))
        return true;
    if (error.n == 0)
        error = arena_str(a, str_of(fault.text));
    *ret_error = arena_printf(a, "--config: %.*s:%u:%u: %.*s", STR_ARG(path), fault.line,
                              fault.column, STR_ARG(error));
    return false;
}

/* --- all of them --- */

static void apply_defaults(const struct schema *schema, void *settings, struct arena *a)
{
    for (size_t i = 0; i < schema->nrows; i++) {
        struct str error;
        bool good = schema_set(&schema->rows[i], settings, str_of(schema->rows[i].def), a, &error);
        if (!good) { /* a mistake in the table, not of the user */
            fprintf(stderr, "default of %.*s\n", STR_ARG(error));
            abort();
        }
    }
}

bool conf_load(const struct schema *schema, const struct conf_input *in, struct arena *a,
               void *settings, enum conf_action *ret_action, struct str *ret_error)
{
    struct line line = {0};
    if (!read_line(schema, in, a, &line, ret_error))
        return false;
    if (line.actions.help || line.actions.version) {
        *ret_action = line.actions.help ? CONF_HELP : CONF_VERSION;
        return true;
    }
    apply_defaults(schema, settings, a);
    if (!apply_file(schema, &line, settings, a, ret_error) ||
        !apply_variables(schema, in, settings, a, ret_error) ||
        !apply_flags(&line, settings, a, ret_error))
        return false;
    *ret_action = line.actions.print ? CONF_PRINT : line.actions.check ? CONF_CHECK : CONF_RUN;
    return true;
}

void conf_wipe_arguments(const struct schema *schema, int argc, char **argv)
{
    struct words w = {schema, argc, 0, argv, false, NULL};
    for (struct word word; (word = next_word(&w)).kind != WORD_NONE;)
        if (word.kind == WORD_FLAG && word.value && word.row->flags & SETTING_SECRET)
            memset(word.value, '*', strlen(word.value));
}

static void print_row(FILE *out, const struct setting *row, struct str value, struct arena *a)
{
    fprintf(out, "  \"%s\": ", row->name);
    if (row->type == SET_BOOL || row->type == SET_INT || row->type == SET_DOUBLE) {
        fprintf(out, "%.*s", STR_ARG(value));
        return;
    }
    char *escaped = arena_get(a, 6 * value.n + 1);
    size_t n = text_put_json(escaped, 6 * value.n + 1, value);
    fprintf(out, "\"%.*s\"", (int)n, escaped);
}

struct str conf_print(const struct schema *schema, const void *settings, struct arena *a)
{
    char *text = NULL;
    size_t n = 0;
    FILE *out = open_memstream(&text, &n);
    if (!out)
        abort();
    const char *before = "{\n";
    for (size_t i = 0; i < schema->nrows; i++) {
        const struct setting *row = &schema->rows[i];
        struct str value = schema_show(row, settings, false, a);
        if (row->flags & (SETTING_VARIABLE | SETTING_NO_FILE) && value.n == 0)
            continue; /* so that the output can be given back as a file */
        fputs(before, out);
        print_row(out, row, value, a);
        before = ",\n";
    }
    fputs("\n}\n", out);
    fclose(out);
    struct str printed = arena_str(a, (struct str){text, n});
    free(text);
    return printed;
}
