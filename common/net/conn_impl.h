/* conn_impl.h — the inside of a connection, for the files of net/ only. */
#ifndef NET_CONN_IMPL_H
#define NET_CONN_IMPL_H

#include <uv.h>

#include "base/list.h"
#include "net/conn.h"
#include "net/listen.h"
#include "net/worker_impl.h"

struct conn {
    uv_tcp_t tcp; /* the one handle (U1) */
    struct worker *w;
    const struct conn_events *ev;
    void *user;
    struct list dirty;
    struct list written;
    struct list stopped;
    struct buf in;  /* read, not taken */
    struct buf out; /* made by fill(), not taken by the kernel */
    uv_write_t *flying;
    int fd; /* of tcp */
    uint64_t last_write_ms;
    struct accept_gate *gate; /* to be told at the end, or NULL */
    union addr peer;
    struct conn_info info;
    enum why why;
    int err;
    bool closing : 1;
    bool reading : 1; /* libuv reads */
    bool paused : 1;  /* the user wants nothing */
    bool offer : 1;   /* untaken bytes are to be offered in the next flush */
    bool eof : 1;     /* FIN came */
    bool eof_told : 1;
    bool finishing : 1;
    bool fin_sent : 1;
    bool held : 1; /* the kernel was told that more follows: FIN */
    bool bulk : 1;
};

/* A connection around an accepted, non-blocking socket; reading starts with conn_attach(). NULL: no
 * memory of the kernel's; fd is closed. */
struct conn *conn_accept(struct worker *w, int fd, const struct sockaddr *peer, uint16_t listener,
                         struct accept_gate *gate, bool surplus);
/* Connects; ready() or closed() will tell.  NULL and *ret_errno: no socket to be had. */
struct conn *conn_connect(struct worker *w, const struct sockaddr *to, const struct conn_events *ev,
                          void *user, int *ret_errno);
/* errno of the failed connect or read, 0: none. */
int conn_errno(const struct conn *c);

/* Options of every TCP socket: no delay, keep-alive that ends a vanished peer after 80 s. Listening
 * sockets hand them down (U22). */
void conn_socket_options(int fd);

/* vanish.c: peers that take nothing any more and do not even acknowledge. */
void vanish_note(struct conn *c);
void vanish_forget(struct conn *c);
/* Reading stopped or began again: while it is stopped libuv reports no reset (U4), so it is asked
 * for once a second. */
void vanish_stopped(struct conn *c, bool stopped);

#endif
