/* websocket_test.c — key and accept value of the handshake, by the example of RFC 6455. */
#include "http/websocket.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <cmocka.h>

#define KEY STR("dGhlIHNhbXBsZSBub25jZQ==")
#define ACCEPT STR("s3pPLMBiTxaQ9kYGzzhZRbK+xOo=")

static void the_accept_value_is_that_of_the_rfc(void **state)
{
    char accept[WEBSOCKET_ACCEPT_BYTES];
    (void)state;
    websocket_accept(KEY, accept);
    assert_memory_equal(accept, ACCEPT.p, sizeof accept);
}

static void a_key_is_base64_of_sixteen_bytes(void **state)
{
    char key[WEBSOCKET_KEY_BYTES];
    (void)state;
    websocket_key((const uint8_t *)"the sample nonce", key);
    assert_memory_equal(key, KEY.p, sizeof key);
}

static void any_key_has_an_answer(void **state)
{
    char accept[WEBSOCKET_ACCEPT_BYTES], other[WEBSOCKET_ACCEPT_BYTES], big[5000];
    (void)state;
    websocket_accept(STR_NONE, accept);
    assert_memory_equal(accept, "Kfh9QIsMVZcl6xEPYxPHzW8SZ8w=", sizeof accept);
    memset(big, 'k', sizeof big);
    websocket_accept((struct str){big, sizeof big}, other);
    assert_memory_not_equal(accept, other, sizeof accept);
}

static void only_the_right_answer_is_accepted(void **state)
{
    static const struct {
        const char *accept;
        bool right;
    } rows[] = {
        {"s3pPLMBiTxaQ9kYGzzhZRbK+xOo=", true},  {"s3pPLMBiTxaQ9kYGzzhZRbK+xOo", false},
        {"S3pPLMBiTxaQ9kYGzzhZRbK+xOo=", false}, {"s3pPLMBiTxaQ9kYGzzhZRbK+xOo=a", false},
        {"s3pPLMBiTxaQ9kYGzzhZRbK+xOp=", false}, {"", false},
        {"dGhlIHNhbXBsZSBub25jZQ==", false},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        assert_int_equal(websocket_accepted(KEY, str_of(rows[i].accept)), rows[i].right);
    assert_false(websocket_accepted(KEY, STR_NONE));
    assert_false(websocket_accepted(STR("x"), ACCEPT));
}

static void key_and_accept_are_known_by_name(void **state)
{
    (void)state;
    assert_true(websocket_is_key(STR("Sec-WebSocket-Key")));
    assert_true(websocket_is_accept(STR("sec-websocket-accept")));
    assert_false(websocket_is_key(STR("sec-websocket-key1")));
    assert_false(websocket_is_key(STR("sec-websocket-accept")));
    assert_false(websocket_is_accept(STR("sec-websocket-key")));
    assert_false(websocket_is_accept(STR("")));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_accept_value_is_that_of_the_rfc),
        cmocka_unit_test(a_key_is_base64_of_sixteen_bytes),
        cmocka_unit_test(any_key_has_an_answer),
        cmocka_unit_test(only_the_right_answer_is_accepted),
        cmocka_unit_test(key_and_accept_are_known_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
