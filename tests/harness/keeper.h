/* keeper.h — a supervisor's store on a thread, for workers that come one after the other. */
#ifndef HARNESS_KEEPER_H
#define HARNESS_KEEPER_H

#include <pthread.h>

#include "egress/supervisor/store.h"

struct keeper {
    struct store store;
    int server; /* the supervisor's end */
    pthread_t thread;
};

void keeper_init(struct keeper *k);
/* Closes and frees what is kept; no worker runs. */
void keeper_done(struct keeper *k);
/* A worker begins: its end's number is in KEEP_VARIABLE from here on. */
void keeper_serve(struct keeper *k);
/* It has closed its end; the store is the caller's again. */
void keeper_wait(struct keeper *k);

#endif
