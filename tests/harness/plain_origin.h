/* plain_origin.h — an origin of HTTP/1.1 on loopback, a thread for each connection, as plain as can
 * be.  It answers "hello" and the request's body; /wire is an echo behind a 101, /cut a body
 * without a length that a reset breaks off. */
#ifndef HARNESS_PLAIN_ORIGIN_H
#define HARNESS_PLAIN_ORIGIN_H

#include <netinet/in.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { ORIGIN_BODY_BYTES = 900000 /* of a request, at most */ };

struct origin {
    int fd;
    uint16_t port;
    pthread_t thread;
    _Atomic int busy;
};

void origin_begin(struct origin *o);
/* Waits until its connections are over. */
void origin_finish(struct origin *o);

struct sockaddr_in loopback(uint16_t port);
/* False: the peer takes no more. */
bool send_all(int fd, const char *p, size_t n);
bool send_text(int fd, const char *text);
/* Bytes that differ from their neighbours. */
void fill_body(char *p, size_t n);

#endif
