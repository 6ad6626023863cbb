/* dns_rig.h — clients' sockets, the whole DNS of the sidecar, a scripted upstream, a kernel that
 * acknowledges when it is told to.  Time stands still unless a test lets it pass: link with
 * --wrap=uv_now. */
#ifndef HARNESS_DNS_RIG_H
#define HARNESS_DNS_RIG_H

#include "egress/dns/service.h"
#include "harness/dns_server.h"

enum kernel_does { KERNEL_OBEYS, KERNEL_REFUSES, KERNEL_IS_SLOW };
enum { DNS_RIG_ORDERS = 64 };

struct dns_rig_order {
    void (*done)(void *arg, bool ok);
    void *arg;
};

struct dns_rig {
    struct worker *w;
    struct dns_server *servers;
    struct policy *policy;
    struct gate_rules rules;
    struct nameservers *ns;
    struct leases *leases;
    struct upkeep *upkeep;
    struct dns_service *dns;
    union addr udp, tcp;
    enum kernel_does kernel;
    struct dns_rig_order order[DNS_RIG_ORDERS];
    unsigned norders, withdrawn;
    unsigned asked; /* questions that came to the upstream */
    struct dns_asked kept[64];
    unsigned nkept;
    bool silent;  /* the upstream keeps what it is asked */
    bool silent6; /* … questions for AAAA */
    const char
        *answer; /* its records, one a line, each without its owner, which is the name asked for */
    const char *answer6; /* … to AAAA; NULL: the same */
    unsigned denied, told;
};

#define DNS_RIG_OK                                                \
    "{\"egress\":[{\"action\":\"allow\",\"target\":\"ok.test\"}," \
    "{\"action\":\"allow\",\"target\":\"*.ok.test\"}]}"

extern const struct dns_limits dns_rig_limits;

struct dns_rig *dns_rig_new(const char *policy, const struct dns_limits *limits);
void dns_rig_free(struct dns_rig *rig);
struct policy *dns_rig_policy(const char *json);
/* ms, as the worker has it. */
uint64_t dns_rig_now(void);
/* Turns the worker until nothing happens any more. */
void dns_rig_settle(struct dns_rig *rig);
void dns_rig_pass(struct dns_rig *rig, uint64_t ms);
/* The upstream answers a question that it kept. */
void dns_rig_answer(struct dns_rig *rig, const struct dns_asked *a);
/* The slow kernel has done all that it was asked. */
void dns_rig_kernel_catches_up(struct dns_rig *rig);

/* ---- clients */

/* A connected socket. */
int dns_rig_client(const struct dns_rig *rig, bool tcp);
size_t dns_rig_query(uint8_t out[DNS_WRITE_MIN], uint16_t id, const char *name, uint16_t type);
/* Sends a query for A. */
void dns_rig_ask(int fd, uint16_t id, const char *name);

struct dns_got {
    int id, rcode; /* -1: nothing came */
    unsigned answers;
    uint32_t ttl;
    struct dns_name name;
};

struct dns_got dns_rig_read(const uint8_t *p, size_t n);
struct dns_got dns_rig_hear(int fd);
/* What a client of its own is told about a name's A. */
struct dns_got dns_rig_asked(struct dns_rig *rig, const char *name);

#endif
