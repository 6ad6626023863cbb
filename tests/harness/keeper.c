/* keeper.c — see keeper.h.  The store is touched by the thread alone while a worker runs. */
#include "harness/keeper.h"

#include <assert.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

static void *serve(void *user)
{
    struct keeper *k = user;
    struct pollfd p = {.fd = k->server, .events = POLLIN};
    do
        poll(&p, 1, -1);
    while (store_serve(&k->store, k->server));
    close(k->server);
    return NULL;
}

void keeper_init(struct keeper *k)
{
    store_init(&k->store);
}

void keeper_done(struct keeper *k)
{
    store_done(&k->store);
}

void keeper_serve(struct keeper *k)
{
    int pair[2], error = socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair);
    char number[16];
    assert(error == 0);
    k->server = pair[0];
    snprintf(number, sizeof number, "%d", pair[1]);
    setenv(KEEP_VARIABLE, number, 1);
    error = pthread_create(&k->thread, NULL, serve, k);
    assert(error == 0);
}

void keeper_wait(struct keeper *k)
{
    pthread_join(k->thread, NULL);
    unsetenv(KEEP_VARIABLE);
}
