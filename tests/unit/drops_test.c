/* drops_test.c — what a copy of a refused packet says; packets are written by the sandbox. */
#include "egress/kernel/drops.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <cmocka.h>

#include "base/text.h"

static size_t bytes_of(const char *hex, uint8_t out[256])
{
    size_t n = strlen(hex) / 2;
    for (size_t i = 0; i < n; i++)
        out[i] = (uint8_t)(text_hex(hex[2 * i]) << 4 | text_hex(hex[2 * i + 1]));
    return n;
}

#define V4 "450000200001000040110000c0000201c6336401"
#define V6                             \
    "6000000000100640"                 \
    "20010db8000000000000000000000001" \
    "20010db8000000000000000000000002"

static void a_packet_tells_addresses_ports_and_protocol(void **state)
{
    static const struct {
        const char *hex, *dst;
        unsigned protocol, src_port, dst_port;
    } rows[] = {
        {V4 "0fa0003500080000", "198.51.100.1", 17, 4000, 53},
        {V4 "0fa00035", "198.51.100.1", 17, 4000, 53},
        {V4 "0fa000", "198.51.100.1", 17, 0, 0},
        {V4, "198.51.100.1", 17, 0, 0},
        /* options: the ports are behind them */
        {"460000240001000040110000c0000201c6336401010101010fa00035", "198.51.100.1", 17, 4000, 53},
        /* a later fragment has none */
        {"450000200001200140110000c0000201c63364010fa00035", "198.51.100.1", 17, 0, 0},
        /* ICMP has none */
        {"450000200001000040010000c0000201c633640108000000", "198.51.100.1", 1, 0, 0},
        {V6 "0fa001bb00000000", "2001:db8::2", 6, 4000, 443},
        {V6, "2001:db8::2", 6, 0, 0},
        /* behind an extension header nobody looks */
        {"6000000000102b4020010db800000000000000000000000120010db80000000000000000000000020fa001bb",
         "2001:db8::2", 0, 0, 0},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        uint8_t p[256];
        char ip[IP_TEXT_BYTES];
        struct drop d;
        size_t n = bytes_of(rows[i].hex, p);
        if (!drop_parse(p, n, &d))
            fail_msg("row %zu", i);
        size_t len = ip_text(&d.dst, ip);
        if (!str_eq((struct str){ip, len}, str_of(rows[i].dst)))
            fail_msg("row %zu: %.*s", i, (int)len, ip);
        assert_int_equal(d.protocol, rows[i].protocol);
        assert_int_equal(d.src_port, rows[i].src_port);
        assert_int_equal(d.dst_port, rows[i].dst_port);
    }
}

static void what_is_no_ip_packet_is_none(void **state)
{
    static const char *const rows[] = {"",
                                       "45",
                                       "00",
                                       "4400002000010000401100",
                                       "4400002000010000401100c0000201c6336401c633",
                                       "60000000001006402001",
                                       "f5"};
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        uint8_t p[256];
        struct drop d;
        size_t n = bytes_of(rows[i], p);
        if (drop_parse(p, n, &d))
            fail_msg("row %zu", i);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_packet_tells_addresses_ports_and_protocol),
        cmocka_unit_test(what_is_no_ip_packet_is_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
