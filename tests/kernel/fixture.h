/* fixture.h — what the kernel tests share: settings like a sidecar's, rules applied by the program
 * itself, sockets that play the sidecar. */
#ifndef KERNEL_FIXTURE_H
#define KERNEL_FIXTURE_H

#include "egress/kernel/ruleset.h"
#include "harness/netns.h"
#include "kernel/attempts.h"

enum { OWN_MARK = 0x5a11e501, PASS_MARK = 0x5a11e502, GROUP_MARK = 0x5a11e503 };

/* Settings of mode dns+nft with interception; the lists are static. */
struct ruleset fixture_settings(void);
/* Applies the rules inside; fails the test if that fails. */
void fixture_apply(const struct netns *ns, const struct ruleset *r);
/* Runs `nft` with a command inside; fails the test if that fails. */
void fixture_nft(const struct netns *ns, const char *command);
/* A socket inside that is ours: mark, and made by our uid.  Connected, unless connect fails: -1. */
int fixture_own(const struct netns *ns, int type, const char *ip, uint16_t port);
/* A connected socket inside with no privilege at all, or -1.  Waits for a second at most. */
int fixture_connect(const struct netns *ns, int type, const char *ip, uint16_t port);
/* The same from outside. */
int fixture_connect_from(int namespace, int type, const char *ip, uint16_t port);

#endif
