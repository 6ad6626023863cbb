/* flows.h — flows that are open: which there are, and the end of those that lost their permission
 * (contract egress-policy 4.3, E5). */
#ifndef KERNEL_FLOWS_H
#define KERNEL_FLOWS_H

#include "base/ip.h"
#include "base/why.h"

struct flow {
    struct ip src, dst;          /* dst: the far side */
    uint16_t src_port, dst_port; /* 0 where the protocol has none */
    uint8_t protocol;            /* IPPROTO_… */
};

/* Is a TCP socket in this state (of the kernel's numbers) a connection that uses its address? */
bool flow_in_use(unsigned tcp_state);

struct flows;

/* Opens sockets in the namespace of the calling thread.  Negative errno. */
must_check int flows_open(struct flows **ret);
/* NULL is fine. */
void flows_close(struct flows *f);

/* Asks keep() about each flow that the workload has opened to somebody outside, and ends those it
 * denies, in both directions, whatever their protocol: TCP and connected UDP sockets hear of it by
 * ECONNABORTED, a TCP peer by a reset, and what still comes is refused.  Loopback, flows opened
 * from outside, our own, redirected ones (whoever dialled for them judges them) and those that are
 * cut already stay as they are, whatever keep() says; it may be asked about their sockets, and
 * twice about one flow.
 *
 * To be called after the permission is gone.  0 or a negative errno; *ret_cut are ended, some maybe
 * in spite of an error.  A flow that begins meanwhile is judged by the rules in force. */
must_check int flows_cut(struct flows *f, bool (*keep)(void *user, const struct flow *flow),
                         void *user, unsigned *ret_cut);
/* Tells each() of what is open towards somebody, as contract 4.3 counts activity: every TCP socket
 * of the namespace but LISTEN, CLOSE, TIME_WAIT; and flows of other protocols that the workload
 * opened, that were let out and answered, while conntrack knows them (UDP: 30 s after the last
 * packet, once it has gone on for a while 120 s).  Not loopback, nothing that is ours, redirected
 * or cut.  Should conntrack not answer, these are left out. */
must_check int flows_in_use(struct flows *f, void (*each)(void *user, const struct flow *flow),
                            void *user);

#endif
