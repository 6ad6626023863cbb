/* faults.h — the calls of net/ to libuv, OpenSSL and the kernel, any of which can be made to fail.
 *
 * Programs that link faults.c are linked with --wrap for each name of FAULT_MAP.  A fault strikes
 * only the thread it was set for, so that a test's own sockets work. */
#ifndef HARNESS_FAULTS_H
#define HARNESS_FAULTS_H

#include <pthread.h>
#include <stdbool.h>

#define FAULT_MAP(X)      \
    X(uv_tcp_init_ex)     \
    X(uv_tcp_open)        \
    X(uv_tcp_connect)     \
    X(uv_tcp_close_reset) \
    X(uv_read_start)      \
    X(uv_write)           \
    X(uv_fileno)          \
    X(accept4)            \
    X(recv)               \
    X(send)               \
    X(sendmsg)            \
    X(ioctl)              \
    X(socket)             \
    X(bind)               \
    X(getsockname)        \
    X(setsockopt)         \
    X(shutdown)           \
    X(splice)             \
    X(pipe2)              \
    X(fcntl)              \
    X(SSL_do_handshake)   \
    X(SSL_read_ex)        \
    X(SSL_write_ex)       \
    X(SSL_shutdown)

enum fault {
#define X(name) FAULT_##name,
    FAULT_MAP(X)
#undef X
        FAULTS
};

const char *fault_name(enum fault f);
/* The nth call (from 1) of `thread` fails with this errno; later ones work again. */
void faults_set(enum fault f, unsigned nth, int error, pthread_t thread);
/* A send() of `thread`, or a splice() out of a pipe, takes at most so many bytes; 0: as many as it
 * likes. */
void faults_trickle(unsigned bytes, pthread_t thread);
/* None from now on; did it strike? */
bool faults_clear(void);

#endif
