/* access.c — with a token the token decides and nothing else; without one, being a loopback peer
 * has to do, and then whatever a browser adds to a request of a foreign page speaks against it. */
#include "egress/api/access.h"

#include "base/digest.h"

static bool has_token(const struct secret *token, const struct http_head *head)
{
    const struct str name = STR("OPENSANDBOX-EGRESS-AUTH");
    const struct field *f = head_next(head, name, NULL);
    if (!f || head_next(head, name, f))
        return false;
    return digest_equal(f->value, secret_bytes(token));
}

static bool is_loopback(const struct sockaddr *peer)
{
    struct ip ip;
    if (peer->sa_family != AF_INET && peer->sa_family != AF_INET6)
        return false;
    addr_ip(peer, &ip);
    return ip_is_loopback(&ip);
}

static bool is_port(struct str s)
{
    for (size_t i = 0; i < s.n; i++)
        if (s.p[i] < '0' || s.p[i] > '9')
            return false;
    return true;
}

/* An address or "localhost", with or without a port: a name could have been made to lead here. */
static bool is_local_host(struct str authority)
{
    bool bracket = authority.n && authority.p[0] == '[';
    ptrdiff_t end = str_chr(authority, bracket ? ']' : ':');
    struct ip ip;
    if (bracket && end < 0)
        return false;
    size_t host_end = end < 0 ? authority.n : (size_t)end;
    struct str host = str_head(str_skip(authority, bracket), host_end - bracket);
    struct str rest = str_skip(authority, host_end + bracket);
    if (rest.n && (rest.p[0] != ':' || !is_port(str_skip(rest, 1))))
        return false;
    return ip_parse(host, &ip) || (!bracket && str_ieq(host, STR("localhost")));
}

enum access access_judge(const struct secret *token, const struct sockaddr *peer,
                         const struct http_head *head)
{
    if (token)
        return has_token(token, head) ? ACCESS_GOOD : ACCESS_NO_TOKEN;
    if (!is_loopback(peer))
        return ACCESS_NOT_LOCAL;
    bool page = head_get(head, STR("Origin")) || head_get(head, STR("Sec-Fetch-Site"));
    return page || !is_local_host(head->authority) ? ACCESS_BROWSER : ACCESS_GOOD;
}
