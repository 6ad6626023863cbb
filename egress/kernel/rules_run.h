/* rules_run.h — runs sallyport-egress-rules.  Blocks, RULES_RUN_MS at most; from any thread. */
#ifndef KERNEL_RULES_RUN_H
#define KERNEL_RULES_RUN_H

#include "base/mem.h"
#include "base/why.h"

enum { RULES_RUN_MS = 10000 };

/* What the program says on its output, and nothing else, when the kernel has taken the rules.  It
 * may take some ms more to end. */
#define RULES_DONE "done\n"

/* verb: "apply" with the text on its input, "close" or "remove" (input empty).  program NULL: the
 * one beside the running program.  False: *error is one line in `a`, without the text. */
must_check bool rules_run(const char *program, const char *verb, struct str input, struct arena *a,
                          struct str *error);
/* May this process change rules at all (CAP_NET_ADMIN)? */
bool rules_allowed(void);

#endif
