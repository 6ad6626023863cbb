/* hostconf.h — resolv.conf and the hosts file as they are in force, read again when they change. */
#ifndef NET_HOSTCONF_H
#define NET_HOSTCONF_H

#include "net/hostfiles.h"
#include "net/nameserver.h"
#include "net/resolve.h"

/* One reading of resolv.conf; counted, so that a question keeps its servers to its end. */
struct hostconf {
    struct worker *w;
    unsigned users;
    struct arena mem;
    struct resolv_conf resolv;
    struct nameservers *servers;
    uint64_t budget_ms; /* for one question */
};
struct hostconf *hostconf_ref(struct hostconf *c);
/* The last one buries it. */
void hostconf_unref(struct hostconf *c);

struct hostsource;

struct hostsource *hostsource_new(struct worker *w, const struct names_files *files);
void hostsource_free(struct hostsource *s);
/* Looks at the files if the last look is a second old.  True: resolv.conf is another one now. */
bool hostsource_look(struct hostsource *s);
/* Valid until the next look. */
struct hostconf *hostsource_conf(const struct hostsource *s);
const struct hosts *hostsource_hosts(const struct hostsource *s);

#endif
