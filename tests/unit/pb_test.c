/* pb_test.c — the messages of FastPath: bytes of requests, fields of answers, and every way in
 * which an answer is none. */
#include "ingress/fastpath/pb.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <cmocka.h>

#include "base/text.h"

/* Bytes written as hex digits, blanks between them as one likes. */
static struct str bytes(const char *hex, struct arena *a)
{
    char *p = arena_get(a, strlen(hex) + 1);
    size_t n = 0;
    for (; *hex; hex++) {
        if (*hex == ' ')
            continue;
        p[n++] = (char)(text_hex(hex[0]) << 4 | text_hex(hex[1]));
        hex++;
    }
    return (struct str){p, n};
}

static void same(struct str got, const char *hex, struct arena *a)
{
    struct str want = bytes(hex, a);
    assert_int_equal(got.n, want.n);
    assert_memory_equal(got.p, want.p, want.n);
}

static void requests_are_the_bytes_of_the_contract(void **state)
{
    struct arena a;
    (void)state;
    arena_init(&a, NULL, 0);
    struct str ns = STR("tenant-a"), id = STR("sandbox-123");
    same(pb_resolve(ns, id, 44772, PB_DIRECT_FASTLET_PROXY, &a),
         "0a1912170a0874656e616e742d61120b73616e64626f782d313233120410e4dd021801", &a);
    same(pb_resolve(ns, id, 44772, PB_CENTRAL_PROXY, &a),
         "0a1912170a0874656e616e742d61120b73616e64626f782d313233120410e4dd02", &a);
    same(pb_get(ns, id, &a), "0a1912170a0874656e616e742d61120b73616e64626f782d313233", &a);
    same(pb_resume(STR("wake-sandbox-123-1"), ns, id, STR("ckpt-1"), &a),
         "0a1277616b652d73616e64626f782d3132332d31121912170a0874656e616e742d61120b73616e64626f78"
         "2d3132332206636b70742d31",
         &a);
    same(pb_resume(STR("r"), STR("n"), STR("s"), STR(""), &a), "0a0172 1208 1206 0a016e 120173",
         &a);
    arena_done(&a);
}

static void a_long_name_has_a_long_length(void **state)
{
    char id[300];
    struct arena a;
    (void)state;
    memset(id, 'x', sizeof id);
    arena_init(&a, NULL, 0);
    struct str got = pb_get(STR("n"), (struct str){id, sizeof id}, &a);
    same(str_head(got, 12), "0ab502 12b202 0a016e 12ac02", &a);
    assert_int_equal(got.n, 12 + sizeof id);
    arena_done(&a);
}

static void an_answer_is_read_field_by_field(void **state)
{
    struct arena a;
    struct pb_resolved r;
    (void)state;
    arena_init(&a, NULL, 0);
    /* uid, endpoint (of no interest), proxy_endpoint, two headers, generation, expiry */
    assert_true(pb_read_resolved(bytes("0a0175 1204 18e4dd02 1a08 687474703a2f2f66"
                                       " 2206 0a0161 120162 2203 0a0163 2807 30bca8d6b907",
                                       &a),
                                 &a, &r));
    assert_true(str_eq(r.uid, STR("u")));
    assert_true(str_eq(r.proxy_endpoint, STR("http://f")));
    assert_int_equal(r.nheaders, 2);
    assert_true(str_eq(r.headers[0].name, STR("a")) && str_eq(r.headers[0].value, STR("b")));
    assert_true(str_eq(r.headers[1].name, STR("c")) && r.headers[1].value.n == 0);
    assert_int_equal(r.generation, 7);
    assert_int_equal(r.expires_unix_s, 2000000060);
    arena_done(&a);
}

static void nothing_at_all_is_a_message_of_defaults(void **state)
{
    struct arena a;
    struct pb_resolved r;
    struct pb_sandbox s;
    (void)state;
    arena_init(&a, NULL, 0);
    assert_true(pb_read_resolved(STR(""), &a, &r));
    assert_int_equal(r.proxy_endpoint.n + r.nheaders + (size_t)r.expires_unix_s, 0);
    assert_true(pb_read_sandbox(STR(""), &s));
    assert_int_equal(s.runtime, PB_RUNTIME_UNSPECIFIED);
    assert_int_equal(s.plane, PB_PLANE_UNSPECIFIED);
    assert_false(s.ready);
    assert_int_equal(s.checkpoint.n, 0);
    arena_done(&a);
}

static void unknown_fields_are_skipped_and_the_last_of_two_counts(void **state)
{
    struct arena a;
    struct pb_resolved r;
    (void)state;
    arena_init(&a, NULL, 0);
    assert_true(pb_read_resolved(bytes("9a06 03616263 9806 8001 9d06 61626364 9906 6162636465666768"
                                       " 2805 2809 0a0161 0a0162",
                                       &a),
                                 &a, &r));
    assert_int_equal(r.generation, 9);
    assert_true(str_eq(r.uid, STR("b")));
    arena_done(&a);
}

static void numbers_have_64_bits_and_a_sign(void **state)
{
    struct arena a;
    struct pb_resolved r;
    (void)state;
    arena_init(&a, NULL, 0);
    assert_true(pb_read_resolved(bytes("30 ffffffffffffffffff01", &a), &a, &r));
    assert_int_equal(r.expires_unix_s, -1);
    assert_true(pb_read_resolved(bytes("30 ffffffffffffffff7f", &a), &a, &r));
    assert_true(r.expires_unix_s == INT64_MAX);
    assert_true(pb_read_resolved(bytes("30 8100", &a), &a, &r));
    assert_int_equal(r.expires_unix_s, 1);
    arena_done(&a);
}

static void what_is_broken_is_refused(void **state)
{
    static const char *const rows[] = {
        "0a",                        /* a tag and nothing */
        "0a05 6162",                 /* a length beyond the end */
        "0a ffffffffffffffffff01",   /* the longest length there is */
        "28",                        /* no number */
        "28 80",                     /* half a number */
        "28 8080808080808080808001", /* eleven bytes */
        "28 ffffffffffffffffff02",   /* more than 64 bits */
        "0001",                      /* field 0 */
        "8080808010 01",             /* a field number beyond 29 bits */
        "0801",                      /* a text as a number */
        "2a0161",                    /* a number as a text */
        "2201 61",                   /* a header that is none */
        "2202 0a05",                 /* a length beyond the end of the header */
        "2203 080161",               /* a name as a number */
        "0a02 c328",                 /* no UTF-8 */
        "2204 0a02 c328",            /* nor here */
        "9b06 9c06",                 /* a group */
        "9e06",                      /* wire type 6 */
        "9906 61626364656667",       /* seven of eight bytes */
        "9d06 616263",               /* three of four */
        "28 05 1a",                  /* good, then not */
    };
    struct arena a;
    struct pb_resolved r = {.generation = 77};
    (void)state;
    arena_init(&a, NULL, 0);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (pb_read_resolved(bytes(rows[i], &a), &a, &r))
            fail_msg("taken: %s", rows[i]);
    assert_int_equal(r.generation, 77);
    arena_done(&a);
}

static void more_headers_than_anybody_sends_are_refused(void **state)
{
    char message[65 * 2];
    struct arena a;
    struct pb_resolved r;
    (void)state;
    for (size_t i = 0; i < sizeof message; i += 2)
        memcpy(message + i, "\x22\0", 2);
    arena_init(&a, NULL, 0);
    assert_true(pb_read_resolved((struct str){message, 64 * 2}, &a, &r));
    assert_int_equal(r.nheaders, 64);
    assert_false(pb_read_resolved((struct str){message, 65 * 2}, &a, &r));
    arena_done(&a);
}

static void a_sandbox_has_states_and_a_checkpoint(void **state)
{
    struct arena a;
    struct pb_sandbox s;
    (void)state;
    arena_init(&a, NULL, 0);
    assert_true(pb_read_sandbox(
        bytes("0a1f 0a030a0175 1003 1a02080a 22020804 3801 4002 4a0a 0a0663 6b70742d31 1003 1003",
              &a),
        &s));
    assert_int_equal(s.runtime, PB_RUNTIME_PAUSED);
    assert_string_equal(pb_runtime_text(s.runtime), "PAUSED");
    assert_int_equal(s.plane, PB_PLANE_READY);
    assert_true(s.ready);
    assert_true(str_eq(s.checkpoint, STR("ckpt-1")));
    assert_true(pb_read_sandbox(bytes("0a0a 1a02080c 2204 08ffff03", &a), &s));
    assert_int_equal(s.runtime, PB_RUNTIME_UNKNOWN);
    assert_int_equal(s.plane, PB_PLANE_UNKNOWN);
    assert_string_equal(pb_runtime_text((enum pb_runtime)99), "UNKNOWN");
    arena_done(&a);
}

static void a_broken_sandbox_is_refused(void **state)
{
    static const char *const rows[] = {
        "0801",              /* no message */
        "0a03 1a0208",       /* a length beyond the end, inside */
        "0a02 1801",         /* a state as a number */
        "0a05 1a03 0a0161",  /* a state as a text */
        "0a03 3a0161",       /* ready as a text */
        "0a06 4a04 0a02c328" /* no UTF-8 */
    };
    struct arena a;
    struct pb_sandbox s;
    (void)state;
    arena_init(&a, NULL, 0);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (pb_read_sandbox(bytes(rows[i], &a), &s))
            fail_msg("taken: %s", rows[i]);
    arena_done(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(requests_are_the_bytes_of_the_contract),
        cmocka_unit_test(a_long_name_has_a_long_length),
        cmocka_unit_test(an_answer_is_read_field_by_field),
        cmocka_unit_test(nothing_at_all_is_a_message_of_defaults),
        cmocka_unit_test(unknown_fields_are_skipped_and_the_last_of_two_counts),
        cmocka_unit_test(numbers_have_64_bits_and_a_sign),
        cmocka_unit_test(what_is_broken_is_refused),
        cmocka_unit_test(more_headers_than_anybody_sends_are_refused),
        cmocka_unit_test(a_sandbox_has_states_and_a_checkpoint),
        cmocka_unit_test(a_broken_sandbox_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
