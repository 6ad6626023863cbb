/* hello.h — a ClientHello (RFC 8446 section 4.1.2, RFC 5246 section 7.4.1.2) from the bytes of a
 * connection, in any number of records and pieces.  Pure but for the memory it collects in.
 *
 * What a server could read otherwise than we do is refused: an extension twice, lengths that do not
 * fit, anything behind the message in its record.  Bytes are copied, so that the connection keeps
 * its own for the relay. */
#ifndef RELAY_HELLO_H
#define RELAY_HELLO_H

#include <stdbool.h>
#include <stdint.h>

#include "base/mem.h"

enum {
    HELLO_BYTES_MAX = 65536, /* of the connection, record headers included */
    HELLO_TLS12 = 0x0303,
    HELLO_TLS13 = 0x0304
};

struct hello {
    struct str name;      /* server_name as sent, any bytes, not empty; p NULL: none */
    struct str protocols; /* of ALPN, in its own form: see hello_next_protocol(); p NULL: none */
    struct str versions;  /* of supported_versions, two bytes each; p NULL: none */
    uint16_t version;     /* the legacy one */
    bool ech;             /* encrypted_client_hello is there, real or GREASE */
};

/* Cuts the next protocol off a list of ALPN; false: there is none. */
bool hello_next_protocol(struct str *rest, struct str *ret);
bool hello_offers_protocol(const struct hello *h, struct str protocol);
/* Does the client offer this version, HELLO_TLS12 or HELLO_TLS13? */
bool hello_offers_version(const struct hello *h, uint16_t version);

/* Reads the body of the message, behind its type and length; *ret points into it.  False:
 * malformed. */
bool hello_parse(struct str body, struct hello *ret);

enum hello_step {
    HELLO_MORE,
    HELLO_DONE, /* reader.hello is set and lies in the reader */
    HELLO_BAD,
    HELLO_TOO_LARGE
};

struct hello_reader {
    struct hello hello;
    enum hello_step step;
    uint8_t *message;  /* collected so far, on the heap */
    size_t n, room;    /* its bytes */
    size_t seen;       /* bytes of the connection */
    size_t left;       /* bytes to come of this record */
    uint8_t header[5]; /* of the record */
    unsigned nheader;
};

void hello_init(struct hello_reader *r);
void hello_done(struct hello_reader *r);
/* Takes the next n bytes of the connection.  Any answer but HELLO_MORE is final: later bytes are
 * not looked at. */
enum hello_step hello_feed(struct hello_reader *r, const void *p, size_t n);

#endif
