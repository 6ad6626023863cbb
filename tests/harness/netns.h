/* netns.h — two network namespaces of the test's own: `inside`, where a sidecar and its workload
 * live, and `outside`, which plays the rest of the world.
 *
 * A pair of devices joins them (inside e0, outside o0).  Every address of 198.51.100.0/24 and of
 * 2001:db8::/32 is at home outside, so nothing that leaves gets lost.  Namespaces are entered by
 * setns() alone, as nsenter --net does: no other mounts, so cgroups stay in sight.  They go when
 * the last descriptor is closed. */
#ifndef HARNESS_NETNS_H
#define HARNESS_NETNS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "net/addr.h"

struct netns {
    int home, inside, outside; /* namespaces */
    int tap;                   /* sees every frame that comes out of `inside` */
};

#define INSIDE4 "10.99.0.2"
#define OUTSIDE4 "10.99.0.1"
#define INSIDE6 "fd99::2"
#define OUTSIDE6 "fd99::1"

/* False, with one line that says why, where namespaces cannot be made: the tests are skipped. */
bool netns_start(struct netns *ns);
void netns_stop(struct netns *ns);
/* The calling thread goes there: one of the struct's namespaces. */
void netns_enter(int namespace);
/* The namespace the thread is in; to be closed by the caller. */
int netns_current(void);
/* Runs a command line inside; true if it ended with 0. */
bool netns_run(const struct netns *ns, const char *command);
/* The same with text as its input. */
bool netns_feed(const struct netns *ns, const char *command, struct str text);

/* Forgets what has come out so far. */
void netns_tap_forget(const struct netns *ns);
/* How many frames came out of `inside` within `ms`, neighbour discovery and multicast membership
 * of the kernel itself left out; the first one is described in `what`. */
unsigned netns_tap_count(const struct netns *ns, unsigned ms, char what[160]);

/* A socket of `namespace`, bound to the address (port 0: any) and, if it is TCP, listening.
 * type: SOCK_STREAM or SOCK_DGRAM.  Does not block. */
int netns_listen(int namespace, int type, const char *ip, uint16_t port);
/* An address from its text. */
union addr netns_addr(const char *ip, uint16_t port);
/* Is there something to read within ms? */
bool netns_readable(int fd, int ms);

#endif
