/* websocket.h — what a WebSocket handshake has in HTTP/1.1 and not in HTTP/2 (RFC 6455 section 4,
 * RFC 8441 section 5): the key and its accept value.  Where an exchange has one version on each
 * side, the h1 codec makes the key up and checks the answer to it, or answers the client's key
 * itself; the h2 codec leaves both out.  h1 to h1 the fields pass untouched.  Pure. */
#ifndef HTTP_WEBSOCKET_H
#define HTTP_WEBSOCKET_H

#include "http/head.h"

enum { WEBSOCKET_KEY_BYTES = 24, WEBSOCKET_ACCEPT_BYTES = 28 };

/* Base64 of 16 random bytes. */
void websocket_key(const uint8_t random[16], char ret[WEBSOCKET_KEY_BYTES]);
/* The accept value that answers `key`, whatever it is (RFC 6455 section 4.2.2). */
void websocket_accept(struct str key, char ret[WEBSOCKET_ACCEPT_BYTES]);
/* Is `accept` the one right answer to `key`? */
bool websocket_accepted(struct str key, struct str accept);
/* Sec-WebSocket-Key or Sec-WebSocket-Accept: of one hop when versions differ. */
bool websocket_is_key(struct str name);
bool websocket_is_accept(struct str name);

#endif
