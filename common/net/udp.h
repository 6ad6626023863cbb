/* udp.h — a UDP socket that answers: datagrams come in batches, replies leave in batches.
 *
 * Sockets that ask belong to nameserver.h. */
#ifndef NET_UDP_H
#define NET_UDP_H

#include "net/addr.h"

struct udp;
struct worker;

enum { UDP_BYTES = 4096 }; /* longest datagram; a longer one is not heard (DESIGN 18.1 U19) */

/* A bound socket; -1, errno and *ret_error on a fault.  With port 0 the kernel chooses; *ret_bound
 * tells. */
int udp_bind(const struct sockaddr *addr, union addr *ret_bound, struct arena *a,
             struct str *ret_error);
/* Reads from fd, which now belongs to it.  on(user, u, datagram, from): both are lent; it may
 * udp_send() and udp_close(). */
struct udp *udp_start(struct worker *w, int fd,
                      void (*on)(void *user, struct udp *u, struct str datagram,
                                 const struct sockaddr *from),
                      void *user);
/* Sends, at the latest when the batch ends that is being read.  n: at most UDP_BYTES.  What the
 * kernel has no room for is lost, as datagrams are. */
void udp_send(struct udp *u, const struct sockaddr *to, const void *p, size_t n);
/* No event follows. */
void udp_close(struct udp *u);

#endif
