/* log_impl.h — where the log's lines go, for log.c. */
#ifndef BASE_LOG_IMPL_H
#define BASE_LOG_IMPL_H

#include <stdatomic.h>

#include "base/log.h"

enum { LOG_OUTPUTS_MAX = 8 };

struct log_output {
    int fd;
    bool file;     /* a regular file of ours, which turns over */
    char *path;    /* NULL: stdout or stderr, which are not ours to close */
    int64_t bytes; /* in the file */
};

/* Of one thread, but for log_outputs_hurry(). */
struct log_outputs {
    struct log_output at[LOG_OUTPUTS_MAX];
    size_t n;
    unsigned polls_left;
    atomic_bool hurry;
};

/* As log_start() says of its `outputs`; false: none is open. */
bool log_outputs_open(struct log_outputs *o, struct str names, char *error, size_t error_bytes);
void log_outputs_close(struct log_outputs *o);
/* Writes two pieces of whole lines, one behind the other, to each; waits for those who read slowly.
 * Returns how many lines were lost. */
uint64_t log_outputs_write(struct log_outputs *o, struct str first, struct str second);
/* From any thread: from now on nobody is waited for long. */
void log_outputs_hurry(struct log_outputs *o);

#endif
