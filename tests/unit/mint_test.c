/* mint_test.c — leaves by name, judged by OpenSSL's and Python's strictest verifiers (contract
 * egress-vault 15; case TLS-02). */
#include "egress/intercept/ca_impl.h"

#include <openssl/pem.h>
#include <setjmp.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/ip.h"
#include "harness/pki.h"
#include "net/tls_impl.h"

enum { NAMES = 4, MISSING = 127, SKIPPED = 77 };

extern char **environ;

static struct {
    struct ca *ca;
    struct mint *m;
    int64_t now;
} t;

static int setup(void **state)
{
    (void)state;
    t.now = time(NULL);
    t.ca = ca_make(CA_KEY_EC, t.now);
    t.m = mint_new(t.ca, NAMES);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    mint_free(t.m);
    ca_free(t.ca);
    return 0;
}

/* What a connection would show. */
struct shown {
    SSL_CTX *ctx;
    SSL *ssl;
    X509 *cert;
    EVP_PKEY *key;
};

static struct shown show(struct tls_leaf *l)
{
    struct shown s = {.ctx = SSL_CTX_new(TLS_server_method())};
    assert_non_null(l);
    SSL_CTX_set_security_level(s.ctx, 2);
    s.ssl = SSL_new(s.ctx);
    assert_true(tls_leaf_use(l, s.ssl));
    s.cert = SSL_get_certificate(s.ssl);
    s.key = SSL_get_privatekey(s.ssl);
    return s;
}

static void shown_done(struct shown *s)
{
    SSL_free(s->ssl);
    SSL_CTX_free(s->ctx);
}

/* A name of n bytes. */
static struct str long_name(struct arena *a, size_t n)
{
    char *p = arena_get(a, n);
    for (size_t i = 0; i < n; i++)
        p[i] = i % 50 == 49 && i + 1 < n ? '.' : 'a';
    return (struct str){p, n};
}

/* ---- fields */

static void expect_names_exactly(X509 *x, struct str name)
{
    int critical;
    struct ip ip;
    GENERAL_NAMES *list = X509_get_ext_d2i(x, NID_subject_alt_name, &critical, NULL);
    assert_int_equal(sk_GENERAL_NAME_num(list), 1);
    assert_int_equal(critical, name.n > 64);
    const GENERAL_NAME *g = sk_GENERAL_NAME_value(list, 0);
    const ASN1_STRING *s = g->d.dNSName; /* of addresses too: one union */
    struct str stated = {(const char *)ASN1_STRING_get0_data(s), (size_t)ASN1_STRING_length(s)};
    if (ip_parse(name, &ip)) {
        size_t n = ip_is_v4(&ip) ? 4 : 16;
        assert_int_equal(g->type, GEN_IPADD);
        assert_true(str_eq(stated, (struct str){(const char *)ip.b + 16 - n, n}));
    } else {
        assert_int_equal(g->type, GEN_DNS);
        assert_true(str_eq(stated, name));
    }
    GENERAL_NAMES_free(list);
}

static void expect_subject(X509 *x, struct str name)
{
    X509_NAME *subject = X509_get_subject_name(x);
    if (name.n > 64) {
        assert_int_equal(X509_NAME_entry_count(subject), 0);
        return;
    }
    assert_int_equal(X509_NAME_entry_count(subject), 1);
    const ASN1_STRING *cn = X509_NAME_ENTRY_get_data(X509_NAME_get_entry(subject, 0));
    assert_true(str_eq(
        (struct str){(const char *)ASN1_STRING_get0_data(cn), (size_t)ASN1_STRING_length(cn)},
        name));
}

static void expect_times(X509 *x)
{
    int64_t from = ca_time(X509_get0_notBefore(x)), to = ca_time(X509_get0_notAfter(x));
    assert_true(from == t.now - CA_DAY_S);
    assert_true(to - from < 398 * (int64_t)CA_DAY_S && to - from > 390 * (int64_t)CA_DAY_S);
}

static void expect_use(X509 *x)
{
    assert_int_equal(X509_get_key_usage(x), KU_DIGITAL_SIGNATURE);
    assert_int_equal(X509_get_extended_key_usage(x), XKU_SSL_SERVER);
    assert_int_equal(X509_check_ca(x), 0);
    assert_non_null(X509_get0_subject_key_id(x));
    assert_int_equal(
        ASN1_OCTET_STRING_cmp(X509_get0_authority_key_id(x), X509_get0_subject_key_id(t.ca->cert)),
        0);
    assert_int_equal(X509_get_signature_nid(x), NID_ecdsa_with_SHA256);
}

static void expect_serial(X509 *x)
{
    const ASN1_INTEGER *serial = X509_get0_serialNumber(x);
    assert_int_equal(ASN1_STRING_type(serial), V_ASN1_INTEGER);
    assert_int_equal(ASN1_STRING_length(serial), 16);
    assert_int_equal(ASN1_STRING_get0_data(serial)[0] & 0xc0, 0x40);
}

static void a_leaf_names_exactly_what_was_asked_for(void **state)
{
    (void)state;
    struct arena a;
    arena_init(&a, NULL, 0);
    const struct str names[] = {STR("a.test"),
                                STR("with_underscore.x-1.test"),
                                STR("single"),
                                STR("1.2.3.test"),
                                STR("xn--bcher-kva.test"),
                                STR("10.1.2.3"),
                                STR("2001:db8::1"),
                                long_name(&a, 64),
                                long_name(&a, 65),
                                long_name(&a, 253)};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct tls_leaf *l = mint_leaf(t.m, names[i], t.now);
        struct shown s = show(l);
        expect_names_exactly(s.cert, names[i]);
        expect_subject(s.cert, names[i]);
        expect_times(s.cert);
        expect_use(s.cert);
        expect_serial(s.cert);
        assert_true(EVP_PKEY_is_a(s.key, "EC") && EVP_PKEY_get_bits(s.key) == 256);
        assert_int_not_equal(EVP_PKEY_eq(s.key, t.ca->key), 1);
        assert_true(tls_leaf_not_after(l) == ca_time(X509_get0_notAfter(s.cert)));
        shown_done(&s);
    }
    arena_done(&a);
}

static void what_no_certificate_can_name_gets_none(void **state)
{
    (void)state;
    struct arena a;
    arena_init(&a, NULL, 0);
    const struct str names[] = {
        STR(""),
        STR("."),
        STR("a."),
        STR(".a"),
        STR("a..b"),
        STR("*.test"),
        STR("A.test"),
        STR("a b"),
        STR("a,b"),
        STR("a/b"),
        STR("[::1]"),
        STR("a:443"),
        STR("b\xc3\xbc.test"),
        STR("a\0.test"),
        STR("a.test\n"),
        long_name(&a, 254),
        STR("aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa.test")};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (mint_leaf(t.m, names[i], t.now))
            fail_msg("row %zu", i);
    assert_int_equal(mint_counts(t.m).made, 0);
    arena_done(&a);
}

static void serials_are_unique_and_the_key_is_shared(void **state)
{
    (void)state;
    struct shown x = show(mint_leaf(t.m, STR("a.test"), t.now));
    struct shown y = show(mint_leaf(t.m, STR("b.test"), t.now));
    assert_int_not_equal(
        ASN1_INTEGER_cmp(X509_get0_serialNumber(x.cert), X509_get0_serialNumber(y.cert)), 0);
    assert_int_equal(EVP_PKEY_eq(x.key, y.key), 1);
    shown_done(&x);
    shown_done(&y);
}

static void a_leaf_does_not_outlive_the_authority(void **state)
{
    (void)state;
    int64_t late = t.ca->not_after - 10 * CA_DAY_S;
    struct shown s = show(mint_leaf(t.m, STR("a.test"), late));
    assert_true(ca_time(X509_get0_notAfter(s.cert)) == t.ca->not_after);
    shown_done(&s);
}

/* ---- the cache */

static void a_name_is_made_once_while_it_is_fresh(void **state)
{
    (void)state;
    const struct {
        int64_t later_s;
        bool again;
    } rows[] = {{0, false},
                {29 * CA_DAY_S, false},
                {30 * CA_DAY_S, true},
                {30 * CA_DAY_S - CA_DAY_S + 1, false},
                {28 * CA_DAY_S, true} /* the clock was set back before its beginning */};
    uint64_t made = 1;
    assert_non_null(mint_leaf(t.m, STR("a.test"), t.now));
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        made += rows[i].again;
        assert_non_null(mint_leaf(t.m, STR("a.test"), t.now + rows[i].later_s));
        assert_int_equal(mint_counts(t.m).made, made);
        assert_int_equal(mint_counts(t.m).names, 1);
    }
    assert_int_equal(mint_counts(t.m).hits, 3);
}

static void the_name_used_longest_ago_goes_first(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        bool made;
    } rows[] = {{"a.test", true},  {"b.test", true},  {"c.test", true},  {"d.test", true},
                {"a.test", false}, {"e.test", true},  {"a.test", false}, {"b.test", true},
                {"c.test", true},  {"a.test", false}, {"e.test", false}};
    uint64_t made = 0;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        made += rows[i].made;
        assert_non_null(mint_leaf(t.m, str_of(rows[i].name), t.now));
        if (mint_counts(t.m).made != made)
            fail_msg("row %zu", i);
        assert_true(mint_counts(t.m).names <= NAMES);
    }
}

static void a_leaf_in_use_outlives_its_place_in_the_cache(void **state)
{
    (void)state;
    static const char *const others[] = {"b.test", "c.test", "d.test", "e.test"};
    struct tls_leaf *l = tls_leaf_ref(mint_leaf(t.m, STR("a.test"), t.now));
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        mint_leaf(t.m, str_of(others[i]), t.now);
    assert_true(str_eq(tls_leaf_name(l, 0), STR("a.test")));
    mint_free(t.m);
    t.m = NULL;
    struct shown s = show(l);
    shown_done(&s);
    tls_leaf_unref(l);
}

/* ---- strict verifiers */

static int run(const char *const *words)
{
    pid_t pid;
    int status;
    if (posix_spawnp(&pid, words[0], NULL, NULL, (char **)(uintptr_t)words, environ) != 0)
        return MISSING;
    assert_true(waitpid(pid, &status, 0) == pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

struct files {
    char dir[32], ca[64], leaf[64], key[64];
};

static void files_init(struct files *f, const struct ca *ca, const struct shown *s)
{
    snprintf(f->dir, sizeof f->dir, "/tmp/mint_test.XXXXXX");
    assert_non_null(mkdtemp(f->dir));
    snprintf(f->ca, sizeof f->ca, "%s/ca", f->dir);
    snprintf(f->leaf, sizeof f->leaf, "%s/leaf", f->dir);
    snprintf(f->key, sizeof f->key, "%s/key", f->dir);
    FILE *to = fopen(f->ca, "w");
    assert_int_equal(fwrite(ca_pem(ca).p, 1, ca_pem(ca).n, to), ca_pem(ca).n);
    fclose(to);
    to = fopen(f->leaf, "w");
    assert_true(PEM_write_X509(to, s->cert));
    fclose(to);
    to = fopen(f->key, "w");
    assert_true(PEM_write_PrivateKey(to, s->key, NULL, NULL, 0, NULL, NULL));
    fclose(to);
}

static void files_done(struct files *f)
{
    unlink(f->ca);
    unlink(f->leaf);
    unlink(f->key);
    rmdir(f->dir);
}

/* By both programs, as far as they are there. */
static void expect_both_accept(const struct ca *ca, const struct shown *s, struct str name,
                               bool want)
{
    struct files f;
    struct ip ip;
    char host[256];
    files_init(&f, ca, s);
    snprintf(host, sizeof host, "%.*s", STR_ARG(name));
    const char *check = ip_parse(name, &ip) ? "-verify_ip" : "-verify_hostname";
    const char *const openssl[] = {"openssl",   "verify",     "-x509_strict", "-purpose",
                                   "sslserver", "-no-CApath", "-CAfile",      f.ca,
                                   check,       host,         f.leaf,         NULL};
    const char *const python[] = {
        "python3", SOURCE_DIR "/tests/harness/strict_handshake.py", f.ca, f.leaf, f.key, host,
        NULL};
    int code = run(openssl);
    if (code != MISSING && (code == 0) != want)
        fail_msg("openssl about %s: %d", host, code);
    code = run(python);
    if (code != MISSING && code != SKIPPED && (code == 0) != want)
        fail_msg("python about %s: %d", host, code);
    files_done(&f);
}

static void strict_verifiers_accept_what_is_made(void **state)
{
    (void)state;
    struct arena a;
    arena_init(&a, NULL, 0);
    const struct str names[] = {STR("a.test"), STR("10.1.2.3"), STR("2001:db8::1"),
                                long_name(&a, 65), long_name(&a, 200)};
    struct ca *rsa = ca_make(CA_KEY_RSA2048, t.now), *cas[] = {t.ca, rsa};
    for (size_t k = 0; k < sizeof cas / sizeof *cas; k++) {
        struct mint *m = mint_new(cas[k], NAMES);
        for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
            struct shown s = show(mint_leaf(m, names[i], t.now));
            expect_both_accept(cas[k], &s, names[i], true);
            shown_done(&s);
        }
        mint_free(m);
    }
    ca_free(rsa);
    arena_done(&a);
}

/* That they would refuse. */
static void strict_verifiers_refuse_another_name_authority_or_time(void **state)
{
    (void)state;
    struct ca *other = ca_make(CA_KEY_EC, t.now);
    struct shown s = show(mint_leaf(t.m, STR("a.test"), t.now));
    expect_both_accept(t.ca, &s, STR("b.test"), false);
    expect_both_accept(other, &s, STR("a.test"), false);
    shown_done(&s);
    s = show(mint_leaf(t.m, STR("a.test"), t.now - 400 * CA_DAY_S));
    expect_both_accept(t.ca, &s, STR("a.test"), false);
    shown_done(&s);
    ca_free(other);
}

/* An operator's that states no key id: the leaf states the usual one. */
static void an_authority_without_key_id_signs_too(void **state)
{
    (void)state;
    const char *fault;
    struct arena a;
    arena_init(&a, NULL, 0);
    struct pki_cert *c = pki_new(&(struct pki_wish){.cn = "Operator", .authority = true}, NULL);
    struct ca *ca = ca_read(arena_cat(&a, str_of(c->key_pem), str_of(c->pem)), t.now, &fault);
    struct mint *m = mint_new(ca, NAMES);
    struct shown s = show(mint_leaf(m, STR("a.test"), t.now));
    ASN1_OCTET_STRING *id = ca_key_id(ca->key);
    assert_null(X509_get0_subject_key_id(ca->cert));
    assert_int_equal(ASN1_OCTET_STRING_cmp(X509_get0_authority_key_id(s.cert), id), 0);
    assert_int_equal(X509_verify(s.cert, ca->key), 1);
    ASN1_OCTET_STRING_free(id);
    shown_done(&s);
    mint_free(m);
    ca_free(ca);
    pki_free(c);
    arena_done(&a);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_leaf_names_exactly_what_was_asked_for),
        TEST(what_no_certificate_can_name_gets_none),
        TEST(serials_are_unique_and_the_key_is_shared),
        TEST(a_leaf_does_not_outlive_the_authority),
        TEST(a_name_is_made_once_while_it_is_fresh),
        TEST(the_name_used_longest_ago_goes_first),
        TEST(a_leaf_in_use_outlives_its_place_in_the_cache),
        TEST(strict_verifiers_accept_what_is_made),
        TEST(strict_verifiers_refuse_another_name_authority_or_time),
        TEST(an_authority_without_key_id_signs_too),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
