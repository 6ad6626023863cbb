/* filter.h — a body on its way through an exchange: bytes in, bytes out, a bounded tail kept. */
#ifndef PROXY_FILTER_H
#define PROXY_FILTER_H

#include "base/buf.h"
#include "base/why.h"

struct filter {
    const struct filter_ops *ops;
};

struct filter_ops {
    /* Takes from `in` what it can, and adds to `out` until about `room` more bytes are there; what
     * is not taken is offered again when there is room.  end: nothing follows `in`; *ret_done is
     * set when all has come out.  Anything but WHY_OK cuts the message after what is in `out`
     * (ORIGIN_PROTOCOL: it cannot be read, OVERLOAD: it needs more memory than there may be). */
    enum why (*push)(struct filter *f, struct buf *in, bool end, size_t room, struct buf *out,
                     bool *ret_done);
    void (*free)(struct filter *f);
};

#endif
