/* store.c — entries in the order in which they came, found by walking: there are a few
 * dozen, looked for at starts and changes of policy. */
#include "egress/supervisor/store.h"

#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

enum { AT_ONCE = 64 }; /* packets answered before the caller looks at its signals again */

void store_init(struct store *s)
{
    s->n = 0;
}

static void entry_done(struct kept *e)
{
    mem_free((char *)e->name.p);
    mem_free((char *)e->blob.p);
    if (e->fd >= 0)
        close(e->fd);
}

void store_done(struct store *s)
{
    for (unsigned i = 0; i < s->n; i++)
        entry_done(&s->entries[i]);
    s->n = 0;
}

static struct kept *find(struct store *s, struct str name)
{
    return keep_find(&(struct kept_list){s->entries, s->n}, name);
}

static struct str copy(struct str s)
{
    return (struct str){mem_strdup(s), s.n};
}

/* Takes fd if the answer is DONE. */
static enum keep_op put(struct store *s, const struct keep_packet *p, int fd)
{
    if (p->name.n == 0)
        return KEEP_BAD;
    struct kept *e = find(s, p->name);
    if (!e && s->n == KEEP_ENTRIES_MAX)
        return KEEP_FULL;
    if (e)
        entry_done(e);
    else
        e = &s->entries[s->n++];
    *e = (struct kept){copy(p->name), copy(p->blob), fd};
    return KEEP_DONE;
}

static enum keep_op drop(struct store *s, const struct keep_packet *p)
{
    struct kept *e = find(s, p->name);
    if (p->name.n == 0 || p->blob.n > 0)
        return KEEP_BAD;
    if (!e)
        return KEEP_DONE;
    entry_done(e);
    size_t behind = s->n - 1 - (size_t)(e - s->entries);
    memmove(e, e + 1, behind * sizeof *e);
    s->n--;
    return KEEP_DONE;
}

static enum keep_op get(const struct store *s, uint32_t index, struct keep_packet *ret, int *ret_fd)
{
    if (index >= s->n)
        return KEEP_END;
    ret->name = s->entries[index].name;
    ret->blob = s->entries[index].blob;
    *ret_fd = s->entries[index].fd;
    return KEEP_ENTRY;
}

void store_answer(struct store *s, struct str packet, int fd, struct keep_packet *ret, int *ret_fd)
{
    struct keep_packet p = {0};
    enum keep_op op = KEEP_BAD;
    bool good = keep_unpack(packet, &p);
    *ret = (struct keep_packet){.head.number = p.head.number};
    *ret_fd = -1;
    if (good && p.head.op == KEEP_PUT)
        op = put(s, &p, fd);
    else if (good && p.head.op == KEEP_DROP && fd < 0)
        op = drop(s, &p);
    else if (good && p.head.op == KEEP_GET && fd < 0)
        op = get(s, p.head.index, ret, ret_fd);
    if (fd >= 0 && op != KEEP_DONE)
        close(fd);
    ret->head.op = (uint8_t)op;
}

bool store_serve(struct store *s, int socket)
{
    for (int i = 0; i < AT_ONCE; i++) {
        char buffer[KEEP_PACKET_MAX];
        struct keep_packet answer;
        int fd = -1, answer_fd;
        ssize_t n = keep_recv(socket, buffer, MSG_DONTWAIT, &fd);
        if (n < 0 && errno == EAGAIN)
            return true;
        if (n == 0 || (n < 0 && errno != EBADMSG))
            return false;
        store_answer(s, (struct str){buffer, n > 0 ? (size_t)n : 0}, fd, &answer, &answer_fd);
        /* a worker that does not read its answers has given up waiting for them */
        keep_send(socket, &answer, MSG_DONTWAIT, answer_fd);
    }
    return true;
}
