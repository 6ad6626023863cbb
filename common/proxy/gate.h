/* gate.h — what a product is: a handful of functions that say what to do with a head, an address,
 * an answer, an ending.
 *
 * decide, allow_addr, peer, answer, trailers, failed and describe are pure: they read their
 * arguments, allocate from the arena, and do nothing else.  So a decision is a test vector. wait,
 * admit and again act for the product; judged, dialled, moved, waited and over are told what came
 * of it and keep the product's own counts. */
#ifndef PROXY_GATE_H
#define PROXY_GATE_H

#include "base/log.h"
#include "base/why.h"
#include "conf/snapshot.h"
#include "http/rules.h"
#include "net/conn.h"
#include "net/dial.h"
#include "proxy/filter.h"

struct worker;

struct facts {
    const struct snapshot *snap;
    const void *tables;             /* the worker's own, SLOT_PRODUCT; read only */
    const struct conn_info *client; /* NULL in describe(): its connection may be gone */
    const struct http_head *head;
    struct str request_id;
    union {
        struct str http_date; /* of now; in answer() only, lent */
        struct str fault;     /* in failed() only: what the connection said, e.g. "certificate has
                                 expired" (dial_fault(), conn_info.fault); empty: nothing.  Static
                                 text */
        struct {
            uint64_t bytes_in, bytes_out; /* in over() only: of bodies and tunnels */
        };
    };
    int64_t unix_s;
    uint64_t now_ms;
    unsigned turn; /* how often this request was decided before: it has waited, or goes again() */
    bool draining;
    const struct sockaddr *origin; /* where its connection goes to, or the parent proxy; NULL: none
                                      yet, or no more */
    const struct conn_info *origin_info; /* of that connection; NULL with it */
    uint64_t asked_ms; /* when its last wait began; 0: it has not waited.  What was learned since is
                          fresh enough for it */
    const void *told;  /* after a wait: what proxy_resume() was given, lent for this decide(), and
                          for the waited() before it */
};

enum act {
    ACT_FORWARD,
    ACT_REPLY, /* a refusal in the client's preferred form (reply.h) */
    ACT_WAIT,  /* somebody has to be asked first: gate->wait(); then it is decided anew */
    ACT_LOCAL  /* an answer of the product's own, byte for byte */
};

/* Where an exchange was when it failed. */
enum stage {
    STAGE_REQUEST, /* also while its body is held */
    STAGE_DECIDE,  /* waiting (ACT_WAIT) */
    STAGE_DIAL,
    STAGE_WAIT,
    STAGE_ANSWER /* answer() did not want it */
};

/* Many may wait for long, each with a verdict: what belongs to one act lies where others have
 * theirs.  Who makes one act of another sets all that is the new one's. */
struct verdict {
    enum act act;
    enum why why;
    int status;
    /* REPLY: Retry-After: 1 */
    bool retry : 1;
    /* LOCAL */
    bool no_store : 1;
    /* FORWARD: in HTTP/2 by prior knowledge; an upgrade only if that connection takes extended
     * CONNECT, else in HTTP/1.1 */
    bool h2 : 1;
    /* FORWARD of a CONNECT: to a connection of bytes, made for it alone; the client is answered 200
     * when it is up */
    bool raw : 1;
    /* FORWARD with to.tls: HTTP/2 or HTTP/1.1, whichever the origin chooses by ALPN; an upgrade in
     * HTTP/1.1.  Where there is no TLS: nothing */
    bool any : 1;
    /* raw: look() sees what the client says first before any of it leaves */
    bool look : 1;
    /* raw, look: the client is answered 200 and looked at before anything is dialled; with PASS
     * that is done, and if it fails the tunnel is cut */
    bool late : 1;
    union {
        struct dial_to to; /* FORWARD */
        struct {
            union {
                struct str code; /* REPLY */
                struct str body; /* LOCAL */
                struct str key;  /* WAIT: what is waited for, as proxy_resume() will call it */
            };
            union {
                struct str message;      /* REPLY */
                struct str content_type; /* LOCAL */
                uint64_t wait_ms; /* WAIT: how long at most; 0: the deadline of the state DECIDE */
            };
            const struct field *extra; /* REPLY: one more field of its head; NULL: none */
        };
    };
    size_t hold; /* FORWARD of a request with a body: nothing is dialled or sent until it is whole,
                    or longer than so many bytes; then held().  0: nothing is held */
    size_t keep; /* FORWARD: so many bytes of the request's body are kept beside what is sent, until
                    answer() has taken the final head, so that again() can be asked; a longer body
                    is not kept, and again() is not asked then.  It does not hold the body up */
    struct str pool;              /* connections are shared only inside one pool */
    const struct http_head *head; /* what to send on */
    const void *note;             /* the product's own, for answer and describe */
    void *place; /* what admit() took; stays with the request, whatever verdict replaces this one */
};

/* How a client's connection begins. */
struct begin {
    bool proxy_header;   /* with a PROXY header */
    struct tls_ctx *tls; /* with TLS; lent */
};

/* What becomes of a head that the origin has sent. */
struct answer {
    const struct http_head *head; /* to send to the client; its length says what the filter makes */
    struct filter *filter; /* the body goes through it; the exchange frees it, once.  NULL: as it
                              is. Only of a final head with a body */
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
    /* *ret is all zero, or with f->turn > 0 what it was before. */
    void (*decide)(const struct facts *f, struct arena *a, struct verdict *ret);
    /* WHY_OK, or why this address is not dialled. */
    enum why (*allow_addr)(const struct facts *f, const struct verdict *v,
                           const struct sockaddr *addr);
    /* May this connection, new or kept, carry the request?  Asked before a byte of it goes out
     * there, with f as it was decided but for the time and the connection.  Anything but WHY_OK
     * ends the exchange with it; the connection stays for others.  NULL: any may. */
    enum why (*peer)(const struct facts *f, const struct verdict *v,
                     const struct conn_info *origin);
    /* verdict.hold: the body that was collected; whole: all of it is there, else it is longer, or
     * says that it will be (then with nothing of it), and what is there goes first.  May replace
     * v->head and *body (a head that states a length states that of the new body), or make v an
     * answer; v->note stays.  Not asked where there is no body.  NULL where no verdict holds. */
    void (*held)(const struct facts *f, struct verdict *v, struct buf *body, bool whole,
                 struct arena *a);
    /* Each head of the origin's, interim ones too (status 1xx without a protocol); end: no body
     * follows.  Anything but WHY_OK ends the exchange with it (failed() with STAGE_ANSWER), and
     * nothing of this head goes down. */
    enum why (*answer)(const struct facts *f, const struct verdict *v, const struct http_head *head,
                       bool end, struct arena *a, struct answer *ret);
    /* The trailers to send on, of the request or of the answer; NULL: none.  The hook itself NULL:
     * as they are. */
    const struct http_head *(*trailers)(const struct facts *f, const struct verdict *v,
                                        const struct http_head *trailers, bool request,
                                        struct arena *a);
    /* Turns a failure into a REPLY; fault is given when the request itself is broken.  ret->note is
     * that of the last verdict. */
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
    /* After ACT_WAIT: begins to ask.  first: nobody else on this worker waits for that key and has
     * not been told.  False: it cannot, and has made v a REPLY.  What a note of WAIT owns is taken
     * here at the earliest.  NULL where no verdict waits. */
    bool (*wait)(struct worker *w, const struct facts *f, bool first, struct arena *a,
                 struct verdict *v);
    /* Once for each wait() that was true, when that wait is over: OK: it is decided anew next; else
     * why not (DEADLINE, then failed() with STAGE_DECIDE answers; CLIENT_GONE, DRAIN, ...), and the
     * last that is heard of v.  f is of now; f->client may be NULL.  NULL: nobody asks. */
    void (*waited)(struct worker *w, const struct facts *f, const struct verdict *v, enum why why);
    /* The last step before a request goes on, and the only one of deciding with effects: takes what
     * it needs (a place in a count) and leaves it in v->place, to be given back in over(), or makes
     * v a REPLY.  At most once per request: of one that goes again() not again, what it took stays.
     * judged(), and so over(), follow whatever it did.  NULL: nothing to take. */
    void (*admit)(struct worker *w, const struct facts *f, struct arena *a, struct verdict *v);
    /* The origin could not be connected to (STAGE_DIAL; DIAL, DNS, TLS or DEADLINE), or answer()
     * did not want its final head (STAGE_ANSWER, nothing has gone down but a 100): true: decide()
     * is asked anew, once.  Or the pool has ended (REVOKED), before there was a connection
     * (STAGE_DIAL) or before the origin said a word to an idempotent request (STAGE_WAIT): a few
     * times.  Only while all of the request is still at hand: always at STAGE_DIAL, else without a
     * body or as far as it was kept (verdict.keep); never of one that was held.  NULL: never. */
    bool (*again)(struct worker *w, const struct facts *f, const struct verdict *v, enum why why,
                  enum stage stage);
    /* Bytes have moved, and it was judged, or this was told last, at least proxy_rules.moved_ms
     * ago; while a request goes on.  f is of now; f->client may be NULL.  NULL: nobody asks. */
    void (*moved)(struct worker *w, const struct facts *f, const struct verdict *v);
    /* Once per request, when decided: not for WAIT, and of one that goes again() not again. */
    void (*judged)(struct worker *w, const struct facts *f, const struct verdict *v,
                   uint64_t took_us);
    /* Once per connect to an origin: errno of the failure, 0 for none; CLIENT_GONE: given up before
     * it had an end. */
    void (*dialled)(struct worker *w, const struct verdict *v, enum why why, int error, bool tunnel,
                    uint64_t took_us);
    /* Once per request that was judged, at its very end: what the note owns is to be freed, and
     * v->place given back.  v is the last verdict of decide(), also a WAIT where a request went
     * again() and got no further.  status: of the final head that went down, 0: none.  f->client is
     * NULL.  NULL: nobody asks. */
    void (*over)(struct worker *w, const struct facts *f, const struct verdict *v, enum why why,
                 int status);
    struct str brand;       /* stands before the message of a refusal */
    const char *access_msg; /* msg of the access line */
};

#endif
