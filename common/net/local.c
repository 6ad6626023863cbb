/* local.c — to a Unix socket.  The kernel connects such a socket at once or refuses, so nothing
 * waits here; what comes of it is a connection like an accepted one, and all of conn.c holds for
 * it. */
#include "net/local.h"

#include <errno.h>
#include <sys/un.h>
#include <unistd.h>

#include "net/conn_impl.h"

static bool set_path(struct sockaddr_un *to, struct str path)
{
    *to = (struct sockaddr_un){.sun_family = AF_UNIX};
    if (path.n == 0 || path.n > LOCAL_PATH_BYTES || memchr(path.p, 0, path.n))
        return false;
    memcpy(to->sun_path, path.p, path.n);
    return true;
}

struct conn *conn_local(struct worker *w, struct str path, int *ret_errno)
{
    struct sockaddr_un to;
    union addr none = {.v4 = {.sin_family = AF_INET}};
    if (!set_path(&to, path)) {
        *ret_errno = ENAMETOOLONG;
        return NULL;
    }
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, (const struct sockaddr *)&to, sizeof to) < 0) {
        *ret_errno = errno;
        if (fd >= 0)
            close(fd);
        return NULL;
    }
    struct conn *c = conn_accept(w, fd, &none.sa, 0, NULL, false);
    if (!c)
        *ret_errno = ENOMEM;
    return c;
}
