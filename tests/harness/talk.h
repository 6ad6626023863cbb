/* talk.h — a client that blocks, with or without TLS, and judges what it gets: all that it should,
 * an error, something that is no answer, or nothing for too long. */
#ifndef HARNESS_TALK_H
#define HARNESS_TALK_H

#include <openssl/ssl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum got { GOT_ALL, GOT_ERROR, GOT_WRONG, GOT_SILENCE };

struct talk {
    int fd;
    SSL *ssl; /* or NULL */
    char *bytes;
    size_t n, at;
    bool over, silent, reset;
};

struct talk talk_call(uint16_t port);
/* Shakes hands; the peer is not verified. */
struct talk talk_call_tls(uint16_t port, SSL_CTX *ctx);
void talk_say(const struct talk *t, const char *p, size_t n);
/* Some more bytes; false: there are none. */
bool talk_hear(struct talk *t);
/* The next answer of HTTP/1.1: 200 with this body (GOT_ALL), or an error. */
enum got talk_answer(struct talk *t, const char *body, size_t n);
/* What it got where there is no answer: an error, or silence. */
enum got talk_silence(const struct talk *t);
void talk_done(struct talk *t);

#endif
