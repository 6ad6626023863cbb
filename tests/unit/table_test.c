/* table_test.c — deltas on their way to the tables of several workers. */
#include "ingress/table.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <time.h>
#include <cmocka.h>

#include "net/worker.h"

static struct sandbox *make(const char *id, const char *host)
{
    struct endpoint end = {.host = str_of(host)};
    struct sandbox from = {.id = str_of(id),
                           .state = SANDBOX_RUNNING,
                           .ends = &end,
                           .nends = 1,
                           .until_unix_s = INT64_MAX};
    return sandbox_new(&from);
}

static struct sandbox *make_numbered(unsigned i)
{
    char id[32];
    snprintf(id, sizeof id, "sandbox-%06u", i);
    return make(id, "10.0.0.1");
}

static void put(struct table *t, const struct sandbox *s)
{
    table_publish(&t, 1, &s, 1, NULL, 0, false, NULL, NULL, NULL);
}

static void remove_id(struct table *t, const char *id)
{
    struct str gone = str_of(id);
    table_publish(&t, 1, NULL, 0, &gone, 1, false, NULL, NULL, NULL);
}

/* Until nothing is left to do. */
static void turn(struct worker *w)
{
    for (unsigned i = 0; i < 20; i++)
        worker_turn(w);
}

/* ---- one worker, turned by hand ---- */

/* What gone() saw; a worker of one thread writes it. */
static struct {
    struct table *t;
    unsigned count;
    uint64_t generation;
    const struct sandbox *in_table, *next;
    char pool[64];
} seen;

static void on_gone(struct worker *w, const struct sandbox *s, const struct sandbox *next)
{
    seen.next = next;
    assert_non_null(w);
    assert_true(s->refs >= 1);
    seen.count++;
    seen.generation = s->generation;
    seen.in_table = seen.t ? table_get(seen.t, s->id) : NULL;
    snprintf(seen.pool, sizeof seen.pool, "%.*s", STR_ARG(s->pool));
}

static struct table *new_seen(struct worker *w)
{
    memset(&seen, 0, sizeof seen);
    return seen.t = table_new(w, on_gone, NULL);
}

static void a_record_is_found_until_it_is_gone(void **state)
{
    (void)state;
    struct worker *w = worker_new(0);
    struct table *t = new_seen(w);
    struct sandbox *s = make("sb1", "a");
    put(t, s);
    assert_null(table_get(t, STR("sb1"))); /* not before the loop turns */
    turn(w);
    assert_ptr_equal(table_get(t, STR("sb1")), s);
    assert_null(table_get(t, STR("SB1")));
    assert_int_equal(table_size(t), 1);
    assert_int_equal(seen.count, 0);
    remove_id(t, "other");
    remove_id(t, "sb1");
    turn(w);
    assert_null(table_get(t, STR("sb1")));
    assert_int_equal(table_size(t), 0);
    assert_int_equal(seen.count, 1);
    assert_int_equal(seen.generation, s->generation);
    assert_null(seen.next);
    assert_int_equal(s->refs, 1);
    sandbox_unref(s);
    table_free(t);
    worker_free(w);
}

static void a_replaced_record_is_gone_when_the_new_one_is_there(void **state)
{
    (void)state;
    struct worker *w = worker_new(0);
    struct table *t = new_seen(w);
    struct sandbox *a = make("sb1", "a"), *b = make("sb1", "b");
    put(t, a);
    put(t, b);
    turn(w);
    assert_int_equal(seen.count, 1);
    assert_int_equal(seen.generation, a->generation);
    assert_ptr_equal(seen.in_table, b);
    assert_ptr_equal(seen.next, b);
    assert_ptr_equal(table_get(t, STR("sb1")), b);
    assert_int_equal(a->refs, 1);
    assert_int_equal(b->refs, 2);
    sandbox_unref(a);
    sandbox_unref(b);
    table_free(t);
    worker_free(w);
}

static void a_record_that_is_there_already_stays(void **state)
{
    (void)state;
    struct worker *w = worker_new(0);
    struct table *t = new_seen(w);
    struct sandbox *s = make("sb1", "a");
    put(t, s);
    put(t, s);
    turn(w);
    put(t, s);
    turn(w);
    assert_int_equal(seen.count, 0);
    assert_int_equal(s->refs, 2);
    sandbox_unref(s);
    table_free(t);
    worker_free(w);
}

static void removals_of_a_delta_come_before_its_puts(void **state)
{
    (void)state;
    struct worker *w = worker_new(0);
    struct table *t = new_seen(w);
    struct sandbox *a = make("sb1", "a"), *b = make("sb1", "b");
    struct str id = STR("sb1");
    put(t, a);
    turn(w);
    const struct sandbox *list[] = {b};
    table_publish(&t, 1, list, 1, &id, 1, false, NULL, NULL, NULL);
    turn(w);
    assert_int_equal(seen.count, 1);
    assert_null(seen.next); /* it was gone in between */
    assert_ptr_equal(table_get(t, id), b);
    sandbox_unref(a);
    sandbox_unref(b);
    table_free(t);
    worker_free(w);
}

enum { MANY = 20 * TABLE_SLICE + 7 };

static struct sandbox **make_many(void)
{
    struct sandbox **all = mem_new(MANY * sizeof *all);
    for (unsigned i = 0; i < MANY; i++)
        all[i] = make_numbered(i);
    return all;
}

static void free_many(struct sandbox **all)
{
    for (unsigned i = 0; i < MANY; i++)
        sandbox_unref(all[i]);
    mem_free(all);
}

static void on_applied(void *user)
{
    ++*(unsigned *)user;
}

static void a_long_list_takes_a_turn_for_each_slice(void **state)
{
    (void)state;
    struct worker *w = worker_new(0);
    struct table *t = new_seen(w);
    struct sandbox **all = make_many();
    unsigned applied = 0, turns = 0;
    table_publish(&t, 1, (const struct sandbox *const *)all, MANY, NULL, 0, true, w, on_applied,
                  &applied);
    for (size_t before = 0; before < MANY; before = table_size(t)) {
        assert_false(table_ready(t));
        assert_int_equal(applied, 0);
        assert_true(++turns <= MANY / TABLE_SLICE + 2);
        worker_turn(w);
        assert_true(table_size(t) - before <= TABLE_SLICE);
    }
    assert_true(turns >= MANY / TABLE_SLICE);
    turn(w);
    assert_true(table_ready(t));
    assert_int_equal(applied, 1);
    for (unsigned i = 0; i < MANY; i++)
        assert_ptr_equal(table_get(t, all[i]->id), all[i]);

    struct str *ids = mem_new(MANY * sizeof *ids);
    for (unsigned i = 0; i < MANY; i++)
        ids[i] = all[i]->id;
    table_publish(&t, 1, NULL, 0, ids, MANY, false, NULL, NULL, NULL);
    for (size_t before = MANY; before > 0; before = table_size(t)) {
        worker_turn(w);
        assert_true(before - table_size(t) <= TABLE_SLICE);
    }
    assert_int_equal(seen.count, MANY);
    assert_true(table_ready(t));
    turn(w);
    for (unsigned i = 0; i < MANY; i++)
        assert_int_equal(all[i]->refs, 1);
    mem_free(ids);
    free_many(all);
    table_free(t);
    worker_free(w);
}

static void others_get_a_turn_between_two_slices(void **state)
{
    (void)state;
    struct worker *w = worker_new(0);
    struct table *t = new_seen(w);
    struct sandbox **all = make_many();
    table_publish(&t, 1, (const struct sandbox *const *)all, MANY, NULL, 0, true, NULL, NULL, NULL);
    put(t, all[0]); /* waits its turn behind the list */
    worker_turn(w);
    struct sandbox *late = make("sandbox-000003", "b");
    put(t, late);
    while (!table_ready(t)) {
        worker_turn(w);
        if (!table_ready(t))
            assert_ptr_not_equal(table_get(t, late->id), late);
    }
    turn(w);
    assert_ptr_equal(table_get(t, late->id), late);
    assert_int_equal(seen.count, 1);
    sandbox_unref(late);
    free_many(all);
    table_free(t);
    worker_free(w);
}

static void many_small_deltas_fit_one_turn(void **state)
{
    (void)state;
    struct worker *w = worker_new(0);
    struct table *t = new_seen(w);
    for (unsigned i = 0; i < TABLE_SLICE; i++) {
        struct sandbox *s = make_numbered(i);
        put(t, s);
        sandbox_unref(s);
    }
    worker_turn(w);
    worker_turn(w);
    assert_int_equal(table_size(t), TABLE_SLICE);
    table_free(t);
    worker_free(w);
}

static void a_table_is_ready_only_with_the_first_list(void **state)
{
    (void)state;
    struct worker *w = worker_new(0);
    struct table *t = new_seen(w);
    struct sandbox *s = make("sb1", "a");
    assert_false(table_ready(t));
    put(t, s);
    turn(w);
    assert_int_equal(table_size(t), 1);
    assert_false(table_ready(t));
    table_publish(&t, 1, NULL, 0, NULL, 0, true, NULL, NULL, NULL); /* an empty list is one, too */
    turn(w);
    assert_true(table_ready(t));
    sandbox_unref(s);
    table_free(t);
    worker_free(w);
}

static void a_table_that_goes_gives_back_what_it_did_not_apply(void **state)
{
    (void)state;
    struct worker *w = worker_new(0), *owner = worker_new(1);
    struct table *tables[] = {new_seen(w), table_new(w, on_gone, NULL)};
    struct sandbox **all = make_many();
    unsigned applied = 0;
    table_publish(tables, 2, (const struct sandbox *const *)all, MANY, NULL, 0, true, owner,
                  on_applied, &applied);
    worker_turn(w);
    worker_turn(w);
    assert_true(table_size(tables[0]) > 0 && table_size(tables[0]) < MANY);
    table_free(tables[0]); /* its post is under way */
    for (unsigned i = 0; i < MANY / TABLE_SLICE + 20; i++)
        worker_turn(w);
    assert_int_equal(table_size(tables[1]), MANY);
    turn(owner);
    assert_int_equal(applied, 0);
    table_free(tables[1]);
    for (unsigned i = 0; i < MANY; i++)
        assert_int_equal(all[i]->refs, 1);
    free_many(all);
    worker_free(w);
    worker_free(owner);
}

/* LIFE-01 */
static void nothing_in_flight_brings_an_old_instance_back(void **state)
{
    (void)state;
    struct worker *w = worker_new(0);
    struct table *t = new_seen(w);
    struct sandbox *a = make("sb1", "a"), *b = make("sb1", "b");
    put(t, a);
    turn(w);
    put(t, b);
    worker_turn(w);
    for (unsigned i = 0; i < 10; i++) {
        turn(w);
        assert_ptr_equal(table_get(t, STR("sb1")), b);
    }
    assert_int_equal(seen.count, 1);
    sandbox_unref(a);
    sandbox_unref(b);
    table_free(t);
    worker_free(w);
}

/* LIFE-02 */
static void a_reused_address_has_another_pool(void **state)
{
    (void)state;
    struct worker *w = worker_new(0);
    struct table *t = new_seen(w);
    struct sandbox *one = make("sb1", "127.0.0.1"), *two = make("sb2", "127.0.0.1");
    char pool[64];
    snprintf(pool, sizeof pool, "%.*s", STR_ARG(one->pool));
    put(t, one);
    turn(w);
    struct str id = STR("sb1");
    const struct sandbox *list[] = {two};
    table_publish(&t, 1, list, 1, &id, 1, false, NULL, NULL, NULL);
    turn(w);
    assert_null(table_get(t, STR("sb1")));
    assert_string_equal(seen.pool, pool); /* what is to be closed */
    assert_false(str_eq(table_get(t, STR("sb2"))->pool, str_of(pool)));
    sandbox_unref(one);
    sandbox_unref(two);
    table_free(t);
    worker_free(w);
}

/* ---- several workers on threads ---- */

enum { WORKERS = 3, ROUNDS = 300, IDS = 7 };

static struct {
    struct worker *workers[WORKERS], *owner;
    struct table *tables[WORKERS];
    unsigned gone[WORKERS];
    uint64_t last_gone[WORKERS][IDS];
    bool in_order[WORKERS], good[WORKERS]; /* a thread of its own must not fail a test itself */
} many;

static void on_gone_of_many(struct worker *w, const struct sandbox *s, const struct sandbox *next)
{
    (void)next;
    unsigned i = worker_index(w), id = (unsigned)(s->id.p[s->id.n - 1] - '0');
    many.in_order[i] = many.in_order[i] && s->generation >= many.last_gone[i][id];
    many.last_gone[i][id] = s->generation;
    many.gone[i]++;
}

struct call {
    struct post post;
    void (*run)(unsigned index, void *arg);
    void *arg;
    pthread_mutex_t lock;
    pthread_cond_t cond;
    bool done;
};

static void on_call(struct worker *w, struct post *p)
{
    struct call *c = (struct call *)p;
    c->run(worker_index(w), c->arg);
    pthread_mutex_lock(&c->lock);
    c->done = true;
    pthread_cond_signal(&c->cond);
    pthread_mutex_unlock(&c->lock);
}

/* run() on w's thread, waited for. */
static void call(struct worker *w, void (*run)(unsigned index, void *arg), void *arg)
{
    struct call c = {.post.run = on_call, .run = run, .arg = arg};
    pthread_mutex_init(&c.lock, NULL);
    pthread_cond_init(&c.cond, NULL);
    worker_post(w, &c.post);
    pthread_mutex_lock(&c.lock);
    while (!c.done)
        pthread_cond_wait(&c.cond, &c.lock);
    pthread_mutex_unlock(&c.lock);
    pthread_mutex_destroy(&c.lock);
    pthread_cond_destroy(&c.cond);
}

static struct {
    pthread_mutex_t lock;
    pthread_cond_t cond;
    unsigned count;
    pthread_t thread;
} applied = {.lock = PTHREAD_MUTEX_INITIALIZER, .cond = PTHREAD_COND_INITIALIZER};

static void on_applied_by_all(void *user)
{
    (void)user;
    pthread_mutex_lock(&applied.lock);
    applied.count++;
    applied.thread = pthread_self();
    pthread_cond_signal(&applied.cond);
    pthread_mutex_unlock(&applied.lock);
}

static void await_applied(unsigned count)
{
    pthread_mutex_lock(&applied.lock);
    while (applied.count < count)
        pthread_cond_wait(&applied.cond, &applied.lock);
    pthread_mutex_unlock(&applied.lock);
}

static void start_many(void)
{
    memset(&many, 0, sizeof many);
    applied.count = 0;
    many.owner = worker_new(WORKERS);
    for (unsigned i = 0; i < WORKERS; i++) {
        many.workers[i] = worker_new(i);
        many.tables[i] = table_new(many.workers[i], on_gone_of_many, NULL);
        many.in_order[i] = true;
    }
    for (unsigned i = 0; i < WORKERS; i++)
        worker_start(many.workers[i]);
    worker_start(many.owner);
}

static void stop_many(void)
{
    for (unsigned i = 0; i < WORKERS; i++) {
        worker_stop(many.workers[i]);
        worker_join(many.workers[i]);
    }
    worker_stop(many.owner);
    worker_join(many.owner);
    for (unsigned i = 0; i < WORKERS; i++) {
        table_free(many.tables[i]);
        worker_free(many.workers[i]);
    }
    worker_free(many.owner);
}

static void check_final(unsigned index, void *arg)
{
    struct sandbox **final = arg;
    const struct table *t = many.tables[index];
    bool good = table_size(t) == IDS && table_ready(t);
    for (unsigned k = 0; k < IDS; k++)
        good = good && table_get(t, final[k]->id) == final[k];
    many.good[index] = good;
}

static void publish_round(unsigned index, void *arg)
{
    struct sandbox **final = arg;
    (void)index;
    for (unsigned k = 0; k < IDS; k++) {
        char id[8];
        snprintf(id, sizeof id, "id%u", k);
        if (final[k])
            sandbox_unref(final[k]);
        final[k] = make(id, "10.0.0.1");
        const struct sandbox *list[] = {final[k]};
        table_publish(many.tables, WORKERS, list, 1, NULL, 0, false, many.owner, on_applied_by_all,
                      NULL);
        if (k % 3 == 0) { /* gone and back */
            struct str gone = str_of(id);
            table_publish(many.tables, WORKERS, NULL, 0, &gone, 1, false, NULL, NULL, NULL);
            table_publish(many.tables, WORKERS, list, 1, NULL, 0, false, NULL, NULL, NULL);
        }
    }
}

static void deltas_arrive_in_order_at_every_worker(void **state)
{
    (void)state;
    struct sandbox *final[IDS] = {NULL};
    start_many();
    for (unsigned r = 0; r < ROUNDS; r++)
        call(many.owner, publish_round, final);
    table_publish(many.tables, WORKERS, NULL, 0, NULL, 0, true, many.owner, on_applied_by_all,
                  NULL);
    await_applied(ROUNDS * IDS + 1);
    for (unsigned i = 0; i < WORKERS; i++)
        call(many.workers[i], check_final, final);
    stop_many();
    for (unsigned i = 0; i < WORKERS; i++) {
        /* each round replaces every record but the first time, and three of seven go once more */
        assert_int_equal(many.gone[i], IDS * (ROUNDS - 1) + 3 * ROUNDS);
        assert_true(many.in_order[i]);
        assert_true(many.good[i]);
    }
    for (unsigned k = 0; k < IDS; k++) {
        assert_int_equal(final[k]->refs, 1);
        sandbox_unref(final[k]);
    }
}

static void remember_thread(unsigned index, void *arg)
{
    (void)index;
    *(pthread_t *)arg = pthread_self();
}

static void replace_all(unsigned index, void *arg)
{
    struct sandbox **all = arg;
    (void)index;
    table_publish(many.tables, WORKERS, (const struct sandbox *const *)all, MANY, NULL, 0, true,
                  many.owner, on_applied_by_all, NULL);
}

static void check_all(unsigned index, void *arg)
{
    struct sandbox **all = arg;
    const struct table *t = many.tables[index];
    bool good = table_size(t) == MANY && table_ready(t);
    for (unsigned i = 0; i < MANY; i++)
        good = good && table_get(t, all[i]->id) == all[i];
    many.good[index] = good;
}

static void applied_is_said_on_the_owners_thread_when_all_share_the_records(void **state)
{
    (void)state;
    pthread_t owner;
    struct sandbox **all = make_many();
    start_many();
    call(many.owner, remember_thread, &owner);
    call(many.owner, replace_all, all);
    await_applied(1);
    assert_true(pthread_equal(applied.thread, owner));
    for (unsigned i = 0; i < WORKERS; i++)
        call(many.workers[i], check_all, all);
    for (unsigned i = 0; i < WORKERS; i++)
        assert_true(many.good[i]);
    for (unsigned i = 0; i < MANY; i++)
        assert_int_equal(all[i]->refs, WORKERS + 1);
    stop_many();
    free_many(all);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_record_is_found_until_it_is_gone),
        cmocka_unit_test(a_replaced_record_is_gone_when_the_new_one_is_there),
        cmocka_unit_test(a_record_that_is_there_already_stays),
        cmocka_unit_test(removals_of_a_delta_come_before_its_puts),
        cmocka_unit_test(a_long_list_takes_a_turn_for_each_slice),
        cmocka_unit_test(others_get_a_turn_between_two_slices),
        cmocka_unit_test(many_small_deltas_fit_one_turn),
        cmocka_unit_test(a_table_is_ready_only_with_the_first_list),
        cmocka_unit_test(a_table_that_goes_gives_back_what_it_did_not_apply),
        cmocka_unit_test(nothing_in_flight_brings_an_old_instance_back),
        cmocka_unit_test(a_reused_address_has_another_pool),
        cmocka_unit_test(deltas_arrive_in_order_at_every_worker),
        cmocka_unit_test(applied_is_said_on_the_owners_thread_when_all_share_the_records),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
