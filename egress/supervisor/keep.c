/* keep.c — the worker's side of what its supervisor keeps.  Each call is one question and one
 * answer; they carry a number, so that an answer that came too late is not taken for the next
 * one's. */
#include "egress/supervisor/keep.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/text.h"
#include "egress/supervisor/keep_impl.h"

enum { SEALS = F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE };

struct keep {
    int socket;
    uint32_t number; /* of the last question */
    char buffer[KEEP_PACKET_MAX];
};

static bool is_socket(int fd)
{
    int domain, type;
    socklen_t n = sizeof domain;
    return getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &n) == 0 && domain == AF_UNIX &&
           getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &n) == 0 && type == SOCK_SEQPACKET;
}

struct keep *keep_open(const char *number)
{
    uint64_t fd;
    if (!number || !text_u64(str_of(number), INT_MAX, &fd) || !is_socket((int)fd) ||
        fcntl((int)fd, F_SETFD, FD_CLOEXEC) != 0)
        return NULL;
    struct keep *k = mem_new(sizeof *k);
    k->socket = (int)fd;
    return k;
}

void keep_close(struct keep *k)
{
    if (!k)
        return;
    close(k->socket);
    mem_free(k);
}

static int64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static enum why wait_for(int socket, short events, int64_t until_ms)
{
    struct pollfd p = {.fd = socket, .events = events};
    for (;;) {
        int64_t left = until_ms - now_ms();
        int n = poll(&p, 1, left > 0 ? (int)left : 0);
        if (n > 0)
            return WHY_OK;
        if (n == 0)
            return WHY_DEADLINE;
        if (errno != EINTR)
            return WHY_REFUSED;
    }
}

static void drop_descriptor(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

/* The answer to question k->number; its texts lie in k->buffer. */
static enum why receive(struct keep *k, int64_t until_ms, struct keep_packet *ret, int *ret_fd)
{
    for (;;) {
        enum why why = wait_for(k->socket, POLLIN, until_ms);
        if (why != WHY_OK)
            return why;
        int fd = -1;
        ssize_t n = keep_recv(k->socket, k->buffer, MSG_DONTWAIT, &fd);
        if (n < 0 && errno == EAGAIN)
            continue;
        if (n <= 0 || !keep_unpack((struct str){k->buffer, (size_t)n}, ret)) {
            drop_descriptor(&fd);
            return WHY_REFUSED;
        }
        if (ret->head.number == k->number) {
            *ret_fd = fd;
            return WHY_OK;
        }
        drop_descriptor(&fd); /* an answer that came too late */
    }
}

static enum why ask(struct keep *k, struct keep_packet *question, int fd, int64_t until_ms,
                    struct keep_packet *ret, int *ret_fd)
{
    enum why why;
    question->head.number = ++k->number;
    while (!keep_send(k->socket, question, MSG_DONTWAIT, fd)) {
        if (errno != EAGAIN)
            return WHY_REFUSED;
        if ((why = wait_for(k->socket, POLLOUT, until_ms)) != WHY_OK)
            return why;
    }
    return receive(k, until_ms, ret, ret_fd);
}

/* A question whose answer is a word. */
static enum why order(struct keep *k, struct keep_packet *question, int fd)
{
    struct keep_packet answer;
    int came = -1;
    enum why why = ask(k, question, fd, now_ms() + KEEP_WAIT_MS, &answer, &came);
    drop_descriptor(&came);
    if (why != WHY_OK)
        return why;
    if (answer.head.op == KEEP_FULL)
        return WHY_LIMIT;
    return answer.head.op == KEEP_DONE ? WHY_OK : WHY_REFUSED;
}

enum why keep_put(struct keep *k, struct str name, struct str blob, int fd)
{
    struct keep_packet p = {.head.op = KEEP_PUT, .name = name, .blob = blob};
    if (name.n == 0 || name.n > KEEP_NAME_MAX || blob.n > KEEP_BLOB_MAX)
        return WHY_LIMIT;
    return order(k, &p, fd);
}

enum why keep_drop(struct keep *k, struct str name)
{
    struct keep_packet p = {.head.op = KEEP_DROP, .name = name};
    if (name.n == 0 || name.n > KEEP_NAME_MAX)
        return WHY_LIMIT;
    return order(k, &p, -1);
}

static bool write_all(int fd, struct str text)
{
    while (text.n > 0) {
        ssize_t n = write(fd, text.p, text.n);
        if (n < 0 && errno != EINTR)
            return false;
        text = str_skip(text, n > 0 ? (size_t)n : 0);
    }
    return true;
}

enum why keep_put_text(struct keep *k, struct str name, struct str text)
{
    int fd = memfd_create("keep", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0)
        return WHY_LIMIT;
    enum why why = WHY_LIMIT;
    if (write_all(fd, text) && fcntl(fd, F_ADD_SEALS, SEALS) == 0)
        why = keep_put(k, name, STR_NONE, fd);
    close(fd);
    return why;
}

enum why keep_load(struct keep *k, struct arena *a, struct kept_list *ret)
{
    struct kept_list list = {arena_get(a, KEEP_ENTRIES_MAX * sizeof *list.at), 0};
    int64_t until_ms = now_ms() + KEEP_WAIT_MS;
    for (;;) {
        struct keep_packet q = {.head = {.op = KEEP_GET, .index = list.n}}, p = {0};
        int fd = -1;
        enum why why = ask(k, &q, -1, until_ms, &p, &fd);
        if (why == WHY_OK && p.head.op == KEEP_END && fd < 0) {
            *ret = list;
            return WHY_OK;
        }
        if (why != WHY_OK || p.head.op != KEEP_ENTRY || list.n == KEEP_ENTRIES_MAX) {
            drop_descriptor(&fd);
            keep_done(&list);
            return why != WHY_OK ? why : WHY_REFUSED;
        }
        list.at[list.n++] = (struct kept){arena_str(a, p.name), arena_str(a, p.blob), fd};
    }
}

struct kept *keep_find(const struct kept_list *list, struct str name)
{
    for (unsigned i = 0; i < list->n; i++)
        if (str_eq(list->at[i].name, name))
            return &list->at[i];
    return NULL;
}

bool keep_text(const struct kept *one, size_t max, struct arena *a, struct str *ret)
{
    struct stat st;
    int seals = one->fd < 0 ? -1 : fcntl(one->fd, F_GET_SEALS);
    if (seals < 0 || (seals & SEALS) != SEALS || fstat(one->fd, &st) != 0 || st.st_size < 0 ||
        (uint64_t)st.st_size > max)
        return false;
    size_t size = (size_t)st.st_size, got = 0;
    char *text = arena_get(a, size + 1);
    while (got < size) {
        ssize_t n = pread(one->fd, text + got, size - got, (off_t)got);
        if (n == 0 || (n < 0 && errno != EINTR))
            return false;
        got += n > 0 ? (size_t)n : 0;
    }
    *ret = (struct str){text, size};
    return true;
}

void keep_done(struct kept_list *list)
{
    for (unsigned i = 0; i < list->n; i++)
        drop_descriptor(&list->at[i].fd);
}
