/* keep_fuzz.c — any packets to the supervisor's store.  It stays inside its bounds, no name is
 * there twice, and what it answers is a packet that a worker takes apart again.  Input: packets,
 * each behind two bytes of length (high byte first; its top bit: a descriptor comes with it). */
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

#include "egress/supervisor/store.h"

#define CHECK(what)  \
    do {             \
        if (!(what)) \
            abort(); \
    } while (0)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_entries(struct store *s)
{
    CHECK(s->n <= KEEP_ENTRIES_MAX);
    for (unsigned i = 0; i < s->n; i++) {
        struct kept *e = &s->entries[i];
        CHECK(e->name.n > 0 && e->name.n <= KEEP_NAME_MAX && e->blob.n <= KEEP_BLOB_MAX);
        CHECK(keep_find(&(struct kept_list){s->entries, s->n}, e->name) == e);
        CHECK(e->fd < 0 || fcntl(e->fd, F_GETFD) >= 0);
    }
}

static void check_answer(const struct keep_packet *p, int fd)
{
    CHECK(p->head.op >= KEEP_DONE && p->head.op <= KEEP_BAD);
    CHECK(p->name.n <= KEEP_NAME_MAX && p->blob.n <= KEEP_BLOB_MAX);
    CHECK(p->head.op == KEEP_ENTRY || (p->name.n == 0 && p->blob.n == 0 && fd < 0));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct store store;
    store_init(&store);
    while (size >= 2) {
        struct keep_packet answer;
        int fd = data[0] & 0x80 ? open("/dev/null", O_RDONLY | O_CLOEXEC) : -1, answer_fd;
        size_t n = (size_t)(data[0] & 0x7f) << 8 | data[1];
        data += 2;
        size -= 2;
        n = n < size ? n : size;
        store_answer(&store, (struct str){(const char *)data, n}, fd, &answer, &answer_fd);
        check_answer(&answer, answer_fd);
        data += n;
        size -= n;
    }
    check_entries(&store);
    store_done(&store);
    return 0;
}
