/* flags.h — "--name value" for the bench tools: enough for a handful of numbers and texts. */
#ifndef BENCH_FLAGS_H
#define BENCH_FLAGS_H

#include "base/mem.h"

enum flag_kind { FLAG_NUMBER, FLAG_TEXT, FLAG_SWITCH };

struct flag {
    const char *name; /* with its dashes; NULL ends the table */
    enum flag_kind kind;
    void *to; /* uint64_t, struct str or bool, by kind */
    const char *help;
};

/* False after printing what is wrong, or after --help. */
bool flags_read(const struct flag *flags, int argc, char **argv);
/* As many descriptors as the system lets us have. */
void flags_raise_descriptors(void);

#endif
