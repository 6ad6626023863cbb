/* tls_test.c — certificates, ticket keys and contexts, without a connection. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <openssl/core_names.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <pthread.h>
#include <time.h>

#include "base/digest.h"
#include "base/text.h"
#include "harness/pki.h"
#include "net/tls_impl.h"

struct bench {
    struct arena a;
    struct str error;
};

static void bench_init(struct bench *b)
{
    arena_init(&b->a, NULL, 0);
    b->error = STR_NONE;
}

static bool says(const struct bench *b, const char *text)
{
    return b->error.n > 0 && memmem(b->error.p, b->error.n, text, strlen(text));
}

static struct tls_leaf *leaf_of(struct bench *b, const char *chain, const char *key)
{
    return tls_leaf_new(str_of(chain), str_of(key), &b->a, &b->error);
}

/* ---- certificates */

static void a_leaf_tells_its_names_in_lower_case_and_its_end(void **state)
{
    (void)state;
    static const struct {
        struct pki_wish wish;
        const char *names[4];
    } rows[] = {
        {{.cn = "CN.test", .names = "DNS:A.Test,DNS:*.B.test,IP:10.0.0.1"}, {"a.test", "*.b.test"}},
        {{.cn = "Only.CN.test"}, {"only.cn.test"}},
        {{.cn = "cn.test", .names = "IP:10.0.0.1"}, {"cn.test"}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct bench b;
        bench_init(&b);
        struct pki_cert *c = pki_new(&rows[i].wish, NULL);
        struct tls_leaf *l = leaf_of(&b, c->pem, c->key_pem);
        assert_non_null(l);
        unsigned n = 0;
        for (; rows[i].names[n]; n++)
            assert_true(str_eq(tls_leaf_name(l, n), str_of(rows[i].names[n])));
        assert_int_equal(tls_leaf_name(l, n).n, 0);
        int64_t left = tls_leaf_not_after(l) - time(NULL);
        assert_true(left > 86400 - 60 && left <= 86400);
        tls_leaf_unref(tls_leaf_ref(l));
        tls_leaf_unref(l);
        pki_free(c);
        arena_done(&b.a);
    }
}

static void every_usual_kind_of_key_serves(void **state)
{
    (void)state;
    const enum pki_key kinds[] = {PKI_P256, PKI_P384, PKI_RSA2048, PKI_ED25519};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        struct bench b;
        bench_init(&b);
        struct pki_cert *c = pki_new(&(struct pki_wish){.cn = "a.test", .key = kinds[i]}, NULL);
        struct tls_leaf *l = leaf_of(&b, c->pem, c->key_pem);
        assert_non_null(l);
        tls_leaf_unref(l);
        pki_free(c);
        arena_done(&b.a);
    }
}

static char *encrypted(EVP_PKEY *key)
{
    char *p;
    BIO *m = BIO_new(BIO_s_mem());
    PEM_write_bio_PrivateKey(m, key, EVP_aes_128_cbc(), NULL, 0, NULL, (void *)"pass");
    long n = BIO_get_mem_data(m, &p);
    char *z = mem_strdup((struct str){p, (size_t)n});
    BIO_free(m);
    return z;
}

static char *joined(const char *x, const char *y)
{
    char *z = mem_new(strlen(x) + strlen(y) + 1);
    memcpy(z, x, strlen(x));
    memcpy(z + strlen(x), y, strlen(y));
    return z;
}

static void what_cannot_serve_is_refused_with_a_reason(void **state)
{
    (void)state;
    struct pki_cert *c = pki_new(&(struct pki_wish){.cn = "a.test"}, NULL);
    struct pki_cert *other = pki_new(&(struct pki_wish){.cn = "b.test"}, NULL);
    struct pki_cert *weak = pki_new(&(struct pki_wish){.cn = "c.test", .key = PKI_RSA1024}, NULL);
    char *locked = encrypted(c->key);
    char *broken = joined(c->pem, "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n");
    const struct {
        const char *chain, *key, *says;
    } rows[] = {
        {"", c->key_pem, "certificate"},
        {c->key_pem, c->key_pem, "certificate"},
        {broken, c->key_pem, "certificate"},
        {c->pem, "", "private key"},
        {c->pem, c->pem, "private key"},
        {c->pem, locked, "passphrase"},
        {c->pem, other->key_pem, "does not belong"},
        {weak->pem, weak->key_pem, "weak"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct bench b;
        bench_init(&b);
        assert_null(leaf_of(&b, rows[i].chain, rows[i].key));
        assert_true(says(&b, rows[i].says));
        assert_int_equal(ERR_peek_error(), 0); /* nothing left behind for others (T1) */
        arena_done(&b.a);
    }
    mem_free(locked);
    mem_free(broken);
    pki_free(c);
    pki_free(other);
    pki_free(weak);
}

/* ---- tickets */

static char *key_line(size_t n, uint8_t seed)
{
    uint8_t bytes[100];
    char *text = mem_new(200);
    for (size_t i = 0; i < n; i++)
        bytes[i] = (uint8_t)(seed + i);
    text_put_base64(text, bytes, n);
    return text;
}

static void ticket_keys_are_read_strictly(void **state)
{
    (void)state;
    char *long_key = key_line(80, 1), *short_key = key_line(48, 2), *odd = key_line(64, 3);
    struct arena a;
    arena_init(&a, NULL, 0);
    char *many = arena_get(&a, 17 * 120 + 1);
    size_t at = 0;
    for (int i = 0; i < 17; i++)
        at += (size_t)snprintf(many + at, 120, "%s\n", long_key);
    const struct {
        const char *text;
        bool good;
    } rows[] = {
        {long_key, true},
        {short_key, true},
        {arena_printf(&a, "%s\n%s\n", long_key, short_key).p, true},
        {arena_printf(&a, "\r\n%s\r\n\n", short_key).p, true},
        {"", false},
        {"\n\n", false},
        {odd, false},
        {arena_printf(&a, "%s\nnot a key\n", long_key).p, false},
        {arena_printf(&a, "%s%s", long_key, short_key).p, false},
        {many, false},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct str error = STR_NONE;
        struct tls_tickets *t = tls_tickets_parse(str_of(rows[i].text), &a, &error);
        assert_int_equal(t != NULL, rows[i].good);
        assert_int_equal(error.n > 0, !rows[i].good);
        if (error.n > 0) /* not a byte of it */
            assert_null(memmem(error.p, error.n, long_key, 8));
        tls_tickets_unref(t);
    }
    arena_done(&a);
    mem_free(long_key);
    mem_free(short_key);
    mem_free(odd);
}

struct sealed {
    uint8_t name[16], iv[16], text[64], mac[32];
    int n;
};

static int mac_of(struct tls_tickets *t, struct sealed *s, EVP_CIPHER_CTX *c, bool encrypt,
                  uint8_t mac[32])
{
    EVP_MAC *hmac = EVP_MAC_fetch(NULL, "HMAC", NULL);
    EVP_MAC_CTX *m = EVP_MAC_CTX_new(hmac);
    size_t n;
    int result = tls_tickets_key(t, s->name, s->iv, c, m, encrypt);
    if (result > 0) {
        assert_int_equal(EVP_MAC_init(m, NULL, 0, NULL), 1);
        EVP_MAC_update(m, s->name, 16);
        EVP_MAC_final(m, mac, &n, 32);
        assert_int_equal(n, 32);
    }
    EVP_MAC_CTX_free(m);
    EVP_MAC_free(hmac);
    return result;
}

static void seal(struct tls_tickets *t, struct sealed *s)
{
    EVP_CIPHER_CTX *c = EVP_CIPHER_CTX_new();
    int n;
    assert_int_equal(mac_of(t, s, c, true, s->mac), 1);
    EVP_EncryptUpdate(c, s->text, &s->n, (const uint8_t *)"session", 7);
    EVP_EncryptFinal_ex(c, s->text + s->n, &n);
    s->n += n;
    EVP_CIPHER_CTX_free(c);
}

static int open_sealed(struct tls_tickets *t, struct sealed *s)
{
    EVP_CIPHER_CTX *c = EVP_CIPHER_CTX_new();
    uint8_t mac[32], text[64];
    int n = 0, rest = 0, result = mac_of(t, s, c, false, mac);
    if (result > 0) {
        assert_memory_equal(mac, s->mac, 32);
        EVP_DecryptUpdate(c, text, &n, s->text, s->n);
        assert_int_equal(EVP_DecryptFinal_ex(c, text + n, &rest), 1);
        assert_int_equal(n + rest, 7);
        assert_memory_equal(text, "session", 7);
    }
    EVP_CIPHER_CTX_free(c);
    return result;
}

static void a_turned_key_opens_for_two_more_turns_and_asks_for_renewal(void **state)
{
    (void)state;
    struct tls_tickets *t = tls_tickets_new();
    struct sealed s;
    seal(t, &s);
    assert_int_equal(open_sealed(t, &s), 1);
    tls_tickets_turn(t);
    assert_int_equal(open_sealed(t, &s), 2);
    tls_tickets_turn(t);
    assert_int_equal(open_sealed(t, &s), 2);
    tls_tickets_turn(t);
    assert_int_equal(open_sealed(t, &s), 0);
    seal(t, &s);
    assert_int_equal(open_sealed(t, &s), 1);
    tls_tickets_unref(t);
}

static void the_first_key_of_a_text_seals_and_all_open(void **state)
{
    (void)state;
    char *x = key_line(80, 1), *y = key_line(48, 100);
    struct arena a;
    struct str error;
    struct sealed s;
    arena_init(&a, NULL, 0);
    struct tls_tickets *both = tls_tickets_parse(arena_printf(&a, "%s\n%s\n", x, y), &a, &error);
    struct tls_tickets *turned = tls_tickets_parse(arena_printf(&a, "%s\n%s\n", y, x), &a, &error);
    struct tls_tickets *one = tls_tickets_parse(str_of(y), &a, &error);
    seal(both, &s);
    assert_int_equal(open_sealed(both, &s), 1);
    assert_int_equal(open_sealed(turned, &s), 2);
    assert_int_equal(open_sealed(one, &s), 0);
    seal(one, &s);
    assert_int_equal(open_sealed(both, &s), 2);
    assert_int_equal(open_sealed(turned, &s), 1);
    tls_tickets_unref(both);
    tls_tickets_unref(turned);
    tls_tickets_unref(one);
    arena_done(&a);
    mem_free(x);
    mem_free(y);
}

static void *turn_many(void *t)
{
    for (int i = 0; i < 200; i++)
        tls_tickets_turn(t);
    return NULL;
}

static void keys_may_turn_while_others_seal(void **state)
{
    (void)state;
    struct tls_tickets *t = tls_tickets_new();
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, turn_many, t), 0);
    for (int i = 0; i < 200; i++) {
        struct sealed s;
        seal(t, &s);
        assert_true(open_sealed(t, &s) >= 0);
    }
    pthread_join(thread, NULL);
    tls_tickets_unref(t);
}

/* ---- contexts */

static struct tls_leaf *no_leaf(void *user, struct str sni)
{
    (void)user;
    (void)sni;
    return NULL;
}

static void count_drop(void *user)
{
    ++*(unsigned *)user;
}

static void names_are_dropped_with_the_last_reference_and_not_before(void **state)
{
    (void)state;
    struct bench b;
    unsigned drops = 0;
    bench_init(&b);
    struct tls_server_rules rules = {.names = {no_leaf, count_drop, &drops}};
    struct tls_ctx *ctx = tls_server_new(&rules, &b.a, &b.error);
    assert_non_null(ctx);
    tls_ctx_unref(tls_ctx_ref(ctx));
    assert_int_equal(drops, 0);
    tls_ctx_unref(ctx);
    assert_int_equal(drops, 1);
    rules.client_ca_pem = STR("no certificate");
    assert_null(tls_server_new(&rules, &b.a, &b.error));
    assert_true(says(&b, "authority"));
    assert_int_equal(drops, 1);
    arena_done(&b.a);
}

static void roots_that_cannot_be_read_are_refused(void **state)
{
    (void)state;
    struct pki_cert *root = pki_new(&(struct pki_wish){.cn = "root", .authority = true}, NULL);
    const struct {
        struct tls_client_rules rules;
        bool good;
    } rows[] = {
        {{.roots_pem = str_of(root->pem)}, true},
        {{.roots_dir = STR("/")}, true},
        {{.insecure = true}, true},
        {{.roots_pem = STR("nothing")}, false},
        {{.roots_dir = STR("/nowhere/at/all")}, false},
        {{.roots_dir = STR("/dev/null")}, false},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct bench b;
        bench_init(&b);
        struct tls_ctx *ctx = tls_client_new(&rows[i].rules, &b.a, &b.error);
        assert_int_equal(ctx != NULL, rows[i].good);
        assert_int_equal(b.error.n > 0, !rows[i].good);
        tls_ctx_unref(ctx);
        arena_done(&b.a);
    }
    pki_free(root);
}

static void a_certificate_of_our_own_is_whole_or_refused(void **state)
{
    (void)state;
    struct pki_cert *one = pki_new(&(struct pki_wish){.cn = "one"}, NULL);
    struct pki_cert *two = pki_new(&(struct pki_wish){.cn = "two"}, NULL);
    const struct {
        const char *cert, *key;
        bool good;
    } rows[] = {
        {NULL, NULL, true},          {one->pem, one->key_pem, true},  {one->pem, NULL, false},
        {NULL, one->key_pem, false}, {one->pem, two->key_pem, false}, {"junk", one->key_pem, false},
        {one->pem, one->pem, false},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct bench b;
        bench_init(&b);
        struct tls_client_rules rules = {.roots_pem = str_of(one->pem),
                                         .cert_pem = str_of(rows[i].cert),
                                         .key_pem = str_of(rows[i].key)};
        struct tls_ctx *ctx = tls_client_new(&rules, &b.a, &b.error);
        assert_int_equal(ctx != NULL, rows[i].good);
        assert_int_equal(b.error.n > 0, !rows[i].good);
        tls_ctx_unref(ctx);
        arena_done(&b.a);
    }
    pki_free(one);
    pki_free(two);
}

/* ---- kept sessions */

static bool has(struct tls_sessions *s, const char *name, int64_t now_s)
{
    SSL_SESSION *x = tls_sessions_get(s, name, now_s);
    SSL_SESSION_free(x);
    return x != NULL;
}

/* Such that OpenSSL thinks it can be resumed. */
static SSL_SESSION *session(void)
{
    SSL_SESSION *x = SSL_SESSION_new();
    assert_int_equal(SSL_SESSION_set1_id(x, (const uint8_t *)"0123", 4), 1);
    assert_int_equal(SSL_SESSION_is_resumable(x), 1);
    return x;
}

static void the_session_longest_unused_makes_room(void **state)
{
    struct tls_sessions *s = tls_sessions_new(2);
    SSL_SESSION *x = session();
    (void)state;
    tls_sessions_put(s, "a", x, false, 10);
    tls_sessions_put(s, "b", x, false, 10);
    assert_true(has(s, "a", 10));
    tls_sessions_put(s, "c", x, false, 10);
    assert_true(has(s, "a", 10));
    assert_false(has(s, "b", 10));
    assert_true(has(s, "c", 10));
    tls_sessions_drop(s, "a");
    tls_sessions_drop(s, "nobody");
    assert_false(has(s, "a", 10));
    tls_sessions_free(s);
    SSL_SESSION_free(x);
}

static void a_session_is_believed_for_an_hour_from_when_the_certificate_was_seen(void **state)
{
    struct tls_sessions *s = tls_sessions_new(4);
    SSL_SESSION *x = session();
    (void)state;
    tls_sessions_put(s, "a", x, false, 1000);
    assert_true(has(s, "a", 1000 + 3599));
    tls_sessions_put(s, "a", x, true, 1000 + 3000); /* came of it, proves nothing new */
    assert_true(has(s, "a", 1000 + 3599));
    assert_false(has(s, "a", 1000 + 3600));
    tls_sessions_put(s, "a", x, true, 1000 + 3600); /* there is nothing it could count from */
    assert_false(has(s, "a", 1000 + 3600));
    tls_sessions_put(s, "a", x, false, 5000);
    assert_true(has(s, "a", 5000 + 3599));
    assert_false(has(s, "a", 4999)); /* a clock that was set back proves nothing */
    tls_sessions_free(s);
    SSL_SESSION_free(x);
}

static void authorities_of_our_own_are_whole_certificates(void **state)
{
    struct bench b;
    struct pki_cert *own = pki_new(&(struct pki_wish){.cn = "own", .authority = true}, NULL);
    char two[8192];
    (void)state;
    snprintf(two, sizeof two, "%s%s", own->pem, own->pem);
    const struct {
        struct str pem;
        bool good;
    } rows[] = {{str_of(own->pem), true},
                {str_of(two), true},
                {STR_NONE, true},
                {STR("x"), false},
                {str_head(str_of(two), strlen(two) - 40), false}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        bench_init(&b);
        struct tls_ctx *ctx =
            tls_client_new(&(struct tls_client_rules){.never_pem = rows[i].pem}, &b.a, &b.error);
        assert_int_equal(ctx != NULL, rows[i].good);
        if (!ctx)
            assert_true(says(&b, "our own"));
        tls_ctx_unref(ctx);
        arena_done(&b.a);
    }
    pki_free(own);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_leaf_tells_its_names_in_lower_case_and_its_end),
        cmocka_unit_test(every_usual_kind_of_key_serves),
        cmocka_unit_test(what_cannot_serve_is_refused_with_a_reason),
        cmocka_unit_test(ticket_keys_are_read_strictly),
        cmocka_unit_test(a_turned_key_opens_for_two_more_turns_and_asks_for_renewal),
        cmocka_unit_test(the_first_key_of_a_text_seals_and_all_open),
        cmocka_unit_test(keys_may_turn_while_others_seal),
        cmocka_unit_test(names_are_dropped_with_the_last_reference_and_not_before),
        cmocka_unit_test(roots_that_cannot_be_read_are_refused),
        cmocka_unit_test(a_certificate_of_our_own_is_whole_or_refused),
        cmocka_unit_test(the_session_longest_unused_makes_room),
        cmocka_unit_test(a_session_is_believed_for_an_hour_from_when_the_certificate_was_seen),
        cmocka_unit_test(authorities_of_our_own_are_whole_certificates),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
