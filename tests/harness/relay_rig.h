/* relay_rig.h — the sidecar's relay and explicit proxy on a real worker and real loopback sockets;
 * only the kernel's redirect and the names are made up.
 *
 * The program has to be linked with -Wl,--wrap=conn_original,--wrap=judge_is_loopback.  Every name
 * that ends in ".test" is 127.0.0.1, but "gone.test", which has no address; ok.test, also.test and
 * no.test are leased to it where the policy allows them. */
#ifndef HARNESS_RELAY_RIG_H
#define HARNESS_RELAY_RIG_H

#include <pthread.h>

#include "egress/dns/leases.h"
#include "egress/relay/relay.h"
#include "net/worker.h"

enum { RELAY_EVENTS_BYTES = 4096 };

struct relay_rig {
    struct worker *w;
    struct egress_settings set;
    struct sidecar s;
    struct snapshot *snap;
    struct proxy *p;
    struct relay *relay;
    uint16_t redirected, explicit; /* ports of the relay */
    pthread_mutex_t lock;
    char events[RELAY_EVENTS_BYTES]; /* lines */
};

/* "+ok.test -10.0.0.0/8", first "*" for default allow.  tweak(set) before the relay is made; may be
 * NULL. */
void relay_rig_begin(struct relay_rig *r, const char *policy,
                     void (*tweak)(struct egress_settings *set));
/* Everything that was open is over by the end. */
void relay_rig_end(struct relay_rig *r);
/* Another policy is in force when this returns. */
void relay_rig_policy(struct relay_rig *r, const char *policy);
void relay_rig_drain(struct relay_rig *r);
/* Where the next connections were on their way to; port 0: they were not redirected. */
void relay_rig_target(const char *address, uint16_t port);
/* Waits until a line of the events holds this. */
void relay_rig_event(struct relay_rig *r, const char *text);
/* Waits until so many redirected connections are open. */
void relay_rig_open(struct relay_rig *r, unsigned n);

#endif
