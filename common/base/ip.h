/* ip.h — IP addresses as 16 bytes, IPv4 in its mapped form, so that one comparison serves both
 * families. */
#ifndef BASE_IP_H
#define BASE_IP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/mem.h"

struct ip {
    uint8_t b[16];
};

enum { IP_TEXT_BYTES = 48 };

/* "10.0.0.1" (four decimal parts, no leading zeros) or an IPv6 address without brackets and zone
 * (RFC 4291 section 2.2).  An IPv4-mapped IPv6 address is the IPv4 address. */
bool ip_parse(struct str s, struct ip *ret);
bool ip_is_v4(const struct ip *ip);
bool ip_eq(const struct ip *a, const struct ip *b);
/* 127.0.0.0/8 or ::1. */
bool ip_is_loopback(const struct ip *ip);
/* 0.0.0.0 or ::, a connection to which goes to the machine itself. */
bool ip_is_unspecified(const struct ip *ip);
/* Canonical text (RFC 5952; IPv4 dotted), no brackets; returns its length. */
size_t ip_text(const struct ip *ip, char out[IP_TEXT_BYTES]);

#endif
