/* flags.h — the command line of sallyport-supervisor (contract egress-policy 1.5). */
#ifndef SUPERVISOR_FLAGS_H
#define SUPERVISOR_FLAGS_H

#include "base/mem.h"
#include "egress/supervisor/schedule.h"

enum { HOOKS_MAX = 16, FLAGS_ERROR_BYTES = 200 };

struct hooks {
    char *paths[HOOKS_MAX];
    unsigned n;
    uint64_t timeout_ms; /* of each */
};

enum flags_level { FLAGS_DEBUG, FLAGS_INFO, FLAGS_WARN, FLAGS_ERROR };

struct flags {
    struct hooks pre_start, post_exit;
    const char *event_log; /* NULL: standard error */
    struct schedule_rules rules;
    bool on_burst_exit;
    uint64_t grace_ms;
    struct str name;
    enum flags_level level;
    char **command; /* ended by NULL */
};

enum flags_verdict { FLAGS_RUN, FLAGS_HELP, FLAGS_VERSION, FLAGS_WRONG };

/* Reads argv (argv[0] is the program, argv[argc] NULL), whose texts *ret goes on using.  Flags are
 * spelt as in Go: one dash or two, a value behind "=" or as the next word, the first word that is
 * none ends them.  FLAGS_WRONG: one line in error. */
enum flags_verdict flags_read(int argc, char **argv, struct flags *ret,
                              char error[FLAGS_ERROR_BYTES]);
/* The text of --help; static. */
const char *flags_help(void);

#endif
