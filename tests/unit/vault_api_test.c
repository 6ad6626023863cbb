/* vault_api_test.c — writes to the vault that have to wait, fail or come after a crash, and what
 * stays in memory of them (contract egress-vault 3.4, 13.1, 17).  What single requests come to is
 * in the vectors. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <cmocka.h>

#include "egress/vault/lost.h"
#include "egress/vault/vault.h"
#include "harness/policy_rig.h"

#define AUTH "OPENSANDBOX-EGRESS-AUTH: s3cret\r\n"
#define PATH "/credential-vault"
#define EMPTY "{}"
#define BINDING(name, host)                                \
    "{\"name\":\"" name "\",\"match\":{\"hosts\":[\"" host \
    "\"]},\"auth\":{\"type\":\"passthrough\"}}"

struct fixture {
    struct policy_rig rig;
    struct arena a;
    struct lost *lost;
};

static const char *variables(const char *name)
{
    static const char *const given[][2] = {{"MODE", "dns+nft"},
                                           {"TOKEN", "s3cret"},
                                           {"MITMPROXY_TRANSPARENT", "on"},
                                           {"KERNEL_TIMEOUT", "1"}};
    for (size_t i = 0; i < sizeof given / sizeof *given; i++)
        if (str_starts(str_of(name), STR(EGRESS_VARIABLE)) &&
            strcmp(name + strlen(EGRESS_VARIABLE), given[i][0]) == 0)
            return given[i][1];
    return NULL;
}

static int begin(void **state, const char *lost)
{
    static struct fixture f;
    struct document d;
    struct json_fault fault;
    struct str error = STR("");
    arena_init_private(&f.a, NULL, 0);
    rig_init(&f.rig, variables);
    f.rig.set.policy_file = str_of(f.rig.file);
    f.rig.lost = f.lost = lost ? lost_read(str_of(lost)) : NULL;
    assert_true(document_parse(
        STR("{\"egress\":[{\"action\":\"allow\",\"target\":\"*.example.com\"}]}"), &d, &fault));
    if (!rig_start(&f.rig, &d, &error))
        fail_msg("%.*s", STR_ARG(error));
    document_done(&d);
    *state = &f;
    return 0;
}

static int setup(void **state)
{
    return begin(state, NULL);
}

static int setup_lost(void **state)
{
    return begin(state, "https api.example.com\n");
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    rig_stop(&f->rig);
    lost_unref(f->lost);
    arena_done(&f->a);
    return 0;
}

static struct rig_answer ask(struct fixture *f, const char *method, const char *path,
                             const char *body)
{
    struct str b = body ? str_of(body) : STR_NONE;
    return rig_ask(&f->rig, NULL, rig_request(method, path, AUTH, b, &f->a), &f->a);
}

static int send_write(struct fixture *f, const char *method, struct str body)
{
    int fd = rig_connect(&f->rig, NULL);
    assert_true(fd >= 0);
    rig_send(&f->rig, fd, rig_request(method, PATH, AUTH, body, &f->a));
    rig_run(&f->rig, 50);
    return fd;
}

static int finish(struct fixture *f, int fd)
{
    struct rig_answer got = rig_read(&f->rig, fd, false, &f->a);
    close(fd);
    return got.status;
}

static const struct egress_view *now(struct fixture *f)
{
    return changes_now(f->rig.changes);
}

/* ---- waiting */

static void a_write_that_waits_holds_up_nobody(void **state)
{
    struct fixture *f = *state;
    f->rig.interception_ready = false;
    int fd = send_write(f, "POST", STR(EMPTY));
    assert_int_equal(ask(f, "GET", PATH, NULL).status, 404);
    assert_int_equal(
        ask(f, "PATCH", "/policy", "[{\"action\":\"deny\",\"target\":\"x.test\"}]").status, 200);
    assert_null(now(f)->vault);
    f->rig.interception_ready = true;
    assert_int_equal(finish(f, fd), 201);
    assert_non_null(now(f)->vault);
}

static void a_body_that_waits_is_whole_afterwards(void **state)
{
    struct fixture *f = *state;
    enum { FILL = 300000 };
    char *text = mem_new(FILL);
    memset(text, ' ', FILL);
    memcpy(text + FILL - 2, "{}", 2);
    f->rig.interception_ready = false;
    struct str request = rig_request("POST", PATH, AUTH, (struct str){text, FILL}, &f->a);
    int fd = rig_connect(&f->rig, NULL);
    rig_send(&f->rig, fd, str_head(request, 40000));
    rig_run(&f->rig, 50);
    f->rig.interception_ready = true;
    rig_send(&f->rig, fd, str_skip(request, 40000));
    assert_int_equal(finish(f, fd), 201);
    mem_free(text);
}

static void a_client_that_leaves_ends_its_wait(void **state)
{
    struct fixture *f = *state;
    f->rig.interception_ready = false;
    int fd = send_write(f, "POST", STR(EMPTY));
    assert_true(api_open(f->rig.api) > 0);
    close(fd);
    for (int i = 0; i < 500 && api_open(f->rig.api) > 0; i++)
        rig_run(&f->rig, 5);
    assert_int_equal(api_open(f->rig.api), 0);
    f->rig.interception_ready = true;
    rig_run(&f->rig, 50);
    assert_null(now(f)->vault);
}

static void a_drain_ends_the_wait(void **state)
{
    struct fixture *f = *state;
    f->rig.interception_ready = false;
    int fd = send_write(f, "POST", STR(EMPTY));
    api_drain(f->rig.api);
    assert_int_equal(finish(f, fd), 412);
}

/* What is not redirected goes out without its credential. */
static void redirects_that_are_not_in_force_are_not_ready(void **state)
{
    struct fixture *f = *state;
    f->rig.set.vault_ready_wait = 0;
    f->rig.not_enforced = "CAP_NET_ADMIN is missing";
    assert_int_equal(ask(f, "POST", PATH, EMPTY).status, 412);
    f->rig.not_enforced = NULL;
    assert_int_equal(ask(f, "POST", PATH, EMPTY).status, 201);
}

/* ---- the kernel */

static void the_kernel_is_asked_when_bound_hosts_change(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(ask(f, "POST", PATH, EMPTY).status, 201);
    assert_int_equal(f->rig.kernel.applies, 0);
    assert_int_equal(
        ask(f, "PATCH", PATH, "{\"bindings\":{\"add\":[" BINDING("a", "api.example.com") "]}}")
            .status,
        200);
    assert_int_equal(f->rig.kernel.applies, 1);
    assert_int_equal(
        ask(f, "PATCH", PATH,
            "{\"credentials\":{\"add\":[{\"name\":\"k\",\"source\":{\"value\":\"v-1\"}}]}}")
            .status,
        200);
    assert_int_equal(f->rig.kernel.applies, 1);
    assert_int_equal(ask(f, "DELETE", PATH, NULL).status, 204);
    assert_int_equal(f->rig.kernel.applies, 2);
    assert_int_equal(access(f->rig.file, F_OK), -1); /* the policy was not touched */
}

static void a_kernel_that_refuses_leaves_the_vault_as_it_was(void **state)
{
    struct fixture *f = *state;
    const struct vault_counters *n = api_vault_counters(f->rig.api);
    assert_int_equal(ask(f, "POST", PATH, EMPTY).status, 201);
    f->rig.kernel.fail_all = true;
    struct rig_answer got =
        ask(f, "PATCH", PATH, "{\"bindings\":{\"add\":[" BINDING("a", "api.example.com") "]}}");
    assert_int_equal(got.status, 500);
    assert_int_equal(vault_revision(now(f)->vault), 1);
    assert_false(view_binds(now(f), STR("api.example.com"), true));
    assert_int_equal(counter_get(&n->made[VAULT_CREATE]), 1);
    assert_int_equal(counter_get(&n->failed[VAULT_PATCH]), 1);
}

/* ---- after a crash */

static void what_was_lost_stays_so_until_a_vault_is_created(void **state)
{
    struct fixture *f = *state;
    assert_true(view_binds(now(f), STR("api.example.com"), true));
    assert_int_equal(ask(f, "PATCH", PATH, EMPTY).status, 404);
    assert_int_equal(ask(f, "POST", PATH, "[]").status, 400);
    assert_int_equal(
        ask(f, "PATCH", "/policy", "[{\"action\":\"deny\",\"target\":\"x.test\"}]").status, 200);
    assert_true(view_binds(now(f), STR("api.example.com"), true));
    assert_int_equal(ask(f, "POST", PATH, EMPTY).status, 201);
    assert_false(view_binds(now(f), STR("api.example.com"), true));
}

static void delete_forgets_what_was_lost_and_still_finds_nothing(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(ask(f, "DELETE", PATH, NULL).status, 404);
    assert_false(view_binds(now(f), STR("api.example.com"), true));
    assert_int_equal(f->rig.kernel.applies, 1);
    assert_int_equal(ask(f, "DELETE", PATH, NULL).status, 404);
    assert_int_equal(f->rig.kernel.applies, 1);
}

static void each_vault_has_an_epoch_of_its_own(void **state)
{
    struct fixture *f = *state;
    const struct vault_counters *n = api_vault_counters(f->rig.api);
    uint64_t start = counter_get(&n->epoch);
    assert_int_equal(ask(f, "POST", PATH, EMPTY).status, 201);
    uint64_t first = counter_get(&n->epoch);
    assert_true(first > start);
    assert_int_equal(ask(f, "PATCH", PATH, EMPTY).status, 200);
    assert_int_equal(counter_get(&n->epoch), first);
    assert_int_equal(ask(f, "DELETE", PATH, NULL).status, 204);
    assert_int_equal(ask(f, "POST", PATH, EMPTY).status, 201);
    assert_true(counter_get(&n->epoch) > first);
}

/* ---- memory */

/* Counts a text in what this process can write to; it is given in two halves, so that the question
 * is not the answer. */
static unsigned copies(const char *half, const char *other)
{
    char line[512];
    unsigned found = 0;
    size_t n = strlen(half), m = strlen(other), room = 1 << 20;
    int mem = open("/proc/self/mem", O_RDONLY | O_CLOEXEC);
    FILE *maps = fopen("/proc/self/maps", "r");
    char *window = mem_new(room);
    assert_true(mem >= 0 && maps);
    while (fgets(line, sizeof line, maps)) {
        uintptr_t from, to;
        char rights[8];
        if (sscanf(line, "%lx-%lx %7s", &from, &to, rights) != 3 || rights[1] != 'w' ||
            to - from > (size_t)1 << 30)
            continue;
        for (uintptr_t at = from; at < to; at += room - n - m) {
            ssize_t got = pread(mem, window, at + room < to ? room : to - at, (off_t)at);
            for (char *p = window; got > 0 && (p = memmem(p, (size_t)(window + got - p), half, n));
                 p += n)
                found += p + n + m <= window + got && memcmp(p + n, other, m) == 0 &&
                         !(at <= (uintptr_t)window && (uintptr_t)window < at + room);
            if (got > 0)
                memset(window, 0, (size_t)got);
        }
    }
    mem_free(window);
    fclose(maps);
    close(mem);
    return found;
}

static void write_secret(struct fixture *f, const char *half, const char *other, size_t blanks)
{
    struct arena a;
    arena_init_private(&a, NULL, 0);
    char *fill = arena_get(&a, blanks + 1);
    memset(fill, ' ', blanks);
    struct str body = arena_printf(
        &a,
        "{\"credentials\":[{\"name\":\"k\",\"source\":{\"value\":\"%s%s\"}}],%.*s\"bindings\":[]}",
        half, other, (int)blanks, fill);
    struct rig_answer got = rig_ask(&f->rig, NULL, rig_request("POST", PATH, AUTH, body, &a), &a);
    arena_done(&a);
    assert_int_equal(got.status, 201);
    rig_run(&f->rig, 50);
}

static void only_the_vault_holds_a_secret_and_it_goes_with_it(void **state)
{
    struct fixture *f = *state;
    static const size_t blanks[] = {0, 3000, 200000}; /* bodies that grow, and arrive in pieces */
    for (size_t i = 0; i < sizeof blanks / sizeof *blanks; i++) {
        write_secret(f, "zq7-not-a-se", "cret-9Kx4", blanks[i]);
        assert_int_equal(copies("zq7-not-a-se", "cret-9Kx4"), 1);
        assert_int_equal(ask(f, "DELETE", PATH, NULL).status, 204);
        rig_run(&f->rig, 50);
        assert_int_equal(copies("zq7-not-a-se", "cret-9Kx4"), 0);
    }
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(a_write_that_waits_holds_up_nobody),
        T(a_body_that_waits_is_whole_afterwards),
        T(a_client_that_leaves_ends_its_wait),
        T(a_drain_ends_the_wait),
        T(redirects_that_are_not_in_force_are_not_ready),
        T(the_kernel_is_asked_when_bound_hosts_change),
        T(a_kernel_that_refuses_leaves_the_vault_as_it_was),
        cmocka_unit_test_setup_teardown(what_was_lost_stays_so_until_a_vault_is_created, setup_lost,
                                        teardown),
        cmocka_unit_test_setup_teardown(delete_forgets_what_was_lost_and_still_finds_nothing,
                                        setup_lost, teardown),
        T(each_vault_has_an_epoch_of_its_own),
        T(only_the_vault_holds_a_secret_and_it_goes_with_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
