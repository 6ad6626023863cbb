/* monitor.h — hears of changes that somebody else makes to rules, and of devices that come and go.
 *
 * The kernel numbers the transactions of a namespace.  What is heard is only who made which number:
 * a number that is not ours, or one that is missing, means that somebody else may have been at our
 * rules. */
#ifndef KERNEL_MONITOR_H
#define KERNEL_MONITOR_H

#include <stdbool.h>
#include <stdint.h>

#include "base/why.h"

struct monitor;

/* Opens sockets in the namespace of the calling thread.  Negative errno. */
must_check int monitor_open(struct monitor **ret);
/* NULL is fine. */
void monitor_close(struct monitor *m);
/* For the loop to watch. */
int monitor_rules_fd(const struct monitor *m);
int monitor_devices_fd(const struct monitor *m);

/* All up to this transaction is known to be good. */
void monitor_trust(struct monitor *m, uint32_t generation);
/* Reads what there is.  Transactions made from these ports are ours.  True: another one came after
 * what is trusted, or something was lost; it stays true until monitor_trust(). */
bool monitor_rules(struct monitor *m, const uint32_t *ports, unsigned n);
/* Is this the transaction that is trusted? */
bool monitor_is_up_to(const struct monitor *m, uint32_t generation);
/* Reads what there is.  True: devices may have changed. */
bool monitor_devices(struct monitor *m);

#endif
