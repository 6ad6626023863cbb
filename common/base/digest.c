/* digest.c — hashes, random bytes, comparison and wiping.  OpenSSL 3 looks an algorithm up by
 * name on every use unless it was fetched, which costs more than the hash of a short text, so
 * algorithms are fetched once and contexts kept per thread. */
#include "base/digest.h"

#include <assert.h>
#include <errno.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/random.h>

/* Global, because libcrypto's algorithm objects are: fetched by the first hash of the process,
 * never changed, never freed. */
static EVP_MD *sha256, *sha1;
static pthread_key_t context_key;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void free_context(void *context)
{
    EVP_MD_CTX_free(context);
}

void digest_begin(void)
{
    int ok = OPENSSL_init_crypto(OPENSSL_INIT_NO_LOAD_CONFIG, NULL);
    assert(ok);
}

static void fetch(void)
{
    digest_begin();
    sha256 = EVP_MD_fetch(NULL, "SHA256", NULL);
    sha1 = EVP_MD_fetch(NULL, "SHA1", NULL);
    int rc = pthread_key_create(&context_key, free_context);
    assert(sha256 && sha1 && rc == 0);
}

static EVP_MD_CTX *thread_context(void)
{
    pthread_once(&once, fetch);
    EVP_MD_CTX *context = pthread_getspecific(context_key);
    if (context)
        return context;
    context = EVP_MD_CTX_new();
    int rc = pthread_setspecific(context_key, context);
    assert(context && rc == 0);
    return context;
}

static void hash(uint8_t *out, EVP_MD_CTX *context, const EVP_MD *md, const struct str *pieces,
                 size_t n)
{
    int ok = EVP_DigestInit_ex2(context, md, NULL);
    for (size_t i = 0; i < n && ok; i++)
        if (pieces[i].n)
            ok = EVP_DigestUpdate(context, pieces[i].p, pieces[i].n);
    ok = ok && EVP_DigestFinal_ex(context, out, NULL);
    assert(ok);
}

void digest_sha256(uint8_t out[SHA256_BYTES], const struct str *pieces, size_t n)
{
    EVP_MD_CTX *context = thread_context();
    hash(out, context, sha256, pieces, n);
}

void digest_sha1(uint8_t out[SHA1_BYTES], const struct str *pieces, size_t n)
{
    EVP_MD_CTX *context = thread_context();
    hash(out, context, sha1, pieces, n);
}

void digest_random(void *out, size_t n)
{
    uint8_t *at = out;
    while (n > 0) {
        ssize_t got = getrandom(at, n, 0);
        if (got < 0 && errno != EINTR)
            abort();
        if (got < 0)
            continue;
        at += got;
        n -= (size_t)got;
    }
}

bool digest_equal(struct str a, struct str b)
{
    return a.n == b.n && (a.n == 0 || CRYPTO_memcmp(a.p, b.p, a.n) == 0);
}

void digest_wipe(void *p, size_t n)
{
    if (n)
        explicit_bzero(p, n);
}
