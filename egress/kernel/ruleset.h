/* ruleset.h — the kernel's rules as text for libnftables: a pure function of settings and devices
 * (contract egress-policy 4.2, 4.4 to 4.8).
 *
 * The text is one transaction that replaces whatever stood in the tables `inet opensandbox` and
 * `netdev opensandbox`, so a restart never opens and never piles up.  It changes when a setting
 * changes the rules' shape; what a policy says stands in maps and sets, which are written over
 * netlink (sets.h) and empty here, so a fresh table denies.
 *
 * What our bits in a conntrack entry's mark mean: RULESET_CT_INBOUND, the flow was opened from
 * outside; RULESET_CT_CUT, it lost its permission; RULESET_CT_OWN, it is ours; RULESET_CT_OPEN, it
 * was let out, and may still be judged (so it is not among RULESET_CT_ALL).  They are no secret:
 * only NET_ADMIN can set them.  The marks of packets are secret. */
#ifndef KERNEL_RULESET_H
#define KERNEL_RULESET_H

#include "base/why.h"
#include "policies/cidr.h"

#define RULESET_TABLE "opensandbox"

enum {
    RULESET_CT_INBOUND = 1,
    RULESET_CT_CUT = 2,
    RULESET_CT_OWN = 4,
    RULESET_CT_ALL = 7,
    RULESET_CT_OPEN = 8
};
#define RULESET_OURS_BIT 0x80000000u
enum { RULESET_LOG_GROUP = 15353, RULESET_HASH_TEXT = 16 };

enum ruleset_shape {
    RULESET_CLOSED, /* at start and exit: loopback, replies, our own traffic, neighbours */
    RULESET_DNS,    /* mode dns: redirects only */
    RULESET_FULL    /* mode dns+nft */
};

/* What this kernel lacks; each makes the rules weaker or quieter and is to be warned of. */
enum ruleset_lack {
    RULESET_NO_WIRE = 1,    /* no egress hook on devices (before 5.16): AF_PACKET gets out */
    RULESET_NO_COUNTER = 2, /* no counters */
    RULESET_NO_LOG = 4      /* no nflog: refused packets make no events */
};

struct ruleset_server {
    struct ip ip;
    uint16_t port;
};

struct ruleset {
    enum ruleset_shape shape;
    unsigned lacks;              /* of enum ruleset_lack */
    uint16_t dns_port;           /* where our DNS listens, on 127.0.0.1 and ::1 */
    uint16_t relay_port;         /* where the relay does; 0: nothing is redirected to it */
    const uint16_t *extra_ports; /* redirected besides 80 and 443 */
    unsigned nextra;
    bool block_doh; /* TCP 443: to `doh`, or to anywhere if that is empty */
    struct cidr_set doh;
    const struct ip *exempt; /* nameservers that the workload may ask itself */
    unsigned nexempt;
    const struct ruleset_server *upstreams; /* where our own UDP goes, and nowhere else */
    unsigned nupstreams;
    uint16_t parent_port; /* of the upstream proxy, whose addresses only we may reach; 0: none */
    /* Known to us by the mark and, where there is one, the uid and the cgroup as well. */
    /* Our sockets carry it; random, 0: there is no own traffic.  With RULESET_OURS_BIT it cannot be
     * found by trying: for as long as somebody tries marks with that bit, nothing is ours. */
    uint32_t own_mark;
    uint32_t pass_mark;  /* carried from the verdict to the device; random, not 0 */
    uint32_t group_mark; /* the same for multicast and broadcast, which come back to us */
    /* The packet's priority, a second half of pass_mark: 32 bits alone are found by trying, with
     * frames that nobody refuses.  Random; 0: none. */
    uint32_t pass_priority;
    bool has_uid;
    uint32_t uid;
    struct str cgroup;         /* path below /sys/fs/cgroup, or empty */
    unsigned cgroup_level;     /* depth in its own hierarchy */
    const struct str *devices; /* all but lo */
    unsigned ndevices;
    unsigned learned_max; /* elements of each learned set, not 0 in the full shape */
};

/* The text, in `a`; the table's comment is "sallyport " and a hash of the rest.  False: a name of a
 * device or cgroup cannot stand in a rule, *error says which; lies in `a` too. */
must_check bool ruleset_text(const struct ruleset *r, struct arena *a, struct str *ret,
                             struct str *error);
/* The same text, in `a`, for a kernel that has none of our tables; refused if it has one.  What is
 * not taken away it need not tidy up, and the next transaction need not wait for that.  The table
 * has no comment then. */
struct str ruleset_first(struct str text, struct arena *a);
/* The text that takes our tables away, missing or not; wire: the one of the devices too.  Static.
 */
struct str ruleset_removal(bool wire);
/* The hash in a text made by ruleset_text(), RULESET_HASH_TEXT characters. */
struct str ruleset_hash(struct str text);

#endif
