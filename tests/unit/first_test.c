/* first_test.c — the beginning of a connection, in any pieces: the answer is the same, and the
 * bytes stay where they are. */
#include "egress/relay/first.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

#include "harness/hello_bytes.h"

static const char *const words[] = {"more", "tls", "http", "other", "bad"};

/* What is said at the end, when the bytes come in pieces of `most`. */
static enum first_step look(struct first *f, struct str bytes, size_t most)
{
    struct chunk_pool *pool = chunk_pool_new();
    struct buf b;
    enum first_step step = FIRST_STEP_MORE;
    buf_init(&b, pool);
    first_init(f);
    for (size_t at = 0; at < bytes.n && step == FIRST_STEP_MORE; at += most) {
        size_t n = bytes.n - at < most ? bytes.n - at : most;
        buf_write(&b, bytes.p + at, n);
        step = first_look(f, &b);
        assert_int_equal(b.len, at + n);
        assert_int_equal(first_look(f, &b), step); /* asked again, nothing new */
    }
    buf_clear(&b);
    chunk_pool_free(pool);
    return step;
}

static void the_beginning_tells_in_any_pieces(void **state)
{
    static const struct {
        struct str bytes;
        enum first_step step;
    } rows[] = {
        {STR("GET / HTTP/1.1\r\nHost: ok.test\r\n\r\n"), FIRST_STEP_HTTP},
        {STR("CONNECT ok.test:443 HTTP/1.1\r\n"), FIRST_STEP_HTTP},
        {STR("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), FIRST_STEP_OTHER},
        {STR("SSH-2.0-x\r\n"), FIRST_STEP_OTHER},
        {STR("GE"), FIRST_STEP_MORE},
        {STR("\x16\x03\x01\x00"), FIRST_STEP_MORE},
        {STR("\x16\x03\x01\x00\x05\x02\x00\x00\x01\x00"), FIRST_STEP_BAD}, /* a ServerHello */
        {STR("\x16\x03\x01\xff\xff"), FIRST_STEP_BAD},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (size_t most = 1; most <= 7; most += 2) {
            struct first f;
            enum first_step step = look(&f, rows[i].bytes, most);
            first_done(&f);
            if (step != rows[i].step)
                fail_msg("row %zu in pieces of %zu: %s, not %s", i, most, words[step],
                         words[rows[i].step]);
        }
}

static void a_hello_tells_its_name_in_any_pieces_and_records(void **state)
{
    static const size_t sizes[] = {1, 2, 3, 11, 60, 2000};
    char out[HELLO_TEST_BYTES];
    (void)state;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
            struct first f;
            struct str bytes = hello_bytes(STR("ok.test"), sizes[i], out);
            assert_int_equal(look(&f, bytes, sizes[k]), FIRST_STEP_TLS);
            assert_true(str_eq(f.hello.hello.name, STR("ok.test")));
            first_done(&f);
        }
}

static void a_hello_that_lacks_its_last_byte_is_not_told(void **state)
{
    char out[HELLO_TEST_BYTES];
    struct first f;
    struct str bytes = hello_bytes(STR("ok.test"), 2000, out);
    (void)state;
    assert_int_equal(look(&f, str_head(bytes, bytes.n - 1), 10), FIRST_STEP_MORE);
    first_done(&f);
}

static void a_hello_without_a_name_has_none(void **state)
{
    char out[HELLO_TEST_BYTES];
    struct first f;
    (void)state;
    assert_int_equal(look(&f, hello_bytes(STR_NONE, 2000, out), 2000), FIRST_STEP_TLS);
    assert_null(f.hello.hello.name.p);
    first_done(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_beginning_tells_in_any_pieces),
        cmocka_unit_test(a_hello_tells_its_name_in_any_pieces_and_records),
        cmocka_unit_test(a_hello_that_lacks_its_last_byte_is_not_told),
        cmocka_unit_test(a_hello_without_a_name_has_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
