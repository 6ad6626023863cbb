/* grpc_server.h — a server of HTTP/2 on loopback, on the test's own worker: it shows what was asked
 * and says what the test tells it to, also what gRPC would never say. */
#ifndef HARNESS_GRPC_SERVER_H
#define HARNESS_GRPC_SERVER_H

#include "base/list.h"
#include "http/session.h"

enum { GRPC_ASKS = 256, GRPC_ASK_BYTES = 4096 };

struct grpc_server;

struct grpc_ask {
    struct grpc_server *server;
    struct session *session;    /* NULL: its connection is gone */
    struct http_stream *stream; /* NULL: answered or gone */
    struct arena mem;
    struct http_head *head;
    uint8_t body[GRPC_ASK_BYTES]; /* with the prefix */
    size_t n;
    bool whole, gone;
};

struct grpc_server {
    struct worker *w;
    unsigned short port;
    struct listener *listener;
    struct list sessions;
    unsigned connections, open;
    bool mute;                                    /* takes connections and says nothing at all */
    void (*on)(void *user, struct grpc_ask *ask); /* it is whole; NULL: nobody answers */
    void *user;
    struct grpc_ask *asks[GRPC_ASKS];
    unsigned n;
};

void grpc_server_start(struct grpc_server *s, struct worker *w,
                       void (*on)(void *user, struct grpc_ask *ask), void *user);
/* Its connections end; the loop has to turn afterwards, then grpc_server_done(). */
void grpc_server_stop(struct grpc_server *s);
void grpc_server_done(struct grpc_server *s);
/* All connections end, the listener stays. */
void grpc_server_hang_up(struct grpc_server *s);

/* One message (NULL: none) and a status; message: of the status, NULL: none. */
void grpc_server_say(struct grpc_ask *a, const void *pb, size_t n, unsigned code,
                     const char *message);
/* A head that is all there is. */
void grpc_server_say_head(struct grpc_ask *a, int status, const char *type, const char *code);
/* Piece by piece: a head, bytes, trailers (code NULL: none of that name; both NULL: no trailers).
 */
void grpc_server_head(struct grpc_ask *a, int status, const char *type);
void grpc_server_bytes(struct grpc_ask *a, const void *p, size_t n);
void grpc_server_end(struct grpc_ask *a, const char *code, const char *message);
void grpc_server_reset(struct grpc_ask *a);

#endif
