/* static.h — the resolver that reads a file (contract ingress 7.4): --routes FILE, watched and
 * reloaded. */
#ifndef INGRESS_STATIC_H
#define INGRESS_STATIC_H

#include "ingress/resolver.h"

struct static_routes;

/* Reads the file at once and reports; NULL and one line with line and column on a fault.  Later
 * faults are logged and change nothing. The events come on w's loop.  File reading and parsing
 * happen off the loop; a change of the file is seen within two seconds. */
struct static_routes *static_start(struct worker *w, struct str path,
                                   const struct resolver_events *ev, void *user, struct arena *a,
                                   struct str *ret_error);
/* --check: would the file be taken?  False: the line a start would end with. */
bool static_check(struct str path, struct arena *a, struct str *ret_error);
/* SIGHUP: read it again now. */
void static_reload(struct static_routes *s);
void static_stop(struct static_routes *s);
/* For readiness and /debug, on w's thread: sandboxes known, Unix second of the last good read,
 * faults since. */
size_t static_size(const struct static_routes *s);
int64_t static_read_s(const struct static_routes *s);
uint64_t static_faults(const struct static_routes *s);

#endif
