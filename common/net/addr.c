/* addr.c — between struct ip, which has one form for both families, and the kernel's addresses,
 * which have two.  Texts are read strictly: an IPv6 address with a port must stand in brackets, or
 * nobody could say where it ends. */
#include "net/addr.h"

#include <arpa/inet.h>
#include <assert.h>

#include "base/text.h"

void addr_make(union addr *ret, const struct ip *ip, uint16_t port)
{
    memset(ret, 0, sizeof *ret);
    if (ip_is_v4(ip)) {
        ret->v4.sin_family = AF_INET;
        ret->v4.sin_port = htons(port);
        memcpy(&ret->v4.sin_addr, ip->b + 12, 4);
        return;
    }
    ret->v6.sin6_family = AF_INET6;
    ret->v6.sin6_port = htons(port);
    memcpy(&ret->v6.sin6_addr, ip->b, 16);
}

void addr_ip(const struct sockaddr *sa, struct ip *ret)
{
    static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
    if (sa->sa_family == AF_INET) {
        memcpy(ret->b, mapped, 12);
        memcpy(ret->b + 12, &((const struct sockaddr_in *)(const void *)sa)->sin_addr, 4);
        return;
    }
    assert(sa->sa_family == AF_INET6);
    memcpy(ret->b, &((const struct sockaddr_in6 *)(const void *)sa)->sin6_addr, 16);
}

uint16_t addr_port(const struct sockaddr *sa)
{
    if (sa->sa_family == AF_INET)
        return ntohs(((const struct sockaddr_in *)(const void *)sa)->sin_port);
    assert(sa->sa_family == AF_INET6);
    return ntohs(((const struct sockaddr_in6 *)(const void *)sa)->sin6_port);
}

socklen_t addr_len(const struct sockaddr *sa)
{
    assert(sa->sa_family == AF_INET || sa->sa_family == AF_INET6);
    return sa->sa_family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
}

bool addr_eq(const struct sockaddr *a, const struct sockaddr *b)
{
    struct ip x, y;
    addr_ip(a, &x);
    addr_ip(b, &y);
    return ip_eq(&x, &y) && addr_port(a) == addr_port(b);
}

size_t addr_text(const struct sockaddr *sa, char out[ADDR_TEXT_BYTES])
{
    struct ip ip;
    size_t n = 0;
    addr_ip(sa, &ip);
    bool v4 = ip_is_v4(&ip);
    if (!v4)
        out[n++] = '[';
    n += ip_text(&ip, out + n);
    if (!v4)
        out[n++] = ']';
    out[n++] = ':';
    n += text_put_u64(out + n, addr_port(sa));
    return n;
}

/* Cuts at the last colon; brackets around the host are taken off, and demanded where it has colons
 * itself. */
static bool cut(struct str s, struct str *ret_host, struct str *ret_port)
{
    ptrdiff_t at = str_rchr(s, ':');
    if (at < 0)
        return false;
    struct str host = str_head(s, (size_t)at);
    *ret_port = str_skip(s, (size_t)at + 1);
    if (host.n >= 2 && host.p[0] == '[' && host.p[host.n - 1] == ']') {
        host = str_skip(str_head(host, host.n - 1), 1);
        if (str_chr(host, ':') < 0)
            return false;
    } else if (str_chr(host, ':') >= 0 || str_chr(host, '[') >= 0 || str_chr(host, ']') >= 0) {
        return false;
    }
    *ret_host = host;
    return true;
}

static bool parse_port(struct str s, uint16_t least, uint16_t *ret)
{
    uint64_t port;
    if (!text_u64(s, 65535, &port) || port < least)
        return false;
    *ret = (uint16_t)port;
    return true;
}

bool addr_parse(struct str s, union addr *ret)
{
    struct str host, port;
    struct ip ip = {{0}};
    uint16_t number;
    if (!cut(s, &host, &port) || !parse_port(port, 0, &number))
        return false;
    if (host.n > 0 && !ip_parse(host, &ip))
        return false;
    addr_make(ret, &ip, number);
    return true;
}

bool addr_split(struct str s, struct str *ret_host, uint16_t *ret_port)
{
    struct str host, port;
    if (!cut(s, &host, &port) || host.n == 0 || !parse_port(port, 1, ret_port))
        return false;
    *ret_host = host;
    return true;
}
