/* drops.h — refused packets as events: what nflog tells of the chain `refuse` (contract
 * egress-policy 4.2, case POL-03).
 *
 * The rules themselves send a limited copy, the kernel gathers them for a tenth of a second; here
 * the number read in one go is bounded too, and what was lost on the way is counted, so a flood
 * costs little and does not shout. */
#ifndef KERNEL_DROPS_H
#define KERNEL_DROPS_H

#include "base/ip.h"
#include "base/why.h"

struct drop {
    struct ip src, dst;
    uint16_t src_port, dst_port; /* 0 where there are none, or the copy does not show them */
    uint8_t protocol;            /* IPPROTO_…; behind extension headers 0 */
    bool has_uid;                /* a process sent it */
    uint32_t uid;
};

struct drops;

/* Listens to the group of the rules in the namespace of the calling thread.  Negative errno: -EPERM
 * if somebody else does, too. */
must_check int drops_open(struct drops **ret);
/* NULL is fine. */
void drops_close(struct drops *d);
/* For the loop to watch; readable when there is something. */
int drops_fd(const struct drops *d);
/* Tells each() of at most `max` packets (a datagram of them is not cut in two, so it may be some
 * more) and returns how many; 0 when nothing is there. Negative errno. */
must_check int drops_read(struct drops *d, unsigned max,
                          void (*each)(void *user, const struct drop *drop), void *user);
/* Copies that the kernel could not hand over, or that could not be read. */
uint64_t drops_lost(const struct drops *d);

/* Reads a copy of a packet, which may be cut off.  False: no IP packet.  Pure. */
bool drop_parse(const uint8_t *p, size_t n, struct drop *ret);

#endif
