/* wake_impl.h — the inside of wake.h: wake.c (flights), wake_lot.c (the parking
 * lot and the numbers), wake_steps.c (the tables). */
#ifndef INGRESS_WAKE_IMPL_H
#define INGRESS_WAKE_IMPL_H

#include <pthread.h>
#include <stdatomic.h>

#include "ingress/wake.h"

struct wake {
    /* the owner's */
    struct worker *owner;
    struct caller *fastpath;
    struct wake_rules rules;
    struct wake_events ev;
    void *user;
    struct map *flights;
    uint64_t last_flight;
    char random[17];
    struct counter triggered, none; /* flights that asked for a resume; that found it ready */
    /* everybody's */
    atomic_uint parked;
    _Atomic uint64_t all_parked, shed;
    pthread_mutex_t lock; /* waited: leaving is rare and short */
    struct histogram waited[WAKE_LEFTS];
};

#endif
