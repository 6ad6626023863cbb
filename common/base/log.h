/* log.h — lines of JSON or key=value, made on the stack and handed to a log thread.
 *
 * A line goes into a bounded ring; a thread writes it out.  A slow sink loses lines and counts
 * them, it never blocks a loop. Only program code logs (app, listen, exchange, origin, admin,
 * resolvers); base, dns, http and policies return their errors. Fields named in `log_masked` print
 * as "***" whatever their value (B5). */
#ifndef BASE_LOG_H
#define BASE_LOG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/mem.h"

enum log_level { LOG_DEBUG, LOG_INFO, LOG_WARN, LOG_ERROR, LOG_FATAL };

enum {
    LOG_LINE_BYTES = 4096,
    LOG_ATTRIBUTES_BYTES = 1024, /* of all attributes, as they are written */
    LOG_AUDIT_BYTES = 16 << 20   /* of audit lines that wait for a slow sink */
};

/* Reads debug, info, warn, warning, error, fatal in any case (contract ingress 1.2). */
bool log_level_parse(struct str s, enum log_level *ret);

/* Opens the outputs of `outputs` (comma list of stdout, stderr and paths; blank means stdout;
 * contract ingress 1.4) and starts the log thread.  `logger` is the value of the key "logger".  On
 * failure false and one line in error[error_bytes]. */
bool log_start(const char *logger, struct str outputs, enum log_level level, char *error,
               size_t error_bytes);
/* Writes what is queued and stops the thread. */
void log_stop(void);
void log_set_level(enum log_level level);
bool log_on(enum log_level level);
/* This field stands in every line from now on, behind msg, until log_stop().  Masked as others are.
 * False: it does not fit, or there is a field of that name.  From one thread. */
bool log_attribute(struct str name, struct str value);
/* Are fields of this name masked? */
bool log_masks(struct str name);
/* Lines dropped because the ring was full. */
uint64_t log_lost(void);

/* A line under construction, on the caller's stack. */
struct log_line {
    enum log_level level;
    bool full; /* a field did not fit and was left out */
    size_t n;
    char text[LOG_LINE_BYTES];
};

/* Starts a line with level, ts, logger and msg; the keys come in that order (contract ingress 13).
 */
void log_begin(struct log_line *l, enum log_level level, const char *msg);
void log_str(struct log_line *l, const char *key, struct str value);
void log_int(struct log_line *l, const char *key, int64_t value);
/* Milliseconds with three decimals, from microseconds. */
void log_ms(struct log_line *l, const char *key, uint64_t us);
void log_bool(struct log_line *l, const char *key, bool value);
/* A value that is JSON already. */
void log_json(struct log_line *l, const char *key, struct str json);
void log_end(struct log_line *l);

/* A line for those who look into things afterwards, of any length: the members of `object`, which
 * is JSON already, behind the usual ones.  It does not wait in the ring, so no flood of other lines
 * displaces it; it is lost, and counted, only when LOG_AUDIT_BYTES of such lines wait. */
void log_audit(enum log_level level, const char *msg, struct str object);

/* One line in one call: "key", value pairs of C strings, ended by NULL.  For rare events. */
void log_note(enum log_level level, const char *msg, ...) __attribute__((sentinel));
/* As log_note(), but each `msg` (compared by address) at most once a second per process; what was
 * left out is counted in a field "repeated" of the next one (cases OPS-09). */
void log_note_rarely(enum log_level level, const char *msg, ...) __attribute__((sentinel));

#endif
