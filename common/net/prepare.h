/* prepare.h — what a program wants done to a socket of ours before it connects: a mark, an address
 * to be bound to (DESIGN 18.1 U16). */
#ifndef NET_PREPARE_H
#define NET_PREPARE_H

#include <sys/socket.h>

/* on(user, fd, to): 0, or a negative errno, and the connection fails with it.  on NULL: nothing. */
struct prepare {
    int (*on)(void *user, int fd, const struct sockaddr *to);
    void *user;
};

static inline int prepare_socket(const struct prepare *p, int fd, const struct sockaddr *to)
{
    return p && p->on ? p->on(p->user, fd, to) : 0;
}

#endif
