/* explicit_target.h — what a client asks the explicit proxy for: the target of CONNECT, the
 * authority of an absolute target (contract egress-policy 4.7).  Pure. */
#ifndef RELAY_EXPLICIT_TARGET_H
#define RELAY_EXPLICIT_TARGET_H

#include "policies/authority.h"

struct explicit_target {
    struct host host;
    uint16_t port;
};

/* default_port is for absolute targets; 0: the port must be stated.  WHY_CLIENT_PROTOCOL: answer
 * 400; *ret_fault says what is wrong, static, without a line's end. */
enum why explicit_target_read(struct str text, uint16_t default_port, struct explicit_target *ret,
                              const char **ret_fault) must_check;

#endif
