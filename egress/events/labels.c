/* labels.c — attributes are for people to choose, so they are bent into what the text format can
 * hold rather than refused. */
#include "egress/events/labels.h"

#include "base/log.h"
#include "base/text.h"
#include "policies/target.h"

static const char *const taken[] = {"le",      "reason", "stage",  "operation", "set",
                                    "verdict", "result", "worker", "state",     "why"};

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

static bool is_taken(struct str name)
{
    for (size_t i = 0; i < sizeof taken / sizeof *taken; i++)
        if (str_eq(name, str_of(taken[i])))
            return true;
    return str_starts(name, STR("__"));
}

static struct str name_of(struct arena *a, struct str key)
{
    char *p = arena_get(a, key.n + 1);
    for (size_t i = 0; i < key.n; i++)
        p[i] = is_letter(key.p[i]) || (key.p[i] >= '0' && key.p[i] <= '9') ? key.p[i] : '_';
    struct str name = {p, key.n};
    return is_taken(name) || !is_letter(*p) ? arena_cat(a, STR("attr_"), name) : name;
}

/* Quotes, backslashes and line ends escaped; what is no UTF-8 may not stand there at all. */
static struct str value_of(struct arena *a, struct str value)
{
    bool good = text_utf8(value);
    char *p = arena_get(a, 2 * value.n + 1);
    size_t n = 0;
    for (size_t i = 0; i < value.n; i++) {
        char c = value.p[i];
        if (c == '\\' || c == '"' || c == '\n')
            p[n++] = '\\';
        p[n++] = c == '\n' ? 'n' : !good && (unsigned char)c >= 0x80 ? '?' : c;
    }
    return (struct str){p, n};
}

/* A label of this name is in `labels` already. */
static bool is_there(struct arena *a, struct str labels, struct str name)
{
    struct str first = arena_printf(a, "%.*s=\"", STR_ARG(name));
    struct str later = arena_printf(a, ",%.*s=\"", STR_ARG(name));
    return str_starts(labels, first) ||
           (labels.n && memmem(labels.p, labels.n, later.p, later.n) != NULL);
}

static struct str add(struct arena *a, struct str labels, struct str key, struct str value)
{
    struct str name = name_of(a, key);
    struct str text = value_of(a, log_masks(key) ? STR("***") : value);
    if (is_there(a, labels, name))
        return labels;
    return arena_printf(a, "%.*s%s%.*s=\"%.*s\"", STR_ARG(labels), labels.n ? "," : "",
                        STR_ARG(name), STR_ARG(text));
}

struct str labels_make(const struct egress_settings *set, struct arena *a)
{
    struct str labels = arena_str(a, STR("")), id = target_trim(set->sandbox_id);
    if (id.n)
        labels = add(a, labels, STR("sandbox_id"), id);
    for (size_t i = 0; i < set->nattrs; i++)
        labels = add(a, labels, set->attrs[i].name, set->attrs[i].value);
    return arena_printf(a, "%.*s", STR_ARG(labels));
}
