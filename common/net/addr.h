/* addr.h — socket addresses and their text. */
#ifndef NET_ADDR_H
#define NET_ADDR_H

#include <netinet/in.h>
#include <sys/socket.h>

#include "base/ip.h"

/* A TCP or UDP address in 28 bytes, not sockaddr_storage's 128. */
union addr {
    struct sockaddr sa;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
};

enum { ADDR_TEXT_BYTES = 64 };

/* From an address and a port; IPv4-mapped ones become AF_INET. */
void addr_make(union addr *ret, const struct ip *ip, uint16_t port);
/* The address, IPv4-mapped for AF_INET. */
void addr_ip(const struct sockaddr *sa, struct ip *ret);
uint16_t addr_port(const struct sockaddr *sa);
socklen_t addr_len(const struct sockaddr *sa);
bool addr_eq(const struct sockaddr *a, const struct sockaddr *b);
/* "10.0.0.1:80", "[::1]:80"; returns the length. */
size_t addr_text(const struct sockaddr *sa, char out[ADDR_TEXT_BYTES]);
/* Reads "host:port" or "[v6]:port" where host is an IP address; ":port" is all addresses (`::`).
 * Port 0..65535. */
bool addr_parse(struct str s, union addr *ret);
/* Splits "host:port": host without brackets, port digits 1..65535. */
bool addr_split(struct str s, struct str *ret_host, uint16_t *ret_port);

#endif
