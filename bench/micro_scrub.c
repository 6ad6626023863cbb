/* micro_scrub.c — how fast a body loses its secrets, on one core: a table to look at before and
 * after a change.  The bodies are of one kind each, and hold no secret: that is the usual case. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "egress/vault/scrub.h"

enum { SAMPLES = 5, PIECE = 65536 - 64, BODY = 4 << 20, CREDENTIALS_MAX = 200 };

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* ---- bodies */

static void fill_json(char *p, size_t n)
{
    static const char text[] =
        "{\"id\":12345,\"name\":\"The quick brown fox jumps over the lazy dog\",\"tags\":"
        "[\"alpha\",\"beta\"],\"url\":\"https://api.example.com/v1/things?page=2&size=50\","
        "\"when\":\"2026-11-30T03:07:11Z\",\"sha\":\"9F86D081884C7D659A2FEAA0C55AD015\"},\n";
    for (size_t i = 0; i < n; i++)
        p[i] = text[i % (sizeof text - 1)];
}

static void fill_base64(char *p, size_t n)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    srand(1);
    for (size_t i = 0; i < n; i++)
        p[i] = digits[rand() % 64];
}

static void fill_bytes(char *p, size_t n)
{
    srand(2);
    for (size_t i = 0; i < n; i++)
        p[i] = (char)rand();
}

/* ---- vaults */

static struct redaction *vault_of(unsigned n)
{
    static char values[CREDENTIALS_MAX][41];
    struct redact_use uses[CREDENTIALS_MAX];
    srand(3);
    for (unsigned i = 0; i < n; i++) {
        char body[34] = {0};
        fill_base64(body, 4);
        for (unsigned k = 0; k < 32; k++)
            body[k] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
                [(unsigned)(i * 2654435761u + k * 40503u + i * k * 7919u) >> 5 & 63];
        snprintf(values[i], sizeof values[i], "sk-%s", body);
        uses[i] = (struct redact_use){{values[i], strlen(values[i])}, true, false};
    }
    return redaction_new(&(struct redact_list){uses, n, NULL, 0, 6});
}

/* ---- measuring */

static double run_once(struct redaction *r, enum coding c, const uint8_t *p, size_t n,
                       struct chunk_pool *pool)
{
    struct filter *f = scrub_new(r, c, pool, NULL);
    struct buf in, out;
    bool done = false;
    double spent = 0;
    buf_init(&in, pool);
    buf_init(&out, pool);
    for (size_t at = 0; at < n && !done;) {
        size_t room, part;
        uint8_t *to = buf_reserve(pool, true, &room);
        part = n - at < room ? n - at : room;
        memcpy(to, p + at, part);
        buf_commit(&in, part);
        at += part;
        double from = now_s();
        while (in.len > 0 || (at == n && !done)) {
            if (f->ops->push(f, &in, at == n, PIECE, &out, &done) != WHY_OK)
                exit(1);
            buf_clear(&out);
        }
        spent += now_s() - from;
    }
    f->ops->free(f);
    return spent;
}

static void measure(const char *name, unsigned credentials, enum coding c, const uint8_t *p,
                    size_t n, size_t plain, struct chunk_pool *pool)
{
    struct redaction *r = vault_of(credentials);
    double best = 1e9;
    for (unsigned i = 0; i < SAMPLES; i++) {
        double s = run_once(r, c, p, n, pool);
        best = s < best ? s : best;
    }
    printf("%-32s %3u %8.2f\n", name, credentials, (double)plain / best / 1e9);
    redaction_unref(r);
}

static void measure_building(void)
{
    static const unsigned counts[] = {1, 5, 50, 200};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        double from = now_s();
        for (unsigned k = 0; k < 100; k++)
            redaction_unref(vault_of(counts[i]));
        printf("%-32s %3u %8.1f us\n", "redaction_new", counts[i], (now_s() - from) * 1e4);
    }
    struct redaction *base = vault_of(50);
    double from = now_s();
    for (unsigned k = 0; k < 1000; k++)
        redaction_unref(redaction_with(
            base, (struct str[]){STR("dXNlcjpzay10ZXN0LTAwMDE="), STR("user:sk-test-0001")}, 2, 6));
    printf("%-32s %3u %8.1f us\n", "redaction_with, of two", 50u, (now_s() - from) * 1e3);
    redaction_unref(base);
}

/* A body in our own coding, to decode and code again. */
static uint8_t *coded(enum coding c, const uint8_t *p, size_t n, struct chunk_pool *pool,
                      size_t *ret_n)
{
    struct encoder e;
    struct buf in, out;
    encoder_init(&e, c);
    buf_init(&in, pool);
    buf_init(&out, pool);
    buf_write(&in, p, n);
    encoder_push(&e, &in, true, &out);
    uint8_t *bytes = mem_new(out.len);
    buf_peek(&out, bytes, *ret_n = out.len);
    buf_clear(&out);
    return bytes;
}

int main(void)
{
    static const struct {
        const char *name;
        void (*fill)(char *p, size_t n);
    } kinds[] = {{"JSON", fill_json}, {"base64", fill_base64}, {"random bytes", fill_bytes}};
    static const unsigned counts[] = {1, 5, 12, 50, 200};
    struct chunk_pool *pool = chunk_pool_new();
    uint8_t *body = mem_new(BODY);
    printf("%-32s %3s %8s\n", "body", "n", "GB/s");
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        kinds[i].fill((char *)body, BODY);
        for (size_t k = 0; k < sizeof counts / sizeof *counts; k++)
            measure(kinds[i].name, counts[k], CODING_NONE, body, BODY, BODY, pool);
    }
    static const char *const codings[] = {NULL, "JSON, gzip stored", "JSON, br stored",
                                          "JSON, zstd stored"};
    fill_json((char *)body, BODY);
    for (enum coding c = CODING_GZIP; c <= CODING_ZSTD; c++) {
        size_t n;
        uint8_t *bytes = coded(c, body, BODY, pool, &n);
        measure(codings[c], 5, c, bytes, n, BODY, pool);
        mem_free(bytes);
    }
    measure_building();
    mem_free(body);
    chunk_pool_free(pool);
    return 0;
}
