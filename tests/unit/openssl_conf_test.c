/* openssl_conf_test.c — no configuration file of the system changes what TLS is with us.  In a
 * process where nothing else has used OpenSSL before. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <cmocka.h>

#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/digest.h"
#include "net/tls_impl.h"

static const char weak[] = "openssl_conf = a\n[a]\nssl_conf = b\n[b]\nsystem_default = c\n"
                           "[c]\nOptions = UnsafeLegacyRenegotiation\n";

/* In a process of its own: 1 if the file counts there. */
static int in_child(void (*begin)(void))
{
    int status;
    pid_t pid = fork();
    if (pid == 0) {
        begin();
        SSL_CTX *ctx = SSL_CTX_new(TLS_client_method());
        bool weaker = SSL_CTX_get_options(ctx) & SSL_OP_ALLOW_UNSAFE_LEGACY_RENEGOTIATION;
        SSL_CTX_free(ctx);
        _exit(weaker);
    }
    assert_true(pid > 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void nothing(void)
{
}

static void a_hash(void)
{
    uint8_t out[SHA256_BYTES];
    digest_sha256(out, &(struct str){"x", 1}, 1);
}

static void a_context(void)
{
    struct arena a;
    struct str error;
    arena_init(&a, NULL, 0);
    struct tls_ctx *ctx = tls_client_new(&(struct tls_client_rules){.insecure = true}, &a, &error);
    assert_non_null(ctx);
    if (SSL_CTX_get_options(ctx->ssl) & SSL_OP_ALLOW_UNSAFE_LEGACY_RENEGOTIATION)
        _exit(2);
    tls_ctx_unref(ctx);
    arena_done(&a);
}

static void the_systems_file_is_not_read(void **state)
{
    char path[] = "/tmp/openssl_conf_test_XXXXXX";
    (void)state;
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, weak, sizeof weak - 1), sizeof weak - 1);
    assert_int_equal(setenv("OPENSSL_CONF", path, 1), 0);
    assert_int_equal(in_child(nothing), 1); /* it would count */
    assert_int_equal(in_child(digest_begin), 0);
    assert_int_equal(in_child(a_hash), 0);
    assert_int_equal(in_child(a_context), 0);
    close(fd);
    unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_systems_file_is_not_read)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
