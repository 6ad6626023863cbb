/* faults.c — one fault at a time, struck once.  What it is set to is read by the thread it strikes,
 * so all of it is behind a lock. */
#include "harness/faults.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <stdarg.h>
#include <sys/socket.h>

#include "net/conn_impl.h"

static const char *const names[] = {
#define X(name) #name,
    FAULT_MAP(X)
#undef X
};

/* One program, one plan: tests set it, threads meet it. */
static struct {
    pthread_mutex_t lock;
    enum fault fault;
    unsigned left; /* calls until it strikes, 0: never */
    int error;
    pthread_t thread;
    bool struck;
    unsigned trickle;
} plan = {.lock = PTHREAD_MUTEX_INITIALIZER};

const char *fault_name(enum fault f)
{
    return names[f];
}

void faults_set(enum fault f, unsigned nth, int error, pthread_t thread)
{
    pthread_mutex_lock(&plan.lock);
    plan.fault = f;
    plan.left = nth;
    plan.error = error;
    plan.thread = thread;
    plan.struck = false;
    pthread_mutex_unlock(&plan.lock);
}

void faults_trickle(unsigned bytes, pthread_t thread)
{
    pthread_mutex_lock(&plan.lock);
    plan.trickle = bytes;
    plan.thread = thread;
    pthread_mutex_unlock(&plan.lock);
}

bool faults_clear(void)
{
    pthread_mutex_lock(&plan.lock);
    bool struck = plan.struck;
    plan.left = 0;
    pthread_mutex_unlock(&plan.lock);
    return struck;
}

/* The errno to fail with, or 0. */
static int strikes(enum fault f)
{
    int error = 0;
    pthread_mutex_lock(&plan.lock);
    if (plan.left > 0 && plan.fault == f && pthread_equal(pthread_self(), plan.thread) &&
        --plan.left == 0) {
        plan.struck = true;
        error = plan.error;
    }
    pthread_mutex_unlock(&plan.lock);
    return error;
}

/* What a send of n bytes is cut to. */
static size_t trickle(size_t n)
{
    pthread_mutex_lock(&plan.lock);
    bool cut = plan.trickle > 0 && plan.trickle < n && pthread_equal(pthread_self(), plan.thread);
    n = cut ? plan.trickle : n;
    pthread_mutex_unlock(&plan.lock);
    return n;
}

/* ---- libuv: errors are negative codes */

#define UV_CALL(name, parameters, arguments)             \
    int __real_##name parameters;                        \
    int __wrap_##name parameters;                        \
    int __wrap_##name parameters                         \
    {                                                    \
        int error = strikes(FAULT_##name);               \
        return error ? -error : __real_##name arguments; \
    }

UV_CALL(uv_tcp_init_ex, (uv_loop_t * loop, uv_tcp_t *tcp, unsigned flags), (loop, tcp, flags))
UV_CALL(uv_tcp_open, (uv_tcp_t * tcp, uv_os_sock_t fd), (tcp, fd))
UV_CALL(uv_tcp_connect,
        (uv_connect_t * r, uv_tcp_t *tcp, const struct sockaddr *to, uv_connect_cb cb),
        (r, tcp, to, cb))
UV_CALL(uv_tcp_close_reset, (uv_tcp_t * tcp, uv_close_cb cb), (tcp, cb))
UV_CALL(uv_read_start, (uv_stream_t * s, uv_alloc_cb alloc, uv_read_cb read), (s, alloc, read))
UV_CALL(uv_write, (uv_write_t * r, uv_stream_t *s, const uv_buf_t *b, unsigned n, uv_write_cb cb),
        (r, s, b, n, cb))
UV_CALL(uv_fileno, (const uv_handle_t *h, uv_os_fd_t *fd), (h, fd))

/* ---- the kernel: errors are −1 and errno */

#define CALL(type, name, parameters, arguments) \
    type __real_##name parameters;              \
    type __wrap_##name parameters;              \
    type __wrap_##name parameters               \
    {                                           \
        int error = strikes(FAULT_##name);      \
        if (!error)                             \
            return __real_##name arguments;     \
        errno = error;                          \
        return -1;                              \
    }

CALL(int, accept4, (int fd, struct sockaddr *peer, socklen_t *n, int flags), (fd, peer, n, flags))
CALL(int, socket, (int domain, int type, int protocol), (domain, type, protocol))
CALL(int, bind, (int fd, const struct sockaddr *to, socklen_t n), (fd, to, n))
CALL(int, getsockname, (int fd, struct sockaddr *name, socklen_t *n), (fd, name, n))
CALL(int, setsockopt, (int fd, int level, int name, const void *value, socklen_t n),
     (fd, level, name, value, n))
CALL(int, shutdown, (int fd, int how), (fd, how))
CALL(ssize_t, recv, (int fd, void *p, size_t n, int flags), (fd, p, n, flags))
CALL(ssize_t, send, (int fd, const void *p, size_t n, int flags), (fd, p, trickle(n), flags))

ssize_t __real_sendmsg(int fd, const struct msghdr *m, int flags);
ssize_t __wrap_sendmsg(int fd, const struct msghdr *m, int flags);
ssize_t __wrap_sendmsg(int fd, const struct msghdr *m, int flags)
{
    int error = strikes(FAULT_sendmsg);
    size_t n = m->msg_iov[0].iov_len;
    if (error) {
        errno = error;
        return -1;
    }
    if (trickle(n) < n)
        return __real_send(fd, m->msg_iov[0].iov_base, trickle(n), flags);
    return __real_sendmsg(fd, m, flags);
}

/* Only with a pointer, as FIONREAD has it. */
int __real_ioctl(int fd, unsigned long request, void *p);
int __wrap_ioctl(int fd, unsigned long request, void *p);
int __wrap_ioctl(int fd, unsigned long request, void *p)
{
    int error = strikes(FAULT_ioctl);
    if (!error)
        return __real_ioctl(fd, request, p);
    errno = error;
    return -1;
}

CALL(int, pipe2, (int fd[2], int flags), (fd, flags))

static bool is_socket(int fd)
{
    int type;
    socklen_t n = sizeof type;
    return getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &n) == 0;
}

ssize_t __real_splice(int in, off64_t *in_at, int out, off64_t *out_at, size_t n, unsigned flags);
ssize_t __wrap_splice(int in, off64_t *in_at, int out, off64_t *out_at, size_t n, unsigned flags);
ssize_t __wrap_splice(int in, off64_t *in_at, int out, off64_t *out_at, size_t n, unsigned flags)
{
    int error = strikes(FAULT_splice);
    if (!error)
        return __real_splice(in, in_at, out, out_at, is_socket(in) ? n : trickle(n), flags);
    errno = error;
    return -1;
}

/* Only with a number, as F_SETPIPE_SZ has it. */
int __real_fcntl(int fd, int what, ...);
int __wrap_fcntl(int fd, int what, ...);
int __wrap_fcntl(int fd, int what, ...)
{
    va_list rest;
    int error = strikes(FAULT_fcntl);
    va_start(rest, what);
    int value = va_arg(rest, int);
    va_end(rest);
    if (!error)
        return __real_fcntl(fd, what, value);
    errno = error;
    return -1;
}

/* ---- OpenSSL: 0, and an error in the thread's list; the errno does not count */

#define SSL_CALL(name, parameters, arguments)         \
    int __real_##name parameters;                     \
    int __wrap_##name parameters;                     \
    int __wrap_##name parameters                      \
    {                                                 \
        if (!strikes(FAULT_##name))                   \
            return __real_##name arguments;           \
        ERR_raise(ERR_LIB_SSL, ERR_R_INTERNAL_ERROR); \
        return 0;                                     \
    }

SSL_CALL(SSL_do_handshake, (SSL * ssl), (ssl))
SSL_CALL(SSL_read_ex, (SSL * ssl, void *p, size_t n, size_t *ret), (ssl, p, n, ret))
SSL_CALL(SSL_write_ex, (SSL * ssl, const void *p, size_t n, size_t *ret), (ssl, p, n, ret))
SSL_CALL(SSL_shutdown, (SSL * ssl), (ssl))
