/* selftest.h — tries whether the rules hold (DESIGN 15.4; contract egress-policy 7.1 step 8): a
 * query of ours without a mark comes to our DNS, whoever it is for, and where addresses are
 * enforced a connection to port 853, which no policy opens, is refused at once. */
#ifndef KERNEL_SELFTEST_H
#define KERNEL_SELFTEST_H

#include <stdbool.h>
#include <stdint.h>

struct selftest;
struct worker;

enum { SELFTEST_MS = 2000, SELFTEST_PORTS = 2 };

struct selftest_rules {
    bool dns6;    /* our DNS listens on ::1 too */
    bool refuses; /* mode dns+nft */
};

/* done(user, NULL) or (user, why not: static text), once, within SELFTEST_MS or so, never before
 * this returns.  What cannot be tried for want of a route cannot leave either, and counts as good.
 * Our DNS must answer meanwhile, on this loop. */
struct selftest *selftest_start(struct worker *w, const struct selftest_rules *rules,
                                void (*done)(void *user, const char *fault), void *user);
/* From which ports it tries to connect, IPv4 and IPv6; 0: it does not. */
void selftest_ports(const struct selftest *t, uint16_t ret[SELFTEST_PORTS]);
/* done() is not called.  NULL is fine; not after done(). */
void selftest_stop(struct selftest *t);

#endif
