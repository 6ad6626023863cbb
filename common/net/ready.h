/* ready.h — tells when a descriptor that is no stream can be read: a netlink socket, for one. */
#ifndef NET_READY_H
#define NET_READY_H

struct ready;
struct worker;

/* on(user) on w's loop while there is something to read, an error included; it may ready_stop().
 * The descriptor stays the caller's and must outlive the watching.  NULL: it cannot be watched. */
struct ready *ready_start(struct worker *w, int fd, void (*on)(void *user), void *user);
/* No event follows, and the descriptor may be closed at once.  NULL is fine. */
void ready_stop(struct ready *r);

#endif
