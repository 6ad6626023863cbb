/* private_test.c — codecs on a worker whose traffic may be secret: a credential in a head is never
 * indexed, nothing that an origin reflects stays in a table, and when all is over no copy of either
 * is left. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "harness/copies.h"
#include "harness/h2side.h"

static const struct tap_user listening = {0};

struct fix {
    struct worker *w;
    struct side x;
    struct secret *secret;
};

static void begin_codec(struct fix *f, enum side_kind kind, bool private)
{
    f->w = worker_new(0);
    if (private)
        worker_private(f->w);
    f->secret = secret_new("{|}~{|}~~}|{", 12); /* longer in Huffman's code */
    side_init(&f->x, f->w, kind, NULL, &listening, NULL);
    fake_settle(f->w);
    if (kind == H2_CLIENT)
        feed(&f->x, "settings\nsettings ack");
}

/* The harness is no part of what is looked at: what it has been given is wiped by itself. */
static void forget_written(struct fix *f)
{
    struct str written = fake_written(f->x.c);
    mem_wipe((char *)(uintptr_t)written.p, written.n);
}

static void end_codec(struct fix *f)
{
    side_done(&f->x);
    worker_free(f->w);
}

/* The head is not the harness's copy: its texts lie where they lie. */
static struct tap *ask(struct fix *f, const struct http_head *head)
{
    struct tap *t = side_open(&f->x);
    assert_non_null(t);
    t->s->ops->head(t->s, head, true);
    fake_settle(f->w);
    return t;
}

static struct http_head get(struct field *field, struct str path)
{
    return (struct http_head){.method = STR("GET"),
                              .scheme = STR("https"),
                              .authority = STR("a"),
                              .path = path,
                              .length = -1,
                              .protocol = STR(""),
                              .fields = field,
                              .nfields = 1};
}

/* The payload of the n-th HEADERS frame that a client wrote, from 1. */
static struct str header_block(const struct fix *f, unsigned n)
{
    struct str rest = str_skip(fake_written(f->x.c), 24);
    while (rest.n >= 9) {
        const uint8_t *p = (const uint8_t *)rest.p;
        size_t len = (size_t)p[0] << 16 | (size_t)p[1] << 8 | p[2];
        assert_true(rest.n >= 9 + len);
        if (p[3] == FRAME_HEADERS && --n == 0)
            return (struct str){rest.p + 9, len};
        rest = str_skip(rest, 9 + len);
    }
    fail_msg("no such frame");
    return STR_NONE;
}

static bool holds(struct str text, struct str piece)
{
    return memmem(text.p, text.n, piece.p, piece.n) != NULL;
}

/* RFC 7541 section 6.2.3: the four bits 0001. */
static bool is_never_indexed(struct str block, struct str value)
{
    const char *at = memmem(block.p, block.n, value.p, value.n);
    assert_true(at && at - block.p >= 2);
    /* ":path" has an index in the static table, "x-key" is said in full */
    const uint8_t *name = (const uint8_t *)at - 2;
    return (name[0] & 0xf0) == 0x10 || holds(block, (struct str){"\x10\x84", 2});
}

static void h2_never_indexes_a_secret(void **state)
{
    (void)state;
    struct fix f;
    begin_codec(&f, H2_CLIENT, true);
    struct str value = secret_bytes(f.secret);
    struct field field = {STR("x-key"), value};
    struct http_head head = get(&field, STR("/x"));
    ask(&f, &head);
    ask(&f, &head);
    for (unsigned i = 1; i <= 2; i++) {
        assert_true(holds(header_block(&f, i), value)); /* said anew */
        assert_true(is_never_indexed(header_block(&f, i), value));
    }
    end_codec(&f);
    secret_unref(f.secret);
}

static void h2_never_indexes_a_secret_path(void **state)
{
    (void)state;
    struct fix f;
    begin_codec(&f, H2_CLIENT, true);
    struct str value = secret_bytes(f.secret);
    struct field field = {STR("x-a"), STR("b")};
    struct http_head head = get(&field, value);
    ask(&f, &head);
    ask(&f, &head);
    assert_true(holds(header_block(&f, 2), value));
    assert_true(is_never_indexed(header_block(&f, 2), value));
    end_codec(&f);
    secret_unref(f.secret);
}

static void h2_indexes_what_is_no_secret(void **state)
{
    (void)state;
    struct fix f;
    begin_codec(&f, H2_CLIENT, true);
    struct field field = {STR("x-key"), STR("{}|~{}|~{}|~{}|~")};
    struct http_head head = get(&field, STR("/x"));
    ask(&f, &head);
    ask(&f, &head);
    assert_true(holds(header_block(&f, 1), field.value));
    assert_false(holds(header_block(&f, 2), field.value));
    end_codec(&f);
    secret_unref(f.secret);
}

static bool has_table(bool private)
{
    struct fix f;
    struct trace all;
    trace_init(&all);
    begin_codec(&f, H2_CLIENT, private);
    assert_true(frames_read(fake_written(f.x.c), true, false, &all));
    bool none = strstr(trace_text(&all), " 1=0") != NULL;
    trace_done(&all);
    end_codec(&f);
    secret_unref(f.secret);
    return !none;
}

static void h2_lets_an_origin_index_nothing(void **state)
{
    (void)state;
    assert_false(has_table(true));
    assert_true(has_table(false));
}

/* A 204 of an origin that has heard that there is no table (RFC 7541 section 4.2). */
static void feed_answer(struct fix *f, uint32_t id)
{
    struct frames frames = {0};
    if (f->x.kind == H1_CLIENT) {
        side_feed(&f->x, STR("HTTP/1.1 204 No Content\r\n\r\n"), &(struct cuts){0});
        return;
    }
    frames_raw(&frames, FRAME_HEADERS, 0x5, id, "\x20\x89", 2);
    side_feed(&f->x, frames_str(&frames), &(struct cuts){0});
    frames_done(&frames);
}

/* Makes the harness's own text large enough first, since it is copied when it grows. */
static void fill_written(struct fix *f)
{
    char path[3000];
    memset(path, 'a', sizeof path);
    path[0] = '/';
    struct field field = {STR("x-a"), STR("b")};
    struct http_head head = get(&field, (struct str){path, sizeof path});
    struct tap *t = ask(f, &head);
    feed_answer(f, 1);
    assert_true(t->over);
}

/* Longer in Huffman's code too, so that it stands as it is wherever it stands. */
#define MASKED "\x2e\x28\x2b\x29\x2e\x2b\x28\x29\x2e\x2b\x28\x29\x2b\x2e\x28\x29\x2b\x28\x2e\x29"

/* How many copies are left when the session is over, though its worker lives on. */
static unsigned copies_of_a_request(enum side_kind kind, bool private)
{
    struct fix f;
    struct secret *secret = copies_unmask(STR(MASKED));
    struct field field = {STR("x-key"), secret_bytes(secret)};
    struct http_head head = get(&field, STR("/x"));
    begin_codec(&f, kind, private);
    fill_written(&f);
    struct tap *t = ask(&f, &head);
    assert_true(holds(fake_written(f.x.c), field.value));
    forget_written(&f);
    feed_answer(&f, 3);
    assert_true(t->over);
    side_done(&f.x);
    unsigned copies = copies_count(secret);
    worker_free(f.w);
    secret_unref(f.secret);
    secret_unref(secret);
    return copies;
}

static void no_copy_of_a_request_is_left(void **state)
{
    (void)state;
    assert_int_equal(copies_of_a_request(H2_CLIENT, true), 0);
    assert_int_equal(copies_of_a_request(H1_CLIENT, true), 0);
}

/* Or the test above would show nothing. */
static void copies_are_found_where_nothing_is_wiped(void **state)
{
    (void)state;
    assert_true(copies_of_a_request(H2_CLIENT, false) > 0);
    assert_true(copies_of_a_request(H1_CLIENT, false) > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(h2_never_indexes_a_secret),
        cmocka_unit_test(h2_never_indexes_a_secret_path),
        cmocka_unit_test(h2_indexes_what_is_no_secret),
        cmocka_unit_test(h2_lets_an_origin_index_nothing),
        cmocka_unit_test(no_copy_of_a_request_is_left),
        cmocka_unit_test(copies_are_found_where_nothing_is_wiped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
