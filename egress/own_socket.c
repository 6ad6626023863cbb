/* own_socket.c — see own_socket.h.  Where the mark is refused (no NET_ADMIN) the socket is one of
 * the workload's, and treated like them: the kernel decides, not we. */
#include "egress/own_socket.h"

#include <netinet/in.h>
#include <sys/random.h>

enum { LOWEST = 61000, TRIES = 16 };

/* The kernel remembers our flows for a while after us, and refuses whoever sends on one of them: so
 * ours are above the ports that it gives to others (ip_local_port_range). */
static void take_port(int fd, const struct sockaddr *to)
{
    union addr from;
    socklen_t len = sizeof(int);
    int type = 0;
    if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &len) != 0 || type != SOCK_DGRAM)
        return;
    for (unsigned i = 0; i < TRIES; i++) {
        uint16_t random;
        if (getrandom(&random, sizeof random, 0) != sizeof random)
            return;
        memset(&from, 0, sizeof from);
        from.sa.sa_family = to->sa_family;
        from.v4.sin_port = htons((uint16_t)(LOWEST + random % (UINT16_MAX + 1 - LOWEST)));
        if (bind(fd, &from.sa, addr_len(&from.sa)) == 0)
            return;
    }
}

static int on_prepare(void *user, int fd, const struct sockaddr *to)
{
    const struct own_socket *own = user;
    struct ip ip;
    addr_ip(to, &ip);
    if (egress_is_exempt(own->set, &ip))
        return 0;
    setsockopt(fd, SOL_SOCKET, SO_MARK, &own->mark, sizeof own->mark);
    take_port(fd, to);
    return 0;
}

struct prepare own_socket_prepare(struct own_socket *own)
{
    return (struct prepare){on_prepare, own};
}
