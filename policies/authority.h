/* authority.h — hosts as peers name them: in SNI, in Host and :authority, in a proxy's target
 * (contract egress-vault 8.1 a and b, 8.2 step 1).  Pure.
 *
 * Nothing is repaired: what two readers could take for two hosts is no host. */
#ifndef POLICIES_AUTHORITY_H
#define POLICIES_AUTHORITY_H

#include "base/ip.h"
#include "policies/domains.h"

enum host_kind { HOST_NONE, HOST_NAME, HOST_ADDRESS };

struct host {
    enum host_kind kind;
    struct ip ip; /* of an address */
    uint8_t n;    /* of a name, as policies take it: lower case, no final dot */
    char text[NAME_BYTES_MAX];
};

/* The name; "" for an address.  Lies in h. */
struct str host_name(const struct host *h);
/* Do both name the same host?  HOST_NONE is the same as nothing. */
bool host_same(const struct host *a, const struct host *b);
/* The strict form, that of SNI: an address literal without brackets, or labels of 1–63 letters,
 * digits, '-' and '_', 253 bytes in all, and perhaps a final dot. */
must_check bool host_read(struct str text, struct host *ret);
/* "host", "host:port", "[v6]", "[v6]:port", of bytes that an authority may hold.  *ret_port is 0
 * where none is stated. */
must_check bool authority_read(struct str text, struct host *ret, uint16_t *ret_port);

#endif
