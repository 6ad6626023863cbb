/* elements_impl.h — a batch of changes to the elements of our sets, in the form in which it is
 * sent. */
#ifndef KERNEL_ELEMENTS_IMPL_H
#define KERNEL_ELEMENTS_IMPL_H

#include "base/ip.h"
#include "egress/kernel/netlink_impl.h"

struct elements {
    struct netlink *nl;
    char *p;
    size_t n, room;
    size_t message, list; /* offsets of what is open; 0: nothing */
    uint32_t last_seq;
};

/* What one element is. */
struct element {
    const uint8_t *key;
    uint16_t key_len;
    bool interval_end;
    const char *chain;   /* maps: where to go, or NULL */
    uint64_t timeout_ms; /* 0: none */
    struct str comment;  /* left out if over ELEMENT_COMMENT_MAX bytes */
};

/* With more the kernel refuses the element or, a byte further, loses the comment. */
enum { ELEMENT_COMMENT_MAX = 251 };

/* Starts a batch; nl is used for sequence numbers and by elements_commit(). */
void elements_begin(struct elements *e, struct netlink *nl);
/* What follows is added to, or taken out of, this set.  No error to add what is there. */
void elements_of(struct elements *e, bool add, const char *set);
void elements_put(struct elements *e, const struct element *one);
/* Sends the batch if there is something in it, and frees it. */
must_check int elements_commit(struct elements *e);

/* Bytes of the address as a key. */
const uint8_t *element_key(const struct ip *ip, uint16_t *ret_len);

#endif
