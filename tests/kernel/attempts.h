/* attempts.h — ways out of a sandbox, one function each.
 *
 * An attempt runs in a process of its own, inside the namespace and with the privileges of a
 * workload.  Whether it got out is seen by the tap outside, not by the one who tries. */
#ifndef KERNEL_ATTEMPTS_H
#define KERNEL_ATTEMPTS_H

#include "harness/netns.h"

enum who {
    AS_USER = 1,    /* nobody, no capability */
    AS_ROOT = 2,    /* uid 0, no capability */
    AS_RAW = 4,     /* uid 0 with CAP_NET_RAW */
    AS_OUR_UID = 8, /* the sidecar's own uid, with CAP_NET_RAW */
    AS_ANYONE = AS_USER | AS_ROOT | AS_RAW | AS_OUR_UID,
    AS_ROOTS = AS_RAW | AS_OUR_UID
};

enum outcome {
    SENT,     /* the kernel took it; no answer is to be expected */
    ANSWERED, /* refused at once: by the call, a reset or an ICMP message */
    SILENT,   /* neither answer nor success within 300 ms */
    REACHED,  /* somebody replied */
    UNABLE    /* this kernel or these privileges do not even let one try */
};

enum trait {
    NO_ANSWER = 1, /* a frame or packet to which nobody answers */
    ANY_POLICY = 2 /* stays in even where everything is allowed */
};

enum { OUR_UID = 10042 };

struct attempt {
    const char *name;
    enum outcome (*run)(const struct attempt *);
    const char *ip;
    uint16_t port;
    unsigned who;    /* those who try */
    unsigned traits; /* of enum trait */
    uint32_t number; /* a mark, a flag, a type: what the function says */
};

/* Runs it inside, as one of `who`; the outcome. */
enum outcome attempt_as(const struct netns *ns, const struct attempt *a, enum who who);
const char *outcome_text(enum outcome o);

/* The plain ways: connect, send, ping. `number`: a mark to set first (0: none). */
enum outcome try_tcp(const struct attempt *a);
enum outcome try_udp(const struct attempt *a);
enum outcome try_ping(const struct attempt *a);
/* As try_udp and try_tcp by a socket bound to a device: number 0 is e0, 1 is lo. */
enum outcome try_udp_by_device(const struct attempt *a);
enum outcome try_tcp_by_device(const struct attempt *a);
/* Source routes: an IPv4 option (number: 131 LSRR, 137 SSRR), an IPv6 routing header (its type). */
enum outcome try_source_route(const struct attempt *a);
enum outcome try_routing_header(const struct attempt *a);
/* A protocol without ports from a raw socket; number: the protocol. */
enum outcome try_protocol(const struct attempt *a);
/* A UDP packet with a header of its own; number: its source, 0 for ours, 1 for a foreign one, 2 for
 * loopback. */
enum outcome try_forged_udp(const struct attempt *a);
/* A TCP segment of a flow that does not exist; number: its flags. */
enum outcome try_stray_segment(const struct attempt *a);
/* A UDP packet in two fragments that the kernel is told not to put together. */
enum outcome try_fragments(const struct attempt *a);
/* Neighbour discovery with a payload (number: the type), to an address that is no neighbour. */
enum outcome try_neighbour(const struct attempt *a);
/* A frame; number: flags. */
enum { FRAME_BYPASS = 1, FRAME_ARP = 2, FRAME_V6 = 4, FRAME_GROUP = 8, FRAME_MARKED = 16 };
enum outcome try_frame(const struct attempt *a);
/* Writes a packet over lo that pretends to come from the address, and then talks to it. */
enum outcome try_forged_inbound(const struct attempt *a);

/* Pieces for other tests, run by the caller itself: a UDP packet from anybody to anybody. */
bool send_forged_udp(const char *from, uint16_t from_port, const char *to, uint16_t to_port,
                     const char *payload);
bool send_forged_tcp(const char *from, uint16_t from_port, const char *to, uint16_t to_port,
                     unsigned flags, uint32_t seq);
/* Drops to the privileges; for children only. */
void become(enum who who);

#endif
