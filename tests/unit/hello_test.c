/* hello_test.c — ClientHellos, whole and in pieces, well-formed and not.  They are put together
 * here from the extensions that each test is about; recorded ones of real clients lie in the corpus
 * of the fuzz target. */
#include "egress/relay/hello.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <cmocka.h>

enum { ROOM = 80000 };

struct bytes {
    uint8_t p[ROOM];
    size_t n;
};

static void put(struct bytes *b, const void *p, size_t n)
{
    assert_true(n <= ROOM - b->n);
    if (n)
        memcpy(b->p + b->n, p, n);
    b->n += n;
}

static void put_number(struct bytes *b, size_t v, unsigned bytes)
{
    while (bytes-- > 0) {
        uint8_t byte = (uint8_t)(v >> 8 * bytes);
        put(b, &byte, 1);
    }
}

/* What stands before the extensions, of a usual hello. */
static const struct str usual = {"\x03\x03"
                                 "0123456789abcdef0123456789abcdef"
                                 "\x04sess"
                                 "\x00\x04\x13\x01\x0a\x0a"
                                 "\x01\x00",
                                 2 + 32 + 5 + 6 + 2};

#define SNI_OK "\0\0\0\x0c\0\x0a\0\0\x07ok.test"
#define ALPN_BOTH "\0\x10\0\x0e\0\x0c\x02h2\x08http/1.1"
#define VERSIONS "\0\x2b\0\x07\x06\x2a\x2a\x03\x04\x03\x03"
#define ECH "\xfe\x0d\0\x04\0\0\x01\0"
#define GREASE "\x0a\x0a\0\0\x1a\x1a\0\x01\0"

/* A whole message: type, length, `front`, extensions with their length. */
static void put_message(struct bytes *b, struct str front, struct str extensions)
{
    put_number(b, 1, 1);
    put_number(b, front.n + 2 + extensions.n, 3);
    put(b, front.p, front.n);
    put_number(b, extensions.n, 2);
    put(b, extensions.p, extensions.n);
}

/* The message in records of at most `most` bytes. */
static void put_records(struct bytes *b, const struct bytes *message, size_t most)
{
    for (size_t at = 0; at < message->n;) {
        size_t n = message->n - at < most ? message->n - at : most;
        put_number(b, 0x160301, 3);
        put_number(b, n, 2);
        put(b, message->p + at, n);
        at += n;
    }
}

static struct bytes *stream_of(struct str front, struct str extensions, size_t most)
{
    struct bytes *message = mem_new(sizeof *message), *stream = mem_new(sizeof *stream);
    put_message(message, front, extensions);
    put_records(stream, message, most);
    mem_free(message);
    return stream;
}

/* Fed in pieces of `most` bytes, each in memory of its own. */
static enum hello_step feed(struct hello_reader *r, const uint8_t *p, size_t n, size_t most)
{
    enum hello_step step = HELLO_MORE;
    for (size_t at = 0; at < n; at += most) {
        size_t some = n - at < most ? n - at : most;
        uint8_t *piece = mem_new(some);
        memcpy(piece, p + at, some);
        step = hello_feed(r, piece, some);
        mem_free(piece);
    }
    return step;
}

static void same_text(struct str got, const char *expected)
{
    if (!expected)
        assert_null(got.p);
    else if (!str_eq(got, str_of(expected)))
        fail_msg("\"%.*s\", expected \"%s\"", STR_ARG(got), expected);
}

static void name_protocols_versions_and_ech_are_read(void **state)
{
    (void)state;
    struct bytes *s = stream_of(usual, STR(GREASE SNI_OK ALPN_BOTH VERSIONS ECH), 16384);
    struct hello_reader r;
    hello_init(&r);
    assert_int_equal(feed(&r, s->p, s->n, s->n), HELLO_DONE);
    same_text(r.hello.name, "ok.test");
    same_text(r.hello.protocols, "\x02h2\x08http/1.1");
    assert_true(hello_offers_protocol(&r.hello, STR("h2")));
    assert_true(hello_offers_protocol(&r.hello, STR("http/1.1")));
    assert_false(hello_offers_protocol(&r.hello, STR("http/1.")));
    assert_true(hello_offers_version(&r.hello, HELLO_TLS13));
    assert_true(hello_offers_version(&r.hello, HELLO_TLS12));
    assert_false(hello_offers_version(&r.hello, 0x0302));
    assert_true(r.hello.ech);
    hello_done(&r);
    mem_free(s);
}

static void what_is_not_there_is_none(void **state)
{
    struct bytes *message = mem_new(sizeof *message), *s = mem_new(sizeof *s);
    (void)state;
    put_number(message, 1, 1); /* an old client: no extensions at all */
    put_number(message, usual.n, 3);
    put(message, usual.p, usual.n);
    put_records(s, message, 16384);
    struct hello_reader r;
    hello_init(&r);
    assert_int_equal(feed(&r, s->p, s->n, s->n), HELLO_DONE);
    same_text(r.hello.name, NULL);
    same_text(r.hello.protocols, NULL);
    assert_false(r.hello.ech);
    assert_true(hello_offers_version(&r.hello, HELLO_TLS12));
    assert_false(hello_offers_version(&r.hello, HELLO_TLS13));
    hello_done(&r);
    mem_free(message);
    mem_free(s);
}

/* An extension that nobody knows, with so many bytes. */
static void put_padding(struct bytes *b, size_t n)
{
    static const uint8_t zeros[ROOM];
    put_number(b, 21, 2);
    put_number(b, n, 2);
    put(b, zeros, n);
}

static void records_and_pieces_make_no_difference(void **state)
{
    static const size_t records[] = {1, 2, 3, 40, 600, 16384},
                        pieces[] = {1, 2, 5, 6, 43, 1460, 100000};
    (void)state;
    struct bytes *extensions = mem_new(sizeof *extensions);
    put(extensions, SNI_OK, sizeof SNI_OK - 1);
    put_padding(extensions, 1700);
    put(extensions, ALPN_BOTH, sizeof ALPN_BOTH - 1);
    for (size_t i = 0; i < sizeof records / sizeof *records; i++) {
        struct str all = {(char *)extensions->p, extensions->n};
        struct bytes *s = stream_of(usual, all, records[i]);
        for (size_t k = 0; k < sizeof pieces / sizeof *pieces; k++) {
            struct hello_reader r;
            hello_init(&r);
            assert_int_equal(feed(&r, s->p, s->n - 1, pieces[k]), HELLO_MORE);
            assert_int_equal(hello_feed(&r, s->p + s->n - 1, 1), HELLO_DONE);
            same_text(r.hello.name, "ok.test");
            assert_true(hello_offers_protocol(&r.hello, STR("h2")));
            hello_done(&r);
        }
        mem_free(s);
    }
    mem_free(extensions);
}

static void later_bytes_are_not_looked_at(void **state)
{
    (void)state;
    struct bytes *s = stream_of(usual, STR(SNI_OK), 16384);
    put(s,
        "\x17\x03\x03\0\x05"
        "early",
        10); /* 0-RTT data */
    struct hello_reader r;
    hello_init(&r);
    assert_int_equal(feed(&r, s->p, s->n, s->n), HELLO_DONE);
    assert_int_equal(hello_feed(&r, "junk", 4), HELLO_DONE);
    same_text(r.hello.name, "ok.test");
    hello_done(&r);
    mem_free(s);
}

static void an_empty_record_does_no_harm(void **state)
{
    (void)state;
    struct bytes *whole = stream_of(usual, STR(SNI_OK), 30), *s = mem_new(sizeof *s);
    put(s, "\x16\x03\x01\0\0", 5);
    put(s, whole->p, 35);
    put(s, "\x16\x03\x01\0\0", 5);
    put(s, whole->p + 35, whole->n - 35);
    struct hello_reader r;
    hello_init(&r);
    assert_int_equal(feed(&r, s->p, s->n, 7), HELLO_DONE);
    same_text(r.hello.name, "ok.test");
    hello_done(&r);
    mem_free(s);
    mem_free(whole);
}

static void a_large_hello_is_read_and_a_larger_one_refused(void **state)
{
    static const struct {
        size_t padding, record;
        enum hello_step step;
    } rows[] = {
        {16000, 16384, HELLO_DONE},
        {65000, 16384, HELLO_DONE},
        {65450, 16384, HELLO_TOO_LARGE}, /* fits with its headers left out */
        {12000, 1, HELLO_TOO_LARGE},     /* so many records */
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct bytes *extensions = mem_new(sizeof *extensions);
        put(extensions, SNI_OK, sizeof SNI_OK - 1);
        put_padding(extensions, rows[i].padding);
        struct str all = {(char *)extensions->p, extensions->n};
        struct bytes *s = stream_of(usual, all, rows[i].record);
        struct hello_reader r;
        hello_init(&r);
        assert_int_equal(feed(&r, s->p, s->n, 1460), rows[i].step);
        assert_true(r.room <= 2 * HELLO_BYTES_MAX);
        hello_done(&r);
        mem_free(s);
        mem_free(extensions);
    }
}

static void a_length_beyond_the_limit_is_refused_at_once(void **state)
{
    (void)state;
    struct hello_reader r;
    hello_init(&r);
    assert_int_equal(hello_feed(&r, "\x16\x03\x01\x02\0\x01\xff\xff\xff", 9), HELLO_TOO_LARGE);
    assert_true(r.room <= 1024);
    hello_done(&r);
}

static void records_of_no_hello_are_refused_at_once(void **state)
{
    static const struct str rows[] = {
        STR("\x17"),                         /* another type */
        STR("\x16\x02"),                     /* no version of ours */
        STR("\x16\x03\x01\x40\x01"),         /* over 2^14 */
        STR("\x16\x03\x01\0\x05\x02"),       /* a ServerHello */
        STR("\x16\x03\x01\0\x02\x01\0\x15"), /* an alert in between */
        STR("\x16\x03\x01\0\x05\x01\0\0\0"), /* something behind the message */
        STR("\x16\x03\x01\0\x04\x01\0\0\0"), /* an empty message */
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct hello_reader r;
        hello_init(&r);
        assert_int_equal(hello_feed(&r, rows[i].p, rows[i].n - 1), HELLO_MORE);
        assert_int_equal(hello_feed(&r, rows[i].p + rows[i].n - 1, 1), HELLO_BAD);
        assert_int_equal(hello_feed(&r, rows[i].p, 1), HELLO_BAD);
        hello_done(&r);
    }
}

static void a_record_that_goes_on_behind_the_message_is_refused(void **state)
{
    (void)state;
    struct bytes *s = stream_of(usual, STR(SNI_OK), 16384);
    struct hello_reader r;
    s->p[4]++;
    hello_init(&r);
    assert_int_equal(hello_feed(&r, s->p, s->n - 1), HELLO_MORE);
    assert_int_equal(hello_feed(&r, s->p + s->n - 1, 1), HELLO_BAD);
    hello_done(&r);
    mem_free(s);
}

static void malformed_extensions_are_refused(void **state)
{
    static const struct {
        const char *what;
        struct str extensions;
    } rows[] = {
        {"one byte", STR("\0")},
        {"longer than the list", STR("\0\x15\0\x02\0")},
        {"a type twice", STR(SNI_OK SNI_OK)},
        {"an unknown type twice", STR("\x0a\x0a\0\0\x0a\x0a\0\0")},
        {"ECH twice", STR(ECH ECH)},
        {"no list of names", STR("\0\0\0\0")},
        {"an empty list of names", STR("\0\0\0\x02\0\0")},
        {"an empty name", STR("\0\0\0\x05\0\x03\0\0\0")},
        {"a name of another type", STR("\0\0\0\x0c\0\x0a\x01\0\x07ok.test")},
        {"two names", STR("\0\0\0\x16\0\x14\0\0\x07ok.test\0\0\x07no.test")},
        {"a name longer than its list", STR("\0\0\0\x0c\0\x0a\0\0\x08ok.test")},
        {"a name shorter than its list", STR("\0\0\0\x0c\0\x0a\0\0\x06ok.test")},
        {"a list of names shorter than its extension", STR("\0\0\0\x0c\0\x09\0\0\x06ok.test")},
        {"an empty list of protocols", STR("\0\x10\0\x02\0\0")},
        {"an empty protocol", STR("\0\x10\0\x03\0\x01\0")},
        {"a protocol longer than its list", STR("\0\x10\0\x05\0\x03\x03h2")},
        {"something behind the protocols", STR("\0\x10\0\x06\0\x03\x02h2x")},
        {"no versions", STR("\0\x2b\0\x01\0")},
        {"half a version", STR("\0\x2b\0\x04\x03\x03\x04\x03")},
        {"something behind the versions", STR("\0\x2b\0\x04\x02\x03\x04\x03")},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct bytes *s = stream_of(usual, rows[i].extensions, 16384);
        struct hello_reader r;
        hello_init(&r);
        if (feed(&r, s->p, s->n, s->n) != HELLO_BAD)
            fail_msg("%s: not refused", rows[i].what);
        hello_done(&r);
        mem_free(s);
    }
}

static void a_malformed_front_is_refused(void **state)
{
#define RANDOM "0123456789abcdef0123456789abcdef"
    static const struct str rows[] = {
        STR("\x02\x03" RANDOM "\0"
            "\0\x02\x13\x01"
            "\x01\0"),
        STR("\x03\x03" RANDOM "\x21"
            "0" RANDOM "\0\x02\x13\x01"
            "\x01\0"), /* session of 33 */
        STR("\x03\x03" RANDOM "\0"
            "\0\0"
            "\x01\0"), /* no suite */
        STR("\x03\x03" RANDOM "\0"
            "\0\x03\x13\x01\0"
            "\x01\0"), /* half a suite */
        STR("\x03\x03" RANDOM "\0"
            "\0\x02\x13\x01"
            "\0"), /* no compression */
        STR("\x03\x03" RANDOM "\0"
            "\xff\xff\x13\x01"
            "\x01\0"),
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct bytes *s = stream_of(rows[i], STR(SNI_OK), 16384);
        struct hello_reader r;
        hello_init(&r);
        assert_int_equal(feed(&r, s->p, s->n, s->n), HELLO_BAD);
        hello_done(&r);
        mem_free(s);
    }
}

static void no_prefix_of_a_hello_is_a_hello(void **state)
{
    struct str body;
    struct hello h;
    struct bytes *message = mem_new(sizeof *message);
    (void)state;
    put_message(message, usual, STR(SNI_OK ALPN_BOTH VERSIONS));
    body = (struct str){(char *)message->p + 4, message->n - 4};
    assert_true(hello_parse(body, &h));
    for (size_t n = 0; n < body.n; n++)
        assert_int_equal(hello_parse(str_head(body, n), &h), n == usual.n); /* no extensions */
    mem_free(message);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(name_protocols_versions_and_ech_are_read),
        cmocka_unit_test(what_is_not_there_is_none),
        cmocka_unit_test(records_and_pieces_make_no_difference),
        cmocka_unit_test(later_bytes_are_not_looked_at),
        cmocka_unit_test(an_empty_record_does_no_harm),
        cmocka_unit_test(a_large_hello_is_read_and_a_larger_one_refused),
        cmocka_unit_test(a_length_beyond_the_limit_is_refused_at_once),
        cmocka_unit_test(records_of_no_hello_are_refused_at_once),
        cmocka_unit_test(a_record_that_goes_on_behind_the_message_is_refused),
        cmocka_unit_test(malformed_extensions_are_refused),
        cmocka_unit_test(a_malformed_front_is_refused),
        cmocka_unit_test(no_prefix_of_a_hello_is_a_hello),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
