/* conn_impl.h — the inside of a connection, for the files of net/ only. */
#ifndef NET_CONN_IMPL_H
#define NET_CONN_IMPL_H

#include <uv.h>

#include "base/list.h"
#include "net/conn.h"
#include "net/listen.h"
#include "net/prepare.h"
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
    struct splice *source, *sink; /* takes what this one reads; gives what it writes */
    struct conn_tls *tls;         /* NULL: plain */
    struct accept_gate *gate;     /* to be told at the end, or NULL */
    union addr peer, target;
    struct conn_info info;
    void (*drop_note)(void *note); /* of info.note, or NULL */
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
/* The same, with what `prepare` (may be NULL; not kept) does to the socket first. */
struct conn *conn_connect_prepared(struct worker *w, const struct sockaddr *to,
                                   const struct prepare *prepare, const struct conn_events *ev,
                                   void *user, int *ret_errno);
/* WHY_CLIENT_GONE or WHY_ORIGIN_GONE. */
enum why conn_gone(const struct conn *c);
/* Reading follows need. */
void conn_update_reading(struct conn *c);
/* As much as may lie untaken before reading stops. */
size_t conn_read_bound(const struct conn *c);
/* Of out as much as the kernel takes now; for a connection that is about to close. */
void conn_send_last(struct conn *c);
/* Reads away what the peer has sent, so that close() does not reset what it has yet to read. */
void conn_discard(struct conn *c);
/* All of out becomes the one write in flight, whose end makes the conn dirty. */
void conn_fly(struct conn *c);
/* errno of the failed connect or read, 0: none. */
int conn_errno(const struct conn *c);

/* Options of every TCP socket: no delay, keep-alive that ends a vanished peer after 80 s. Listening
 * sockets hand them down (U22). */
void conn_socket_options(int fd);

/* conn_tls.c: TLS inside a connection, the second time within the first.  What was read and not
 * taken becomes cipher text. */
struct conn_tls;
void conn_tls_start(struct conn *c, struct tls_ctx *ctx, const struct tls_to *to,
                    const struct tls_as *as);
void conn_tls_free(struct conn_tls *t);
/* Cipher text as read, to be decrypted by the next conn_tls_read(). */
struct buf *conn_tls_in(struct conn_tls *t);
size_t conn_tls_lying(const struct conn_tls *t); /* bytes of cipher text, of both layers */
/* Shakes hands, then decrypts into in, up to the bound for reading; may call ready() and close.
 * True: there is more, but in is full. */
bool conn_tls_read(struct conn *c);
/* Asks fill() and encrypts into out, which is empty.  After conn_finish(), when fill() has no more:
 * close_notify. */
void conn_tls_fill(struct conn *c);
/* close_notify at once, if everything else has left. */
void conn_tls_bye(struct conn *c);
bool conn_tls_up(const struct conn_tls *t);       /* the handshake is done */
bool conn_tls_over(const struct conn_tls *t);     /* the peer's close_notify came */
bool conn_tls_notified(const struct conn_tls *t); /* ours is made */
bool conn_tls_cut(const struct conn_tls *t);      /* the layer around it is over */
bool conn_tls_heard(const struct conn_tls *t);    /* the peer has said something */
/* The peer has hung up: conn_info.fault, or empty. */
struct str conn_tls_lost(const struct conn_tls *t);

/* vanish.c: peers that take nothing any more and do not even acknowledge. */
void vanish_note(struct conn *c);
void vanish_forget(struct conn *c);
/* Reading stopped or began again: while it is stopped libuv reports no reset (U4), so it is asked
 * for once a second. */
void vanish_stopped(struct conn *c, bool stopped);

#endif
