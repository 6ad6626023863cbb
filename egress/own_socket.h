/* own_socket.h — what makes a socket of ours known to the kernel's rules before it connects: its
 * mark, and for UDP a port that nobody is given by chance (contract egress-policy 4.5, 5.4). */
#ifndef EGRESS_OWN_SOCKET_H
#define EGRESS_OWN_SOCKET_H

#include "egress/settings.h"
#include "net/prepare.h"

struct own_socket {
    const struct egress_settings *set; /* exempt servers are asked without a mark */
    uint32_t mark;
};

/* For dials and name servers; `own` outlives them. */
struct prepare own_socket_prepare(struct own_socket *own);

#endif
