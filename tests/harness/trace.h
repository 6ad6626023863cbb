/* trace.h — a user of streams that writes what it is told as lines of text and checks the laws of
 * stream.h while it listens.
 *
 * A tap is the user of one stream.  Events become lines; data that follows data is one line, so
 * that the text does not depend on how the bytes were cut.  Operations go through tap_*(), which
 * see to it that no event comes from inside them.  Laws asserted at every event: head before data
 * before end; nothing after end but closed; received − credited never over the window; sent never
 * over what was given; closed once, last, and not after cancel. */
#ifndef HARNESS_TRACE_H
#define HARNESS_TRACE_H

#include "http/session.h"

struct trace {
    char *p;
    size_t n, room;
    bool quiet; /* laws only, no text */
};

void trace_init(struct trace *t);
void trace_done(struct trace *t);
void trace_line(struct trace *t, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Bytes as they are. */
void trace_add(struct trace *t, struct str bytes);
/* Terminated. */
const char *trace_text(const struct trace *t);
void trace_clear(struct trace *t);

struct tap;

/* What the test does when something has come; each may be NULL.  Called after the line was written.
 */
struct tap_user {
    void (*head)(struct tap *t, struct http_head *head, bool end);
    void (*data)(struct tap *t, struct str bytes); /* before it is credited */
    void (*end)(struct tap *t, struct http_head *trailers);
    void (*sent)(struct tap *t, size_t n);
    void (*fault)(struct tap *t, const struct http_fault *fault);
    void (*closed)(struct tap *t, enum why why);
};

struct tap {
    struct trace *trace;
    struct http_stream *s;
    const struct tap_user *user;
    void *context;
    struct worker *w;
    const char *prefix; /* of each line */
    size_t window;
    bool hold; /* credit is given by tap_credit() only, not at once */
    bool server;

    struct arena
        *mem; /* buried when the stream is over: whoever looks at a head after that is caught */
    uint64_t received, credited, given, sent;
    unsigned slices; /* the most that came in one event */
    bool got_final, got_end, got_fault, tunnel, over, cancelled, in_op;
    bool said_end;
    bool spoke;             /* what the stream said of it at its end */
    struct http_head *head; /* the last one that came */
    char *data;             /* run of data that has no line yet */
    size_t data_n, data_room;
};

/* Becomes the user of s. */
void tap_init(struct tap *t, struct trace *trace, struct worker *w, struct http_stream *s,
              size_t window, const struct tap_user *user, void *context);
void tap_done(struct tap *t);

/* A copy that shares nothing. */
struct http_head *tap_copy_head(struct arena *a, const struct http_head *head);
/* Sends a copy of head that dies with the stream. */
void tap_head(struct tap *t, const struct http_head *head, bool end);
void tap_data(struct tap *t, struct str bytes);
void tap_end(struct tap *t, const struct http_head *trailers);
void tap_credit(struct tap *t, size_t n);
void tap_credit_all(struct tap *t);
void tap_cancel(struct tap *t, enum why why);

/* Writes the line of data that came so far. */
void tap_flush(struct tap *t);
/* Held back by the window: received and not credited. */
size_t tap_owed(const struct tap *t);

/* "GET / host=gw.test length=5 {X-A: b} end" */
void trace_head(struct trace *t, const char *prefix, const struct http_head *head, bool end);

#endif
