/* inject_test.c — what the tables of the contract do not say: whose memory things lie in, what is
 * bounded, and what a client tries that wants more than it is given. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "policies/inject.h"

struct fix {
    struct arena a;
    struct secret_bag vault, bag; /* of the binding, of the request */
    struct binding b;
    struct armed x;
    struct injected out;
};

static struct str lend(void *user, struct str credential)
{
    (void)user;
    return str_eq(credential, STR("blank")) ? STR(" \tv 1\t ") : STR("sk/secret");
}

static int setup(void **state)
{
    struct fix *f = *state = mem_new(sizeof *f);
    arena_init(&f->a, NULL, 0);
    return 0;
}

static int teardown(void **state)
{
    struct fix *f = *state;
    secret_bag_done(&f->bag);
    secret_bag_done(&f->vault);
    arena_done(&f->a);
    mem_free(f);
    return secret_held() == 0 ? 0 : -1;
}

static void arm_with(struct fix *f, enum auth_type type, const struct auth_header *headers,
                     unsigned nheaders, unsigned surfaces)
{
    static struct substitution substitution;
    substitution = (struct substitution){STR("k"), STR("__key__"), surfaces};
    f->b = (struct binding){.type = type,
                            .headers = headers,
                            .nheaders = nheaders,
                            .substitutions = &substitution,
                            .nsubstitutions = surfaces != 0};
    arm(&f->b, &(struct values){lend, NULL}, &f->a, &f->vault, &f->x);
}

static const struct auth_header authorization[] = {{STR("Authorization"), STR("k")}};

static enum inject_fault run(struct fix *f, struct str target, const struct field *fields,
                             unsigned n, bool scrubs)
{
    struct inject_request q = {fields, n, target, scrubs};
    return inject_head(&f->x, &q, &f->a, &f->bag, &f->out);
}

static struct str value(const struct fix *f, struct str name)
{
    for (unsigned i = 0; i < f->out.nfields; i++)
        if (str_ieq(f->out.fields[i].name, name))
            return f->out.fields[i].value;
    return STR_NONE;
}

static void a_request_only_points_to_what_is_set(void **state)
{
    struct fix *f = *state;
    struct field fields[] = {{STR("Accept"), STR("*/*")}, {STR("authorization"), STR("mine")}};
    arm_with(f, AUTH_BEARER, authorization, 1, 0);
    assert_int_equal(run(f, STR("/x?y"), fields, 2, true), INJECT_OK);
    assert_int_equal(f->out.nfields, 2);
    assert_int_equal(f->out.sets, 1);
    assert_int_equal(f->out.hits, 0);
    assert_true(str_eq(value(f, STR("Authorization")), STR("Bearer sk/secret")));
    assert_ptr_equal(value(f, STR("Authorization")).p, f->x.headers[0].value.p);
    assert_true(secret_covers(value(f, STR("Authorization")).p));
    assert_int_equal(f->bag.n, 0); /* nothing was made */
    assert_false(f->x.buffers);
}

static void blanks_at_the_ends_of_a_value_are_dropped(void **state)
{
    struct fix *f = *state;
    static const struct auth_header key[] = {{STR("X-Key"), STR("blank")}};
    arm_with(f, AUTH_API_KEY, key, 1, 0);
    assert_int_equal(run(f, STR("/"), NULL, 0, false), INJECT_OK);
    assert_true(str_eq(value(f, STR("X-Key")), STR("v 1")));
}

static void what_is_made_lies_in_the_bag(void **state)
{
    struct fix *f = *state;
    struct field fields[] = {{STR("X-A"), STR("__key__")}, {STR("X-B"), STR("__key")}};
    arm_with(f, AUTH_PASSTHROUGH, NULL, 0,
             SURFACE_PATH | SURFACE_QUERY | SURFACE_HEADER | SURFACE_BODY);
    assert_int_equal(run(f, STR("/x?__key__"), fields, 2, false), INJECT_OK);
    assert_true(str_eq(f->out.target, STR("/x?sk%2Fsecret")));
    assert_true(secret_covers(f->out.target.p));
    assert_true(str_eq(value(f, STR("X-A")), STR("sk/secret")));
    assert_true(secret_covers(value(f, STR("X-A")).p));
    assert_ptr_equal(value(f, STR("X-B")).p, fields[1].value.p);
    assert_int_equal(f->out.hits, SURFACE_QUERY | SURFACE_HEADER);
    assert_true(f->x.buffers);
}

static void a_path_that_becomes_ambiguous_is_refused(void **state)
{
    struct fix *f = *state;
    arm_with(f, AUTH_BEARER, authorization, 1, SURFACE_PATH);
    assert_int_equal(run(f, STR("/__key__"), NULL, 0, false), INJECT_UNSAFE); /* has a slash */
    assert_int_equal(run(f, STR("/a%2fb"), NULL, 0, false), INJECT_OK);       /* not changed */
}

/* A credential of which many copies are asked for. */
static void placeholders_cannot_fill_the_memory(void **state)
{
    struct fix *f = *state;
    enum { N = 600000 };
    char *text = mem_new(N * 7 + 1);
    text[0] = '/';
    for (size_t i = 0; i < N; i++)
        memcpy(text + 1 + i * 7, "__key__", 7);
    struct str all = {text, N * 7 + 1}, body;
    struct field field = {STR("X-A"), str_skip(all, 1)};
    arm_with(f, AUTH_PASSTHROUGH, NULL, 0, SURFACE_QUERY | SURFACE_HEADER | SURFACE_BODY);
    assert_int_equal(run(f, STR("/"), &field, 1, false), INJECT_LONG);
    text[1] = '?';
    assert_int_equal(run(f, all, NULL, 0, false), INJECT_LONG);
    assert_int_equal(inject_body(&f->x, NULL, 0, all, &f->bag, &body), BODY_PASSED);
    assert_true(secret_held() < 100000);
    mem_free(text);
}

/* Each can be inside the bound and all together over it. */
static void many_fields_share_one_bound(void **state)
{
    struct fix *f = *state;
    enum { N = 100, LEN = 7 * 10000 };
    char *text = mem_new(LEN);
    struct field fields[N];
    for (size_t i = 0; i < LEN; i += 7)
        memcpy(text + i, "__key__", 7);
    for (size_t i = 0; i < N; i++)
        fields[i] = (struct field){STR("X-A"), {text, LEN}};
    arm_with(f, AUTH_PASSTHROUGH, NULL, 0, SURFACE_HEADER);
    assert_int_equal(run(f, STR("/"), fields, 10, false), INJECT_OK);
    assert_int_equal(run(f, STR("/"), fields, N, false), INJECT_LONG);
    assert_true(secret_held() < 2 * INJECT_HEAD_MOST);
    mem_free(text);
}

static void tokens_of_basic_are_told_or_not_made(void **state)
{
    struct fix *f = *state;
    struct field fields[4];
    for (size_t i = 0; i < 4; i++) /* x:__key__ */
        fields[i] = (struct field){STR("authorization"), STR("Basic eDpfX2tleV9f")};
    arm_with(f, AUTH_PASSTHROUGH, NULL, 0, SURFACE_HEADER);
    assert_int_equal(run(f, STR("/"), fields, 4, false), INJECT_OK);
    assert_int_equal(f->out.nmade, 4);
    for (size_t i = 0; i < 2; i++) {
        assert_true(str_eq(f->out.fields[i].value, STR("Basic eDpzay9zZWNyZXQ=")));
        assert_true(str_eq(f->out.made[2 * i], STR("eDpzay9zZWNyZXQ=")));
        assert_true(str_eq(f->out.made[2 * i + 1], STR("x:sk/secret")));
        assert_ptr_equal(f->out.fields[i + 2].value.p, fields[i + 2].value.p);
    }
}

static void what_the_binding_sets_is_not_filled_in(void **state)
{
    struct fix *f = *state;
    struct field fields[] = {{STR("Authorization"), STR("Bearer __key__")}};
    arm_with(f, AUTH_BEARER, authorization, 1, SURFACE_HEADER);
    assert_int_equal(run(f, STR("/"), fields, 1, false), INJECT_OK);
    assert_int_equal(f->out.hits, 0);
    assert_int_equal(f->bag.n, 0);
}

struct coding_row {
    const char *lines[4];  /* of Accept-Encoding, as they come */
    const char *result[4]; /* as they go */
    bool ranged;
};

static void only_codings_that_can_be_read_are_asked_for(void **state)
{
    struct fix *f = *state;
    static const struct coding_row rows[] = {
        {{"gzip,br"}, {"gzip,br"}, false}, /* as it stands */
        {{"deflate"}, {"identity"}, false},
        {{""}, {"identity"}, false},
        {{"deflate", "gzip"}, {"gzip"}, false},
        {{"gzip", "deflate"}, {"gzip"}, false},
        {{"deflate", "*"}, {"identity"}, false},
        {{"gzip", "deflate, br;q=0.1 ", "zstd"}, {"gzip", "br;q=0.1", "zstd"}, false},
        {{"deflate", "compress", "br"}, {"br"}, false},
        {{"gzip", "br"}, {"identity"}, true},
        {{"gzipx, xgzip, \"gzip\", gzip ;q=1"}, {"gzip ;q=1"}, false},
        {{NULL}, {NULL}, true}, /* absent stays absent */
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct field fields[6] = {{STR("accept-encodings"), STR("deflate")}};
        unsigned n = 1, at = 1;
        for (const char *const *line = rows[i].lines; *line; line++)
            fields[n++] = (struct field){STR("Accept-Encoding"), str_of(*line)};
        if (rows[i].ranged)
            fields[n++] = (struct field){STR("range"), STR("bytes=0-1")};
        inject_accept_coding(fields, &n, &f->a);
        assert_true(str_eq(fields[0].value, STR("deflate")));
        for (const char *const *line = rows[i].result; *line; line++)
            assert_true(str_eq(fields[at++].value, str_of(*line)));
        assert_int_equal(n, at + rows[i].ranged);
    }
}

static void a_range_of_the_binding_counts_too(void **state)
{
    struct fix *f = *state;
    static const struct auth_header range[] = {{STR("Range"), STR("k")}};
    struct field fields[] = {{STR("Accept-Encoding"), STR("gzip")}};
    arm_with(f, AUTH_API_KEY, range, 1, 0);
    assert_int_equal(run(f, STR("/"), fields, 1, true), INJECT_OK);
    assert_true(str_eq(value(f, STR("Accept-Encoding")), STR("identity")));
}

static void trailers_lose_what_the_binding_sets(void **state)
{
    struct fix *f = *state;
    struct field fields[] = {{STR("AUTHORIZATION"), STR("x")},
                             {STR("X-Sum"), STR("1")},
                             {STR("authorization"), STR("y")}};
    unsigned n = 3;
    arm_with(f, AUTH_BEARER, authorization, 1, 0);
    inject_trailers(&f->x, fields, &n);
    assert_int_equal(n, 1);
    assert_true(str_eq(fields[0].name, STR("X-Sum")));
}

static void bodies_are_read_by_what_their_head_says(void **state)
{
    (void)state;
    static const struct {
        struct field fields[2];
        unsigned n;
        bool reads;
    } rows[] = {
        {{{STR_NONE, STR_NONE}}, 0, true},
        {{{STR("Content-Type"), STR("text/plain")}}, 1, true},
        {{{STR("content-type"), STR(" Multipart/Mixed;boundary=x")}}, 1, false},
        {{{STR("content-type"), STR("text/plain")}, {STR("Content-Type"), STR("multipart/x")}},
         2,
         false},
        {{{STR("content-type"), STR("text/plain")}, {STR("Content-Type"), STR("text/plain")}},
         2,
         false},
        {{{STR("Content-Encoding"), STR("identity , ")}}, 1, true},
        {{{STR("Content-Encoding"), STR("")}}, 1, true},
        {{{STR("Content-Encoding"), STR("gzip")}}, 1, false},
        {{{STR("Content-Encoding"), STR("identity, gzip")}}, 1, false},
        {{{STR("Content-Encoding"), STR("identity")}, {STR("content-encoding"), STR("br")}},
         2,
         false},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        assert_int_equal(inject_reads_body(rows[i].fields, rows[i].n), rows[i].reads);
}

#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(a_request_only_points_to_what_is_set),
        T(blanks_at_the_ends_of_a_value_are_dropped),
        T(what_is_made_lies_in_the_bag),
        T(a_path_that_becomes_ambiguous_is_refused),
        T(placeholders_cannot_fill_the_memory),
        T(many_fields_share_one_bound),
        T(tokens_of_basic_are_told_or_not_made),
        T(what_the_binding_sets_is_not_filled_in),
        T(only_codings_that_can_be_read_are_asked_for),
        T(a_range_of_the_binding_counts_too),
        T(trailers_lose_what_the_binding_sets),
        T(bodies_are_read_by_what_their_head_says),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
