/* fields.h — the one walk over a head's field lines, for rules.c: which say something to us, which
 * concern one hop only.  Pure. */
#ifndef HTTP_FIELDS_H
#define HTTP_FIELDS_H

#include "http/rules.h"

enum { HOP_OPTIONS = 32 };

enum field_kind {
    FIELD_PLAIN,
    FIELD_IDEMPOTENCY, /* end-to-end, but says something to us */
    FIELD_EXPECT,
    FIELD_HOP,  /* from here on: taken out */
    FIELD_LINK, /* of an HTTP/1 connection: may not be in HTTP/2 (RFC 9113 section 8.2.2) */
    FIELD_HOST,
    FIELD_CONNECTION,
    FIELD_LENGTH,
    FIELD_CODING,
    FIELD_TE,
    FIELD_UPGRADE
};

/* name: a token. */
enum field_kind fields_kind(struct str name);
/* RFC 9110 section 5.5: in a request no control byte but HTAB; of a backend's we refuse only what
 * ends a line for somebody. */
bool fields_value_ok(struct str value, bool request);
/* False: there is no byte below 0x20 and no DEL. */
bool fields_may_hold_control(struct str s);

struct field_scan {
    struct field *fields;
    /* fields[0..kept) stay, fields[kept..nfields) are taken out, with their texts */
    unsigned nfields, kept;
    unsigned hosts, lengths, codings, others; /* lines; others: Connection, TE, Upgrade */
    struct str host, length, coding;          /* the last of each */
    bool expect, idempotent;
};

/* Sorts raw->fields; false: a name or value that no message may hold. */
bool fields_scan(struct field_scan *s, const struct http_raw *raw, bool request);

/* The body's length as the Content-Length lines have it; -1 without any.  False: it cannot be told.
 * A request has one line at most, all that an answer has must agree (RFC 9110 section 8.6). */
bool fields_length(const struct field_scan *s, bool request, int64_t *ret);

/* What the Connection and TE lines say. */
struct hop {
    bool close, keep_alive, upgrade, te_trailers, overflow;
    struct str options[HOP_OPTIONS]; /* names of fields that go too */
    unsigned n;
};

/* Settles what stays: drops what Connection names, and gives the rest to the head.  What was taken
 * out can still be read.  False: more options than we look at. */
bool fields_settle(struct field_scan *s, struct hop *hop, bool request, struct http_head *head);

/* What a request wants to switch to, or nothing (contract ingress 9.1): websocket with GET wherever
 * it stands in the list, h2c never, of others the first. */
struct str fields_wanted_protocol(const struct field_scan *s, struct str method);
/* Does a 101 name the protocol that was asked for, and no other? */
bool fields_grants(const struct field_scan *s, const struct hop *hop, struct str wanted);

#endif
