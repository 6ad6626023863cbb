/* own_names.c — the two sides differ only in what the ticket is called. */
#include "egress/dns/own_names.h"

static void *start(void *user, struct str host, uint64_t timeout_ms,
                   void (*done)(void *arg, const struct ip *ips, unsigned count, enum why why),
                   void *arg)
{
    return dns_service_resolve(user, host, timeout_ms, done, arg);
}

static void cancel(void *user, void *asked)
{
    (void)user;
    dns_service_cancel(asked);
}

struct names *own_names_new(struct worker *w, struct dns_service *s)
{
    struct names_source source = {.start = start, .cancel = cancel, .user = s};
    return names_through(w, &source);
}
