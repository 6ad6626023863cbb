/* fit.c — who has used up the descriptors has locked the operator out of the API.  So each kind of
 * thing that the sandbox can make us open has its share of them, and a part is nobody's. */
#include "egress/fit.h"

#include <sys/resource.h>

static void fit(int64_t *limit, uint64_t descriptors, unsigned parts)
{
    uint64_t can = descriptors / parts > 0 ? descriptors / parts : 1;
    if (can <= INT32_MAX && *limit > (int64_t)can)
        *limit = (int64_t)can;
}

/* A relayed connection has two, and redirects and the explicit proxy count apart; a question may
 * be put to two servers at once. */
void fit_descriptors(struct egress_settings *set, uint64_t descriptors)
{
    fit(&set->relay_max_connections, descriptors, 8);
    fit(&set->dns_max_inflight, descriptors, 16);
    fit(&set->dns_tcp_max_connections, descriptors, 16);
    fit(&set->api_max_connections, descriptors, 16);
}

/* The soft limit is raised to it at the start. */
uint64_t fit_limit(void)
{
    struct rlimit r;
    return getrlimit(RLIMIT_NOFILE, &r) < 0 ? 1024 : r.rlim_max;
}
