/* websocket.c — the handshake's key and the answer to it.  They protect nobody here: the accept
 * value only proves that whoever answered has read the request, which is why it is checked where we
 * have made the key up and passed on where we have not. */
#include "http/websocket.h"

#include "base/digest.h"
#include "base/text.h"

void websocket_key(const uint8_t random[16], char ret[WEBSOCKET_KEY_BYTES])
{
    text_put_base64(ret, random, 16);
}

void websocket_accept(struct str key, char ret[WEBSOCKET_ACCEPT_BYTES])
{
    uint8_t hash[SHA1_BYTES];
    struct str pieces[] = {key, STR("258EAFA5-E914-47DA-95CA-C5AB0DC85B11")};
    digest_sha1(hash, pieces, 2);
    text_put_base64(ret, hash, sizeof hash);
}

bool websocket_accepted(struct str key, struct str accept)
{
    char right[WEBSOCKET_ACCEPT_BYTES];
    websocket_accept(key, right);
    return str_eq(accept, (struct str){right, sizeof right});
}

bool websocket_is_key(struct str name)
{
    return str_ieq(name, STR("sec-websocket-key"));
}

bool websocket_is_accept(struct str name)
{
    return str_ieq(name, STR("sec-websocket-accept"));
}
