/* firstbytes_test.c — what a connection carries, told from any first piece of it. */
#include "egress/relay/firstbytes.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

#include "base/mem.h"

static const char *const words[] = {
    [FIRST_MORE] = "more", [FIRST_TLS] = "tls",     [FIRST_H1] = "h1",
    [FIRST_H2] = "h2",     [FIRST_OTHER] = "other",
};

static void first_bytes_tell_what_a_connection_carries(void **state)
{
    static const struct {
        struct str bytes;
        enum firstbytes seen;
    } rows[] = {
        {STR(""), FIRST_MORE},
        {STR("\x16"), FIRST_MORE},
        {STR("\x16\x03"), FIRST_TLS},
        {STR("\x16\x03\x01\x02\x00\x01"), FIRST_TLS},
        {STR("\x16\x03\x01\x00\x00\x16\x03\x01"), FIRST_TLS}, /* an empty record first */
        {STR("\x16\x02"), FIRST_OTHER},
        {STR("\x17\x03\x03\x00\x10"), FIRST_OTHER},
        {STR("\x80\x2e\x01\x03\x01\x00\x15"), FIRST_OTHER}, /* SSLv2's hello */
        {STR("GET / HTTP/1.1\r\n"), FIRST_H1},
        {STR("GET /"), FIRST_H1},
        {STR("GET "), FIRST_MORE},
        {STR("GE"), FIRST_MORE},
        {STR("get /x"), FIRST_H1},
        {STR("PROPFIND /x HTTP/1.1"), FIRST_H1},
        {STR("OPTIONS * HTTP/1.1"), FIRST_H1},
        {STR("GET http://ok.test/"), FIRST_H1},
        {STR("GET HTTP://ok.test/"), FIRST_H1},
        {STR("GET http:"), FIRST_MORE},
        {STR("GET http:x"), FIRST_OTHER},
        {STR("CONNECT ok.test:443 HTTP/1.1"), FIRST_H1},
        {STR("\r\n\r\nGET / HTTP/1.1\r\n"), FIRST_H1},
        {STR("\nGET / HTTP/1.1\r\n"), FIRST_H1},
        {STR("GET  / HTTP/1.1\r\n"), FIRST_H1},
        {STR("GET\t/ HTTP/1.1\r\n"), FIRST_H1},
        {STR("GET\v/ HTTP/1.1\r\n"), FIRST_H1},
        {STR("GET\f/ HTTP/1.1\r\n"), FIRST_H1},
        {STR("GET\r/ HTTP/1.1\r\n"), FIRST_H1},
        {STR("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), FIRST_H2},
        {STR("PRI * HTTP/2.0\r\n\r\nSM"), FIRST_MORE},
        {STR("PRI * HTTP/1.1\r\n"), FIRST_H1},
        {STR("SSH-2.0-x\r\n"), FIRST_OTHER},
        {STR("NICK somebody\r\n"), FIRST_OTHER},
        {STR("EHLO there\r\n"), FIRST_OTHER},
        {STR("*1\r\n$4\r\nPING\r\n"), FIRST_OTHER},
        {STR("GET\r\n"), FIRST_OTHER},
        {STR("\0\0\0\x08\x04\xd2\x16\x2f"), FIRST_OTHER},
        {STR(" GET / HTTP/1.1"), FIRST_OTHER},
        {STR("0123456789012345678901234567890123456789012345678901234567890123"), FIRST_OTHER},
        {STR("012345678901234567890123456789012345678901234567890123456789012"), FIRST_MORE},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        enum firstbytes seen = firstbytes_look(rows[i].bytes.p, rows[i].bytes.n);
        if (seen != rows[i].seen)
            fail_msg("\"%.*s\": %s, expected %s", STR_ARG(rows[i].bytes), words[seen],
                     words[rows[i].seen]);
    }
}

static void an_answer_stands_whatever_follows(void **state)
{
    static const struct str streams[] = {
        {"\x16\x03\x01\x02\x00\x01", 6},
        {"GET http://ok.test/ HTTP/1.1\r\nHost: ok.test\r\nUser-Agent: a-client/1\r\n\r\n", 73},
        {"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0", 33},
        {"SSH-2.0-OpenSSH_9.2\r\n", 21},
        {"\r\n\r\n\r\n\r\n\r\n\r\n\r\n\r\n\r\n\r\n\r\n\r\n\r\n\r\n\r\n\r\n\r\n\r\n\r\n\r\n\r\n\r\n"
         "\r\n\r\n\r\n\r\n\r\n\r\n\r\n\r\n\r\n\r\n\r\nGET / HTTP/1.1\r\n",
         82},
    };
    (void)state;
    for (size_t i = 0; i < sizeof streams / sizeof *streams; i++) {
        enum firstbytes told = FIRST_MORE;
        for (size_t n = 0; n <= streams[i].n; n++) {
            enum firstbytes seen = firstbytes_look(streams[i].p, n);
            if (told != FIRST_MORE)
                assert_int_equal(seen, told);
            told = seen;
        }
        assert_int_not_equal(told, FIRST_MORE);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(first_bytes_tell_what_a_connection_carries),
        cmocka_unit_test(an_answer_stands_whatever_follows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
