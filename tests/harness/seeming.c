/* seeming.c — see seeming.h.  A socket cannot come from any address, and the API has no TLS yet. */
#include "harness/seeming.h"

#include "net/conn.h"

static struct {
    union addr peer;
    bool other, tls;
    struct conn_info info;
} seeming;

const struct conn_info *__real_conn_info(const struct conn *c);
const struct conn_info *__wrap_conn_info(const struct conn *c);

const struct conn_info *__wrap_conn_info(const struct conn *c)
{
    seeming.info = *__real_conn_info(c);
    if (seeming.other)
        seeming.info.peer = &seeming.peer.sa;
    seeming.info.tls |= seeming.tls;
    return seeming.other || seeming.tls ? &seeming.info : __real_conn_info(c);
}

void seem(const struct ip *peer, bool tls)
{
    seeming.other = peer != NULL;
    seeming.tls = tls;
    if (peer)
        addr_make(&seeming.peer, peer, 40000);
}
