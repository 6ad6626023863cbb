/* gate.h — what a product is: a handful of functions that say what to do with a head, an address,
 * an answer, an ending.
 *
 * decide, allow_addr, answer, failed and describe are pure: they read their arguments, allocate
 * from the arena, and do nothing else.  So a decision is a test vector.  judged and dialled are
 * told what came of it and keep the product's own counts. */
#ifndef PROXY_GATE_H
#define PROXY_GATE_H

#include "base/log.h"
#include "base/why.h"
#include "conf/snapshot.h"
#include "http/rules.h"
#include "net/conn.h"
#include "net/dial.h"

struct worker;

struct facts {
    const struct snapshot *snap;
    const void *tables;             /* the worker's own, SLOT_PRODUCT; read only */
    const struct conn_info *client; /* NULL in describe(): its connection may be gone */
    const struct http_head *head;
    struct str request_id;
    struct str http_date; /* of now; in answer() only, lent */
    int64_t unix_s;
    uint64_t now_ms;
    bool draining;
    const struct sockaddr *origin; /* in recheck() and look(): where its connection goes to, or the
                                      parent proxy; NULL: none yet */
};

enum act {
    ACT_FORWARD,
    ACT_REPLY, /* a refusal in the client's preferred form (reply.h) */
    ACT_LOCAL  /* an answer of the product's own, byte for byte */
};

/* Where an exchange was when it failed. */
enum stage { STAGE_REQUEST, STAGE_DIAL, STAGE_WAIT };

struct verdict {
    enum act act;
    enum why why;
    int status;
    struct str code, message;      /* REPLY */
    bool retry;                    /* REPLY: Retry-After: 1 */
    struct str body, content_type; /* LOCAL */
    bool no_store;                 /* LOCAL */
    struct dial_to to;             /* FORWARD */
    bool h2;   /* FORWARD: in HTTP/2 by prior knowledge; an upgrade only if that connection takes
                  extended CONNECT, else in HTTP/1.1 */
    bool raw;  /* FORWARD of a CONNECT: to a connection of bytes, made for it alone; the client is
                  answered 200 when it is up */
    bool look; /* raw: look() sees what the client says first before any of it leaves */
    struct str pool;              /* connections are shared only inside one pool */
    const struct http_head *head; /* what to send on */
    const void *note;             /* the product's own, for answer and describe */
};

/* How a client's connection begins. */
struct begin {
    bool proxy_header;   /* with a PROXY header */
    struct tls_ctx *tls; /* with TLS; lent */
};

enum glance {
    GLANCE_MORE,
    GLANCE_PASS,   /* the bytes go on, and all that follow */
    GLANCE_REFUSE, /* the tunnel is cut (WHY_IDENTITY), nothing has left */
    GLANCE_TAKE    /* the connection is no tunnel: gate->take() gets it */
};

struct gate {
    /* NULL: all begin with a request. */
    struct begin (*begin)(const struct snapshot *snap, const struct conn_info *client);
    void (*decide)(const struct facts *f, struct arena *a, struct verdict *ret);
    /* WHY_OK, or why this address is not dialled. */
    enum why (*allow_addr)(const struct facts *f, const struct verdict *v,
                           const struct sockaddr *addr);
    /* The final head to send to the client. */
    struct http_head *(*answer)(const struct facts *f, const struct verdict *v,
                                const struct http_head *head, struct arena *a);
    /* Turns a failure into a REPLY; fault is given when the request itself is broken. */
    void (*failed)(const struct facts *f, enum why why, enum stage stage,
                   const struct http_fault *fault, struct arena *a, struct verdict *ret);
    /* Adds the product's fields to the access line. */
    void (*describe)(const struct facts *f, const struct verdict *v, struct log_line *l);
    /* verdict.look: all that the client has said on its tunnel so far; late: it has kept silent for
     * proxy_rules.look_ms, or has begun something it does not finish.  With MORE it is asked again
     * when there is more, and a client that has ended or filled its window is cut.  f is of now,
     * under the snapshot in force; a is for this call only.  NULL where no verdict looks. */
    enum glance (*look)(const struct facts *f, const struct verdict *v, const struct buf *bytes,
                        bool late, struct arena *a);
    /* After GLANCE_TAKE: the client's connection, all that it has said on the tunnel untaken; the
     * exchange ends, its connection to the origin too.  Must conn_attach() (proxy_take() does). */
    void (*take)(struct worker *w, const struct facts *f, const struct verdict *v,
                 struct conn *conn);
    /* May what was decided earlier go on under the snapshot in force (f->snap)?  Asked by
     * proxy_recheck(), and when the connection of an exchange has come up.  Anything but WHY_OK
     * ends the exchange with it.  f->client may be NULL.  NULL: all may; else allow_addr() too is
     * asked under the snapshot in force. */
    enum why (*recheck)(const struct facts *f, const struct verdict *v);
    /* Once per request, when decided. */
    void (*judged)(struct worker *w, const struct facts *f, const struct verdict *v,
                   uint64_t took_us);
    /* Once per connect to an origin: errno of the failure, 0 for none; CLIENT_GONE: given up before
     * it had an end. */
    void (*dialled)(struct worker *w, const struct verdict *v, enum why why, int error, bool tunnel,
                    uint64_t took_us);
    struct str brand;       /* stands before the message of a refusal */
    const char *access_msg; /* msg of the access line */
};

#endif
