/* h2frames.h — frames of HTTP/2 as text and back, for tests: what a peer sends is written in lines,
 * what a codec wrote is read into lines.  Knows nothing of our codecs.
 *
 * Written, one frame a line:
 *     preface                              settings 4=65535 3=100        settings ack
 *     get 1 /path                          headers 1 end|:status: 200|x-a: b
 *     data 1 end|text                      rst 1 8                       window 1 100
 *     ping 12345678                        ping ack 12345678             goaway 7 0
 *     priority 3                           frame 66 0 5|text             (type, flags, stream)
 * Heads are HPACK literals, neither indexed nor compressed; `headers N part` leaves the block open
 * for `continuation N [part]`.  `get` is a whole request to host a, `post` one without its end.
 *
 * Read, stream by stream: "1 headers {:status: 200}", "1 data ok", "1 end", "1 rst 8"; those of the
 * connection come first: "settings 3=100", "goaway 7 0".  Data that follow data are one line. */
#ifndef HARNESS_H2FRAMES_H
#define HARNESS_H2FRAMES_H

#include "harness/trace.h"

enum {
    FRAME_DATA,
    FRAME_HEADERS,
    FRAME_PRIORITY,
    FRAME_RST_STREAM,
    FRAME_SETTINGS,
    FRAME_PUSH_PROMISE,
    FRAME_PING,
    FRAME_GOAWAY,
    FRAME_WINDOW_UPDATE,
    FRAME_CONTINUATION
};

struct frames {
    char *p;
    size_t n, room;
};

void frames_done(struct frames *f);
struct str frames_str(const struct frames *f);
/* Adds the frames of a script. */
void frames_add(struct frames *f, const char *script);
/* One frame with any payload. */
void frames_raw(struct frames *f, unsigned type, unsigned flags, uint32_t id, const void *p,
                size_t n);
/* A field as an HPACK literal, into `to` (room for its length and 12 bytes); returns its length. */
size_t frames_field(char *to, struct str name, struct str value);

/* Reads what a codec wrote (preface: it is a client's, which begins with that) into lines.  False:
 * it is no sequence of whole frames.  windows: WINDOW_UPDATEs have lines too. */
bool frames_read(struct str written, bool preface, bool windows, struct trace *ret);
/* Sorts lines by the number they begin with and keeps the order of those with one number: when one
 * stream's event comes among those of the others depends on how the bytes were cut. */
void lines_by_stream(struct trace *t);
/* The sum of increments for a stream (0: the connection). */
uint64_t frames_credit(struct str written, bool preface, uint32_t id);
/* How many frames of a type there are. */
unsigned frames_count(struct str written, bool preface, unsigned type);

#endif
