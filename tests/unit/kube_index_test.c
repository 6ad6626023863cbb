/* kube_index_test.c — objects by name: which news count, and what tables are told. */
#include "ingress/kube/index.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <cmocka.h>

#include "base/map.h"

/* What a table would hold after all that was told. */
static struct {
    struct kube_index *x;
    struct map *table;
    size_t puts, gones;
} t;

static int set_up(void **state)
{
    (void)state;
    memset(&t, 0, sizeof t);
    t.x = kube_index_new();
    t.table = map_new();
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    size_t at = 0;
    for (struct sandbox *s; (s = map_next(t.table, &at));)
        sandbox_unref(s);
    map_free(t.table);
    kube_index_free(t.x);
    return 0;
}

static void take(void)
{
    struct kube_delta d = kube_index_take(t.x);
    t.puts += d.nput;
    t.gones += d.ngone;
    for (size_t i = 0; i < d.ngone; i++) {
        struct sandbox *s = map_del(t.table, d.gone[i]);
        assert_non_null(s);
        sandbox_unref(s);
    }
    for (size_t i = 0; i < d.nput; i++) {
        sandbox_ref(d.put[i]);
        sandbox_unref(map_put(t.table, d.put[i]->key, (void *)(uintptr_t)d.put[i]));
    }
}

struct thing {
    const char *ns, *name, *uid, *version, *host; /* host NULL: it is not ready */
};

static struct kube_object object(const struct thing *from, struct endpoint *end)
{
    struct kube_object o = {.ns = str_of(from->ns),
                            .name = str_of(from->name),
                            .uid = str_of(from->uid),
                            .version = str_of(from->version)};
    *end = (struct endpoint){.host = str_of(from->host)};
    o.draft.id = o.name;
    o.draft.until_unix_s = INT64_MAX;
    o.draft.state = from->host ? SANDBOX_RUNNING : SANDBOX_NOT_READY;
    o.draft.ends = end;
    o.draft.nends = from->host ? 1 : 0;
    return o;
}

static bool put(const char *ns, const char *name, const char *uid, const char *version,
                const char *host)
{
    struct endpoint end;
    struct kube_object o = object(&(struct thing){ns, name, uid, version, host}, &end);
    return kube_index_put(t.x, &o);
}

static bool del(const char *ns, const char *name, const char *uid, const char *version)
{
    struct endpoint end;
    struct kube_object o = object(&(struct thing){ns, name, uid, version, NULL}, &end);
    return kube_index_del(t.x, &o);
}

static const struct sandbox *known(const char *name)
{
    return map_get(t.table, str_of(name));
}

static uint64_t generation(const char *name)
{
    assert_non_null(known(name));
    return known(name)->generation;
}

static void assert_leads(const char *name, const char *host)
{
    take();
    const struct sandbox *s = known(name);
    if (!host) {
        assert_null(s);
        return;
    }
    assert_non_null(s);
    assert_int_equal(s->state, SANDBOX_RUNNING);
    assert_true(str_eq(sandbox_endpoint(s, 80)->host, str_of(host)));
}

static void assert_state(const char *name, enum sandbox_state wanted)
{
    take();
    assert_non_null(known(name));
    assert_int_equal(known(name)->state, wanted);
}

/* ---- instances and versions */

static void late_news_of_an_earlier_instance_change_nothing(void **state)
{
    (void)state;
    put("ns", "sb1", "uid-1", "10", "10.0.0.1");
    assert_leads("sb1", "10.0.0.1");
    uint64_t first = generation("sb1"), instance = known("sb1")->instance;
    put("ns", "sb1", "uid-1", "11", "10.0.0.3");
    assert_leads("sb1", "10.0.0.3");
    assert_true(known("sb1")->instance == instance);
    put("ns", "sb1", "uid-2", "12", "10.0.0.2");
    assert_leads("sb1", "10.0.0.2");
    assert_true(generation("sb1") > first && known("sb1")->instance != instance);
    uint64_t second = generation("sb1");
    assert_false(del("ns", "sb1", "uid-1", "11"));
    assert_false(put("ns", "sb1", "uid-1", "11", "10.0.0.1"));
    assert_false(put("ns", "sb1", "uid-1", "13", "10.0.0.1")); /* a uid never comes back */
    assert_leads("sb1", "10.0.0.2");
    kube_index_list_begin(t.x, false);
    assert_false(put("ns", "sb1", "uid-1", "10", "10.0.0.1"));
    kube_index_list_end(t.x);
    assert_leads("sb1", "10.0.0.2");
    assert_int_equal(generation("sb1"), second);
}

static void what_was_deleted_is_not_put_back_by_late_news(void **state)
{
    (void)state;
    put("ns", "sb1", "uid-1", "10", "10.0.0.1");
    assert_leads("sb1", "10.0.0.1");
    assert_true(del("ns", "sb1", "uid-1", "12"));
    assert_leads("sb1", NULL);
    assert_false(put("ns", "sb1", "uid-1", "11", "10.0.0.1"));
    assert_leads("sb1", NULL);
    assert_false(del("ns", "sb2", "uid-9", "14")); /* its ADDED comes later */
    assert_false(put("ns", "sb2", "uid-9", "13", "10.0.0.1"));
    assert_leads("sb2", NULL);
    put("ns", "sb1", "uid-2", "15", "10.0.0.3");
    assert_leads("sb1", "10.0.0.3");
}

static void versions_are_in_order_where_they_are_numbers(void **state)
{
    static const struct {
        const char *before, *then;
        bool counts;
    } rows[] = {{"9", "10", true},   {"10", "9", false},
                {"10", "10", false}, {"99999999999", "100000000000", true},
                {"x1", "x1", false}, {"x2", "x1", true},
                {"5", "x1", true},   {"x1", "5", true},
                {"", "1", true},     {"99999999999999999999999", "4", true}};
    (void)state;
    for (unsigned i = 0; i < sizeof rows / sizeof *rows; i++) {
        char name[16];
        snprintf(name, sizeof name, "sb%u", i);
        put("ns", name, name, rows[i].before, "10.0.0.1");
        assert_int_equal(put("ns", name, name, rows[i].then, "10.0.0.2"), rows[i].counts);
        assert_leads(name, rows[i].counts ? "10.0.0.2" : "10.0.0.1");
    }
}

static void what_says_the_same_keeps_its_generation(void **state)
{
    (void)state;
    put("ns", "sb1", "uid-1", "10", "10.0.0.1");
    take();
    uint64_t before = generation("sb1");
    assert_true(put("ns", "sb1", "uid-1", "11", "10.0.0.1"));
    take();
    assert_int_equal(t.puts, 1);
    assert_int_equal(generation("sb1"), before);
    assert_false(put("ns", "sb1", "uid-1", "10", "10.0.0.7")); /* 11 was noted all the same */
}

static void another_instance_is_another_generation_even_at_the_same_address(void **state)
{
    (void)state;
    put("ns", "sb1", "uid-1", "10", "10.0.0.1");
    take();
    uint64_t before = generation("sb1");
    put("ns", "sb1", "uid-2", "11", "10.0.0.1");
    take();
    assert_true(generation("sb1") != before);
}

static void many_steps_between_two_takes_are_one(void **state)
{
    (void)state;
    put("ns", "sb1", "uid-1", "10", "10.0.0.1");
    put("ns", "sb1", "uid-1", "11", NULL);
    put("ns", "sb1", "uid-1", "12", "10.0.0.2");
    assert_leads("sb1", "10.0.0.2");
    assert_int_equal(t.puts, 1);
    put("ns", "sb2", "uid-2", "13", "10.0.0.3");
    del("ns", "sb2", "uid-2", "14");
    assert_leads("sb2", NULL);
    assert_int_equal(t.puts, 1);
    assert_int_equal(t.gones, 0);
    del("ns", "sb1", "uid-1", "15");
    put("ns", "sb1", "uid-3", "16", "10.0.0.4");
    assert_leads("sb1", "10.0.0.4");
    assert_int_equal(t.gones, 0);
    take();
    assert_int_equal(t.puts, 2);
}

static void what_is_not_ready_is_told_with_its_reason_later(void **state)
{
    (void)state;
    put("ns", "sb1", "uid-1", "10", NULL);
    assert_state("sb1", SANDBOX_NOT_READY);
    put("ns", "sb1", "uid-1", "11", "fd00::1");
    assert_leads("sb1", "fd00::1");
}

/* ---- several namespaces */

static void a_name_of_two_namespaces_is_ambiguous_until_one_goes(void **state)
{
    (void)state;
    put("a", "sb1", "uid-1", "10", "10.0.0.1");
    take();
    uint64_t alone = generation("sb1");
    put("b", "sb1", "uid-2", "11", "10.0.0.2");
    assert_state("sb1", SANDBOX_AMBIGUOUS);
    assert_int_equal(kube_index_objects(t.x), 2);
    assert_int_equal(kube_index_ambiguous(t.x), 1);
    uint64_t both = generation("sb1");
    put("b", "sb1", "uid-2", "12", "10.0.0.3");
    put("c", "sb1", "uid-3", "13", "10.0.0.4");
    take();
    assert_int_equal(generation("sb1"), both);
    del("c", "sb1", "uid-3", "14");
    del("b", "sb1", "uid-2", "15");
    assert_leads("sb1", "10.0.0.1");
    assert_true(generation("sb1") != alone);
    assert_int_equal(kube_index_ambiguous(t.x), 0);
    del("a", "sb1", "uid-1", "16");
    assert_leads("sb1", NULL);
    assert_int_equal(kube_index_objects(t.x), 0);
}

static void the_first_of_two_may_go_too(void **state)
{
    (void)state;
    put("a", "sb1", "uid-1", "10", "10.0.0.1");
    put("b", "sb1", "uid-2", "11", "10.0.0.2");
    assert_state("sb1", SANDBOX_AMBIGUOUS);
    assert_false(del("a", "sb1", "uid-2", "12")); /* the uid is of the other one */
    assert_state("sb1", SANDBOX_AMBIGUOUS);
    del("a", "sb1", "uid-1", "13");
    assert_leads("sb1", "10.0.0.2");
    put("a", "sb1", "uid-4", "14", "10.0.0.5");
    del("b", "sb1", "uid-2", "15");
    assert_leads("sb1", "10.0.0.5");
}

/* ---- lists */

static void a_list_removes_what_it_does_not_have_and_nothing_before_its_end(void **state)
{
    (void)state;
    put("ns", "sb1", "uid-1", "10", "10.0.0.1");
    put("ns", "sb2", "uid-2", "11", "10.0.0.2");
    put("ns", "sb3", "uid-3", "12", "10.0.0.3");
    take();
    uint64_t before = generation("sb1");
    kube_index_list_begin(t.x, false);
    put("ns", "sb1", "uid-1", "10", "10.0.0.1");
    take();
    assert_int_equal(t.puts, 3);
    assert_int_equal(t.gones, 0);
    kube_index_list_begin(t.x, false); /* the first one was broken off */
    put("ns", "sb3", "uid-3", "20", "10.0.0.9");
    assert_leads("sb3", "10.0.0.9");
    put("ns", "sb1", "uid-1", "10", "10.0.0.1");
    kube_index_list_end(t.x);
    assert_leads("sb2", NULL);
    assert_leads("sb1", "10.0.0.1");
    assert_int_equal(generation("sb1"), before);
    assert_int_equal(t.gones, 1);
    assert_int_equal(kube_index_objects(t.x), 2);
}

static void lists_that_say_the_same_tell_nothing(void **state)
{
    (void)state;
    for (int i = 0; i < 5; i++) {
        kube_index_list_begin(t.x, false);
        put("a", "sb1", "uid-1", "10", "10.0.0.1");
        put("a", "sb2", "uid-2", "11", "10.0.0.2");
        put("b", "sb2", "uid-3", "12", "10.0.0.3");
        take();
        kube_index_list_end(t.x);
        take();
    }
    assert_int_equal(t.puts, 2);
    assert_int_equal(t.gones, 0);
    assert_state("sb2", SANDBOX_AMBIGUOUS);
}

static void a_sandbox_that_moved_to_another_namespace_is_never_ambiguous(void **state)
{
    (void)state;
    put("a", "sb1", "uid-1", "10", "10.0.0.1");
    take();
    kube_index_list_begin(t.x, false);
    put("b", "sb1", "uid-2", "20", "10.0.0.2");
    assert_leads("sb1", "10.0.0.1");
    kube_index_list_end(t.x);
    assert_leads("sb1", "10.0.0.2");
}

static void after_the_store_went_back_older_versions_count(void **state)
{
    (void)state;
    put("ns", "sb1", "uid-1", "100", "10.0.0.1");
    put("ns", "sb2", "uid-2", "101", "10.0.0.2");
    del("ns", "sb2", "uid-2", "102");
    take();
    kube_index_list_begin(t.x, true);
    put("ns", "sb1", "uid-1", "50", "10.0.0.7");
    put("ns", "sb2", "uid-2", "51", "10.0.0.2");
    kube_index_list_end(t.x);
    assert_leads("sb1", "10.0.0.7");
    assert_leads("sb2", "10.0.0.2");
    assert_false(put("ns", "sb1", "uid-1", "49", "10.0.0.8"));
    assert_true(put("ns", "sb1", "uid-1", "52", "10.0.0.9"));
    assert_leads("sb1", "10.0.0.9");
}

/* Against a model that keeps it all in plain arrays. */
static void any_sequence_ends_as_the_model_says(void **state)
{
    enum { NAMES = 7, SPACES = 3, STEPS = 20000 };
    static const char *const spaces[SPACES] = {"a", "b", "c"};
    struct {
        bool there;
        unsigned uid, host;
    } model[NAMES][SPACES] = {0};
    unsigned seed = 1, version = 0;
    (void)state;
    for (unsigned step = 0; step < STEPS; step++) {
        seed = seed * 1103515245 + 12345;
        unsigned n = seed >> 16 & 0x7fff, name = n % NAMES, ns = n / NAMES % SPACES;
        char id[16], uid[16], v[16], host[32];
        if (!model[name][ns].there || n % 5 == 0)
            model[name][ns].uid = ++version;
        model[name][ns].there = n % 3 != 0;
        model[name][ns].host = n % 11;
        snprintf(id, sizeof id, "sb%u", name);
        snprintf(uid, sizeof uid, "uid-%u", model[name][ns].uid);
        snprintf(v, sizeof v, "%u", ++version);
        snprintf(host, sizeof host, "10.0.0.%u", model[name][ns].host);
        if (model[name][ns].there || n % 5 == 0)
            put(spaces[ns], id, uid, v, host);
        if (!model[name][ns].there)
            del(spaces[ns], id, uid, v);
        if (n % 4 != 0)
            continue;
        take();
        for (unsigned i = 0; i < NAMES; i++) {
            unsigned count = 0, at = 0;
            for (unsigned k = 0; k < SPACES; k++)
                if (model[i][k].there) {
                    count++;
                    at = model[i][k].host;
                }
            snprintf(id, sizeof id, "sb%u", i);
            snprintf(host, sizeof host, "10.0.0.%u", at);
            if (count < 2)
                assert_leads(id, count ? host : NULL);
            else
                assert_state(id, SANDBOX_AMBIGUOUS);
        }
    }
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(late_news_of_an_earlier_instance_change_nothing),
        TEST(what_was_deleted_is_not_put_back_by_late_news),
        TEST(versions_are_in_order_where_they_are_numbers),
        TEST(what_says_the_same_keeps_its_generation),
        TEST(another_instance_is_another_generation_even_at_the_same_address),
        TEST(many_steps_between_two_takes_are_one),
        TEST(what_is_not_ready_is_told_with_its_reason_later),
        TEST(a_name_of_two_namespaces_is_ambiguous_until_one_goes),
        TEST(the_first_of_two_may_go_too),
        TEST(a_list_removes_what_it_does_not_have_and_nothing_before_its_end),
        TEST(lists_that_say_the_same_tell_nothing),
        TEST(a_sandbox_that_moved_to_another_namespace_is_never_ambiguous),
        TEST(after_the_store_went_back_older_versions_count),
        TEST(any_sequence_ends_as_the_model_says),
    };
#undef TEST
    return cmocka_run_group_tests(tests, NULL, NULL);
}
