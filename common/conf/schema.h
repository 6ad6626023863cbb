/* schema.h — one table says everything of a setting: name, variable, type, where it lies, default,
 * limits, who may see it, help.
 *
 * From the rows come the parsers for command line, environment and file, defaults, range checks,
 * --help and --print-config.  A product has one struct of settings; a row says at which offset its
 * value lies. */
#ifndef CONF_SCHEMA_H
#define CONF_SCHEMA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/mem.h"

enum setting_type {
    SET_BOOL,     /* bool */
    SET_INT,      /* int64_t, Go integer syntax */
    SET_DURATION, /* int64_t, ns, Go duration syntax */
    SET_BYTES,    /* int64_t, "65536" or "64KiB" */
    SET_DOUBLE,   /* double */
    SET_TEXT,     /* struct str */
    SET_CHOICE    /* int: index into choices */
};

enum setting_flags {
    SETTING_SECRET = 1,    /* masked wherever it is shown, wiped from the argument list */
    SETTING_TRIM = 2,      /* blanks around a text or choice do not count */
    SETTING_ANY_CASE = 4,  /* a choice is compared without case */
    SETTING_EXCLUSIVE = 8, /* min itself is not allowed */
    SETTING_VARIABLE = 16, /* only its variable sets it: no flag, no member of the file */
    SETTING_NO_FILE = 32,  /* no member of the file */
    SETTING_PLAIN = 64     /* integers are decimal, durations whole seconds, booleans also words
                              such as yes and off in any case (contract egress-policy 1.1) */
};

struct setting {
    const char *name; /* flag without dashes, member of the file */
    const char *env;  /* variable, or NULL */
    enum setting_type type;
    size_t offset;   /* into the product's settings struct */
    const char *def; /* default, in the syntax of the type */
    double min, max; /* SET_INT, SET_DURATION (ns), SET_BYTES, SET_DOUBLE; both 0: no limits;
                        INFINITY: none on that side */
    const char *const *choices; /* SET_CHOICE: NULL-ended */
    unsigned flags;
    const char *group; /* heading in --help */
    const char *help;  /* one line */
    size_t given; /* offset of a bool that says whether flag, variable or file set it; 0: nobody
                     asks */
};

struct schema {
    const char *program; /* "sallyport-ingress" */
    const char *usage;   /* one line behind "Usage: " */
    const struct setting *rows;
    size_t nrows;
    size_t settings_bytes;
    bool help_only; /* it takes none of the actions but --help */
};

/* What --help, --version, --check and --print-config fill: they belong to every program and win
 * over its rows. */
struct schema_actions {
    bool help, version, check, print;
};
extern const struct schema schema_specials;

/* The row of that name, or NULL. */
const struct setting *schema_find(const struct schema *s, struct str name);
/* Parses text into the row's place in settings; texts are copied into the arena.  False: *ret_error
 * is one line that names the setting, the value (masked if secret) and what is allowed (B2). */
bool schema_set(const struct setting *row, void *settings, struct str text, struct arena *a,
                struct str *ret_error);
/* False, for rules that a row cannot hold: *ret_error is one line (B2) that names the setting, the
 * value or the part of it, and what is allowed; or the setting and why. */
bool schema_refuse(struct arena *a, struct str *ret_error, const char *name, struct str value,
                   const char *allowed);
bool schema_refuse_because(struct arena *a, struct str *ret_error, const char *name,
                           const char *why);
/* Prints the value as it would be written, secrets as "***" unless empty or `plain`. */
struct str schema_show(const struct setting *row, const void *settings, bool plain,
                       struct arena *a);
/* The text in quotes, escaped, cut at 100 bytes: how a message shows a value. */
struct str schema_quote(struct arena *a, struct str text);
/* The text of --help. */
struct str schema_help(const struct schema *s, struct arena *a);

#endif
