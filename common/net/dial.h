/* dial.h — to a host and port: resolve, ask the caller about each address, connect, with one
 * deadline over all. */
#ifndef NET_DIAL_H
#define NET_DIAL_H

#include "net/conn.h"
#include "net/prepare.h"

struct dial;
struct worker;
struct names;

/* A proxy that takes CONNECT (contracts egress-vault 15, egress-policy 10.3). */
struct dial_parent {
    struct str host; /* address without brackets, or name */
    uint16_t port;
    struct tls_ctx *tls;      /* NULL: plain; else TLS to `host`, which must prove itself */
    struct str authorization; /* value of Proxy-Authorization, or empty */
    struct names *names;      /* who is asked for `host`; NULL: the worker's */
};

struct dial_to {
    struct str host; /* address (IPv6 with or without brackets) or name */
    uint16_t port;
    bool tls_h2;         /* with tls: offers h2 before http/1.1; else http/1.1 alone */
    struct names *names; /* who is asked for the host; NULL: the worker's */
    /* Not NULL: through this one, which alone looks the host up.  Lent for as long as anything goes
     * there. */
    const struct dial_parent *parent;
    /* Not NULL: TLS to the host, or inside the parent's tunnel, before done(); counted.  The other
     * side must prove to be tls_name (empty: the host). */
    struct tls_ctx *tls;
    struct str tls_name;
};

/* Done to each socket of this worker's dials before it connects; copied. */
void dial_prepare(struct worker *w, const struct prepare *p);

/* allow(user, address): WHY_OK, or the address is passed over with that reason.  done(user, conn,
 * WHY_OK) with a connected conn the user must conn_attach() before it returns; or (user, NULL,
 * why): DNS, DENIED (no address was allowed), DIAL (refused, unreachable), DEADLINE, OVERLOAD (out
 * of descriptors).  Once, never before this returns.  `to` is copied.
 *
 * With a parent allow() is not asked: who dials has judged the host, and the parent's addresses are
 * nobody's target.  DIAL is then also an answer other than 2xx, or none that is HTTP/1.1 (RFC 9110
 * section 9.3.6); TLS: the parent has not proved itself.  If that is spoken with over TLS and the
 * target is not, conn_info.tls and what goes with it are of the parent; conn_secure() is then a
 * second layer inside.
 *
 * With `tls` the conn's TLS is up, and conn_info tells of it.  TLS: the other side has not proved
 * itself, or hung up in the handshake (where it has another address, that is tried first). */
struct dial *dial_start(struct worker *w, const struct dial_to *to, uint64_t timeout_ms,
                        enum why (*allow)(void *user, const struct sockaddr *addr),
                        void (*done)(void *user, struct conn *c, enum why why), void *user);
/* done() will not be called; an attempt under way is given up. */
void dial_cancel(struct dial *d);
/* Is a connection from `from` that was on its way to `to` one that a dial of this worker has just
 * made?  A kernel that redirects goes by what it has kept of an older flow between the same ports,
 * whoever asks now.  The dial tries that address again from another port, a few times; the caller
 * ends the connection. */
bool dial_came_back(struct worker *w, const struct sockaddr *from, const struct sockaddr *to);
/* Of the attempt that just ended, within done(): errno of the last connect, 0 if there was none;
 * and the address tried. */
int dial_errno(const struct dial *d);
/* Likewise: the status of the parent's answer, 0 if there was none. */
int dial_status(const struct dial *d);
/* Likewise: what is known beyond `why` of TLS and the parent, as conn_info.fault; static, empty:
 * nothing.  What the parent is to blame for begins with "upstream proxy". */
struct str dial_fault(const struct dial *d);

#endif
