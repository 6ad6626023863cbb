/* exchange.h — one request and its response: two streams and a pump (DESIGN 6).  For the files of
 * proxy/ only.
 *
 * What comes from one side goes to the other in the same call; what has left on one side is
 * credited to the other.  An exchange pins one configuration, owns one arena, is in one state, has
 * one deadline, and ends with one reason. */
#ifndef PROXY_EXCHANGE_H
#define PROXY_EXCHANGE_H

#include "base/list.h"
#include "http/window.h"
#include "net/worker.h"
#include "proxy/proxy.h"

enum {
    REPLAY_BYTES = 65536,
    FIRST_ARENA_BYTES = 2560,
    CONTINUE_MS = 1000,
    TURNS_MOST = 8,      /* so often a request may be decided anew */
    HANDSHAKE_MS = 45000 /* contract ingress 9.2 */
};

/* A client's connection. */
struct client {
    struct list link; /* in proxy->openings, then in proxy->clients */
    struct proxy *p;
    struct opening *opening; /* PROXY header or TLS under way; else NULL */
    struct session *session;
    bool known; /* a request of it was taken: the next one is served nearer to the memory cap */
};

struct waits;

struct proxy {
    struct worker *w;
    struct proxy_rules rules;
    struct waits *waits;
    struct origins *origins;
    struct list openings, clients;
    unsigned nclients; /* of both */
    struct list state[XSTATES];
    unsigned count[XSTATES];
    struct proxy_metrics *metrics;
    struct listener *listeners[4];
    unsigned nlisteners;
    struct timer ebb;  /* until handshakes that had begun are over */
    struct timer late; /* drain: until openings are given up, as idle clients are */
    bool draining;
    void (*drained)(void *user);
    void *drained_user;
    uint8_t random[1024]; /* request ids are cut from it */
    unsigned random_left;
    char http_date[29];
    int64_t http_date_s;
    size_t ahead; /* the sum of exchange.recredit */
};

/* One direction of an exchange, past the codecs: see bulk.c. */
struct bulk {
    struct splice *splice; /* NULL: the ordinary way */
};

/* The answer's body on its way through a filter of the gate's: see filtering.c. */
struct filtering {
    bool again;                       /* it has more to do when there is room */
    struct filter *filter;            /* until it is done */
    struct buf in;                    /* what the origin sent, not taken yet */
    const struct http_head *trailers; /* of the answer, until the filter is done */
    enum why cut;                     /* the origin was lost; what it said before leaves first */
    struct window window;             /* how much of what it made may wait for the client */
    size_t unsent;                    /* the exchange's, as it was last seen here */
};

/* What a waiting exchange has in the line of its key: see wait.c. */
struct waiter {
    struct list link;
    struct wait_line *line; /* NULL: it does not wait */
};

/* gate->look(): no byte of the client leaves while it is anything but NONE. */
enum look {
    LOOK_NONE,
    LOOK_ASKED, /* the gate wants to see more */
    LOOK_TAKEN  /* it takes the connection, once all that was said to the client has left */
};

struct exchange {
    struct list link; /* its state's list */
    struct proxy *p;
    struct client *client; /* NULL with down */
    struct pin *pin;
    struct http_stream *down, *up;
    struct origin_dial *dial;
    struct origin_user pool;
    struct timer timer, cont; /* cont: until we ask for the body; of a tunnel: until look() is told
                                 of the silence */
    struct bulk bulk_up, bulk_down;
    struct filtering *filtering; /* in the arena; NULL: there is none, nor was there */
    struct waiter waiter;
    uint64_t since_ms;     /* entry into the state, or the last progress */
    uint64_t moved_due_ms; /* gate->moved() is told of what moves from then on; UINT64_MAX: of
                              nothing */
    uint64_t t_start, t_head, t_decided, t_dial, t_sent, t_answer; /* µs */
    struct facts facts;
    struct verdict verdict;
    const struct http_head *request;  /* as it came */
    const struct http_head *trailers; /* of the request, as they came */
    struct buf pending;     /* request body, while there is no origin yet, held() or look() */
    uint64_t look_until_ms; /* 0: nothing came yet to be looked at */
    uint64_t leave_ms; /* its pool has moved: the origin may answer until then; 0: it has not */
    struct buf replay; /* what was sent, to be sent again: see replay.c */
    size_t keep;       /* verdict.keep while again() may be asked; else 0 */
    size_t owed;       /* given to up, not sent: credit for the client */
    size_t recredit;   /* of pending and owed, in front: credited before, since it was held, or sent
                          on the connection that died */
    size_t unsent;     /* given to down, not sent */
    uint64_t bytes_in, bytes_out; /* bodies and tunnels */
    size_t held;                  /* of mem's later blocks, in the worker's sum */
    int status;                   /* of the final head that went down, 0: none yet */
    int grpc_status;              /* as the origin said it, -1: it said none */
    enum xstate state : 8;
    enum why why : 8; /* set by the first ending */
    enum look look : 8;
    bool request_end : 1;    /* the client's message is complete */
    bool request_passed : 1; /* ... and its end was told to the origin */
    bool up_end : 1;         /* the origin's message is complete */
    bool up_spoke : 1;       /* any byte of an answer came */
    bool down_h2 : 1, up_h2 : 1;
    bool down_bytes : 1; /* the client's side has no heads: no answer can be given */
    bool holding : 1;    /* the request's body is collected for held() */
    bool answering : 1;  /* gate->answer() is asked, or has refused */
    bool reused : 1;
    bool retried : 1;
    bool keep_replay : 1; /* replay has all that was sent on this connection */
    bool judged : 1;
    bool again : 1;  /* gate->again() was asked */
    bool hinted : 1; /* an interim head that is no 100 went down */
    bool tunnel : 1;
    bool deaf : 1; /* the answer is ours, or the origin lost: what the client still sends is thrown
                      away */
    bool cont_sent : 1;
    bool dead : 1;
    struct arena mem;
    char first[FIRST_ARENA_BYTES];
};

/* exchange.c */
void exchange_accept(void *client, struct session *s, struct http_stream *down);
/* It will take nothing from its arena for a while. */
void exchange_park(struct exchange *x);
void exchange_enter(struct exchange *x, enum xstate state);
void exchange_progress(struct exchange *x);
/* Its pool has moved, and it runs on where it is for proxy_rules.move_ms from the first time. */
void exchange_leaves(struct exchange *x);
/* The client's stream is dead, or will be; what it was. */
struct http_stream *exchange_part(struct exchange *x);
/* What lies in the arena by now is part of what the worker holds (B7). */
void exchange_hold(struct exchange *x);
/* Both sides are gone: the line, the counters, the grave. */
void exchange_check_over(struct exchange *x);

/* decide.c */
/* Its head has come: asks the gate, and does what it says. */
void exchange_asks(struct exchange *x, const struct http_head *head);
/* The same once more: x may wait, be forwarded, or be over then.  told: see struct facts. */
void exchange_decide(struct exchange *x, const void *told);
/* The verdict is none to wait: goes on as it says. */
void exchange_judge(struct exchange *x);

/* bulk.c */
/* So many bytes have just left in this direction: may the rest go through a pipe? */
void bulk_try(struct exchange *x, struct bulk *b, size_t sent);
/* Its bytes do not leave: the side they go to takes nothing now. */
bool bulk_held_up(const struct bulk *b);
/* Before either stream is cancelled, and once it is closed: what is in a pipe is lost. */
void bulk_stop(struct exchange *x);

/* answer.c */
/* A head of the origin's goes down, or the exchange fails. */
void answer_interim(struct exchange *x, const struct http_head *head);
void answer_final(struct exchange *x, const struct http_head *head, bool end);
/* gRPC's own outcome: in the trailers, or in a head that is all there is. */
void answer_note_grpc(struct exchange *x, const struct http_head *h);

/* filtering.c */
/* The body goes through f, which is the exchange's now. */
void filtering_begin(struct exchange *x, struct filter *f);
/* From the origin: moves all of b; and its end. */
void filtering_data(struct exchange *x, struct buf *b);
void filtering_end(struct exchange *x, const struct http_head *trailers);
/* Bytes have left on the client's side; x may be over then. */
void filtering_sent(struct exchange *x);
/* The origin is gone before its end.  True: something of what it said is still to be sent, and the
 * client is cut after it. */
bool filtering_lost(struct exchange *x, enum why why);
/* What was not taken yet is not wanted; and frees the filter.  Fine where there is none. */
void filtering_empty(struct exchange *x);
void filtering_drop(struct exchange *x);

/* hold.c: verdict.hold */
/* Does its body have to be collected first? */
bool hold_wanted(const struct exchange *x);
/* Each may forward the exchange, or answer it. */
void hold_begin(struct exchange *x);
/* So many bytes are credited before they could leave, from now on. */
void hold_ahead(struct exchange *x, size_t n);
void hold_data(struct exchange *x, struct buf *b);
void hold_end(struct exchange *x);

/* wait.c: ACT_WAIT */
struct waits *waits_new(struct proxy *p);
/* Nobody may wait. */
void waits_free(struct waits *s);
/* As the verdict says; x may be answered then. */
void wait_begin(struct exchange *x);
/* It waits no more; fine where it does not. */
void wait_end(struct exchange *x, enum why why);

/* replay.c: what goes a second time */
/* The request is about to be sent on a connection. */
void replay_begin(struct exchange *x);
/* b is about to be sent. */
void replay_keep(struct exchange *x, const struct buf *b);
/* Some of what was sent has left. */
void replay_left(struct exchange *x);
/* The origin has said something; and the gate took its final head. */
void replay_spoke(struct exchange *x);
void replay_forget(struct exchange *x);
/* The connection is lost.  True: x is sent on another one (contract ingress 8.4). */
bool replay_retry(struct exchange *x, enum why why);
/* True: x was decided anew (gate->again()), and may be over. */
bool replay_again(struct exchange *x, enum why why, enum stage stage);

/* upstream.c: the origin's side */
/* Forwards what was decided, and held. */
void upstream_begin(struct exchange *x);
/* Gets a connection, kept or new; and one that was not there before, for a second try. */
void upstream_connect(struct exchange *x);
void upstream_redial(struct exchange *x);
/* All that the client has said is with the origin: its answer is waited for. */
void upstream_wait(struct exchange *x);
/* Passes bytes of the request on: moves all of b. */
void upstream_send(struct exchange *x, struct buf *b);
/* Cancels stream or dial and leaves the pool; what the client has said stays. */
void upstream_leave(struct exchange *x, enum why why);
/* The origin's side ends, or the wait for it; gives the client its credit. */
void upstream_drop(struct exchange *x, enum why why);

/* tunnel.c: verdict.raw */
/* False: the request is no CONNECT as it should be, and was answered. */
bool tunnel_allowed(struct exchange *x);
/* Its connection is up. */
void tunnel_begin(struct exchange *x);
/* verdict.late: there is none yet. */
void tunnel_grant(struct exchange *x);
/* Shows gate->look() what is pending; x may be over then. */
void tunnel_look(struct exchange *x, bool late);

/* recheck.c */
/* As of now, under snap. */
struct facts exchange_facts(const struct exchange *x, const struct snapshot *snap);
/* gate->recheck() under the snapshot that is in force. */
enum why exchange_recheck(const struct exchange *x);
/* gate->peer() under its own snapshot. */
enum why exchange_peer(const struct exchange *x, const struct conn_info *info);
/* gate->trailers(); NULL stays NULL. */
const struct http_head *exchange_trailers(struct exchange *x, const struct http_head *trailers,
                                          bool request);
/* gate->allow_addr(), under the snapshot in force where the product rechecks. */
enum why exchange_allow(const struct exchange *x, const struct sockaddr *addr);

/* ending.c */
/* We ask for the body ourselves (RFC 9110 section 10.1.1). */
void exchange_continue(struct exchange *x);
/* Something went wrong: our own answer if none has begun, else the client is cut off. */
void exchange_fail(struct exchange *x, enum why why, const struct http_fault *fault);
/* Answers with a verdict of REPLY or LOCAL. */
void exchange_reply(struct exchange *x, const struct verdict *v);
/* Cuts both sides now. */
void exchange_abort(struct exchange *x, enum why why);

/* proxy.c */
/* Its session is over, or its connection somebody else's. */
void proxy_client_gone(struct client *c);
struct str proxy_http_date(struct proxy *p);
void proxy_random(struct proxy *p, uint8_t out[16]);
/* Memory (B7): above 7/8 of the cap the first request of a connection (fresh) is refused and idle
 * origin connections go, above the cap every new request is. */
bool proxy_overloaded(struct proxy *p, bool fresh);
/* Above 7/8 of the cap; nothing is done about it. */
bool proxy_crowded(const struct proxy *p);
void proxy_check_drained(struct proxy *p);
/* The id of this exchange: the client's if it is a good one, else a new one (contract ingress 6.2).
 */
void exchange_name(struct exchange *x);
/* accesslog.c */
void accesslog_end(struct exchange *x);

#endif
