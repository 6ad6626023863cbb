/* resp.h — Redis' protocol: commands out, replies in (RESP2; of RESP3 as much as steps over one
 * value).  The only door to hiredis.  Replies are bounded, and hold no lists: nothing we ask for is
 * answered by one. */
#ifndef INGRESS_REDIS_RESP_H
#define INGRESS_REDIS_RESP_H

#include "base/mem.h"

enum {
    RESP_ARGS = 8,
    RESP_TEXT_BYTES = 64,       /* kept of a text or an error */
    RESP_LYING_BYTES = 64 << 10 /* of a reply that is not whole yet */
};

struct resp_command {
    struct str args[RESP_ARGS];
    unsigned n;
};

enum resp_type { RESP_TEXT, RESP_NUMBER, RESP_NIL, RESP_ERROR };
struct resp_reply {
    enum resp_type type;
    int64_t number;
    /* Cut to RESP_TEXT_BYTES.  Of an error only its first word, "READONLY", if it is one in
     * capitals: the rest may repeat what was sent. */
    char text[RESP_TEXT_BYTES];
    unsigned n;
};

/* The command as it goes out, n bytes on the heap; mem_free_wiped() is the caller's. */
char *resp_encode(const struct resp_command *c, size_t *ret_n);

struct resp_reader;
struct resp_reader *resp_reader_new(void);
void resp_reader_free(struct resp_reader *r);
/* Takes n bytes.  False: it is beyond its bounds, or was broken before. */
bool resp_feed(struct resp_reader *r, const void *p, size_t n);
/* 1: a reply; 0: none is whole; -1: what has come is no reply, nor will anything be. */
int resp_next(struct resp_reader *r, struct resp_reply *ret);
/* Bytes that were taken and belong to no reply yet. */
size_t resp_lying(const struct resp_reader *r);

/* Length of the first RESP3 value in s, of whatever type; 0: it is not whole; -1: it is none. */
ptrdiff_t resp3_span(struct str s);
struct str resp_text(const struct resp_reply *r);
bool resp_is_error(const struct resp_reply *r, const char *code);

#endif
