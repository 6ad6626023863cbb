/* sources.h — command line in Go flag syntax, environment and a JSON file → the same rows (contract
 * ingress 1.1).
 *
 * Precedence: flag, environment, file, default.  The last of several equal flags wins. */
#ifndef CONF_SOURCES_H
#define CONF_SOURCES_H

#include "conf/schema.h"

enum conf_action { CONF_RUN, CONF_HELP, CONF_VERSION, CONF_CHECK, CONF_PRINT };

struct conf_input {
    int argc;
    char **argv;                             /* without the program's name */
    const char *(*getenv)(const char *name); /* NULL: the process's */
    bool environment_only;                   /* the sidecar takes no flags but the special ones */
};

/* Fills `settings` (schema->settings_bytes, zeroed) and *ret_action.  False: *ret_error is one
 * line.  `--help` wins over any fault.  Texts lie in the arena. */
bool conf_load(const struct schema *schema, const struct conf_input *in, struct arena *a,
               void *settings, enum conf_action *ret_action, struct str *ret_error);
/* Overwrites the values of secret flags in the argument list with '*' (B5); call it when
 * conf_load() is through. */
void conf_wipe_arguments(const struct schema *schema, int argc, char **argv);
/* Effective settings as JSON, one member a line, in the order of the rows, secrets masked. */
struct str conf_print(const struct schema *schema, const void *settings, struct arena *a);
/* A whole file into the arena, at most max_bytes; false and one line on a fault. */
bool conf_read_file(struct str path, size_t max_bytes, struct arena *a, struct str *ret,
                    struct str *ret_error);

#endif
