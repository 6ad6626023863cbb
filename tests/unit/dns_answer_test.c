/* dns_answer_test.c — which records of a reply are an answer to the question. */
#include "dns/answer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <cmocka.h>

static struct dns_name name_of(const char *text)
{
    struct dns_name name;
    assert_true(dns_name_parse(str_of(text), &name));
    return name;
}

/* A reply under construction. */
struct reply {
    struct dns_writer w;
    uint8_t p[4096];
};

static void begin(struct reply *r, const char *question, uint16_t type, unsigned rcode)
{
    struct dns_question q = {name_of(question), type, DNS_IN};
    dns_write(&r->w, r->p, sizeof r->p, 1, (uint16_t)(DNS_QR | rcode));
    dns_write_question(&r->w, &q);
}

static void alias(struct reply *r, const char *owner, const char *target, uint32_t ttl)
{
    struct dns_name o = name_of(owner), t = name_of(target);
    dns_write_target(&r->w, DNS_ANSWER, &o, DNS_CNAME, ttl, &t);
}

static void address(struct reply *r, enum dns_section section, const char *owner, const char *text,
                    uint32_t ttl)
{
    struct dns_name o = name_of(owner);
    struct ip ip;
    assert_true(ip_parse(str_of(text), &ip));
    dns_write_ip(&r->w, section, &o, ttl, &ip);
}

static void soa(struct reply *r, const char *owner, uint32_t ttl, uint32_t minimum)
{
    struct dns_name o = name_of(owner);
    struct dns_soa s = {.primary = o, .mailbox = o, .minimum = minimum};
    dns_write_soa(&r->w, DNS_AUTHORITY, &o, ttl, &s);
}

/* `want`: the addresses, with a blank between them. */
static void expect(struct reply *r, const char *name, uint16_t type, enum dns_finding finding,
                   uint32_t ttl, const char *want)
{
    struct dns_answer a;
    struct dns_name n = name_of(name);
    char text[1024], one[IP_TEXT_BYTES];
    size_t len = 0;
    dns_answer(r->p, dns_write_end(&r->w), &n, type, &a);
    assert_int_equal(a.finding, finding);
    for (unsigned i = 0; i < a.n; i++)
        len += (size_t)snprintf(text + len, sizeof text - len, "%s%.*s", i ? " " : "",
                                (int)ip_text(&a.ip[i], one), one);
    if (!str_eq((struct str){text, len}, str_of(want)))
        fail_msg("%.*s, not %s", (int)len, text, want);
    assert_int_equal(a.ttl, ttl);
}

static void addresses_come_in_the_order_of_the_reply(void **state)
{
    (void)state;
    struct reply r;
    begin(&r, "a.test", DNS_A, 0);
    address(&r, DNS_ANSWER, "a.test", "192.0.2.9", 30);
    address(&r, DNS_ANSWER, "A.TEST", "192.0.2.1", 20);
    address(&r, DNS_ANSWER, "a.test", "192.0.2.9", 1); /* twice */
    expect(&r, "a.test", DNS_A, DNS_FOUND, 20, "192.0.2.9 192.0.2.1");
}

static void only_the_type_that_was_asked_for_is_an_answer(void **state)
{
    (void)state;
    struct reply r;
    begin(&r, "a.test", DNS_AAAA, 0);
    address(&r, DNS_ANSWER, "a.test", "192.0.2.9", 30);
    address(&r, DNS_ANSWER, "a.test", "2001:db8::1", 40);
    expect(&r, "a.test", DNS_AAAA, DNS_FOUND, 40, "2001:db8::1");
}

static void aliases_are_followed_in_any_order(void **state)
{
    (void)state;
    struct reply r;
    begin(&r, "a.test", DNS_A, 0);
    address(&r, DNS_ANSWER, "c.test", "192.0.2.3", 300);
    alias(&r, "b.test", "c.test", 10);
    alias(&r, "a.test", "B.test", 100);
    expect(&r, "a.test", DNS_A, DNS_FOUND, 10, "192.0.2.3");
}

static void records_off_the_chain_are_no_answer(void **state)
{
    (void)state;
    struct reply r;
    begin(&r, "a.test", DNS_A, 0);
    address(&r, DNS_ANSWER, "evil.test", "192.0.2.66", 1);
    alias(&r, "a.test", "b.test", 100);
    address(&r, DNS_ANSWER, "a.test", "192.0.2.67", 1); /* beside an alias */
    address(&r, DNS_ANSWER, "b.test", "192.0.2.2", 50);
    address(&r, DNS_AUTHORITY, "b.test", "192.0.2.68", 1);
    address(&r, DNS_ADDITIONAL, "b.test", "192.0.2.69", 1);
    expect(&r, "a.test", DNS_A, DNS_FOUND, 50, "192.0.2.2");
}

static void eight_aliases_are_followed_and_no_more(void **state)
{
    (void)state;
    for (int steps = 1; steps <= 10; steps++) {
        struct reply r;
        char from[32], to[32];
        begin(&r, "n0.test", DNS_A, 0);
        for (int i = 0; i < steps; i++) {
            snprintf(from, sizeof from, "n%d.test", i);
            snprintf(to, sizeof to, "n%d.test", i + 1);
            alias(&r, from, to, 5);
        }
        address(&r, DNS_ANSWER, to, "192.0.2.1", 5);
        if (steps <= DNS_CHAIN_MAX)
            expect(&r, "n0.test", DNS_A, DNS_FOUND, 5, "192.0.2.1");
        else
            expect(&r, "n0.test", DNS_A, DNS_USELESS, 0, "");
    }
}

static void a_circle_of_aliases_is_useless(void **state)
{
    (void)state;
    struct reply r;
    begin(&r, "a.test", DNS_A, 0);
    alias(&r, "a.test", "b.test", 5);
    alias(&r, "b.test", "a.test", 5);
    expect(&r, "a.test", DNS_A, DNS_USELESS, 0, "");
    begin(&r, "a.test", DNS_A, 0);
    alias(&r, "a.test", "a.test", 5);
    expect(&r, "a.test", DNS_A, DNS_USELESS, 0, "");
}

static void at_most_sixteen_addresses_are_taken(void **state)
{
    (void)state;
    struct reply r;
    char text[32];
    struct dns_answer a;
    struct dns_name n = name_of("a.test");
    begin(&r, "a.test", DNS_A, 0);
    for (int i = 0; i < 40; i++) {
        snprintf(text, sizeof text, "192.0.2.%d", i);
        address(&r, DNS_ANSWER, "a.test", text, 5);
    }
    dns_answer(r.p, dns_write_end(&r.w), &n, DNS_A, &a);
    assert_int_equal(a.finding, DNS_FOUND);
    assert_int_equal(a.n, 16);
}

static void a_long_answer_is_looked_at_no_further_than_its_beginning(void **state)
{
    (void)state;
    static uint8_t p[DNS_MESSAGE_MAX];
    struct dns_name other = name_of("b.test"), name = name_of("a.test");
    for (int before = 255; before <= 256; before++) {
        struct dns_question q = {name, DNS_A, DNS_IN};
        struct dns_writer w;
        struct dns_answer a;
        struct ip ip;
        assert_true(ip_parse(STR("192.0.2.1"), &ip));
        dns_write(&w, p, sizeof p, 1, DNS_QR);
        dns_write_question(&w, &q);
        for (int i = 0; i < before; i++)
            dns_write_ip(&w, DNS_ANSWER, &other, 5, &ip);
        dns_write_ip(&w, DNS_ANSWER, &name, 5, &ip);
        dns_answer(p, dns_write_end(&w), &name, DNS_A, &a);
        assert_int_equal(a.n, before < 256);
    }
}

static void negative_answers_live_as_their_soa_says(void **state)
{
    (void)state;
    struct reply r;
    begin(&r, "a.test", DNS_AAAA, 0);
    soa(&r, "test", 300, 7);
    expect(&r, "a.test", DNS_AAAA, DNS_NODATA, 7, "");
    begin(&r, "a.test", DNS_A, DNS_NXDOMAIN);
    soa(&r, "test", 3, 700);
    expect(&r, "a.test", DNS_A, DNS_NO_NAME, 3, "");
    begin(&r, "a.test", DNS_A, DNS_NXDOMAIN);
    expect(&r, "a.test", DNS_A, DNS_NO_NAME, 0, "");
    begin(&r, "a.test", DNS_A, DNS_NXDOMAIN);
    struct dns_soa elsewhere = {.primary = {.n = 1}, .mailbox = {.n = 1}, .minimum = 9};
    dns_write_soa(&r.w, DNS_ANSWER, &elsewhere.primary, 9, &elsewhere);
    expect(&r, "a.test", DNS_A, DNS_NO_NAME, 0, "");
    begin(&r, "a.test", DNS_A, 0);
    alias(&r, "a.test", "b.test", 2);
    soa(&r, "test", 300, 300);
    expect(&r, "a.test", DNS_A, DNS_NODATA, 2, "");
}

static void no_name_beats_whatever_stands_in_the_answer(void **state)
{
    (void)state;
    struct reply r;
    begin(&r, "a.test", DNS_A, DNS_NXDOMAIN);
    address(&r, DNS_ANSWER, "a.test", "192.0.2.1", 5);
    soa(&r, "test", 9, 9);
    expect(&r, "a.test", DNS_A, DNS_NO_NAME, 9, "");
}

static void other_codes_and_faulty_messages_are_useless(void **state)
{
    (void)state;
    struct reply r;
    struct dns_answer a;
    struct dns_name n = name_of("a.test");
    begin(&r, "a.test", DNS_A, DNS_SERVFAIL);
    address(&r, DNS_ANSWER, "a.test", "192.0.2.1", 5);
    expect(&r, "a.test", DNS_A, DNS_USELESS, 0, "");
    begin(&r, "a.test", DNS_A, 0);
    address(&r, DNS_ANSWER, "a.test", "192.0.2.1", 5);
    size_t whole = dns_write_end(&r.w);
    for (size_t i = 0; i < whole; i++) {
        dns_answer(r.p, i, &n, DNS_A, &a);
        assert_int_equal(a.finding, DNS_USELESS);
        assert_int_equal(a.n, 0);
    }
    dns_answer(r.p, whole, &n, DNS_A, &a);
    assert_int_equal(a.finding, DNS_FOUND);
}

static void the_code_has_its_upper_bits_in_the_opt(void **state)
{
    (void)state;
    struct reply r;
    begin(&r, "a.test", DNS_A, 0);
    dns_write_edns(&r.w, &(struct dns_edns){.udp_size = 1232, .rcode_high = 1});
    size_t n = dns_write_end(&r.w);
    assert_int_equal(dns_reply_rcode(r.p, n), DNS_BADVERS);
    assert_int_equal(dns_reply_rcode(r.p, n - 1), -1);
    begin(&r, "a.test", DNS_A, DNS_REFUSED);
    assert_int_equal(dns_reply_rcode(r.p, dns_write_end(&r.w)), DNS_REFUSED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(addresses_come_in_the_order_of_the_reply),
        cmocka_unit_test(only_the_type_that_was_asked_for_is_an_answer),
        cmocka_unit_test(aliases_are_followed_in_any_order),
        cmocka_unit_test(records_off_the_chain_are_no_answer),
        cmocka_unit_test(eight_aliases_are_followed_and_no_more),
        cmocka_unit_test(a_circle_of_aliases_is_useless),
        cmocka_unit_test(at_most_sixteen_addresses_are_taken),
        cmocka_unit_test(a_long_answer_is_looked_at_no_further_than_its_beginning),
        cmocka_unit_test(negative_answers_live_as_their_soa_says),
        cmocka_unit_test(no_name_beats_whatever_stands_in_the_answer),
        cmocka_unit_test(other_codes_and_faulty_messages_are_useless),
        cmocka_unit_test(the_code_has_its_upper_bits_in_the_opt),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
