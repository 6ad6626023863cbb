/* keep.h — what must outlive a worker is left with its supervisor (contract egress-policy 7.3).
 *
 * The supervisor gives each worker one end of a socket pair, its number in SALLYPORT_KEEP_FD.  Over
 * it the worker leaves entries: a name, a small blob, at most one file descriptor.  A successor
 * asks for them before it does anything else.  Never a secret: what is left here is wiped by
 * nobody.  Putting, dropping and loading speak to the supervisor and wait for its answer,
 * KEEP_WAIT_MS at most; one thread at a time.  On anything but WHY_OK nothing has changed, but
 * after WHY_DEADLINE it is not known.  WHY_LIMIT: too long, or no room for another entry;
 * WHY_REFUSED: the supervisor is gone or does not understand; WHY_DEADLINE: it does not answer. */
#ifndef SUPERVISOR_KEEP_H
#define SUPERVISOR_KEEP_H

#include "base/mem.h"
#include "base/why.h"

enum { KEEP_NAME_MAX = 64, KEEP_BLOB_MAX = 4096, KEEP_ENTRIES_MAX = 256, KEEP_WAIT_MS = 1000 };

#define KEEP_VARIABLE "SALLYPORT_KEEP_FD"

struct keep;

/* `number` is the variable's value, NULL if it is not set.  NULL where there is no supervisor that
 * keeps anything: the worker starts as if fresh.  Takes the descriptor; programs that the worker
 * starts do not inherit it. */
struct keep *keep_open(const char *number);
void keep_close(struct keep *k);

/* Leaves an entry in place of the one of that name (1 to KEEP_NAME_MAX bytes), all or nothing.  fd
 * -1: none; the supervisor gets a copy, fd stays the caller's. */
enum why keep_put(struct keep *k, struct str name, struct str blob, int fd) must_check;
/* As keep_put() for a text too long for a blob: it lies in a sealed memory file. */
enum why keep_put_text(struct keep *k, struct str name, struct str text) must_check;
/* Takes an entry away; none of that name is fine. */
enum why keep_drop(struct keep *k, struct str name) must_check;

struct kept {
    struct str name, blob; /* in the arena of keep_load() */
    int fd;                /* -1: none; whoever uses it sets -1 here */
};

struct kept_list {
    struct kept *at;
    unsigned n;
};

/* All entries, in the order in which their names were first left. */
enum why keep_load(struct keep *k, struct arena *a, struct kept_list *ret) must_check;
/* The entry of that name, or NULL. */
struct kept *keep_find(const struct kept_list *list, struct str name);
/* The text that keep_put_text() left, in arena a.  False: not such an entry, over max bytes, or
 * somebody could still change it. */
bool keep_text(const struct kept *one, size_t max, struct arena *a, struct str *ret);
/* Closes the descriptors that nobody took. */
void keep_done(struct kept_list *list);

#endif
