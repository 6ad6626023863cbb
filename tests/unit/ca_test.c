/* ca_test.c — the authority and its files, on a real file system (contract egress-vault 16; case
 * TLS-09). */
#include "egress/intercept/ca_impl.h"

#include <fcntl.h>
#include <ftw.h>
#include <openssl/pem.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

#include "egress/state/file.h"
#include "harness/pki.h"

enum { PATH_BYTES = 96, LIMIT = 1 << 22 };

static struct {
    char dir[32], folder[PATH_BYTES], share[PATH_BYTES], system[PATH_BYTES], bundle[PATH_BYTES];
    char export[2 * PATH_BYTES], whole[2 * PATH_BYTES], cert[2 * PATH_BYTES];
    struct ca_paths at;
    struct arena a;
    struct str error;
    int64_t now;
} t;

static int setup(void **state)
{
    (void)state;
    memset(&t, 0, sizeof t);
    snprintf(t.dir, sizeof t.dir, "/tmp/ca_test.XXXXXX");
    assert_non_null(mkdtemp(t.dir));
    snprintf(t.folder, sizeof t.folder, "%s/lib/mitm", t.dir);
    snprintf(t.share, sizeof t.share, "%s/share", t.dir);
    snprintf(t.export, sizeof t.export, "%s/ca-cert.pem", t.share);
    snprintf(t.system, sizeof t.system, "%s/system/ca.crt", t.dir);
    snprintf(t.bundle, sizeof t.bundle, "%s/bundle.crt", t.dir);
    snprintf(t.whole, sizeof t.whole, "%s/mitmproxy-ca.pem", t.folder);
    snprintf(t.cert, sizeof t.cert, "%s/mitmproxy-ca-cert.pem", t.folder);
    t.at = (struct ca_paths){t.folder, t.export, t.system, t.bundle};
    arena_init(&t.a, NULL, 0);
    t.now = time(NULL);
    return 0;
}

static int take_away(const char *path, const struct stat *st, int kind, struct FTW *ftw)
{
    (void)st;
    (void)kind;
    (void)ftw;
    return remove(path);
}

static int teardown(void **state)
{
    (void)state;
    arena_done(&t.a);
    return nftw(t.dir, take_away, 8, FTW_DEPTH | FTW_PHYS);
}

static struct ca *open_ca(enum ca_key kind)
{
    t.error = STR_NONE;
    return ca_open(&t.at, kind, t.now, &t.a, &t.error);
}

static bool says(const char *text)
{
    return t.error.n > 0 && memmem(t.error.p, t.error.n, text, strlen(text));
}

static struct str get(const char *path)
{
    struct file_bytes f = {.exists = false};
    assert_int_equal(file_get(path, LIMIT, &f), 0);
    struct str s = f.exists ? arena_str(&t.a, (struct str){f.p, f.n}) : STR_NONE;
    file_bytes_done(&f);
    return s;
}

static void put(const char *path, struct str text, mode_t mode)
{
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_int_equal(fwrite(text.p, 1, text.n, f), text.n);
    assert_int_equal(fclose(f), 0);
    assert_int_equal(chmod(path, mode), 0);
}

static void put_whole(struct str text, mode_t mode)
{
    char lib[PATH_BYTES];
    snprintf(lib, sizeof lib, "%s/lib", t.dir);
    mkdir(lib, 0755);
    mkdir(t.folder, 0755);
    put(t.whole, text, mode);
}

static mode_t mode_of(const char *path)
{
    struct stat st;
    assert_int_equal(lstat(path, &st), 0);
    return st.st_mode & 07777;
}

static unsigned entries(const char *dir)
{
    unsigned n = 0;
    char command[PATH_BYTES + 32];
    snprintf(command, sizeof command, "ls -A %s | wc -l", dir);
    FILE *f = popen(command, "r");
    assert_int_equal(fscanf(f, "%u", &n), 1);
    pclose(f);
    return n;
}

/* ---- made */

static void expect_critical(X509 *x, int nid)
{
    int at = X509_get_ext_by_NID(x, nid, -1);
    assert_true(at >= 0);
    assert_true(X509_EXTENSION_get_critical(X509_get_ext(x, at)));
}

static void expect_fields(const struct ca *ca)
{
    char subject[256];
    X509_NAME_oneline(X509_get_subject_name(ca->cert), subject, sizeof subject);
    assert_non_null(strstr(subject, "Sallyport"));
    expect_critical(ca->cert, NID_basic_constraints);
    expect_critical(ca->cert, NID_key_usage);
    assert_int_equal(X509_check_ca(ca->cert), 1);
    assert_int_equal(X509_get_key_usage(ca->cert), KU_KEY_CERT_SIGN | KU_CRL_SIGN);
    assert_non_null(X509_get0_subject_key_id(ca->cert));
    assert_int_equal(X509_get_version(ca->cert), X509_VERSION_3);
    assert_int_equal(ASN1_STRING_length(X509_get0_serialNumber(ca->cert)), 16);
    assert_int_equal(ASN1_STRING_type(X509_get0_serialNumber(ca->cert)), V_ASN1_INTEGER);
    int64_t days = (ca_time(X509_get0_notAfter(ca->cert)) - t.now) / CA_DAY_S;
    assert_true(days >= 3650 && days <= 3653);
    assert_true(ca_time(X509_get0_notBefore(ca->cert)) <= t.now - CA_DAY_S);
}

static void expect_strict(const struct ca *ca)
{
    X509_STORE *store = X509_STORE_new();
    X509_STORE_CTX *ctx = X509_STORE_CTX_new();
    X509_STORE_add_cert(store, ca->cert);
    X509_STORE_set_flags(store, X509_V_FLAG_X509_STRICT | X509_V_FLAG_CHECK_SS_SIGNATURE);
    X509_STORE_CTX_init(ctx, store, ca->cert, NULL);
    if (X509_verify_cert(ctx) != 1)
        fail_msg("%s", X509_verify_cert_error_string(X509_STORE_CTX_get_error(ctx)));
    X509_STORE_CTX_free(ctx);
    X509_STORE_free(store);
}

static void one_is_made_where_there_is_none(void **state)
{
    (void)state;
    static const struct {
        enum ca_key kind;
        const char *is;
        int bits;
    } rows[] = {{CA_KEY_EC, "EC", 256}, {CA_KEY_RSA2048, "RSA", 2048}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        mode_t before = umask(077);
        struct ca *ca = open_ca(rows[i].kind);
        umask(before);
        assert_non_null(ca);
        assert_true(EVP_PKEY_is_a(ca->key, rows[i].is));
        assert_int_equal(EVP_PKEY_get_bits(ca->key), rows[i].bits);
        expect_fields(ca);
        expect_strict(ca);
        assert_int_equal(mode_of(t.whole), 0600);
        assert_int_equal(mode_of(t.cert), 0644);
        assert_int_equal(mode_of(t.folder), 0755);
        assert_int_equal(entries(t.folder), 2);
        assert_true(str_eq(get(t.cert), ca_pem(ca)));
        assert_null(memmem(get(t.cert).p, get(t.cert).n, "PRIVATE", 7));
        ca_free(ca);
        unlink(t.whole);
    }
    ca_free(NULL);
}

static void two_that_were_made_differ_in_name_and_serial(void **state)
{
    (void)state;
    struct ca *x = ca_make(CA_KEY_EC, t.now), *y = ca_make(CA_KEY_EC, t.now);
    assert_int_not_equal(
        X509_NAME_cmp(X509_get_subject_name(x->cert), X509_get_subject_name(y->cert)), 0);
    assert_int_not_equal(
        ASN1_INTEGER_cmp(X509_get0_serialNumber(x->cert), X509_get0_serialNumber(y->cert)), 0);
    ca_free(x);
    ca_free(y);
}

static void the_one_that_was_made_is_used_again(void **state)
{
    (void)state;
    struct stat before, after;
    struct ca *first = open_ca(CA_KEY_EC);
    struct str text = get(t.whole);
    assert_int_equal(stat(t.whole, &before), 0);
    struct ca *second = open_ca(CA_KEY_RSA2048); /* what is there counts */
    assert_int_equal(stat(t.whole, &after), 0);
    assert_true(str_eq(text, get(t.whole)));
    assert_true(before.st_ino == after.st_ino);
    assert_true(str_eq(ca_pem(first), ca_pem(second)));
    assert_true(EVP_PKEY_eq(first->key, second->key) == 1);
    ca_free(first);
    ca_free(second);
}

/* ---- brought by an operator */

enum form { PKCS8, TRADITIONAL, PARAMETERS_FIRST, LOCKED };

static struct str key_text(EVP_PKEY *key, enum form form)
{
    char *p;
    BIO *b = BIO_new(BIO_s_mem());
    if (form == PARAMETERS_FIRST)
        PEM_write_bio_Parameters(b, key);
    if (form == PKCS8)
        PEM_write_bio_PrivateKey(b, key, NULL, NULL, 0, NULL, NULL);
    else if (form == LOCKED)
        PEM_write_bio_PrivateKey(b, key, EVP_aes_128_cbc(), NULL, 0, NULL, (void *)"pass");
    else
        PEM_write_bio_PrivateKey_traditional(b, key, NULL, NULL, 0, NULL, NULL);
    long n = BIO_get_mem_data(b, &p);
    struct str s = arena_str(&t.a, (struct str){p, (size_t)n});
    BIO_free(b);
    return s;
}

static const struct pki_wish authority = {.cn = "Operator", .authority = true};

static void every_usual_form_is_taken_as_it_is(void **state)
{
    (void)state;
    static const struct {
        enum pki_key key;
        enum form form;
        bool cert_first;
        const char *begins;
    } rows[] = {
        {PKI_P256, PKCS8, false, "-----BEGIN PRIVATE KEY"},
        {PKI_P256, TRADITIONAL, false, "-----BEGIN EC PRIVATE KEY"},
        {PKI_P256, PARAMETERS_FIRST, true, "-----BEGIN EC PARAMETERS"},
        {PKI_P384, PKCS8, true, "-----BEGIN PRIVATE KEY"},
        {PKI_RSA2048, PKCS8, false, "-----BEGIN PRIVATE KEY"},
        {PKI_RSA2048, TRADITIONAL, true, "-----BEGIN RSA PRIVATE KEY"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct pki_wish wish = authority;
        wish.key = rows[i].key;
        struct pki_cert *c = pki_new(&wish, NULL);
        struct str key = key_text(c->key, rows[i].form), pem = str_of(c->pem);
        assert_true(str_starts(key, str_of(rows[i].begins)));
        struct str text =
            rows[i].cert_first ? arena_cat(&t.a, pem, key) : arena_cat(&t.a, key, pem);
        put_whole(text, i % 2 ? 0600 : 0400);
        struct ca *ca = open_ca(CA_KEY_EC);
        if (!ca)
            fail_msg("row %zu: %.*s", i, STR_ARG(t.error));
        assert_true(str_eq(get(t.whole), text));
        assert_true(str_eq(ca_pem(ca), pem));
        assert_true(str_eq(get(t.cert), pem));
        ca_free(ca);
        pki_free(c);
    }
}

static void a_certificate_beside_it_that_cannot_be_written_is_no_fault(void **state)
{
    (void)state;
    struct pki_cert *c = pki_new(&authority, NULL);
    put_whole(arena_cat(&t.a, str_of(c->key_pem), str_of(c->pem)), 0600);
    assert_int_equal(mkdir(t.cert, 0755), 0);
    struct ca *ca = open_ca(CA_KEY_EC);
    assert_non_null(ca);
    assert_int_equal(entries(t.folder), 2);
    ca_free(ca);
    pki_free(c);
}

static void what_a_client_would_not_trust_stops_the_start(void **state)
{
    (void)state;
    struct pki_cert *good = pki_new(&authority, NULL), *other = pki_new(&authority, NULL);
    const struct {
        struct pki_wish wish;
        enum form form;
        mode_t mode;
        const char *key, *cert, *says;
    } rows[] = {
        {{.cn = "x", .authority = true, .from_s = -7200, .to_s = -60}, .says = "has expired"},
        {{.cn = "x", .authority = true, .from_s = 3600, .to_s = 7200}, .says = "not valid yet"},
        {{.cn = "x"}, .says = "not that of an authority"},
        {{.cn = "x", .authority = true, .key = PKI_RSA1024}, .says = "2048 bits"},
        {{.cn = "x", .authority = true, .key = PKI_ED25519}, .says = "EC or RSA"},
        {authority, .form = LOCKED, .says = "passphrase"},
        {authority, .key = other->key_pem, .says = "does not belong"},
        {authority, .key = "", .says = "no private key"},
        {authority, .cert = "", .says = "no certificate"},
        {authority, .cert = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
         .says = "broken"},
        {authority, .key = "", .cert = "", .says = "no private key"},
        {authority, .mode = 0640, .says = "open to group or others (mode 0640"},
        {authority, .mode = 0604, .says = "mode 0604"},
        {authority, .mode = 0620, .says = "mode 0620"},
        {authority, .mode = 0644, .says = "mode 0644"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct pki_cert *c = pki_new(&rows[i].wish, NULL);
        struct str key = rows[i].key ? str_of(rows[i].key) : key_text(c->key, rows[i].form);
        struct str cert = str_of(rows[i].cert ? rows[i].cert : c->pem);
        struct str text = arena_cat(&t.a, key, cert);
        put_whole(text, rows[i].mode ? rows[i].mode : 0600);
        struct ca *ca = open_ca(CA_KEY_EC);
        assert_null(ca);
        if (!says(rows[i].says))
            fail_msg("row %zu: %.*s", i, STR_ARG(t.error));
        assert_true(says(t.whole));
        assert_int_equal(str_chr(t.error, '\n'), -1);
        assert_true(str_eq(get(t.whole), text));
        assert_true(access(t.cert, F_OK) < 0);
        pki_free(c);
    }
    pki_free(good);
    pki_free(other);
}

static void a_folder_in_its_place_stops_the_start(void **state)
{
    (void)state;
    put_whole(STR("x"), 0600);
    unlink(t.whole);
    assert_int_equal(mkdir(t.whole, 0700), 0);
    assert_null(open_ca(CA_KEY_EC));
    assert_true(says(t.whole));
    t.at.folder = t.bundle;
    put(t.bundle, STR("a file"), 0644);
    assert_null(open_ca(CA_KEY_EC));
    assert_true(says(t.bundle));
}

/* ---- the export */

static bool export_it(const struct ca *ca)
{
    t.error = STR_NONE;
    return ca_export(ca, &t.at, &t.a, &t.error);
}

static void the_export_is_the_certificate_alone_and_touches_nothing_else(void **state)
{
    (void)state;
    char mine[PATH_BYTES + 16];
    mode_t before = umask(077);
    struct ca *ca = open_ca(CA_KEY_EC);
    assert_true(export_it(ca));
    umask(before);
    assert_int_equal(t.error.n, 0);
    assert_true(str_eq(get(t.export), ca_pem(ca)));
    assert_true(str_eq(get(t.system), ca_pem(ca)));
    assert_int_equal(mode_of(t.export), 0644);
    assert_int_equal(mode_of(t.system), 0644);
    assert_int_equal(mode_of(t.share), 0755);
    assert_true(access(t.bundle, F_OK) < 0);
    snprintf(mine, sizeof mine, "%s/mine", t.share);
    put(mine, STR("stays"), 0600);
    assert_true(export_it(ca));
    assert_int_equal(entries(t.share), 2);
    ca_purge(&t.at);
    assert_true(access(t.export, F_OK) < 0);
    assert_true(str_eq(get(mine), STR("stays")));
    assert_true(str_eq(get(t.system), ca_pem(ca)));
    ca_purge(&t.at);
    ca_free(ca);
}

/* The workload can write to that folder; it must not be able to have us write elsewhere. */
static void a_link_in_place_of_the_export_is_not_followed(void **state)
{
    (void)state;
    char victim[PATH_BYTES];
    struct stat st;
    struct ca *ca = open_ca(CA_KEY_EC);
    snprintf(victim, sizeof victim, "%s/victim", t.dir);
    put(victim, STR("precious"), 0600);
    assert_int_equal(mkdir(t.share, 0755), 0);
    for (unsigned hard = 0; hard < 2; hard++) {
        unlink(t.export);
        assert_int_equal(hard ? link(victim, t.export) : symlink(victim, t.export), 0);
        assert_true(export_it(ca));
        assert_int_equal(lstat(t.export, &st), 0);
        assert_true(S_ISREG(st.st_mode) && st.st_nlink == 1);
        assert_true(str_eq(get(t.export), ca_pem(ca)));
        assert_true(str_eq(get(victim), STR("precious")));
        assert_int_equal(mode_of(victim), 0600);
    }
    unlink(t.export);
    assert_int_equal(symlink(victim, t.export), 0);
    ca_purge(&t.at);
    assert_true(str_eq(get(victim), STR("precious")));
    ca_free(ca);
}

static void an_export_that_cannot_be_is_fatal_and_the_own_trust_is_not(void **state)
{
    (void)state;
    char below[3 * PATH_BYTES];
    struct ca *ca = open_ca(CA_KEY_EC);
    put(t.share, STR("a file"), 0644);
    assert_false(export_it(ca));
    assert_true(says(t.export));
    assert_int_equal(str_chr(t.error, '\n'), -1);
    unlink(t.share);
    assert_int_equal(mkdir(t.share, 0755), 0);
    assert_int_equal(mkdir(t.export, 0755), 0);
    assert_false(export_it(ca));
    assert_int_equal(entries(t.share), 1);
    rmdir(t.export);
    snprintf(below, sizeof below, "%s/ca.crt", t.whole);
    t.at.system = below;
    assert_true(export_it(ca));
    assert_true(says(below));
    assert_true(str_eq(get(t.export), ca_pem(ca)));
    t.at.system = t.at.bundle = NULL;
    assert_true(export_it(ca));
    assert_int_equal(t.error.n, 0);
    ca_free(ca);
}

static void the_bundle_gets_one_copy(void **state)
{
    (void)state;
    static const char *const starts[] = {"", "one\n", "one"};
    struct ca *ca = open_ca(CA_KEY_EC);
    for (size_t i = 0; i < sizeof starts / sizeof *starts; i++) {
        put(t.bundle, str_of(starts[i]), 0640);
        assert_true(export_it(ca));
        struct str before = i ? STR("one\n") : STR("");
        assert_true(str_eq(get(t.bundle), arena_cat(&t.a, before, ca_pem(ca))));
        assert_int_equal(mode_of(t.bundle), 0640);
        assert_true(export_it(ca));
        assert_true(str_eq(get(t.bundle), arena_cat(&t.a, before, ca_pem(ca))));
    }
    ca_free(ca);
}

static void a_bundle_that_is_a_link_stays_one(void **state)
{
    (void)state;
    char real[PATH_BYTES];
    struct stat st;
    struct ca *ca = open_ca(CA_KEY_EC);
    snprintf(real, sizeof real, "%s/real.crt", t.dir);
    put(real, STR("one\n"), 0644);
    assert_int_equal(symlink("real.crt", t.bundle), 0);
    assert_true(export_it(ca));
    assert_int_equal(t.error.n, 0);
    assert_int_equal(lstat(t.bundle, &st), 0);
    assert_true(S_ISLNK(st.st_mode));
    assert_true(str_eq(get(real), arena_cat(&t.a, STR("one\n"), ca_pem(ca))));
    ca_free(ca);
}

struct watch {
    struct str want;
    atomic_bool stop;
    atomic_uint seen, bad;
};

static void *look(void *user)
{
    struct watch *w = user;
    char text[8192];
    struct stat st;
    while (!atomic_load(&w->stop)) {
        int fd = open(t.export, O_RDONLY);
        if (fd < 0)
            continue;
        ssize_t n = read(fd, text, sizeof text);
        bool whole = n == (ssize_t)w->want.n && memcmp(text, w->want.p, w->want.n) == 0;
        bool open_to_all = fstat(fd, &st) == 0 && (st.st_mode & 07777) == 0644;
        close(fd);
        atomic_fetch_add(&w->seen, 1);
        if (!whole || !open_to_all)
            atomic_fetch_add(&w->bad, 1);
    }
    return NULL;
}

static void whoever_watches_the_export_sees_all_of_it_or_nothing(void **state)
{
    enum { ROUNDS = 100, LOOKS = 300 };
    (void)state;
    struct ca *ca = open_ca(CA_KEY_EC);
    struct watch w = {.want = ca_pem(ca)};
    pthread_t thread;
    t.at.system = t.at.bundle = NULL;
    assert_int_equal(pthread_create(&thread, NULL, look, &w), 0);
    for (unsigned i = 0; i < ROUNDS || atomic_load(&w.seen) < LOOKS; i++) {
        if (i % 8 == 0)
            ca_purge(&t.at);
        assert_true(export_it(ca));
    }
    atomic_store(&w.stop, true);
    pthread_join(thread, NULL);
    assert_int_equal(atomic_load(&w.bad), 0);
    ca_free(ca);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

/* ---- read again */

static void another_one_is_found_and_the_same_one_is_none(void **state)
{
    (void)state;
    struct ca *old = open_ca(CA_KEY_EC), *again = old;
    assert_non_null(old);
    assert_true(ca_again(old, &t.at, t.now, &t.a, &again, &t.error));
    assert_null(again);
    struct pki_cert *c = pki_new(&authority, NULL);
    put_whole(arena_cat(&t.a, str_of(c->key_pem), str_of(c->pem)), 0600);
    assert_true(ca_again(old, &t.at, t.now, &t.a, &again, &t.error));
    assert_non_null(again);
    assert_true(str_eq(ca_pem(again), str_of(c->pem)));
    assert_true(str_eq(get(t.cert), str_of(c->pem)));
    ca_free(again);
    ca_free(old);
    pki_free(c);
}

static void what_cannot_be_one_changes_nothing_when_read_again(void **state)
{
    (void)state;
    struct ca *old = open_ca(CA_KEY_EC), *again = old;
    struct str cert = get(t.cert);
    struct pki_cert *c = pki_new(&authority, NULL);
    struct str whole = arena_cat(&t.a, str_of(c->key_pem), str_of(c->pem));
    static const char *const words[] = {"open to group", "no private key", "it is gone"};
    for (int i = 0; i < 3; i++) {
        if (i < 2)
            put_whole(i == 0 ? whole : str_of(c->pem), i == 0 ? 0644 : 0600);
        else
            unlink(t.whole);
        assert_false(ca_again(old, &t.at, t.now, &t.a, &again, &t.error));
        assert_true(says(words[i]));
        assert_ptr_equal(again, old);
        assert_true(str_eq(get(t.cert), cert));
    }
    assert_int_equal(entries(t.folder), 1);
    ca_free(old);
    pki_free(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(one_is_made_where_there_is_none),
        TEST(two_that_were_made_differ_in_name_and_serial),
        TEST(the_one_that_was_made_is_used_again),
        TEST(every_usual_form_is_taken_as_it_is),
        TEST(a_certificate_beside_it_that_cannot_be_written_is_no_fault),
        TEST(what_a_client_would_not_trust_stops_the_start),
        TEST(a_folder_in_its_place_stops_the_start),
        TEST(the_export_is_the_certificate_alone_and_touches_nothing_else),
        TEST(a_link_in_place_of_the_export_is_not_followed),
        TEST(an_export_that_cannot_be_is_fatal_and_the_own_trust_is_not),
        TEST(the_bundle_gets_one_copy),
        TEST(a_bundle_that_is_a_link_stays_one),
        TEST(whoever_watches_the_export_sees_all_of_it_or_nothing),
        TEST(another_one_is_found_and_the_same_one_is_none),
        TEST(what_cannot_be_one_changes_nothing_when_read_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
