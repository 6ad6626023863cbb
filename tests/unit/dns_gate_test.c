/* dns_gate_test.c — what a query and an upstream's reply become, beyond the tables of the contract:
 * what is left out, what fits, what is learned. */
#include "egress/dns/gate.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <cmocka.h>

#include "egress/dns/svcb.h"
#include "harness/dns_text.h"
#include "policies/document.h"

enum { ROOM = DNS_MESSAGE_MAX };

struct rig {
    struct policy *policy;
    struct gate_rules rules;
    struct gate_query q;
    struct gate_learned learned;
    uint8_t upstream[ROOM], out[ROOM];
    size_t n;
};

static bool all_bound(void *user, struct str name)
{
    (void)user;
    return str_eq(name, STR("ok.test"));
}

static struct rig *rig_new(const char *name, uint16_t type, uint16_t room)
{
    struct rig *rig = mem_new(sizeof *rig);
    struct document d;
    struct json_fault fault;
    assert_true(document_parse(STR("{\"egress\":[{\"action\":\"allow\",\"target\":\"ok.test\"}]}"),
                               &d, &fault));
    rig->policy = policy_new(NULL, NULL, &d);
    document_done(&d);
    rig->rules.policy = rig->policy;
    rig->q = (struct gate_query){.id = 7,
                                 .flags = DNS_RD,
                                 .room = room,
                                 .asked = true,
                                 .question = {.type = type, .class = DNS_IN}};
    assert_true(dns_name_parse(str_of(name), &rig->q.question.name));
    return rig;
}

static void rig_free(struct rig *rig)
{
    policy_free(rig->policy);
    mem_free(rig);
}

/* Lines of records, "+" in front: additional, "-": authority. */
static void reply(struct rig *rig, uint16_t flags, const char *records)
{
    struct dns_writer w;
    struct str rest = str_of(records), line;
    dns_write(&w, rig->upstream, ROOM, 1, (uint16_t)(DNS_QR | DNS_RA | flags));
    dns_write_question(&w, &rig->q.question);
    while (rest.n && str_next(&rest, '\n', &line)) {
        enum dns_section s = DNS_ANSWER;
        if (line.p[0] == '+' || line.p[0] == '-') {
            s = line.p[0] == '+' ? DNS_ADDITIONAL : DNS_AUTHORITY;
            line = str_skip(line, 1);
        }
        assert_true(dns_text_write(&w, s, line));
    }
    size_t n = dns_write_end(&w);
    rig->n = gate_reply(&rig->rules, &rig->q, (struct str){(char *)rig->upstream, n}, 0, rig->out,
                        &rig->learned);
}

struct shape {
    unsigned count[DNS_SECTIONS];
    uint16_t flags;
};

static struct shape shape_of(const struct rig *rig)
{
    struct dns_reader r;
    struct dns_record rec;
    struct shape s;
    assert_true(dns_read(&r, rig->out, rig->n));
    for (int i = 0; i < DNS_SECTIONS; i++)
        s.count[i] = r.count[i];
    s.flags = r.flags;
    while (dns_next_record(&r, &rec))
        continue;
    assert_true(dns_read_whole(&r));
    return s;
}

static void only_the_chain_from_the_question_is_an_answer(void **state)
{
    (void)state;
    struct rig *rig = rig_new("ok.test", DNS_A, ROOM);
    reply(rig, 0,
          "evil.test. 60 A 192.0.2.66\nb.test. 60 A 192.0.2.1\nok.test. 60 CNAME b.test.\n"
          "c.test. 60 CNAME evil.test.");
    assert_int_equal(shape_of(rig).count[DNS_ANSWER], 2);
    assert_int_equal(rig->learned.n, 1);
    assert_int_equal(rig->learned.at[0].ip.b[15], 1);
    rig_free(rig);
}

static void a_circle_of_aliases_ends(void **state)
{
    (void)state;
    struct rig *rig = rig_new("ok.test", DNS_A, ROOM);
    reply(rig, 0, "ok.test. 60 CNAME b.test.\nb.test. 60 CNAME ok.test.\nb.test. 60 A 192.0.2.1");
    assert_int_equal(rig->learned.n, 1);
    rig_free(rig);
}

static void ad_goes_when_something_was_taken_out(void **state)
{
    (void)state;
    struct rig *rig = rig_new("ok.test", DNS_A, ROOM);
    reply(rig, DNS_AD, "ok.test. 60 A 192.0.2.1");
    assert_true(shape_of(rig).flags & DNS_AD);
    reply(rig, DNS_AD, "ok.test. 60 A 192.0.2.1\nok.test. 60 A 127.0.0.1");
    assert_false(shape_of(rig).flags & DNS_AD);
    rig_free(rig);
}

static void an_emptied_answer_keeps_its_code(void **state)
{
    (void)state;
    struct rig *rig = rig_new("ok.test", DNS_A, ROOM);
    reply(rig, 0, "ok.test. 60 A 169.254.169.254");
    assert_int_equal(shape_of(rig).flags & DNS_RCODE_MASK, DNS_NOERROR);
    assert_int_equal(shape_of(rig).count[DNS_ANSWER], 0);
    rig_free(rig);
}

static void bad_addresses_go_from_every_section(void **state)
{
    (void)state;
    struct rig *rig = rig_new("ok.test", DNS_MX, ROOM);
    reply(rig, 0, "ok.test. 60 MX 1 m.test.\n+m.test. 60 A 127.0.0.1\n+m.test. 60 A 192.0.2.1");
    assert_int_equal(shape_of(rig).count[DNS_ADDITIONAL], 1);
    assert_int_equal(rig->learned.n, 0);
    rig_free(rig);
}

static void what_does_not_fit_is_neither_told_nor_learned(void **state)
{
    (void)state;
    struct rig *rig = rig_new("ok.test", DNS_A, DNS_WRITE_MIN);
    char records[8192];
    size_t n = 0;
    for (int i = 0; i < 100; i++)
        n += (size_t)snprintf(records + n, sizeof records - n, "%sok.test. 60 A 192.0.2.%d",
                              i ? "\n" : "", i);
    reply(rig, 0, records);
    struct shape s = shape_of(rig);
    assert_true(rig->n <= DNS_WRITE_MIN);
    assert_true(s.flags & DNS_TC);
    assert_true(s.count[DNS_ANSWER] > 20);
    assert_int_equal(rig->learned.n, s.count[DNS_ANSWER]);
    rig_free(rig);
}

static void additional_records_that_do_not_fit_are_not_missed(void **state)
{
    (void)state;
    struct rig *rig = rig_new("ok.test", DNS_MX, DNS_WRITE_MIN);
    char records[8192];
    size_t n = (size_t)snprintf(records, sizeof records, "ok.test. 60 MX 1 m.test.");
    for (int i = 0; i < 100; i++)
        n += (size_t)snprintf(records + n, sizeof records - n, "\n+m.test. 60 A 192.0.2.%d", i);
    reply(rig, 0, records);
    assert_false(shape_of(rig).flags & DNS_TC);
    assert_int_equal(shape_of(rig).count[DNS_ANSWER], 1);
    rig_free(rig);
}

static void more_addresses_than_can_be_learned_are_not_told(void **state)
{
    (void)state;
    struct rig *rig = rig_new("ok.test", DNS_A, ROOM);
    char *records = mem_new(64 * 1024);
    size_t n = 0;
    for (int i = 0; i < 300; i++)
        n += (size_t)snprintf(records + n, 64 * 1024 - n, "%sok.test. 60 A 198.51.%d.%d",
                              i ? "\n" : "", i / 200, i % 200);
    reply(rig, 0, records);
    assert_int_equal(rig->learned.n, GATE_ADDRESSES);
    assert_int_equal(shape_of(rig).count[DNS_ANSWER], GATE_ADDRESSES);
    mem_free(records);
    rig_free(rig);
}

static void the_denial_of_the_longest_name_fits_the_smallest_reply(void **state)
{
    (void)state;
    struct rig *rig = rig_new("ok.test", DNS_A, DNS_WRITE_MIN);
    uint8_t *b = rig->q.question.name.b;
    for (int i = 0; i < 3; i++) {
        memset(b + 64 * i, 'x', 64);
        b[64 * i] = 63;
    }
    b[192] = 61;
    memset(b + 193, 'x', 61);
    b[254] = 0;
    rig->q.question.name.n = 255;
    rig->q.edns = true;
    rig->n = gate_denial(&rig->q, rig->out);
    assert_true(rig->n <= DNS_WRITE_MIN);
    assert_int_equal(shape_of(rig).count[DNS_AUTHORITY], 1);
    assert_int_equal(shape_of(rig).count[DNS_ADDITIONAL], 1);
    assert_false(shape_of(rig).flags & (DNS_TC | DNS_AA | DNS_RA));
    rig_free(rig);
}

static void an_intercepted_host_is_told_neither_ech_nor_http3(void **state)
{
    (void)state;
    static const char *const names[] = {"ok.test", "_443._https.ok.test", "other.test"};
    for (int i = 0; i < 3; i++) {
        struct rig *rig = rig_new(names[i], DNS_HTTPS, ROOM);
        char record[128];
        rig->rules.bound = all_bound;
        snprintf(record, sizeof record,
                 "%s. 60 HTTPS 1 . alpn=h3,h2,h3-29 ech=AEX+DQBBxQ==", names[i]);
        reply(rig, 0, record);
        bool h3 = memmem(rig->out, rig->n, "h3", 2), ech = memmem(rig->out, rig->n, "\0\5\0\7", 4);
        assert_int_equal(h3, i == 2);
        assert_int_equal(ech, i == 2);
        assert_non_null(memmem(rig->out, rig->n, "\2h2", 3));
        rig_free(rig);
    }
}

/* ---- queries */

static void queries_are_read_strictly(void **state)
{
    (void)state;
    static const struct {
        const char *bytes;
        size_t n;
        enum gate_step step;
        unsigned rcode;
    } rows[] = {
#define HEAD(flags, qd, an, ns, ar) "\x12\x34" flags "\0" qd "\0" an "\0" ns "\0" ar
#define A_TEST "\1a\4test\0\0\1\0\1"
#define OPT(version) "\0\0\x29\4\xd0\0" version "\0\0\0\0"
#define ROW(text, step, rcode) {text, sizeof(text) - 1, step, rcode}
        ROW(HEAD("\1\0", "\1", "\0", "\0", "\0") A_TEST, GATE_JUDGE, 0),
        ROW(HEAD("\1\0", "\1", "\0", "\0", "\0") A_TEST "junk", GATE_JUDGE, 0),
        ROW(HEAD("\x81\0", "\1", "\0", "\0", "\0") A_TEST, GATE_IGNORE, 0),
        ROW(HEAD("\x21\0", "\1", "\0", "\0", "\0") A_TEST, GATE_JUDGE, 0),
        ROW(HEAD("\x29\0", "\1", "\0", "\0", "\0") A_TEST, GATE_REPLY, DNS_NOTIMP),
        ROW(HEAD("\1\0", "\1", "\0", "\0", "\1") A_TEST, GATE_REPLY, DNS_FORMERR),
        ROW(HEAD("\1\0", "\1", "\0", "\0", "\1") A_TEST OPT("\0"), GATE_JUDGE, 0),
        ROW(HEAD("\1\0", "\1", "\0", "\0", "\1") A_TEST OPT("\1"), GATE_REPLY, DNS_BADVERS),
        ROW(HEAD("\1\0", "\1", "\0", "\0", "\2") A_TEST OPT("\0") OPT("\0"), GATE_REPLY,
            DNS_FORMERR),
        ROW(HEAD("\1\0", "\1", "\0", "\0", "\0") "\1a\4te", GATE_REPLY, DNS_FORMERR),
        ROW(HEAD("\1\0", "\1", "\0", "\0", "\0") "\xc0\x0c\0\1\0\1", GATE_REPLY, DNS_FORMERR),
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct gate_query q;
        enum gate_step step = gate_read(rows[i].bytes, rows[i].n, false, &q);
        assert_int_equal(step, rows[i].step);
        if (step == GATE_REPLY)
            assert_int_equal(q.fault, rows[i].rcode);
    }
}

/* ---- SVCB by itself */

static void svcb_data_is_filtered(void **state)
{
    (void)state;
#define STRN(text)             \
    {                          \
        text, sizeof(text) - 1 \
    }
    static const struct {
        struct str in, out; /* out.p NULL: faulty */
    } rows[] = {
        {STRN("\0\1\0"), STRN("\0\1\0")},
        /* mandatory=alpn,ipv4hint loses what goes */
        {STRN("\0\1\0\0\0\0\4\0\1\0\4\0\1\0\3\2h2\0\4\0\4\x7f\0\0\1"),
         STRN("\0\1\0\0\0\0\2\0\1\0\1\0\3\2h2")},
        {STRN("\0\1\0\0\0\0\2\0\4\0\4\0\4\x7f\0\0\1"), STRN("\0\1\0")},
        /* without alpn there is no no-default-alpn */
        {STRN("\0\1\0\0\1\0\3\2h3\0\2\0\0"), STRN("\0\1\0")},
        {STRN("\0\1\0\0\2\0\0\0\1\0\3\2h3"), {NULL, 0}}, /* keys do not rise */
        {STRN("\0\1\0\0\1\0\3\3h3"), {NULL, 0}},         /* a protocol over its end */
        {STRN("\0\1\0\0\4\0\3\1\2\3"), {NULL, 0}},       /* three bytes of an address */
        {STRN("\0\1\0\0\1\0"), {NULL, 0}},               /* half a parameter */
        {STRN("\0\1\xc0\x0c"), {NULL, 0}},               /* a compressed target */
        {STRN("\0\1\1"), {NULL, 0}},
        {STRN("\0"), {NULL, 0}},
        /* what we do not know stays */
        {STRN("\0\1\0\xff\xff\0\1x"), STRN("\0\1\0\xff\xff\0\1x")},
    };
    struct rig *rig = rig_new("ok.test", DNS_HTTPS, ROOM);
    struct svcb_rules rules = {.policy = rig->policy, .bound = true};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        uint8_t out[64];
        size_t n;
        bool good = svcb_filter(&rules, rows[i].in, out, &n);
        assert_int_equal(good, rows[i].out.p != NULL);
        if (!good)
            continue;
        assert_int_equal(n, rows[i].out.n);
        assert_memory_equal(out, rows[i].out.p, n);
    }
    rig_free(rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_the_chain_from_the_question_is_an_answer),
        cmocka_unit_test(a_circle_of_aliases_ends),
        cmocka_unit_test(ad_goes_when_something_was_taken_out),
        cmocka_unit_test(an_emptied_answer_keeps_its_code),
        cmocka_unit_test(bad_addresses_go_from_every_section),
        cmocka_unit_test(what_does_not_fit_is_neither_told_nor_learned),
        cmocka_unit_test(additional_records_that_do_not_fit_are_not_missed),
        cmocka_unit_test(more_addresses_than_can_be_learned_are_not_told),
        cmocka_unit_test(the_denial_of_the_longest_name_fits_the_smallest_reply),
        cmocka_unit_test(an_intercepted_host_is_told_neither_ech_nor_http3),
        cmocka_unit_test(queries_are_read_strictly),
        cmocka_unit_test(svcb_data_is_filtered),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
