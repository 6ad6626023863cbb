/* command.h — what a program does with its command line before it runs: help, version, --check,
 * --print-config, faults (contract ingress 1.1, B2, B3).  It starts nothing. */
#ifndef APP_COMMAND_H
#define APP_COMMAND_H

#include <stdio.h>

#include "conf/schema.h"

/* Set when the program is built. */
struct command_build {
    const char *version, *commit, *time, *platform; /* platform: "linux/amd64" */
};
extern const struct command_build command_build;

/* A word in the first place that is a program of its own; run() gets the arguments behind it and
 * returns the exit status. */
struct command_verb {
    const char *word;
    int (*run)(int argc, char **argv, FILE *out, FILE *err);
};

struct command {
    const struct schema *schema;
    const struct command_verb *verbs; /* ended by a NULL word; or NULL */
    bool environment_only;            /* see struct conf_input */
    /* Rules between settings; may also derive some.  False: one line. */
    bool (*check)(void *settings, struct arena *a, struct str *ret_error);
    /* What is allowed and still looks wrong: lines, each but the last ended by a line feed.  NULL:
     * nothing ever does. */
    struct str (*warnings)(const void *settings, struct arena *a);
    /* --check and --print-config: reads the files that a start would read.  NULL: there are none.
     */
    bool (*check_files)(const void *settings, struct arena *a, struct str *ret_error);
    /* A start, not a check: a line that names a part which is not there; empty: all there.  NULL:
     * all there. */
    struct str (*missing)(const void *settings, struct arena *a);
    const char *(*getenv)(const char *name); /* NULL: the process's */
    FILE *out, *err;                         /* NULL: stdout, stderr */
};

/* Reads the command line (argv[0] is the program), prints what was asked for or what is wrong, and
 * overwrites secrets in argv. *ret_run: the settings are good and the program is to start; else the
 * result is the exit status, 0 or 2.  `settings` is zeroed memory of schema->settings_bytes; its
 * texts lie in the arena. */
int command_line(const struct command *c, int argc, char **argv, struct arena *a, void *settings,
                 bool *ret_run);
/* The banner of contract ingress 1.5. */
void command_banner(FILE *out, const char *title);

#endif
