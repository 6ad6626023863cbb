/* tls_tickets.c — the keys that seal session tickets, so that a server remembers nothing.  All keys
 * of an object lie in one secret, which is replaced as a whole: a handshake holds the one it works
 * with, and no lock is held over cryptography. */
#include <assert.h>
#include <openssl/core_names.h>
#include <openssl/params.h>
#include <openssl/rand.h>
#include <pthread.h>
#include <stdatomic.h>

#include "base/digest.h"
#include "base/secret.h"
#include "base/text.h"
#include "net/tls_impl.h"

enum { NAME = 16, SHORT_KEY = 48, LONG_KEY = 80, MADE_KEYS = 3, MAX_KEYS = 16 };

/* As it stands in a file: name, HMAC key, AES key; 16 + 32 + 32 bytes or 16 + 16 + 16. */
struct ticket_key {
    uint8_t n; /* SHORT_KEY or LONG_KEY */
    uint8_t bytes[LONG_KEY];
};

struct tls_tickets {
    atomic_uint count;
    bool made; /* at random, not read from a text */
    EVP_CIPHER *aes128, *aes256;
    pthread_mutex_t lock;
    struct secret *keys; /* one or more struct ticket_key, the first one encrypts */
};

static struct tls_tickets *tickets_new(const struct ticket_key *keys, size_t n, bool made)
{
    struct tls_tickets *t = mem_new(sizeof *t);
    atomic_init(&t->count, 1);
    pthread_mutex_init(&t->lock, NULL);
    t->made = made;
    t->aes128 = EVP_CIPHER_fetch(NULL, "AES-128-CBC", NULL);
    t->aes256 = EVP_CIPHER_fetch(NULL, "AES-256-CBC", NULL);
    assert(t->aes128 && t->aes256);
    t->keys = secret_new(keys, n * sizeof *keys);
    return t;
}

static void make_key(struct ticket_key *k)
{
    k->n = LONG_KEY;
    digest_random(k->bytes, LONG_KEY);
}

struct tls_tickets *tls_tickets_new(void)
{
    struct ticket_key k;
    make_key(&k);
    struct tls_tickets *t = tickets_new(&k, 1, true);
    digest_wipe(&k, sizeof k);
    return t;
}

static struct secret *hold_keys(struct tls_tickets *t)
{
    pthread_mutex_lock(&t->lock);
    struct secret *keys = secret_ref(t->keys);
    pthread_mutex_unlock(&t->lock);
    return keys;
}

static const struct ticket_key *keys_in(const struct secret *s, size_t *ret_n)
{
    struct str bytes = secret_bytes(s);
    *ret_n = bytes.n / sizeof(struct ticket_key);
    return (const struct ticket_key *)(const void *)bytes.p;
}

void tls_tickets_turn(struct tls_tickets *t)
{
    struct ticket_key keys[MADE_KEYS];
    size_t n;
    assert(t->made);
    make_key(&keys[0]);
    pthread_mutex_lock(&t->lock);
    const struct ticket_key *old = keys_in(t->keys, &n);
    if (n > MADE_KEYS - 1)
        n = MADE_KEYS - 1;
    memcpy(keys + 1, old, n * sizeof *keys);
    struct secret *before = t->keys;
    t->keys = secret_new(keys, (n + 1) * sizeof *keys);
    pthread_mutex_unlock(&t->lock);
    secret_unref(before);
    digest_wipe(keys, sizeof keys);
}

/* ---- keys from a text */

static bool parse_key(struct str line, struct ticket_key *ret)
{
    enum { MOST_TEXT = 4 * ((LONG_KEY + 2) / 3) };
    uint8_t bytes[MOST_TEXT];
    size_t n = 0;
    bool good =
        line.n <= MOST_TEXT && text_base64(line, bytes, &n) && (n == SHORT_KEY || n == LONG_KEY);
    if (good) {
        ret->n = (uint8_t)n;
        memcpy(ret->bytes, bytes, n);
    }
    digest_wipe(bytes, sizeof bytes);
    return good;
}

static const char *parse_keys(struct str text, struct ticket_key *keys, size_t *ret_n)
{
    size_t n = 0;
    for (struct str line; str_next(&text, '\n', &line);) {
        line = str_trim(line);
        if (line.n > 0 && line.p[line.n - 1] == '\r')
            line.n--;
        if (line.n == 0)
            continue;
        if (n == MAX_KEYS)
            return "there are more than 16 ticket keys";
        if (!parse_key(line, &keys[n++]))
            return "a ticket key is not base64 of 48 or 80 bytes";
    }
    *ret_n = n;
    return n > 0 ? NULL : "there is no ticket key";
}

struct tls_tickets *tls_tickets_parse(struct str text, struct arena *a, struct str *ret_error)
{
    struct ticket_key keys[MAX_KEYS] = {0};
    struct tls_tickets *t = NULL;
    size_t n = 0;
    const char *fault = parse_keys(text, keys, &n);
    if (fault)
        *ret_error = arena_str(a, str_of(fault));
    else
        t = tickets_new(keys, n, false);
    digest_wipe(keys, sizeof keys);
    return t;
}

struct tls_tickets *tls_tickets_ref(struct tls_tickets *t)
{
    unsigned before = atomic_fetch_add_explicit(&t->count, 1, memory_order_relaxed);
    assert(before > 0);
    return t;
}

void tls_tickets_unref(struct tls_tickets *t)
{
    if (!t)
        return;
    unsigned before = atomic_fetch_sub_explicit(&t->count, 1, memory_order_acq_rel);
    assert(before > 0);
    if (before > 1)
        return;
    secret_unref(t->keys);
    EVP_CIPHER_free(t->aes128);
    EVP_CIPHER_free(t->aes256);
    pthread_mutex_destroy(&t->lock);
    mem_free(t);
}

/* ---- in a handshake */

static bool arm(const struct tls_tickets *t, const struct ticket_key *k, const uint8_t *iv,
                EVP_CIPHER_CTX *cipher, EVP_MAC_CTX *mac, bool encrypt)
{
    size_t half = (k->n - (size_t)NAME) / 2;
    uint8_t hmac[LONG_KEY];
    memcpy(hmac, k->bytes + NAME, half);
    OSSL_PARAM params[] = {
        OSSL_PARAM_construct_octet_string(OSSL_MAC_PARAM_KEY, hmac, half),
        OSSL_PARAM_construct_utf8_string(OSSL_MAC_PARAM_DIGEST, (char[]){"SHA256"}, 0),
        OSSL_PARAM_construct_end(),
    };
    bool good = EVP_CipherInit_ex2(cipher, k->n == LONG_KEY ? t->aes256 : t->aes128,
                                   k->bytes + NAME + half, iv, encrypt, NULL) == 1 &&
                EVP_MAC_CTX_set_params(mac, params) == 1;
    digest_wipe(hmac, sizeof hmac);
    return good;
}

static int seal(const struct tls_tickets *t, const struct ticket_key *first, uint8_t name[16],
                uint8_t *iv, EVP_CIPHER_CTX *cipher, EVP_MAC_CTX *mac)
{
    memcpy(name, first->bytes, NAME);
    if (RAND_bytes(iv, EVP_CIPHER_get_iv_length(t->aes256)) != 1)
        return -1;
    return arm(t, first, iv, cipher, mac, true) ? 1 : -1;
}

int tls_tickets_key(struct tls_tickets *t, uint8_t name[16], uint8_t *iv, EVP_CIPHER_CTX *cipher,
                    EVP_MAC_CTX *mac, bool encrypt)
{
    struct secret *held = hold_keys(t);
    size_t n;
    const struct ticket_key *keys = keys_in(held, &n);
    int result = 0;
    if (encrypt)
        result = seal(t, keys, name, iv, cipher, mac);
    for (size_t i = 0; !encrypt && i < n; i++) {
        if (memcmp(name, keys[i].bytes, NAME) != 0)
            continue;
        result = !arm(t, &keys[i], iv, cipher, mac, false) ? -1 : i == 0 ? 1 : 2;
        break;
    }
    secret_unref(held);
    return result;
}
