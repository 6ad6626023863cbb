/* digest_test.c — known answers, and that threads do not disturb each other. */
#include <setjmp.h>
#include <pthread.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "base/digest.h"
#include "base/text.h"

static void assert_hex(const uint8_t *bytes, size_t n, const char *expected)
{
    char hex[2 * SHA256_BYTES + 1] = {0};
    text_put_hex(hex, bytes, n);
    assert_string_equal(hex, expected);
}

static void sha256_gives_the_known_answers(void **state)
{
    (void)state;
    uint8_t out[SHA256_BYTES];
    digest_sha256(out, NULL, 0);
    assert_hex(out, sizeof out, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    digest_sha256(out, &STR("abc"), 1);
    assert_hex(out, sizeof out, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

static void sha256_of_pieces_is_that_of_the_whole(void **state)
{
    (void)state;
    static const struct str pieces[] = {{"a", 1}, {NULL, 0}, {"", 0}, {"bc", 2}};
    uint8_t out[SHA256_BYTES];
    digest_sha256(out, pieces, 4);
    assert_hex(out, sizeof out, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

static void sha1_makes_the_websocket_key_of_the_rfc(void **state)
{
    (void)state;
    uint8_t out[20];
    static const struct str pieces[] = {{"dGhlIHNhbXBsZSBub25jZQ==", 24},
                                        {"258EAFA5-E914-47DA-95CA-C5AB0DC85B11", 36}};
    digest_sha1(out, pieces, 2);
    char text[28];
    assert_int_equal(text_put_base64(text, out, 20), 28);
    assert_memory_equal(text, "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=", 28);
    digest_sha1(out, NULL, 0);
    assert_hex(out, sizeof out, "da39a3ee5e6b4b0d3255bfef95601890afd80709");
}

static void *hash_often(void *result)
{
    uint8_t out[SHA256_BYTES], *first = result;
    digest_sha256(first, &STR("abc"), 1);
    for (int i = 0; i < 2000; i++) {
        uint8_t other[20];
        digest_sha1(other, &STR("between"), 1);
        digest_sha256(out, &STR("abc"), 1);
        if (memcmp(out, first, sizeof out) != 0)
            first[0] ^= 0xff;
    }
    return NULL;
}

static void threads_have_contexts_of_their_own(void **state)
{
    (void)state;
    pthread_t threads[4];
    uint8_t results[4][SHA256_BYTES];
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, hash_often, results[i]), 0);
    for (size_t i = 0; i < 4; i++) {
        pthread_join(threads[i], NULL);
        assert_hex(results[i], SHA256_BYTES,
                   "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    }
}

static void random_bytes_differ(void **state)
{
    (void)state;
    uint8_t a[64] = {0}, b[64] = {0};
    digest_random(a, sizeof a);
    digest_random(b, sizeof b);
    assert_memory_not_equal(a, b, sizeof a);
    digest_random(NULL, 0);
    static uint8_t many[100000]; /* more than one call to the kernel gives at least once */
    digest_random(many, sizeof many);
    size_t zeros = 0;
    for (size_t i = 0; i < sizeof many; i++)
        zeros += many[i] == 0;
    assert_in_range(zeros, 200, 700); /* 390 are expected */
}

static void equal_compares_length_and_bytes(void **state)
{
    (void)state;
    assert_true(digest_equal(STR("secret"), STR("secret")));
    assert_false(digest_equal(STR("secret"), STR("secreT")));
    assert_false(digest_equal(STR("Secret"), STR("secret")));
    assert_false(digest_equal(STR("secret"), STR("secre")));
    assert_true(digest_equal(STR_NONE, STR("")));
    assert_false(digest_equal(STR_NONE, STR("x")));
}

static void wipe_leaves_zeros(void **state)
{
    (void)state;
    char text[] = "secret", zeros[sizeof text] = {0};
    digest_wipe(text, sizeof text);
    assert_memory_equal(text, zeros, sizeof text);
    digest_wipe(NULL, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sha256_gives_the_known_answers),
        cmocka_unit_test(sha256_of_pieces_is_that_of_the_whole),
        cmocka_unit_test(sha1_makes_the_websocket_key_of_the_rfc),
        cmocka_unit_test(threads_have_contexts_of_their_own),
        cmocka_unit_test(random_bytes_differ),
        cmocka_unit_test(equal_compares_length_and_bytes),
        cmocka_unit_test(wipe_leaves_zeros),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
