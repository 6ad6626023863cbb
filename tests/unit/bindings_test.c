/* bindings_test.c — bindings read one by one, sets of them, conflicts, and the one that a request
 * gets.  What the contract's tables say is in tests/vectors; here is what they cannot reach. */
#include "policies/bindings.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <cmocka.h>

/* A binding in few words: lists are joined by commas. */
struct short_binding {
    const char *name, *hosts, *paths, *methods, *schemes;
};

struct set {
    struct arena a;
    const struct binding *at[2048];
    unsigned n;
    struct str error;
};

static struct str_list split(struct arena *a, const char *list)
{
    struct str rest = str_of(list), one;
    unsigned n = 0;
    struct str *at = arena_get(a, (strlen(list ? list : "") + 1) * sizeof *at);
    while (list && str_next(&rest, ',', &one))
        at[n++] = one;
    return (struct str_list){at, n};
}

static void add(struct set *s, const struct short_binding *from)
{
    struct binding *b = arena_zero(&s->a, sizeof *b);
    struct binding_draft d = {.name = str_of(from->name),
                              .hosts = split(&s->a, from->hosts),
                              .paths = split(&s->a, from->paths),
                              .methods = split(&s->a, from->methods),
                              .schemes = split(&s->a, from->schemes),
                              .type = STR("passthrough")};
    if (!binding_read(&d, false, &s->a, b, &s->error))
        fail_msg("%.*s", STR_ARG(s->error));
    s->at[s->n++] = b;
}

static void begin(struct set *s)
{
    arena_init(&s->a, NULL, 0);
    s->n = 0;
    s->error = STR("");
}

static struct bindings *finish(struct set *s)
{
    return bindings_new(s->at, s->n, &s->a, &s->error);
}

static void same(struct str got, const char *expected)
{
    if (!str_eq(got, str_of(expected)))
        fail_msg("got \"%.*s\", expected \"%s\"", STR_ARG(got), expected);
}

/* ---- reading */

static void a_binding_copies_what_it_is_read_from(void **state)
{
    (void)state;
    struct arena a;
    char host[] = "API.example.com.", path[] = " /v1/* ", name[] = " b ", key[] = " k ",
         header[] = "x-api-KEY", placeholder[] = " {k} ", in[] = "Query", method[] = "get";
    struct str hosts[] = {str_of(host)}, paths[] = {str_of(path)}, ins[] = {str_of(in)},
               methods[] = {str_of(method)};
    struct substitution_draft sub = {str_of(key), str_of(placeholder), {ins, 1}};
    struct binding_draft d = {.name = str_of(name),
                              .hosts = {hosts, 1},
                              .paths = {paths, 1},
                              .methods = {methods, 1},
                              .type = STR("apiKey"),
                              .credential = str_of(key),
                              .header_name = str_of(header),
                              .substitutions = &sub,
                              .nsubstitutions = 1};
    struct binding b;
    struct str error;
    arena_init(&a, NULL, 0);
    assert_true(binding_read(&d, true, &a, &b, &error));
    for (size_t i = 0; i < 3; i++)
        host[i] = path[i] = name[i] = key[i] = header[i] = placeholder[i] = in[i] = method[i] = '#';
    same(b.name, "b");
    same(b.hosts.at[0], "api.example.com");
    same(b.paths.at[0], "/v1/*");
    same(b.methods.at[0], "GET");
    same(b.schemes.at[0], "https");
    same(b.headers[0].name, "X-Api-Key");
    same(b.headers[0].credential, "k");
    same(b.substitutions[0].credential, "k");
    same(b.substitutions[0].placeholder, " {k} ");
    assert_int_equal(b.substitutions[0].in, SURFACE_QUERY);
    arena_done(&a);
}

static void names_in_errors_are_quoted(void **state)
{
    (void)state;
    struct arena a;
    struct binding b;
    struct str error;
    struct binding_draft d = {.name = STR("a\"\\\n\xc3\xa9")};
    arena_init(&a, NULL, 0);
    assert_false(binding_read(&d, false, &a, &b, &error));
    same(error, "binding \"a\\\"\\\\\\n\xc3\xa9\": match.hosts cannot be empty");
    arena_done(&a);
}

static void long_lists_lose_their_doubles_too(void **state)
{
    (void)state;
    struct arena a;
    struct str hosts[200], error;
    struct binding b;
    arena_init(&a, NULL, 0);
    for (unsigned i = 0; i < 200; i++)
        hosts[i] = arena_printf(&a, "h%u.example.com", i % 70);
    struct binding_draft d = {.name = STR("b"), .hosts = {hosts, 200}, .type = STR("passthrough")};
    assert_true(binding_read(&d, false, &a, &b, &error));
    assert_int_equal(b.hosts.n, 70);
    for (unsigned i = 0; i < 70; i++)
        assert_true(str_eq(b.hosts.at[i], hosts[i]));
    arena_done(&a);
}

static void a_long_list_of_headers_has_no_doubles(void **state)
{
    (void)state;
    struct arena a;
    struct auth_header headers[40];
    struct str hosts[] = {STR("api.example.com")}, error;
    struct binding b;
    struct binding_draft d = {.name = STR("b"),
                              .hosts = {hosts, 1},
                              .type = STR("customHeaders"),
                              .headers = headers,
                              .nheaders = 40};
    arena_init(&a, NULL, 0);
    for (unsigned i = 0; i < 40; i++)
        headers[i] = (struct auth_header){arena_printf(&a, "x-%u", i), STR("k")};
    assert_true(binding_read(&d, false, &a, &b, &error));
    assert_int_equal(b.nheaders, 40);
    headers[39].name = STR("X-20");
    assert_false(binding_read(&d, false, &a, &b, &error));
    same(error, "binding \"b\": duplicate custom header name \"X-20\"");
    arena_done(&a);
}

static void a_host_is_normal_in_one_spelling_only(void **state)
{
    static const char *const normal[] = {"api.example.com", "*.example.com", "1.2.3.4.5",
                                         "xn--bcher-kva.example"},
                             *const not [] = {
                                 "",           "com",         "*.com",     "API.example.com",
                                 "a.b.",       "1.2.3.4",     "*.1.2.3.4", "*.*.a.b",
                                 "a_b.c",      "2001:db8::1", "a..b",      "-a.b",
                                 "http://a.b", "a.b:443",     " a.b",      "*"};
    (void)state;
    for (size_t i = 0; i < sizeof normal / sizeof *normal; i++)
        if (!binding_host_is_normal(str_of(normal[i])))
            fail_msg("%s", normal[i]);
    for (size_t i = 0; i < sizeof not / sizeof *not ; i++)
        if (binding_host_is_normal(str_of(not [i])))
            fail_msg("%s", not [i]);
}

/* ---- sets */

static void a_set_is_sorted_and_found_by_name(void **state)
{
    static const struct short_binding rows[] = {
        {"b", "b.example.com", NULL, NULL, NULL},
        {"B", "B.example.org", NULL, NULL, NULL},
        {"a", "a.example.com", NULL, NULL, NULL},
    };
    (void)state;
    struct set set;
    begin(&set);
    for (size_t i = 0; i < 3; i++)
        add(&set, &rows[i]);
    struct bindings *s = finish(&set);
    assert_non_null(s);
    arena_done(&set.a); /* the set has copies */
    assert_int_equal(bindings_count(s), 3);
    same(bindings_at(s, 0)->name, "B");
    same(bindings_at(s, 1)->name, "a");
    same(bindings_at(s, 2)->name, "b");
    for (unsigned i = 0; i < 3; i++) {
        assert_ptr_equal(bindings_named(s, bindings_at(s, i)->name), bindings_at(s, i));
        assert_int_equal(bindings_index(s, bindings_at(s, i)), i);
    }
    assert_null(bindings_named(s, STR("c")));
    bindings_free(s);
}

static void a_host_is_bound_by_its_scheme(void **state)
{
    static const struct short_binding rows[] = {
        {"a", "api.example.com", NULL, NULL, NULL},
        {"b", "*.apps.example.com", NULL, NULL, "http"},
        {"c", "*.3.4", NULL, NULL, NULL},
    };
    static const struct {
        const char *name;
        bool https, http;
    } asked[] = {
        {"api.example.com", true, false},
        {"x.api.example.com", false, false},
        {"apps.example.com", false, false},
        {"x.apps.example.com", false, true},
        {"a.b.apps.example.com", false, true},
        {"xapps.example.com", false, false},
        {"a.2.3.4", true, false},
        {"1.2.3.4", false, false},
        {"com", false, false},
        {"", false, false},
    };
    (void)state;
    struct set set;
    begin(&set);
    for (size_t i = 0; i < 3; i++)
        add(&set, &rows[i]);
    struct bindings *s = finish(&set);
    for (size_t i = 0; i < sizeof asked / sizeof *asked; i++) {
        struct str name = str_of(asked[i].name);
        if (bindings_bind_host(s, name, true) != asked[i].https ||
            bindings_bind_host(s, name, false) != asked[i].http)
            fail_msg("%s", asked[i].name);
        assert_false(bindings_bind_host(NULL, name, true));
    }
    bindings_free(s);
    arena_done(&set.a);
}

/* ---- conflicts */

static void the_first_pair_by_name_is_told(void **state)
{
    static const struct short_binding rows[] = {
        {"d", "*.a.example.com", NULL, NULL, NULL}, {"c", "*.example.com", NULL, NULL, NULL},
        {"b", "x.example.com", NULL, NULL, NULL},   {"a", "y.example.com", NULL, NULL, NULL},
        {"e", "x.example.com", NULL, NULL, NULL},
    };
    (void)state;
    struct set set;
    begin(&set);
    for (size_t i = 0; i < 5; i++)
        add(&set, &rows[i]);
    assert_null(finish(&set));
    same(set.error, "bindings \"b\" and \"e\" can match the same request");
    arena_done(&set.a);
}

static void pairs_collide_where_all_four_meet(void **state)
{
    static const struct {
        struct short_binding a, b;
        bool collide;
    } rows[] = {
        {{"a", "*.x.y", NULL, NULL, NULL}, {"b", "*.z.x.y", NULL, NULL, NULL}, true},
        {{"a", "*.z.x.y", NULL, NULL, NULL}, {"b", "*.x.y", NULL, NULL, NULL}, true},
        {{"a", "*.w.z.x.y", NULL, NULL, NULL}, {"b", "*.x.y", NULL, NULL, NULL}, true},
        {{"a", "*.zx.y", NULL, NULL, NULL}, {"b", "*.x.y", NULL, NULL, NULL}, false},
        {{"a", "x.y", NULL, NULL, NULL}, {"b", "*.x.y", NULL, NULL, NULL}, false},
        {{"a", "x.y,*.x.y", NULL, NULL, NULL}, {"b", "q.x.y,z.x.y", NULL, NULL, NULL}, false},
        {{"a", "x.y", "/a,/b,/c/*", NULL, NULL}, {"b", "x.y", "/d,/c/d,/e", NULL, NULL}, true},
        {{"a", "x.y", "/a,/b,/c/*", NULL, NULL}, {"b", "x.y", "/d,/c,/e", NULL, NULL}, false},
        {{"a", "x.y", "/c/d", NULL, NULL}, {"b", "x.y", "/a,/c*,/e", NULL, NULL}, true},
        {{"a", "x.y", "/a*", NULL, NULL}, {"b", "x.y", "/a", NULL, NULL}, true},
        {{"a", "x.y", "/a**", NULL, NULL}, {"b", "x.y", "/a*", NULL, NULL}, true},
        {{"a", "x.y", "/a**", NULL, NULL}, {"b", "x.y", "/a", NULL, NULL}, false},
        {{"a", "x.y", NULL, "GET,M1,M2", NULL}, {"b", "x.y", NULL, "M3,M2", NULL}, true},
        {{"a", "x.y", NULL, "GET,M1,M2", NULL}, {"b", "x.y", NULL, "M3,M4,HEAD", NULL}, false},
        {{"a", "x.y", NULL, NULL, "http"}, {"b", "x.y", NULL, NULL, "https,http"}, true},
        {{"a", "x.y", NULL, NULL, "http"}, {"b", "x.y", NULL, NULL, "https"}, false},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct set set;
        begin(&set);
        add(&set, &rows[i].a);
        add(&set, &rows[i].b);
        struct bindings *s = finish(&set);
        if (!s != rows[i].collide)
            fail_msg("row %zu: %s", i, s ? "taken" : "refused");
        bindings_free(s);
        arena_done(&set.a);
    }
}

/* What the index finds is what comparing each with each finds. */
static bool paths_meet(struct str a, struct str b)
{
    bool open_a = a.p[a.n - 1] == '*', open_b = b.p[b.n - 1] == '*';
    a.n -= open_a;
    b.n -= open_b;
    if (open_a && open_b)
        return str_starts(a, b) || str_starts(b, a);
    return str_eq(a, b) || (open_a && str_starts(b, a)) || (open_b && str_starts(a, b));
}

static bool hosts_meet(struct str a, struct str b)
{
    bool wild_a = a.p[0] == '*', wild_b = b.p[0] == '*';
    if (wild_a != wild_b)
        return false;
    return str_eq(a, b) ||
           (wild_a && (str_iends(a, str_skip(b, 1)) || str_iends(b, str_skip(a, 1))));
}

static bool lists_meet(struct str_list a, struct str_list b, bool (*meet)(struct str, struct str))
{
    for (unsigned i = 0; i < a.n; i++)
        for (unsigned k = 0; k < b.n; k++)
            if (meet(a.at[i], b.at[k]))
                return true;
    return false;
}

static bool collide(const struct binding *a, const struct binding *b)
{
    return lists_meet(a->schemes, b->schemes, str_eq) &&
           lists_meet(a->methods, b->methods, str_eq) &&
           lists_meet(a->paths, b->paths, paths_meet) && lists_meet(a->hosts, b->hosts, hosts_meet);
}

static unsigned next_random(unsigned *seed)
{
    *seed = *seed * 1103515245 + 12345;
    return *seed >> 16 & 0x7fff;
}

static const char *pick(struct arena *a, unsigned *seed, const char *const *words, unsigned n)
{
    struct str list = str_of(words[next_random(seed) % n]);
    while (next_random(seed) % 3 == 0)
        list = arena_printf(a, "%.*s,%s", STR_ARG(list), words[next_random(seed) % n]);
    return arena_printf(a, "%.*s", STR_ARG(list)).p;
}

static void make_random(struct set *set, unsigned *seed)
{
    static const char *const hosts[] = {"a.x.y",   "b.x.y",   "*.x.y",   "*.a.x.y", "c.d.x.y",
                                        "*.d.x.y", "*.z.x.y", "q.z.x.y", "*.q.r",   "s.q.r"},
                             *const paths[] = {"/a", "/a/*", "/a/b", "/b*", "/bc", "/a/b/*", "/d"},
                             *const methods[] = {"GET", "PUT", "M1", "M2"},
                             *const schemes[] = {"https", "http"};
    for (unsigned i = 0; i < 4; i++) {
        struct short_binding b = {arena_printf(&set->a, "n%u", i).p, pick(&set->a, seed, hosts, 10),
                                  pick(&set->a, seed, paths, 7), pick(&set->a, seed, methods, 4),
                                  pick(&set->a, seed, schemes, 2)};
        add(set, &b);
    }
}

static void the_index_finds_what_comparing_all_finds(void **state)
{
    (void)state;
    unsigned seed = 7, refused = 0;
    for (unsigned round = 0; round < 2000; round++) {
        struct set set;
        struct str expected = STR("");
        begin(&set);
        make_random(&set, &seed);
        for (unsigned i = 0; i < set.n && !expected.n; i++)
            for (unsigned k = i + 1; k < set.n && !expected.n; k++)
                if (collide(set.at[i], set.at[k]))
                    expected = arena_printf(
                        &set.a, "bindings \"n%u\" and \"n%u\" can match the same request", i, k);
        struct bindings *s = finish(&set);
        if (!s != (expected.n > 0) || !str_eq(set.error, expected))
            fail_msg("round %u: got \"%.*s\", expected \"%.*s\"", round, STR_ARG(set.error),
                     STR_ARG(expected));
        refused += !s;
        bindings_free(s);
        arena_done(&set.a);
    }
    assert_in_range(refused, 200, 1800); /* else the rows say nothing */
}

static void many_bindings_for_one_host_are_told_apart_by_path(void **state)
{
    (void)state;
    struct set *set = mem_new(sizeof *set);
    begin(set);
    for (unsigned i = 0; i < 1000; i++) {
        struct short_binding b = {.name = arena_printf(&set->a, "b%u", i).p,
                                  .hosts = "api.example.com",
                                  .paths = arena_printf(&set->a, "/p/%u/*", i).p};
        add(set, &b);
    }
    struct bindings *s = finish(set);
    assert_non_null(s);
    const struct binding *got = NULL;
    struct binding_request q = {true, 443, STR("GET"), STR("api.example.com"), STR("/p/77/x?y")};
    assert_int_equal(bindings_choose(s, &q, &got), BINDING_ONE);
    same(got->name, "b77");
    bindings_free(s);
    arena_done(&set->a);
    mem_free(set);
}

/* ---- choosing */

static enum binding_choice choose(const struct bindings *s, const char *host, const char *target,
                                  const struct binding **ret)
{
    struct binding_request q = {true, 443, STR("GET"), str_of(host), str_of(target)};
    return bindings_choose(s, &q, ret);
}

static void a_binding_with_two_suffixes_of_a_host_is_one_binding(void **state)
{
    static const struct short_binding row = {"a", "*.x.y,*.z.x.y,q.z.x.y", NULL, NULL, NULL};
    (void)state;
    struct set set;
    const struct binding *got = NULL;
    begin(&set);
    add(&set, &row);
    struct bindings *s = finish(&set);
    assert_int_equal(choose(s, "q.z.x.y", "/", &got), BINDING_ONE);
    assert_int_equal(choose(s, "r.z.x.y", "/", &got), BINDING_ONE);
    assert_int_equal(choose(s, "x.y", "/", &got), BINDING_NONE);
    bindings_free(s);
    arena_done(&set.a);
}

static void an_address_gets_nothing_even_where_a_suffix_ends_it(void **state)
{
    static const struct short_binding row = {"a", "*.3.4", NULL, NULL, NULL};
    (void)state;
    struct set set;
    const struct binding *got = NULL;
    begin(&set);
    add(&set, &row);
    struct bindings *s = finish(&set);
    assert_int_equal(choose(s, "1.2.3.4", "/", &got), BINDING_NONE);
    assert_int_equal(choose(s, "b.2.3.4", "/", &got), BINDING_ONE);
    bindings_free(s);
    arena_done(&set.a);
}

static void an_unsafe_path_tells_whose_it_was(void **state)
{
    static const struct short_binding rows[] = {{"a", "a.x.y", "/v1/*", NULL, NULL},
                                                {"b", "*.x.y", "/v1/admin/*", NULL, NULL}};
    (void)state;
    struct set set;
    const struct binding *got = NULL;
    begin(&set);
    add(&set, &rows[0]);
    add(&set, &rows[1]);
    struct bindings *s = finish(&set);
    assert_int_equal(choose(s, "a.x.y", "/v1/admin%252fx", &got), BINDING_UNSAFE);
    same(got->name, "a");
    assert_int_equal(choose(s, "a.x.y", "/v1/admin%252fx?%252e", &got), BINDING_UNSAFE);
    assert_int_equal(choose(s, "a.x.y", "/v1/b?/v1/admin%2f..", &got), BINDING_ONE);
    assert_int_equal(choose(s, "a.x.y", "/v2/..", &got), BINDING_NONE);
    bindings_free(s);
    arena_done(&set.a);
}

static void an_empty_set_chooses_nothing(void **state)
{
    (void)state;
    struct set set;
    const struct binding *got = NULL;
    begin(&set);
    struct bindings *s = finish(&set);
    assert_non_null(s);
    assert_int_equal(bindings_count(s), 0);
    assert_int_equal(choose(s, "a.x.y", "/", &got), BINDING_NONE);
    assert_int_equal(choose(NULL, "a.x.y", "/", &got), BINDING_NONE);
    bindings_free(s);
    bindings_free(NULL);
    arena_done(&set.a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_binding_copies_what_it_is_read_from),
        cmocka_unit_test(names_in_errors_are_quoted),
        cmocka_unit_test(long_lists_lose_their_doubles_too),
        cmocka_unit_test(a_long_list_of_headers_has_no_doubles),
        cmocka_unit_test(a_host_is_normal_in_one_spelling_only),
        cmocka_unit_test(a_set_is_sorted_and_found_by_name),
        cmocka_unit_test(a_host_is_bound_by_its_scheme),
        cmocka_unit_test(the_first_pair_by_name_is_told),
        cmocka_unit_test(pairs_collide_where_all_four_meet),
        cmocka_unit_test(the_index_finds_what_comparing_all_finds),
        cmocka_unit_test(many_bindings_for_one_host_are_told_apart_by_path),
        cmocka_unit_test(a_binding_with_two_suffixes_of_a_host_is_one_binding),
        cmocka_unit_test(an_address_gets_nothing_even_where_a_suffix_ends_it),
        cmocka_unit_test(an_unsafe_path_tells_whose_it_was),
        cmocka_unit_test(an_empty_set_chooses_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
