/* nameserver.h — asks upstream DNS servers (DESIGN 11), one set of servers per worker and
 * configuration.
 *
 * Each try is a fresh id and spelling (0x20) on one of some connected sockets, which are replaced
 * all the time; a reply counts only if address, id and question agree to the letter, and then has
 * its question in lower case.  The servers
 * share one budget: the first that works is asked, the next one after a share of the time or a
 * useless reply, and a late reply is still welcome.  A server that lets questions pass is asked
 * last until a probe reaches it.
 *
 * Servers may also be watched: all are probed all the time, and those that are silent are not asked
 * at all, unless none is left. */
#ifndef NET_NAMESERVER_H
#define NET_NAMESERVER_H

#include "base/why.h"
#include "dns/message.h"
#include "net/addr.h"
#include "net/prepare.h"

struct nameservers;
struct ns_ask;
struct worker;

enum { NAMESERVERS_MAX = 10 };

/* What becomes known of a server; for the log. */
enum ns_news {
    NS_PROBE_SILENT, /* watched: no reply to a probe */
    NS_MISSED,       /* no reply to a question, or none that says anything */
    NS_NONE_LEFT     /* watched: all are silent, so all are asked; addr is NULL */
};

struct nameserver_list {
    union addr addr[NAMESERVERS_MAX]; /* best first */
    unsigned n;                       /* at least 1 */
    unsigned rounds;                  /* how often the list is gone through for one question */
    uint64_t try_ms;                  /* longest time until the next server is asked too */
    uint64_t watch_every_ms;          /* 0: not watched; else the time between probes ... */
    uint64_t watch_ms;                /* ... and how long a reply may take */
    struct dns_question probe;        /* what the watch asks */
    struct prepare prepare;           /* for each socket; kept */
    void (*news)(void *user, enum ns_news news, const union addr *addr); /* may be NULL */
    void *user;
};

/* A question as others would ask it. */
struct ns_wish {
    struct dns_question question;
    uint16_t flags; /* of RD, AD and CD */
    bool dnssec_ok;
};

struct nameservers *nameservers_new(struct worker *w, const struct nameserver_list *list);
/* When no question is under way. */
void nameservers_free(struct nameservers *s);

/* Asks for records of class IN.  done(user, reply, WHY_OK) with the whole message, lent, whose code
 * is NOERROR or NXDOMAIN; or (user, nothing, WHY_DNS): no server has a useful reply; WHY_DEADLINE:
 * the budget is over.  Once, never before this returns. */
struct ns_ask *nameserver_ask(struct nameservers *s, const struct dns_name *name, uint16_t type,
                              uint64_t budget_ms,
                              void (*done)(void *user, struct str reply, enum why why), void *user);
/* The same for any question. */
struct ns_ask *nameserver_wish(struct nameservers *s, const struct ns_wish *wish,
                               uint64_t budget_ms,
                               void (*done)(void *user, struct str reply, enum why why),
                               void *user);
/* How many servers a question would be put to now; *ret has a bit for each, by place in the list.
 */
unsigned nameservers_active(const struct nameservers *s, unsigned *ret);
/* done() will not be called. */
void nameserver_cancel(struct ns_ask *a);

#endif
