/* h2side.h — one HTTP/2 codec under test: scripts of frames go in, lines come out, and a user that
 * answers each request in the same way. */
#ifndef HARNESS_H2SIDE_H
#define HARNESS_H2SIDE_H

#include "harness/h2frames.h"
#include "harness/side.h"

/* How a request is answered: the context of `answering`. */
enum moment { AT_END, AT_HEAD, NEVER };
struct script {
    enum moment when;
    const struct http_head *interim; /* sent as the head comes */
    struct http_head head;           /* a 101 grants what was asked for */
    const char *body;                /* NULL: the head is the end */
    const struct http_head *trailers;
    bool open; /* no end() */
};
extern const struct tap_user answering;
extern const struct script plain;   /* 200 with length 2, "ok" */
extern const struct script unknown; /* 200 without a length, "hello" */
extern const struct script empty;   /* 200 and nothing else */
extern const struct script silent;  /* nothing */

/* What our SETTINGS and our ACK of the peer's look like, for side_h2_limits. */
#define SERVER_SETTINGS "settings 4=65536 6=8192 3=50 8=1 9=1\nsettings ack\n"
#define CLIENT_SETTINGS "settings 4=65536 6=8192 2=0\nsettings ack\n"
/* What `plain` looks like on stream id (a text). */
#define OK2(id) id " headers {:status: 200; content-length: 2}\n" id " data ok\n" id " end\n"
/* A request for a tunnel, as a line of a script. */
#define WS "headers 1|:method: CONNECT|:protocol: websocket|:scheme: http|:path: /ws|:authority: a"

/* A server that has been sent the preface, SETTINGS and the ACK of its own. */
void begin_server(struct side *x, struct worker *w, const struct http_limits *limits,
                  const struct tap_user *user, const void *context);
/* A client whose origin has sent these SETTINGS (a script) and the ACK of its own. */
void begin_client(struct side *x, struct worker *w, const struct http_limits *limits,
                  const struct tap_user *user, const char *settings);
/* Frames from the peer, in one piece; '#' stands for the id. */
void feed(struct side *x, const char *script);
void feed_for(struct side *x, const char *script, unsigned id);
/* n bytes of DATA in frames of 16 KiB. */
void feed_data(struct side *x, uint32_t id, size_t n, bool end);

/* What was written, without our SETTINGS and ACK, which must be as above. */
void read_output(struct side *x, struct trace *to);
/* These abort with both texts where they differ. */
void check_text(const char *name, const char *got, const char *expected);
void check_events(struct side *x, const char *expected);
void check_output(struct side *x, const char *expected);

#endif
