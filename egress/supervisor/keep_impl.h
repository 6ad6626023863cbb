/* keep_impl.h — the packets between a worker and its supervisor, for keep.c and store.c.
 *
 * One packet of a sequenced-packet socket each way: this head, the name, the blob; a descriptor
 * goes as SCM_RIGHTS.  Both ends run on one machine, so integers are as it has them.  The
 * supervisor speaks only when asked, and answers with the number of the question. */
#ifndef SUPERVISOR_KEEP_IMPL_H
#define SUPERVISOR_KEEP_IMPL_H

#include <sys/types.h>

#include "egress/supervisor/keep.h"

enum { KEEP_VERSION = 1 };

enum keep_op {
    KEEP_PUT = 1, /* name, blob, perhaps a descriptor → DONE, FULL, BAD */
    KEEP_DROP,    /* name → DONE, BAD */
    KEEP_GET,     /* index → ENTRY, END, BAD */
    KEEP_DONE,
    KEEP_ENTRY, /* name, blob, perhaps a descriptor */
    KEEP_END,   /* there is none of that index */
    KEEP_FULL,
    KEEP_BAD,
};

struct keep_head {
    uint8_t version, op, name_n, pad;
    uint32_t number, index;
};

enum { KEEP_PACKET_MAX = sizeof(struct keep_head) + KEEP_NAME_MAX + KEEP_BLOB_MAX };

struct keep_packet {
    struct keep_head head;
    struct str name, blob;
};

/* Takes a packet apart, its texts lie in `bytes`; false: of another version, cut, or over a
 * limit. */
bool keep_unpack(struct str bytes, struct keep_packet *ret);
/* Sends one; fd -1: none.  Never raises a signal.  False: errno says why. */
bool keep_send(int socket, const struct keep_packet *p, int flags, int fd);
/* Receives one into buffer[KEEP_PACKET_MAX]; *ret_fd is the caller's, -1 if none came.  Bytes
 * received, 0 at the end, -1: errno says why; EBADMSG for one too long or with more than one
 * descriptor. */
ssize_t keep_recv(int socket, char *buffer, int flags, int *ret_fd);

#endif
