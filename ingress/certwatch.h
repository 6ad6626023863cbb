/* certwatch.h — certificates over time: their files are watched, their end is told, ticket keys
 * turn (contract ingress 1.3, DESIGN 8, 14).  On the main worker. */
#ifndef INGRESS_CERTWATCH_H
#define INGRESS_CERTWATCH_H

#include "base/metrics.h"
#include "ingress/view.h"

struct certwatch;
struct worker;

struct certwatch_events {
    /* Files may say something else now; told some 250 ms after the last change that was seen, since
     * a pair is two files. */
    void (*changed)(void *user);
    /* The view in force; lent. */
    const struct ingress_view *(*view)(void *user);
};

/* Watches what the settings name, at most 1024 files and folders. */
struct certwatch *certwatch_start(struct worker *w, const struct ingress_settings *s,
                                  const struct certwatch_events *ev, void *user);
void certwatch_stop(struct certwatch *c);

/* A line for each certificate that has less than 14 days left, or none; at most 64.  certs may be
 * NULL. */
void certwatch_warn(const struct certs *certs, int64_t now_s);
/* A gauge by first name, at most 64 of them; of equal names the one that ends first. */
void certwatch_metrics(const struct certs *certs, int64_t now_s, struct metrics_out *o);

#endif
