/* fixture.c — a sidecar without the sidecar: its settings and its sockets. */
#include "kernel/fixture.h"

#include <errno.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <cmocka.h>

struct ruleset fixture_settings(void)
{
    static struct str devices[] = {{"e0", 2}};
    static struct ip exempt[1];
    static struct ruleset_server upstreams[1];
    if (!ip_parse(STR("198.51.100.44"), &exempt[0]) ||
        !ip_parse(STR("198.51.100.53"), &upstreams[0].ip))
        abort();
    upstreams[0].port = 53;
    return (struct ruleset){.shape = RULESET_FULL,
                            .dns_port = 15353,
                            .relay_port = 18081,
                            .exempt = exempt,
                            .nexempt = 1,
                            .upstreams = upstreams,
                            .nupstreams = 1,
                            .own_mark = OWN_MARK,
                            .pass_mark = PASS_MARK,
                            .group_mark = GROUP_MARK,
                            .pass_priority = 0x5a11e504,
                            .has_uid = true,
                            .uid = OUR_UID,
                            .devices = devices,
                            .ndevices = 1,
                            .learned_max = 16384};
}

void fixture_apply(const struct netns *ns, const struct ruleset *r)
{
    struct arena a;
    struct str text, error;
    arena_init(&a, NULL, 0);
    if (!ruleset_text(r, &a, &text, &error))
        fail_msg("%.*s", STR_ARG(error));
    if (!netns_feed(ns, RULES_PROGRAM " apply", text))
        fail_msg("not applied:\n%.*s", STR_ARG(text));
    arena_done(&a);
}

void fixture_nft(const struct netns *ns, const char *command)
{
    char line[512];
    snprintf(line, sizeof line, "nft '%s'", command);
    if (!netns_run(ns, line))
        fail_msg("nft %s", command);
}

static int connected(int fd, const union addr *to)
{
    struct pollfd p = {.fd = fd, .events = POLLOUT};
    int error = 0;
    socklen_t len = sizeof error;
    if (connect(fd, &to->sa, addr_len(&to->sa)) != 0 && errno != EINPROGRESS)
        error = errno;
    if (!error && poll(&p, 1, 1000) == 1)
        getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len);
    else
        error = error ? error : ETIMEDOUT;
    if (error == 0)
        return fd;
    close(fd);
    errno = error;
    return -1;
}

static int connect_in(const struct netns *ns, int namespace, int type, const union addr *to,
                      uid_t uid, uint32_t mark)
{
    netns_enter(namespace);
    /* The owner of a socket is who made it. */
    if (seteuid(uid) != 0)
        abort();
    int fd = socket(to->sa.sa_family, type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (seteuid(0) != 0 || (mark && setsockopt(fd, SOL_SOCKET, SO_MARK, &mark, sizeof mark) != 0))
        abort();
    fd = connected(fd, to);
    int error = errno;
    netns_enter(ns->home);
    errno = error;
    return fd;
}

int fixture_own(const struct netns *ns, int type, const char *ip, uint16_t port)
{
    union addr to = netns_addr(ip, port);
    return connect_in(ns, ns->inside, type, &to, OUR_UID, OWN_MARK);
}

int fixture_connect(const struct netns *ns, int type, const char *ip, uint16_t port)
{
    union addr to = netns_addr(ip, port);
    return connect_in(ns, ns->inside, type, &to, 65534, 0);
}

int fixture_connect_from(int namespace, int type, const char *ip, uint16_t port)
{
    struct netns here = {.home = netns_current()};
    union addr to = netns_addr(ip, port);
    int fd = connect_in(&here, namespace, type, &to, 0, 0);
    int error = errno;
    close(here.home);
    errno = error;
    return fd;
}
