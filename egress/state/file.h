/* file.h — small files read whole and replaced whole (contract egress-policy 3.7).  Blocking, and
 * without any state: for a pool thread. */
#ifndef STATE_FILE_H
#define STATE_FILE_H

#include <sys/types.h>

#include "base/mem.h"
#include "base/why.h"

struct file_bytes {
    bool exists; /* false: nothing else counts */
    char *p;     /* on the heap, n bytes; file_bytes_done() frees them */
    size_t n;
    mode_t mode; /* permission bits */
    uid_t uid;
    gid_t gid;
};

/* Reads the regular file that the path leads to.  0, or a negative errno; a missing one is no
 * error.
 */
must_check int file_get(const char *path, size_t max_bytes, struct file_bytes *ret);
/* Makes the file what `f` says, all or nothing even over a loss of power: a temporary file beside
 * it, fsync, rename, fsync of the folder.  Where no name can be replaced (a file that is a mount, a
 * folder we may not write to) the file is written in place; then an error may leave a mixture.  A
 * symbolic link stays one.  0, or a negative errno. */
must_check int file_put(const char *path, const struct file_bytes *f);
void file_bytes_done(struct file_bytes *f);

#endif
