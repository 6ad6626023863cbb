/* watch.h — tells when a file has become another: content replaced, renamed over, or a link turned
 * (contract ingress 7.4).
 *
 * Looks once a second, off the loop, at device, inode, size and times of what the path leads to. */
#ifndef NET_WATCH_H
#define NET_WATCH_H

#include "base/mem.h"

struct watch;
struct worker;

/* changed(user) on w's loop.  The path is copied. */
struct watch *watch_start(struct worker *w, struct str path, void (*changed)(void *user),
                          void *user);
/* The same for n files at once, at the cost of one. */
struct watch *watch_start_all(struct worker *w, const struct str *paths, unsigned n,
                              void (*changed)(void *user), void *user);
void watch_stop(struct watch *f);

#endif
