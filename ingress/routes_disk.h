/* routes_disk.h — the file of --routes on its disk: read whole, replaced whole.  Blocking and
 * without state: for a pool thread.  What is read and written holds tokens, and is wiped. */
#ifndef INGRESS_ROUTES_DISK_H
#define INGRESS_ROUTES_DISK_H

#include <sys/types.h>
#include <time.h>

#include "ingress/routes_file.h"

/* Tells a file from what it was: as long as all of it is the same, so are the bytes. */
struct routes_mark {
    bool known; /* false: like no other */
    dev_t device;
    ino_t inode;
    off_t bytes;
    struct timespec modified, changed;
};

/* Not known: there is no such file. */
struct routes_mark routes_mark_of(const char *path);
bool routes_mark_same(const struct routes_mark *a, const struct routes_mark *b);

/* The bytes, on the heap: mem_free_wiped().  *ret_mark is not known if the file changed meanwhile.
 * False: *ret_fault says why, line 0. */
bool routes_disk_read(const char *path, struct str *ret, struct routes_mark *ret_mark,
                      struct json_fault *ret_fault);
/* The list becomes the file's content, all or nothing even over a loss of power: a temporary file
 * beside it, fsync, rename, fsync of the folder.  Mode and owner stay, a symbolic link stays one.
 * False: nothing has changed, *ret_fault says why, line 0. */
bool routes_disk_write(const char *path, const struct routes_list *l, struct routes_mark *ret_mark,
                       struct json_fault *ret_fault);

#endif
