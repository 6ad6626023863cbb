/* dns_message_test.c — DNS messages written and read back, and messages that lie. */
#include "dns/message.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

#define MSG(literal) ((const uint8_t *)(literal)), (sizeof(literal) - 1)
/* id 0x1234, an answer; then the four counts. */
#define HEAD(qd, an, ns, ar) "\x12\x34\x81\x80\0" qd "\0" an "\0" ns "\0" ar

static struct dns_name name_of(const char *text)
{
    struct dns_name name;
    if (!dns_name_parse(str_of(text), &name))
        fail_msg("refused: %s", text);
    return name;
}

static void expect_name(const struct dns_name *name, const char *want)
{
    char text[DNS_NAME_TEXT_BYTES];
    size_t n = dns_name_text(name, text);
    if (!str_eq((struct str){text, n}, str_of(want)))
        fail_msg("%.*s, not %s", (int)n, text, want);
}

static struct ip ip_of(const char *text)
{
    struct ip ip;
    assert_true(ip_parse(str_of(text), &ip));
    return ip;
}

/* ---- names ---- */

static void names_are_read_and_written(void **state)
{
    static const char *const rows[][2] = {
        {"example.com", "example.com"},
        {"example.com.", "example.com"},
        {"WWW.Example.COM", "WWW.Example.COM"},
        {"a", "a"},
        {".", "."},
        {"_tcp.x-1.test", "_tcp.x-1.test"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct dns_name name = name_of(rows[i][0]);
        expect_name(&name, rows[i][1]);
    }
}

static void names_of_the_greatest_length_pass_and_longer_ones_do_not(void **state)
{
    (void)state;
    char text[400];
    struct dns_name name;
    memset(text, 'a', sizeof text);
    assert_true(dns_name_parse((struct str){text, 63}, &name));
    assert_false(dns_name_parse((struct str){text, 64}, &name));
    text[63] = text[127] = text[191] = '.';
    assert_true(dns_name_parse((struct str){text, 253},
                               &name)); /* 4 lengths and the root: 255 on the wire */
    assert_int_equal(name.n, 255);
    assert_false(dns_name_parse((struct str){text, 254}, &name));
    text[253] = '.';
    assert_true(dns_name_parse((struct str){text, 254}, &name));
}

static void texts_that_are_no_names_are_refused(void **state)
{
    static const char *const rows[] = {"",    "..",   ".a",   "a..b",  "a..",
                                       "a b", "a\tb", "a\\b", "a\x80", "\x7f"};
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct dns_name name;
        if (dns_name_parse(str_of(rows[i]), &name))
            fail_msg("accepted: %s", rows[i]);
    }
    assert_false(dns_name_parse((struct str){"a\0b", 3}, &(struct dns_name){0}));
}

static void case_counts_for_spelling_but_not_for_equality(void **state)
{
    (void)state;
    struct dns_name a = name_of("Example.Com"), b = name_of("eXAMPLE.cOM"),
                    c = name_of("examplf.com");
    struct dns_name d = name_of("example.com.x");
    assert_true(dns_name_eq(&a, &b));
    assert_false(dns_name_same(&a, &b));
    assert_true(dns_name_same(&a, &a));
    assert_false(dns_name_eq(&a, &c));
    assert_false(dns_name_eq(&a, &d));
    dns_name_lower(&a);
    expect_name(&a, "example.com");
}

static void label_bounds_count_for_equality(void **state)
{
    (void)state;
    struct dns_name a = name_of("ab.c"), b = name_of("a.bc");
    assert_false(dns_name_eq(&a, &b));
}

static void odd_bytes_in_labels_are_escaped_as_text(void **state)
{
    (void)state;
    struct dns_name name = {8, "\6a.b\\\0\xff"};
    expect_name(&name, "a\\046b\\092\\000\\255");
    struct dns_name full = {.n = 255};
    for (size_t at = 0; at < 254; at += 64)
        full.b[at] = at < 192 ? 63 : 61;
    char text[DNS_NAME_TEXT_BYTES];
    assert_int_equal(dns_name_text(&full, text), 250 * 4 + 3);
}

/* ---- round trips ---- */

static size_t write_reply(uint8_t *p, size_t room)
{
    struct dns_writer w;
    struct dns_question q = {name_of("WWW.example.com"), DNS_A, DNS_IN};
    struct dns_name www = name_of("www.example.com"), web = name_of("web.example.com"),
                    zone = name_of("example.com");
    struct ip four = ip_of("192.0.2.7"), six = ip_of("2001:db8::7");
    struct dns_soa soa = {name_of("ns.example.com"), name_of("root.example.com"), 1, 2, 3, 4, 5};
    struct dns_edns edns = {.udp_size = 1232, .rcode_high = 0xab, .version = 1, .dnssec_ok = true};
    edns.options = (struct str){"\0\x0f\0\3\0\x11X\0\3\0\0", 11};
    dns_write(&w, p, room, 0x1234, DNS_QR | DNS_RD | DNS_RA);
    dns_write_question(&w, &q);
    dns_write_edns(&w, &edns);
    dns_write_target(&w, DNS_ANSWER, &www, DNS_CNAME, 60, &web);
    dns_write_ip(&w, DNS_ANSWER, &web, 30, &four);
    dns_write_ip(&w, DNS_ANSWER, &web, 31, &six);
    dns_write_soa(&w, DNS_AUTHORITY, &zone, 300, &soa);
    dns_write_record(&w, DNS_ADDITIONAL, &www, 16, DNS_IN, 7, STR("\3txt"));
    return dns_write_end(&w);
}

static void expect_record(struct dns_reader *r, struct dns_record *ret, enum dns_section section,
                          uint16_t type, uint32_t ttl, const char *owner)
{
    assert_true(dns_next_record(r, ret));
    assert_int_equal(ret->section, section);
    assert_int_equal(ret->type, type);
    assert_int_equal(ret->ttl, ttl);
    expect_name(&ret->name, owner);
}

static void expect_ip(const struct dns_record *rec, const char *want)
{
    struct ip ip, other = ip_of(want);
    assert_true(dns_record_ip(rec, &ip));
    assert_true(ip_eq(&ip, &other));
}

static void a_message_that_was_written_reads_the_same(void **state)
{
    (void)state;
    uint8_t p[DNS_WRITE_MIN];
    struct dns_reader r;
    struct dns_question q;
    struct dns_record rec;
    struct dns_name name;
    struct dns_soa soa;
    struct dns_edns edns;
    size_t n = write_reply(p, sizeof p);
    assert_true(dns_read(&r, p, n));
    assert_int_equal(r.id, 0x1234);
    assert_int_equal(r.flags, DNS_QR | DNS_RD | DNS_RA);
    assert_true(dns_next_question(&r, &q));
    expect_name(&q.name, "WWW.example.com");
    assert_int_equal(q.type, DNS_A);
    assert_int_equal(q.class, DNS_IN);
    assert_false(dns_next_question(&r, &q));
    /* an owner that is the question points to it, so it is spelt as the question */
    expect_record(&r, &rec, DNS_ANSWER, DNS_CNAME, 60, "WWW.example.com");
    assert_true(dns_record_target(&r, &rec, &name));
    expect_name(&name, "web.example.com");
    expect_record(&r, &rec, DNS_ANSWER, DNS_A, 30, "web.example.com");
    expect_ip(&rec, "192.0.2.7");
    expect_record(&r, &rec, DNS_ANSWER, DNS_AAAA, 31, "web.example.com");
    expect_ip(&rec, "2001:db8::7");
    assert_false(dns_read_whole(&r));
    expect_record(&r, &rec, DNS_AUTHORITY, DNS_SOA, 300, "example.com");
    assert_true(dns_record_soa(&r, &rec, &soa));
    expect_name(&soa.primary, "ns.example.com");
    expect_name(&soa.mailbox, "root.example.com");
    assert_int_equal(soa.serial, 1);
    assert_int_equal(soa.refresh, 2);
    assert_int_equal(soa.retry, 3);
    assert_int_equal(soa.expire, 4);
    assert_int_equal(soa.minimum, 5);
    expect_record(&r, &rec, DNS_ADDITIONAL, 16, 7, "WWW.example.com");
    assert_true(str_eq(rec.data, STR("\3txt")));
    assert_true(dns_next_record(&r, &rec));
    assert_true(dns_record_edns(&rec, &edns));
    assert_int_equal(edns.udp_size, 1232);
    assert_int_equal(edns.rcode_high, 0xab);
    assert_int_equal(edns.version, 1);
    assert_true(edns.dnssec_ok);
    assert_false(dns_next_record(&r, &rec));
    assert_true(dns_read_whole(&r));
    assert_int_equal(r.at, n);
    uint16_t code;
    struct str data;
    assert_true(dns_next_option(&edns.options, &code, &data));
    assert_int_equal(code, 15);
    assert_true(str_eq(data, STR("\0\x11X")));
    assert_true(dns_next_option(&edns.options, &code, &data));
    assert_int_equal(code, 3);
    assert_int_equal(data.n, 0);
    assert_false(dns_next_option(&edns.options, &code, &data));
    assert_int_equal(edns.options.n, 0);
}

static void a_query_has_exactly_these_bytes(void **state)
{
    (void)state;
    static const char want[] = "\x12\x34\x01\0\0\1\0\0\0\0\0\1"
                               "\1a\4test\0\0\x1c\0\1"
                               "\0\0\x29\4\xd0\0\0\0\0\0\0";
    uint8_t p[DNS_WRITE_MIN];
    struct dns_writer w;
    struct dns_question q = {name_of("a.test"), DNS_AAAA, DNS_IN};
    dns_write(&w, p, sizeof p, 0x1234, DNS_RD);
    dns_write_question(&w, &q);
    dns_write_edns(&w, &(struct dns_edns){.udp_size = 1232});
    assert_int_equal(dns_write_end(&w), sizeof want - 1);
    assert_memory_equal(p, want, sizeof want - 1);
}

static void names_are_compressed(void **state)
{
    (void)state;
    uint8_t p[DNS_WRITE_MIN];
    struct dns_writer w;
    struct dns_question q = {name_of("www.example.com"), DNS_A, DNS_IN};
    struct ip ip = ip_of("192.0.2.1");
    dns_write(&w, p, sizeof p, 1, DNS_QR);
    dns_write_question(&w, &q);
    size_t before = w.n;
    dns_write_ip(&w, DNS_ANSWER, &q.name, 1, &ip);
    assert_int_equal(w.n - before, 2 + 10 + 4);
    assert_memory_equal(p + before, "\xc0\x0c", 2);
    struct dns_name other = name_of("mail.EXAMPLE.com");
    before = w.n;
    dns_write_ip(&w, DNS_ANSWER, &other, 1, &ip);
    assert_int_equal(w.n - before, 5 + 2 + 10 + 4);
    assert_memory_equal(p + before, "\4mail\xc0\x10", 7);
    struct dns_name root = name_of(".");
    before = w.n;
    dns_write_ip(&w, DNS_ANSWER, &root, 1, &ip);
    assert_int_equal(w.n - before, 1 + 10 + 4);
}

static void a_full_message_is_cut_at_a_record_and_says_so(void **state)
{
    (void)state;
    static uint8_t p[DNS_MESSAGE_MAX];
    for (size_t room = DNS_WRITE_MIN; room < DNS_WRITE_MIN + 40; room++) {
        struct dns_writer w;
        struct dns_reader r;
        struct dns_record rec;
        struct dns_edns edns;
        struct dns_question q = {name_of("www.example.com"), DNS_A, DNS_IN};
        struct ip ip = ip_of("192.0.2.1");
        dns_write(&w, p, room, 1, DNS_QR);
        dns_write_question(&w, &q);
        dns_write_edns(&w, &(struct dns_edns){.udp_size = 1232});
        for (int i = 0; i < 100; i++)
            dns_write_ip(&w, DNS_ANSWER, &q.name, 1, &ip);
        dns_write_ip(&w, DNS_AUTHORITY, &q.name, 1, &ip);
        assert_true(w.cut);
        size_t n = dns_write_end(&w), count = 0;
        assert_true(n <= room && n > room - 16);
        assert_true(dns_read(&r, p, n));
        assert_true(r.flags & DNS_TC);
        while (dns_next_record(&r, &rec) && rec.section == DNS_ANSWER)
            count++;
        assert_int_equal(count, (room - 12 - 21 - 11) / 16);
        assert_true(dns_record_edns(&rec, &edns));
        assert_int_equal(r.count[DNS_AUTHORITY], 0);
        assert_true(dns_read_whole(&r));
    }
}

static void a_message_that_fits_is_not_marked_cut(void **state)
{
    (void)state;
    uint8_t p[DNS_WRITE_MIN];
    struct dns_reader r;
    assert_true(dns_read(&r, p, write_reply(p, sizeof p)));
    assert_false(r.flags & DNS_TC);
}

static void large_messages_point_to_no_name_out_of_reach(void **state)
{
    (void)state;
    static uint8_t p[DNS_MESSAGE_MAX];
    struct dns_writer w;
    struct dns_reader r;
    struct dns_record rec;
    static char filler[17000];
    char text[32];
    unsigned written = 0, seen = 0;
    struct dns_name root = name_of(".");
    dns_write(&w, p, sizeof p, 1, DNS_QR);
    dns_write_record(&w, DNS_ANSWER, &root, 16, DNS_IN, 1, (struct str){filler, sizeof filler});
    for (; !w.cut; written++) {
        snprintf(text, sizeof text, "n%u.z%u.test", written, written % 7);
        struct dns_name name = name_of(text);
        dns_write_record(&w, DNS_ANSWER, &name, 16, DNS_IN, 1, STR("\x18 some text to fill space"));
    }
    assert_true(dns_read(&r, p, dns_write_end(&w)));
    assert_true(dns_next_record(&r, &rec));
    for (; dns_next_record(&r, &rec); seen++) {
        snprintf(text, sizeof text, "n%u.z%u.test", seen, seen % 7);
        expect_name(&rec.name, text);
    }
    assert_true(dns_read_whole(&r));
    assert_int_equal(seen, written - 1);
}

/* ---- messages that lie ---- */

/* Walks all there is, every accessor included; true: the whole message was in order. */
static bool walk(const uint8_t *p, size_t n)
{
    struct dns_reader r;
    struct dns_question q;
    struct dns_record rec;
    struct dns_name name;
    struct dns_soa soa;
    struct dns_edns edns;
    struct ip ip;
    if (!dns_read(&r, p, n))
        return false;
    while (dns_next_question(&r, &q))
        assert_true(q.name.n > 0 && q.name.b[q.name.n - 1] == 0);
    while (dns_next_record(&r, &rec)) {
        assert_true(rec.at + rec.data.n <= n);
        dns_record_ip(&rec, &ip);
        dns_record_target(&r, &rec, &name);
        dns_record_soa(&r, &rec, &soa);
        uint16_t code;
        struct str data;
        if (dns_record_edns(&rec, &edns))
            while (dns_next_option(&edns.options, &code, &data))
                continue;
    }
    return dns_read_whole(&r);
}

/* In a block of its own, so that a read past the end is seen. */
static bool walk_exact(const uint8_t *p, size_t n)
{
    uint8_t *copy = malloc(n ? n : 1);
    memcpy(copy, p, n);
    bool whole = walk(copy, n);
    free(copy);
    return whole;
}

static void a_message_cut_at_any_byte_is_faulty(void **state)
{
    (void)state;
    uint8_t p[DNS_WRITE_MIN];
    size_t n = write_reply(p, sizeof p);
    assert_true(walk_exact(p, n));
    for (size_t i = 0; i < n; i++)
        if (walk_exact(p, i))
            fail_msg("whole with %zu of %zu bytes", i, n);
}

static void a_message_with_any_byte_changed_is_read_within_its_bounds(void **state)
{
    (void)state;
    uint8_t p[DNS_WRITE_MIN];
    size_t n = write_reply(p, sizeof p);
    for (size_t i = 0; i < n; i++) {
        uint8_t old = p[i];
        for (int v = 0; v < 256; v++) {
            p[i] = (uint8_t)v;
            walk_exact(p, n);
        }
        p[i] = old;
    }
}

static void headers_alone_are_bounded(void **state)
{
    (void)state;
    static uint8_t p[DNS_MESSAGE_MAX + 1];
    struct dns_reader r;
    assert_false(dns_read(&r, p, 0));
    assert_false(dns_read(&r, p, 11));
    assert_true(dns_read(&r, p, 12));
    assert_true(dns_read(&r, p, DNS_MESSAGE_MAX));
    assert_false(dns_read(&r, p, DNS_MESSAGE_MAX + 1));
}

static void names_that_do_not_end_are_faulty(void **state)
{
    static const struct {
        const char *what;
        const char *p;
        size_t n;
    } rows[] = {
#define ROW(what, bytes)                                  \
    {what, HEAD("\1", "\0", "\0", "\0") bytes "\0\1\0\1", \
     sizeof(HEAD("\1", "\0", "\0", "\0") bytes "\0\1\0\1") - 1}
        ROW("a pointer to itself", "\xc0\x0c"),
        ROW("a pointer forward", "\xc0\x0e\0"),
        ROW("a pointer past the end", "\xff\xff"),
        ROW("a pointer into the header", "\xc0\x02"),
        ROW("a pointer to the last byte of the header", "\xc0\x0b"),
        ROW("a pointer to the label before it, which leads back to the pointer", "\1a\xc0\x0c"),
        ROW("a pointer into the label before it", "\1\0\xc0\x0d"),
        ROW("a label of a reserved kind, 0x40", "\x41"
                                                "a\0"),
        ROW("a label of a reserved kind, 0x80", "\x81"
                                                "a\0"),
        ROW("a label that runs over the end", "\x3f"
                                              "abc"),
#undef ROW
        {"half a pointer", HEAD("\1", "\0", "\0", "\0") "\xc0", 13},
        {"no name at all", HEAD("\1", "\0", "\0", "\0"), 12},
        {"no end", HEAD("\1", "\0", "\0", "\0") "\1a", 14},
        {"no class", HEAD("\1", "\0", "\0", "\0") "\1a\0\0\1\0", 18},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (walk_exact((const uint8_t *)rows[i].p, rows[i].n))
            fail_msg("whole with %s", rows[i].what);
}

static void labels_of_reserved_kinds_are_faulty(void **state)
{
    (void)state;
    uint8_t p[300];
    for (unsigned label = 0; label < 0xc0; label++) {
        memset(p, 'a', sizeof p);
        memcpy(p, HEAD("\1", "\0", "\0", "\0"), 12);
        p[12] = (uint8_t)label;
        p[13 + label] = 0;
        assert_int_equal(walk_exact(p, label ? 13 + label + 5 : 17), label <= 63);
    }
}

static void a_pointer_back_to_one_that_leads_forward_again_is_faulty(void **state)
{
    (void)state;
    /* the first record's data: a pointer to behind it, then the root it means; the second's owner
     * points to that pointer */
    assert_false(walk_exact(MSG(HEAD("\0", "\2", "\0", "\0") "\0\0\x10\0\1\0\0\0\0\0\3\xc0\x19\0"
                                                             "\xc0\x17\0\x10\0\1\0\0\0\0\0\0")));
    assert_true(walk_exact(MSG(HEAD("\0", "\2", "\0", "\0") "\0\0\x10\0\1\0\0\0\0\0\3\xc0\x19\0"
                                                            "\xc0\x19\0\x10\0\1\0\0\0\0\0\0")));
}

static void two_names_that_point_at_each_other_are_faulty(void **state)
{
    (void)state;
    /* question 1 at 12 → question 2 at 18 → question 1 */
    assert_false(walk_exact(MSG(HEAD("\2", "\0", "\0", "\0") "\xc0\x12\0\1\0\1"
                                                             "\xc0\x0c\0\1\0\1")));
}

static void a_name_that_unfolds_to_256_bytes_is_faulty(void **state)
{
    (void)state;
    /* 12: root; then labels of 63, each pointing to the one before: 1, 65, 129, 193, 257 bytes */
    uint8_t p[1024];
    size_t n = 12, last = 12;
    memcpy(p, HEAD("\5", "\0", "\0", "\0"), 12);
    memcpy(p + n, "\0\0\1\0\1", 5);
    n += 5;
    for (int i = 0; i < 4; i++) {
        size_t here = n;
        p[n++] = i < 3 ? 63 : 61; /* the last one makes 255 */
        memset(p + n, 'a', p[here]);
        n += p[here];
        p[n++] = (uint8_t)(0xc0 | last >> 8);
        p[n++] = (uint8_t)last;
        memcpy(p + n, "\0\1\0\1", 4);
        n += 4;
        last = here;
    }
    assert_true(walk_exact(p, n));
    size_t at = last;
    memmove(p + at + 1, p + at, n - at);
    p[at] = 62; /* and one byte more 256 */
    p[at + 1] = 'a';
    assert_false(walk_exact(p, n + 1));
}

static void pointers_to_pointers_are_counted(void **state)
{
    (void)state;
    static uint8_t p[2048];
    memcpy(p, HEAD("\1", "\0", "\0", "\0"), 12);
    for (unsigned chain = 1; chain <= 300; chain++) {
        /* the data of one record holds root and the chain; a second record's owner is its end */
        size_t n = 12;
        p[5] = 0, p[7] = 2;
        memcpy(p + n, "\0\0\x10\0\1\0\0\0\0", 9);
        size_t len = 1 + 2 * (chain - 1);
        p[n + 9] = (uint8_t)(len >> 8), p[n + 10] = (uint8_t)len;
        n += 11;
        size_t last = n;
        p[n++] = 0;
        for (unsigned i = 1; i < chain; i++) {
            p[n] = (uint8_t)(0xc0 | last >> 8), p[n + 1] = (uint8_t)last;
            last = n;
            n += 2;
        }
        p[n] = (uint8_t)(0xc0 | last >> 8), p[n + 1] = (uint8_t)last;
        memcpy(p + n + 2, "\0\x10\0\1\0\0\0\0\0\0", 10);
        n += 12;
        assert_int_equal(walk_exact(p, n), chain <= 64);
    }
}

static void counts_that_promise_more_than_there_is_are_faulty(void **state)
{
    (void)state;
    uint8_t p[DNS_WRITE_MIN];
    size_t n = write_reply(p, sizeof p);
    for (int i = 0; i < 4; i++) {
        uint8_t old = p[5 + 2 * i];
        p[5 + 2 * i] = (uint8_t)(old + 1);
        assert_false(walk_exact(p, n));
        p[5 + 2 * i] = 255;
        p[4 + 2 * i] = 255;
        assert_false(walk_exact(p, n));
        p[4 + 2 * i] = 0;
        p[5 + 2 * i] = old;
    }
    assert_false(walk_exact(MSG(HEAD("\0", "\0", "\0", "\1"))));
    assert_true(walk_exact(MSG(HEAD("\0", "\0", "\0", "\0"))));
}

static void after_a_fault_nothing_more_is_read(void **state)
{
    (void)state;
    struct dns_reader r;
    struct dns_question q;
    struct dns_record rec;
    assert_true(
        dns_read(&r, MSG(HEAD("\1", "\1", "\0", "\0") "\xc0\x0c\0\1\0\1\0\0\1\0\1\0\0\0\0\0\0")));
    assert_false(dns_next_question(&r, &q));
    assert_false(dns_next_record(&r, &rec));
    assert_false(dns_next_question(&r, &q));
    assert_false(dns_read_whole(&r));
}

static void data_longer_than_the_message_is_faulty(void **state)
{
    (void)state;
    assert_false(walk_exact(MSG(HEAD("\0", "\1", "\0", "\0") "\0\0\1\0\1\0\0\0\1\0\4\1\2\3")));
    assert_true(walk_exact(MSG(HEAD("\0", "\1", "\0", "\0") "\0\0\1\0\1\0\0\0\1\0\4\1\2\3\4")));
}

static bool first_record(struct dns_reader *r, struct dns_record *ret, const uint8_t *p, size_t n)
{
    return dns_read(r, p, n) && dns_next_record(r, ret);
}

static void addresses_must_have_their_length_and_class(void **state)
{
    (void)state;
    struct dns_reader r;
    struct dns_record rec;
    struct ip ip;
#define REC(bytes) assert_true(first_record(&r, &rec, MSG(HEAD("\0", "\1", "\0", "\0") "\0" bytes)))
    REC("\0\1\0\1\0\0\0\1\0\4\1\2\3\4");
    assert_true(dns_record_ip(&rec, &ip));
    REC("\0\1\0\1\0\0\0\1\0\3\1\2\3");
    assert_false(dns_record_ip(&rec, &ip));
    REC("\0\1\0\1\0\0\0\1\0\5\1\2\3\4\5");
    assert_false(dns_record_ip(&rec, &ip));
    REC("\0\1\0\3\0\0\0\1\0\4\1\2\3\4"); /* CHAOS */
    assert_false(dns_record_ip(&rec, &ip));
    REC("\0\x1c\0\1\0\0\0\1\0\4\1\2\3\4"); /* AAAA */
    assert_false(dns_record_ip(&rec, &ip));
    REC("\0\x10\0\1\0\0\0\1\0\4\1\2\3\4"); /* TXT */
    assert_false(dns_record_ip(&rec, &ip));
}

static void a_target_must_fill_its_data_and_stay_within(void **state)
{
    (void)state;
    struct dns_reader r;
    struct dns_record rec;
    struct dns_name name;
    REC("\0\5\0\1\0\0\0\1\0\3\1a\0");
    assert_true(dns_record_target(&r, &rec, &name));
    expect_name(&name, "a");
    REC("\0\5\0\1\0\0\0\1\0\4\1a\0x");
    assert_false(dns_record_target(&r, &rec, &name));
    REC("\0\5\0\1\0\0\0\1\0\2\1a\0"); /* its end lies behind the data */
    assert_false(dns_record_target(&r, &rec, &name));
    REC("\0\5\0\1\0\0\0\1\0\0");
    assert_false(dns_record_target(&r, &rec, &name));
    REC("\0\5\0\1\0\0\0\1\0\2\xc0\x17"); /* points to itself */
    assert_false(dns_record_target(&r, &rec, &name));
    REC("\0\x10\0\1\0\0\0\1\0\3\1a\0");
    assert_false(dns_record_target(&r, &rec, &name));
}

static void a_soa_must_be_complete(void **state)
{
    (void)state;
    struct dns_reader r;
    struct dns_record rec;
    struct dns_soa soa;
    REC("\0\6\0\1\0\0\0\1\0\x16\0\0\0\0\0\1\0\0\0\2\0\0\0\3\0\0\0\4\0\0\0\5");
    assert_true(dns_record_soa(&r, &rec, &soa));
    assert_int_equal(soa.minimum, 5);
    REC("\0\6\0\1\0\0\0\1\0\x15\0\0\0\0\0\1\0\0\0\2\0\0\0\3\0\0\0\4\0\0\0");
    assert_false(dns_record_soa(&r, &rec, &soa));
    REC("\0\6\0\1\0\0\0\1\0\x17\0\0\0\0\0\1\0\0\0\2\0\0\0\3\0\0\0\4\0\0\0\5\0");
    assert_false(dns_record_soa(&r, &rec, &soa));
    REC("\0\6\0\1\0\0\0\1\0\1\0");
    assert_false(dns_record_soa(&r, &rec, &soa));
}

static void a_ttl_with_the_top_bit_is_none(void **state)
{
    (void)state;
    struct dns_reader r;
    struct dns_record rec;
    REC("\0\1\0\1\x80\0\0\1\0\4\1\2\3\4");
    assert_int_equal(rec.ttl, 0);
    REC("\0\1\0\1\x7f\xff\xff\xff\0\4\1\2\3\4");
    assert_int_equal(rec.ttl, 0x7fffffff);
#undef REC
}

static void an_opt_counts_only_in_its_place(void **state)
{
    (void)state;
    struct dns_reader r;
    struct dns_record rec;
    struct dns_edns edns;
    assert_true(
        first_record(&r, &rec, MSG(HEAD("\0", "\0", "\0", "\1") "\0\0\x29\4\xd0\x81\0\0\0\0\0")));
    assert_true(dns_record_edns(&rec, &edns));
    assert_int_equal(edns.udp_size, 1232);
    assert_int_equal(edns.rcode_high, 0x81);
    assert_true(
        first_record(&r, &rec, MSG(HEAD("\0", "\1", "\0", "\0") "\0\0\x29\4\xd0\0\0\0\0\0\0")));
    assert_false(dns_record_edns(&rec, &edns));
    assert_true(
        first_record(&r, &rec, MSG(HEAD("\0", "\0", "\0", "\1") "\1a\0\0\x29\4\xd0\0\0\0\0\0\0")));
    assert_false(dns_record_edns(&rec, &edns));
}

static void options_that_run_over_are_left(void **state)
{
    (void)state;
    static const struct str rows[] = {
        {"\0", 1}, {"\0\1\0", 3}, {"\0\1\0\1", 4}, {"\0\1\0\3ab", 6}, {"\0\1\xff\xff", 4}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct str rest = rows[i], data;
        uint16_t code;
        assert_false(dns_next_option(&rest, &code, &data));
        assert_int_equal(rest.n, rows[i].n);
    }
}

static void questions_and_records_can_be_skipped(void **state)
{
    (void)state;
    struct dns_reader r;
    struct dns_record rec;
    assert_true(dns_read(
        &r,
        MSG(HEAD("\2", "\0", "\0", "\1") "\1a\0\0\1\0\1\1b\0\0\1\0\1\1c\0\0\1\0\1\0\0\0\1\0\0")));
    assert_true(dns_next_record(&r, &rec));
    expect_name(&rec.name, "c");
    assert_int_equal(rec.section, DNS_ADDITIONAL);
    assert_true(dns_read_whole(&r));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_are_read_and_written),
        cmocka_unit_test(names_of_the_greatest_length_pass_and_longer_ones_do_not),
        cmocka_unit_test(texts_that_are_no_names_are_refused),
        cmocka_unit_test(case_counts_for_spelling_but_not_for_equality),
        cmocka_unit_test(label_bounds_count_for_equality),
        cmocka_unit_test(odd_bytes_in_labels_are_escaped_as_text),
        cmocka_unit_test(a_message_that_was_written_reads_the_same),
        cmocka_unit_test(a_query_has_exactly_these_bytes),
        cmocka_unit_test(names_are_compressed),
        cmocka_unit_test(a_full_message_is_cut_at_a_record_and_says_so),
        cmocka_unit_test(a_message_that_fits_is_not_marked_cut),
        cmocka_unit_test(large_messages_point_to_no_name_out_of_reach),
        cmocka_unit_test(a_message_cut_at_any_byte_is_faulty),
        cmocka_unit_test(a_message_with_any_byte_changed_is_read_within_its_bounds),
        cmocka_unit_test(headers_alone_are_bounded),
        cmocka_unit_test(names_that_do_not_end_are_faulty),
        cmocka_unit_test(labels_of_reserved_kinds_are_faulty),
        cmocka_unit_test(a_pointer_back_to_one_that_leads_forward_again_is_faulty),
        cmocka_unit_test(two_names_that_point_at_each_other_are_faulty),
        cmocka_unit_test(a_name_that_unfolds_to_256_bytes_is_faulty),
        cmocka_unit_test(pointers_to_pointers_are_counted),
        cmocka_unit_test(counts_that_promise_more_than_there_is_are_faulty),
        cmocka_unit_test(after_a_fault_nothing_more_is_read),
        cmocka_unit_test(data_longer_than_the_message_is_faulty),
        cmocka_unit_test(addresses_must_have_their_length_and_class),
        cmocka_unit_test(a_target_must_fill_its_data_and_stay_within),
        cmocka_unit_test(a_soa_must_be_complete),
        cmocka_unit_test(a_ttl_with_the_top_bit_is_none),
        cmocka_unit_test(an_opt_counts_only_in_its_place),
        cmocka_unit_test(options_that_run_over_are_left),
        cmocka_unit_test(questions_and_records_can_be_skipped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
