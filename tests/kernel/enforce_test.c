/* enforce_test.c — the sidecar's kernel part on a real worker in a namespace: rules come into force
 * and stay, whatever somebody else does to them; what is learned outlives a crash; a change is in
 * force when it is answered, and flows that lost their permission end. */
#include "egress/kernel/enforce.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

#include "kernel/fixture.h"
#include "net/udp.h"
#include "net/worker.h"

#define GOOD_NAME "good.test"
#define LOST "198.51.100.10"
#define KEPT "198.51.100.20"

enum { WAIT_MS = 20000 };

static struct netns ns;

/* ---- a sidecar: a worker, a DNS that answers anything, the kernel's part */

struct side {
    struct worker *w;
    struct udp *dns;
    struct egress_settings set;
    struct enforce *e;
    char program[512];
    unsigned queries, drops, kept;
    struct enforce_guard guard[16];
    const struct egress_view *view;
};

static void on_query(void *user, struct udp *u, struct str datagram, const struct sockaddr *from)
{
    struct side *s = user;
    char answer[512];
    size_t n = datagram.n < sizeof answer ? datagram.n : sizeof answer;
    memcpy(answer, datagram.p, n);
    answer[2] = (char)(answer[2] | 0x80);
    s->queries++;
    udp_send(u, from, answer, n);
}

static void on_drop(void *user, const struct drop *drop)
{
    (void)drop;
    ((struct side *)user)->drops++;
}

static void on_keep(void *user, const struct enforce_guard *g)
{
    struct side *s = user;
    if (g->fd < 0 || s->kept == 16)
        return;
    char *name = mem_strdup(g->name);
    s->guard[s->kept++] = (struct enforce_guard){str_of(name), dup(g->fd)};
}

static void drop_guards(struct side *s)
{
    for (unsigned i = 0; i < s->kept; i++) {
        if (s->guard[i].fd >= 0)
            close(s->guard[i].fd);
        mem_free((void *)(uintptr_t)s->guard[i].name.p);
    }
    s->kept = 0;
}

static const struct egress_view *view_of_text(const char *policy)
{
    struct document d;
    struct json_fault fault;
    struct always_lists lists = {NULL, NULL, NULL};
    if (!document_parse(str_of(policy), &d, &fault))
        fail_msg("policy: %s", policy);
    const struct egress_view *v = view_new(&d, &lists, 1);
    document_done(&d);
    return v;
}

static void listen_dns(struct side *s)
{
    int fd = netns_listen(ns.inside, SOCK_DGRAM, "127.0.0.1", 15353);
    s->dns = udp_start(s->w, fd, on_query, s);
}

static void side_make(struct side *s, enum egress_mode mode, struct enforce_guard *guards,
                      unsigned nguards)
{
    struct enforce_setup setup = {.program = s->program,
                                  .own_mark = OWN_MARK,
                                  .pass_mark = PASS_MARK,
                                  .group_mark = GROUP_MARK,
                                  .dns_port = 15353,
                                  .guards = guards,
                                  .nguards = nguards,
                                  .drop = on_drop,
                                  .keep = on_keep,
                                  .user = s};
    *s = (struct side){.w = worker_new(0), .program = RULES_PROGRAM};
    s->set.mode = mode;
    s->set.max_learned = 1000;
    setup.w = s->w;
    setup.set = &s->set;
    listen_dns(s);
    s->e = enforce_new(&setup);
}

static void side_start(struct side *s, const char *policy,
                       unsigned (*found)(void *user, const struct lease_fresh *lease), void *user)
{
    s->view = view_of_text(policy);
    enforce_start(s->e, s->view, found, user);
}

/* As after kill -9: the kernel keeps what it has. */
static void side_crash(struct side *s)
{
    udp_close(s->dns);
    snprintf(s->program, sizeof s->program, "/bin/true");
    enforce_end(s->e, false);
    worker_free(s->w);
    view_unref(s->view);
}

static void side_end(struct side *s)
{
    udp_close(s->dns);
    enforce_end(s->e, true);
    worker_free(s->w);
    view_unref(s->view);
    drop_guards(s);
}

static uint64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

static double clock_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static void turn(struct side *s)
{
    worker_turn(s->w);
    usleep(500);
}

static void turn_for(struct side *s, unsigned ms)
{
    for (uint64_t until = now_ms() + ms; now_ms() < until;)
        turn(s);
}

static bool until(struct side *s, bool (*done)(struct side *s))
{
    for (uint64_t end = now_ms() + WAIT_MS; now_ms() < end;) {
        if (done(s))
            return true;
        turn(s);
    }
    return false;
}

static bool is_well(struct side *s)
{
    return !enforce_fault(s->e);
}

static bool is_unwell(struct side *s)
{
    return enforce_fault(s->e) != NULL;
}

static void assert_well(struct side *s)
{
    if (!until(s, is_well))
        fail_msg("%s", enforce_fault(s->e));
}

static void must_run(const char *command)
{
    if (!netns_run(&ns, command))
        fail_msg("%s", command);
}

static bool there(const char *command)
{
    return netns_run(&ns, command);
}

/* ---- orders, and waiting for them */

struct answer {
    bool came, ok;
    int error;
};

static void on_learned(void *arg, bool ok)
{
    struct answer *a = arg;
    a->came = true;
    a->ok = ok;
}

static void on_replaced(void *arg, int error)
{
    struct answer *a = arg;
    a->came = true;
    a->error = error;
}

static void on_cut(void *arg)
{
    ((struct answer *)arg)->came = true;
}

static void wait_for(struct side *s, const struct answer *a)
{
    for (uint64_t end = now_ms() + WAIT_MS; !a->came && now_ms() < end;)
        turn(s);
    assert_true(a->came);
}

static struct lease_address address(const char *ip, unsigned seconds)
{
    struct lease_address a = {.seconds = seconds};
    if (!ip_parse(str_of(ip), &a.ip))
        fail_msg("%s", ip);
    return a;
}

static void ask_learn(struct side *s, const char *ip, unsigned kinds, struct answer *a)
{
    struct leases_kernel k = enforce_leases(s->e);
    struct lease_address one = address(ip, 300);
    k.learn(k.user, STR(GOOD_NAME), &one, 1, kinds, on_learned, a);
}

static void learn(struct side *s, const char *ip)
{
    struct answer a = {false, false, 0};
    ask_learn(s, ip, LEASE_USER, &a);
    wait_for(s, &a);
    assert_true(a.ok);
}

static void withdraw(struct side *s, const char *ip)
{
    struct leases_kernel k = enforce_leases(s->e);
    struct lease_gone gone = {address(ip, 0).ip, LEASE_USER, true};
    k.withdraw(k.user, &gone, 1);
}

static void change(struct side *s, const char *policy)
{
    struct answer a = {false, false, 0}, b = {false, false, 0};
    const struct egress_view *fresh = view_of_text(policy);
    enforce_replace(s->e, s->view->policy, fresh->policy, NULL, on_replaced, &a);
    wait_for(s, &a);
    assert_int_equal(a.error, 0);
    enforce_adopt(s->e, fresh);
    view_unref(s->view);
    s->view = fresh;
    enforce_cut(s->e, on_cut, &b);
    wait_for(s, &b);
}

/* Can the workload open a connection there?  Somebody listens outside. */
static bool reaches(const char *ip)
{
    int listener = netns_listen(ns.outside, SOCK_STREAM, ip, 7100);
    int fd = fixture_connect(&ns, SOCK_STREAM, ip, 7100);
    bool good = fd >= 0;
    if (good)
        close(fd);
    close(listener);
    return good;
}

static const char deny[] = "{\"defaultAction\":\"deny\",\"egress\":[]}";
static const char allow_kept[] =
    "{\"defaultAction\":\"deny\",\"egress\":[{\"action\":\"allow\",\"target\":\"" KEPT "\"}]}";

/* ---- into force */

static void rules_are_in_force_and_proven(void **state)
{
    struct side s;
    (void)state;
    side_make(&s, EGRESS_DNS_NFT, NULL, 0);
    assert_non_null(enforce_fault(s.e));
    assert_false(enforce_is_ours(s.e));
    uint64_t before = now_ms();
    side_start(&s, allow_kept, NULL, NULL);
    printf("figure: start %u ms\n", (unsigned)(now_ms() - before));
    assert_non_null(enforce_fault(s.e));
    before = now_ms();
    assert_well(&s);
    printf("figure: proven after %u ms\n", (unsigned)(now_ms() - before));
    assert_true(s.queries > 0);
    turn_for(&s, 300);
    assert_int_equal(s.drops, 0); /* of the test nobody hears */
    assert_true(reaches(KEPT));
    assert_false(reaches(LOST));
    struct enforce_counts c;
    enforce_counts(s.e, &c);
    assert_true(c.rules > 20 && c.applied == 1 && c.repaired == 0 && c.lacks == 0);
    assert_true(c.unguarded == 0);
    turn_for(&s, 300);
    assert_true(s.drops > 0);
    side_end(&s);
    assert_false(there("nft list table inet opensandbox 2>/dev/null"));
}

static void mode_dns_redirects_and_filters_nothing(void **state)
{
    struct side s;
    struct answer a = {false, false, 0}, b = {false, false, 0};
    (void)state;
    side_make(&s, EGRESS_DNS, NULL, 0);
    side_start(&s, deny, NULL, NULL);
    assert_well(&s);
    assert_true(s.queries > 0);
    assert_true(reaches(LOST));
    enforce_replace(s.e, NULL, s.view->policy, NULL, on_replaced, &a);
    enforce_cut(s.e, on_cut, &b);
    assert_true(a.came && a.error == 0 && b.came);
    side_end(&s);
}

static void the_test_fails_where_nobody_answers_queries(void **state)
{
    struct side s;
    (void)state;
    side_make(&s, EGRESS_DNS_NFT, NULL, 0);
    udp_close(s.dns);
    side_start(&s, deny, NULL, NULL);
    for (uint64_t end = now_ms() + WAIT_MS; now_ms() < end; turn(&s)) {
        if (strstr(enforce_fault(s.e), "a query over IPv4"))
            break;
    }
    assert_non_null(strstr(enforce_fault(s.e), "a query over IPv4"));
    listen_dns(&s);
    assert_well(&s);
    side_end(&s);
}

static void without_the_right_to_it_says_so_and_goes_on(void **state)
{
    int status;
    (void)state;
    pid_t pid = fork();
    if (pid == 0) {
        struct side s;
        struct answer a = {false, false, 0};
        struct arena arena;
        struct str error;
        struct __user_cap_header_struct head = {_LINUX_CAPABILITY_VERSION_3, 0};
        struct __user_cap_data_struct none[2] = {{0, 0, 0}, {0, 0, 0}};
        arena_init(&arena, NULL, 0);
        side_make(&s, EGRESS_DNS_NFT, NULL, 0);
        if (syscall(SYS_capset, &head, none) != 0 || enforce_close(RULES_PROGRAM, &arena, &error) ||
            error.n == 0)
            _exit(1);
        side_start(&s, deny, NULL, NULL);
        turn_for(&s, 50);
        ask_learn(&s, LOST, LEASE_USER, &a);
        bool said = enforce_fault(s.e) && strstr(enforce_fault(s.e), "CAP_NET_ADMIN");
        _exit(said && a.came && a.ok ? 0 : 2);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

static void a_program_that_is_missing_is_a_fault(void **state)
{
    struct side s;
    struct egress_settings set = {.mode = EGRESS_DNS_NFT, .max_learned = 10};
    struct enforce_setup setup = {.set = &set,
                                  .program = "/nonexistent/rules",
                                  .own_mark = 1,
                                  .pass_mark = 2,
                                  .group_mark = 3,
                                  .dns_port = 15353};
    (void)state;
    s = (struct side){.w = worker_new(0)};
    setup.w = s.w;
    s.e = enforce_new(&setup);
    side_start(&s, deny, NULL, NULL);
    turn_for(&s, 20);
    assert_non_null(strstr(enforce_fault(s.e), "No such file"));
    enforce_end(s.e, true);
    worker_free(s.w);
    view_unref(s.view);
}

/* ---- a crash */

struct finding {
    unsigned n, keep;
    char names[4][32];
};

static unsigned on_found(void *user, const struct lease_fresh *lease)
{
    struct finding *f = user;
    if (f->n < 4)
        snprintf(f->names[f->n], 32, "%.*s", STR_ARG(lease->name));
    f->n++;
    return f->keep;
}

static void a_crash_forgets_nothing_and_cuts_nothing(void **state)
{
    struct side s, t;
    struct finding f = {.keep = LEASE_USER};
    struct enforce_counts c;
    (void)state;
    side_make(&s, EGRESS_DNS_NFT, NULL, 0);
    side_start(&s, deny, NULL, NULL);
    assert_well(&s);
    learn(&s, KEPT);
    int listener = netns_listen(ns.outside, SOCK_STREAM, KEPT, 7200);
    int near = fixture_connect(&ns, SOCK_STREAM, KEPT, 7200);
    assert_true(near >= 0 && netns_readable(listener, 1000));
    int far = accept(listener, NULL, NULL);
    side_crash(&s);
    assert_true(reaches(KEPT));
    side_make(&t, EGRESS_DNS_NFT, s.guard, s.kept);
    assert_true(enforce_is_ours(t.e));
    uint64_t before = now_ms();
    side_start(&t, deny, on_found, &f);
    printf("figure: takeover %u ms\n", (unsigned)(now_ms() - before));
    assert_well(&t);
    assert_int_equal(f.n, 1);
    assert_string_equal(f.names[0], GOOD_NAME);
    enforce_counts(t.e, &c);
    assert_int_equal(c.applied, 0);
    assert_int_equal(c.elements[0], 1);
    assert_int_equal(c.unguarded, 0);
    assert_int_equal(t.kept, 0); /* the guards of the one before are still good */
    assert_true(reaches(KEPT));
    assert_int_equal(send(far, "x", 1, MSG_NOSIGNAL), 1);
    assert_true(netns_readable(near, 1000));
    close(near);
    close(far);
    close(listener);
    drop_guards(&s);
    side_end(&t);
}

static void a_successor_with_a_narrower_policy_ends_what_it_denies(void **state)
{
    struct side s, t;
    struct finding f = {.keep = 0};
    char byte;
    (void)state;
    side_make(&s, EGRESS_DNS_NFT, NULL, 0);
    side_start(&s, allow_kept, NULL, NULL);
    assert_well(&s);
    learn(&s, LOST);
    int listener = netns_listen(ns.outside, SOCK_STREAM, LOST, 7201);
    int near = fixture_connect(&ns, SOCK_STREAM, LOST, 7201);
    assert_true(near >= 0);
    side_crash(&s);
    drop_guards(&s);
    side_make(&t, EGRESS_DNS_NFT, NULL, 0);
    side_start(&t, deny, on_found, &f);
    assert_false(reaches(LOST));
    assert_false(reaches(KEPT));
    assert_well(&t);
    assert_true(recv(near, &byte, 1, MSG_DONTWAIT) < 0 && errno == ECONNABORTED);
    close(near);
    close(listener);
    side_end(&t);
}

/* ---- somebody else */

static bool is_repaired(struct side *s)
{
    struct enforce_counts c;
    enforce_counts(s->e, &c);
    return c.repaired > 0;
}

static const char *const harms[] = {
    "delete table inet opensandbox",
    "flush ruleset",
    "flush chain inet opensandbox egress",
    "add rule inet opensandbox egress accept; delete element inet opensandbox user4 { " KEPT " }",
    "insert rule inet opensandbox egress accept",
    "add element inet opensandbox fallback { ipv4 : goto pass }",
    "add element inet opensandbox fallback { ipv4 : goto pass, ipv6 : goto pass }",
    "add element inet opensandbox user4 { " LOST " : accept }",
    "add element inet opensandbox always4_ranges { 198.51.100.0-198.51.100.15 : goto pass }",
    "flush set inet opensandbox learned4",
    "add element inet opensandbox learned4 { " LOST " timeout 300s }",
    "delete table netdev opensandbox",
    "add chain inet opensandbox early { type filter hook output priority -5; policy drop; }",
};

static void what_somebody_else_changes_is_put_back(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof harms / sizeof *harms; i++) {
        struct side s;
        side_make(&s, EGRESS_DNS_NFT, NULL, 0);
        side_start(&s, allow_kept, NULL, NULL);
        assert_well(&s);
        learn(&s, "198.51.100.30");
        fixture_nft(&ns, harms[i]);
        if (!until(&s, is_repaired))
            fail_msg("not noticed: %s", harms[i]);
        assert_true(is_unwell(&s));
        assert_well(&s);
        if (!reaches(KEPT) || !reaches("198.51.100.30") || reaches(LOST))
            fail_msg("not put back: %s", harms[i]);
        turn_for(&s, 300);
        struct enforce_counts c;
        enforce_counts(s.e, &c);
        assert_int_equal(c.repaired, 1);
        side_end(&s);
    }
}

/* ---- how long the namespace is open */

/* A process of the workload that goes on sending the time to LOST. */
static pid_t send_times(void)
{
    pid_t pid = fork();
    if (pid != 0)
        return pid;
    union addr to = netns_addr(LOST, 7700);
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    become(AS_USER);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (;;) {
        double now = clock_ms();
        (void)!sendto(fd, &now, sizeof now, 0, &to.sa, sizeof to.v4);
        usleep(100);
    }
}

struct leak {
    int fd;
    unsigned n;
    double first, last;
};

static void read_leak(struct leak *l)
{
    double at;
    while (recv(l->fd, &at, sizeof at, MSG_DONTWAIT) == sizeof at) {
        if (l->n++ == 0)
            l->first = at;
        l->last = at;
    }
}

static void run_in_the_background(const char *command)
{
    if (fork() == 0) {
        execl("/bin/sh", "sh", "-c", command, (char *)NULL);
        _exit(127);
    }
}

/* In ms: from the first datagram that got out to the last. */
static double leak_after(struct side *s, const char *command)
{
    struct enforce_counts before, now;
    struct leak l = {.fd = netns_listen(ns.outside, SOCK_DGRAM, LOST, 7700)};
    pid_t pid = send_times();
    uint64_t since = 0, end = now_ms() + WAIT_MS;
    enforce_counts(s->e, &before);
    turn_for(s, 20);
    read_leak(&l);
    assert_int_equal(l.n, 0);
    run_in_the_background(command);
    while (now_ms() < end && (since == 0 || now_ms() < since + 50)) {
        turn(s);
        read_leak(&l);
        enforce_counts(s->e, &now);
        if (since == 0 && now.applied > before.applied)
            since = now_ms();
    }
    assert_true(since > 0);
    kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    close(l.fd);
    return l.n ? l.last - l.first : 0;
}

/* Only somebody with NET_ADMIN can, such as a script that sets up a firewall of its own. */
static void tables_that_are_deleted_again_and_again_are_put_back_at_once(void **state)
{
    enum { TIMES = 6 };
    static const char *const commands[] = {"nft delete table inet opensandbox",
                                           "nft flush ruleset"};
    (void)state;
    for (unsigned c = 0; c < 2; c++) {
        struct side s;
        double sum = 0, worst = 0;
        side_make(&s, EGRESS_DNS_NFT, NULL, 0);
        side_start(&s, deny, NULL, NULL);
        assert_well(&s);
        for (unsigned i = 0; i < TIMES; i++) {
            double ms = leak_after(&s, commands[c]);
            sum += ms;
            worst = ms > worst ? ms : worst;
        }
        printf("figure: %s: open for %.1f ms, %.1f at worst\n", commands[c], sum / TIMES, worst);
        assert_true(worst < 2000); /* the pause after that many repairs would be 5 s */
        assert_well(&s);
        side_end(&s);
    }
}

static void changes_to_other_tables_are_not_ours(void **state)
{
    struct side s;
    struct enforce_counts c;
    (void)state;
    side_make(&s, EGRESS_DNS_NFT, NULL, 0);
    side_start(&s, allow_kept, NULL, NULL);
    assert_well(&s);
    fixture_nft(&ns, "add table ip other; add chain ip other c");
    turn_for(&s, 400);
    assert_true(is_well(&s));
    learn(&s, LOST);
    turn_for(&s, 100);
    enforce_counts(s.e, &c);
    assert_true(c.repaired == 0 && c.applied == 1);
    fixture_nft(&ns, "delete table ip other");
    side_end(&s);
}

static void a_lesson_puts_the_table_back_first(void **state)
{
    struct side s;
    (void)state;
    side_make(&s, EGRESS_DNS_NFT, NULL, 0);
    side_start(&s, deny, NULL, NULL);
    assert_well(&s);
    fixture_nft(&ns, "delete table inet opensandbox");
    learn(&s, KEPT);
    assert_true(reaches(KEPT));
    assert_false(reaches(LOST));
    assert_well(&s);
    side_end(&s);
}

static bool has_both_devices(struct side *s)
{
    (void)s;
    return there("nft list table netdev opensandbox | grep -q d1 && "
                 "nft list table netdev opensandbox | grep -q e0");
}

static bool reaches_both(struct side *s)
{
    (void)s;
    return reaches(KEPT) && reaches(LOST);
}

static void a_device_that_comes_is_judged_too(void **state)
{
    struct side s;
    struct enforce_counts c;
    (void)state;
    side_make(&s, EGRESS_DNS_NFT, NULL, 0);
    side_start(&s, allow_kept, NULL, NULL);
    assert_well(&s);
    learn(&s, LOST);
    must_run("ip link add d1 type veth peer name d2 && ip link set d1 up");
    assert_true(until(&s, has_both_devices) && until(&s, reaches_both));
    assert_well(&s);
    must_run("ip link del d1");
    turn_for(&s, 300);
    assert_well(&s);
    enforce_counts(s.e, &c);
    assert_int_equal(c.repaired, 0);
    assert_true(until(&s, reaches_both));
    side_end(&s);
}

/* ---- changes */

static void learning_during_a_change_comes_after_it(void **state)
{
    struct side s;
    struct answer r = {false, false, 0}, l = {false, false, 0};
    (void)state;
    side_make(&s, EGRESS_DNS_NFT, NULL, 0);
    side_start(&s, deny, NULL, NULL);
    assert_well(&s);
    const struct egress_view *fresh = view_of_text(allow_kept);
    enforce_replace(s.e, s.view->policy, fresh->policy, NULL, on_replaced, &r);
    ask_learn(&s, LOST, LEASE_USER, &l);
    withdraw(&s, "198.51.100.40");
    assert_false(r.came || l.came);
    wait_for(&s, &r);
    wait_for(&s, &l);
    assert_true(r.error == 0 && l.ok);
    enforce_adopt(s.e, fresh);
    assert_true(reaches(KEPT) && reaches(LOST));
    withdraw(&s, LOST);
    assert_false(reaches(LOST));
    turn_for(&s, 300);
    assert_true(is_well(&s));
    view_unref(s.view);
    s.view = fresh;
    side_end(&s);
}

static void a_change_takes_leases_with_it(void **state)
{
    struct side s;
    struct answer r = {false, false, 0};
    struct lease_gone gone = {address(LOST, 0).ip, LEASE_USER, true};
    struct lease_fresh fresh = {STR("other.test"), address(KEPT, 200), LEASE_ALWAYS};
    struct lease_change leases = {&gone, &fresh, 1, 1};
    struct enforce_counts c;
    (void)state;
    side_make(&s, EGRESS_DNS_NFT, NULL, 0);
    side_start(&s, deny, NULL, NULL);
    assert_well(&s);
    learn(&s, LOST);
    enforce_replace(s.e, s.view->policy, s.view->policy, &leases, on_replaced, &r);
    wait_for(&s, &r);
    assert_int_equal(r.error, 0);
    assert_true(reaches(KEPT) && !reaches(LOST));
    enforce_counts(s.e, &c);
    assert_true(c.elements[0] == 0 && c.elements[1] == 1);
    side_end(&s);
}

static void a_change_that_does_not_know_what_was_reads_first(void **state)
{
    struct side s;
    struct answer r = {false, false, 0};
    (void)state;
    side_make(&s, EGRESS_DNS_NFT, NULL, 0);
    side_start(&s, deny, NULL, NULL);
    assert_well(&s);
    learn(&s, LOST);
    const struct egress_view *fresh = view_of_text(allow_kept);
    enforce_replace(s.e, NULL, fresh->policy, NULL, on_replaced, &r);
    wait_for(&s, &r);
    assert_int_equal(r.error, 0);
    enforce_adopt(s.e, fresh);
    assert_true(reaches(KEPT) && reaches(LOST));
    turn_for(&s, 200);
    assert_true(is_well(&s));
    view_unref(s.view);
    s.view = fresh;
    side_end(&s);
}

static void flows_that_lost_their_permission_end(void **state)
{
    struct side s;
    char byte;
    struct enforce_counts c;
    (void)state;
    side_make(&s, EGRESS_DNS_NFT, NULL, 0);
    side_start(&s, allow_kept, NULL, NULL);
    assert_well(&s);
    learn(&s, LOST);
    int listener = netns_listen(ns.outside, SOCK_STREAM, KEPT, 7300);
    int other = netns_listen(ns.outside, SOCK_STREAM, LOST, 7300);
    int udp = netns_listen(ns.outside, SOCK_DGRAM, KEPT, 7301);
    int near = fixture_connect(&ns, SOCK_STREAM, KEPT, 7300);
    int stays = fixture_connect(&ns, SOCK_STREAM, LOST, 7300);
    int datagrams = fixture_connect(&ns, SOCK_DGRAM, KEPT, 7301);
    assert_true(near >= 0 && stays >= 0 && datagrams >= 0);
    assert_int_equal(send(datagrams, "x", 1, 0), 1);
    assert_true(netns_readable(udp, 1000) && netns_readable(listener, 1000));
    int far = accept(listener, NULL, NULL);
    for (unsigned i = 0; i < 20; i++) /* it only receives */
        assert_true(send(far, "data", 4, MSG_NOSIGNAL) == 4);
    change(&s, deny);
    while (recv(near, &byte, 1, MSG_DONTWAIT) == 1)
        ;
    assert_int_equal(errno, ECONNABORTED);
    assert_true(send(datagrams, "x", 1, 0) < 0);
    assert_true(recv(stays, &byte, 1, MSG_DONTWAIT) < 0 && errno == EAGAIN);
    enforce_counts(s.e, &c);
    assert_true(c.cut >= 2);
    int all[] = {listener, other, udp, near, stays, datagrams, far};
    for (unsigned i = 0; i < 7; i++)
        close(all[i]);
    side_end(&s);
}

/* ---- flows past their lease */

#define ALLOW(name) "{\"action\":\"allow\",\"target\":\"" name "\"}"
#define POLICY(rules) "{\"defaultAction\":\"deny\",\"egress\":[" rules "]}"

/* Leases over the real kernel, and a UDP flow to an address that has one. */
struct lasting {
    struct leases *l;
    int near, far;
};

static struct lasting last_open(struct side *s, unsigned seconds)
{
    struct leases_kernel k = enforce_leases(s->e);
    struct lasting f = {.l = leases_new(&(struct leases_limits){10, 10}, &k)};
    struct lease_address at = address(LOST, seconds);
    struct answer a = {false, false, 0};
    union addr from;
    socklen_t len = sizeof from;
    char byte;
    k.learn(k.user, STR(GOOD_NAME), &at, 1, LEASE_USER, on_learned, &a);
    wait_for(s, &a);
    leases_restore(f.l, &(struct lease_fresh){STR(GOOD_NAME), at, LEASE_USER}, worker_now(s->w));
    f.far = netns_listen(ns.outside, SOCK_DGRAM, LOST, 7600);
    f.near = fixture_connect(&ns, SOCK_DGRAM, LOST, 7600);
    assert_int_equal(send(f.near, "a", 1, 0), 1);
    assert_true(netns_readable(f.far, 1000));
    assert_int_equal(recvfrom(f.far, &byte, 1, 0, &from.sa, &len), 1);
    assert_int_equal(connect(f.far, &from.sa, len), 0);
    assert_int_equal(send(f.far, "b", 1, 0), 1);
    assert_true(netns_readable(f.near, 1000));
    assert_int_equal(recv(f.near, &byte, 1, 0), 1);
    return f;
}

static void last_close(struct lasting *f)
{
    close(f->near);
    close(f->far);
    leases_free(f->l);
}

static bool flows(const struct lasting *f)
{
    char byte;
    return send(f->near, "a", 1, 0) == 1 && netns_readable(f->far, 1000) &&
           recv(f->far, &byte, 1, 0) == 1 && send(f->far, "b", 1, 0) == 1 &&
           netns_readable(f->near, 1000) && recv(f->near, &byte, 1, 0) == 1;
}

static void turn_until_over(struct side *s)
{
    uint64_t end = now_ms() + WAIT_MS;
    while (reaches(LOST) && now_ms() < end)
        turn_for(s, 50);
    assert_false(reaches(LOST));
}

/* As the sidecar does it. */
static void change_with(struct side *s, struct leases *l, const char *policy)
{
    struct answer r = {false, false, 0}, c = {false, false, 0};
    const struct egress_view *fresh = view_of_text(policy);
    struct gate_rules rules = {.policy = fresh->policy};
    struct lease_change leases;
    struct arena a;
    arena_init(&a, NULL, 0);
    leases_judge(l, &rules, worker_now(s->w), &a, &leases);
    enforce_replace(s->e, s->view->policy, fresh->policy, &leases, on_replaced, &r);
    wait_for(s, &r);
    assert_int_equal(r.error, 0);
    enforce_adopt(s->e, fresh);
    view_unref(s->view);
    s->view = fresh;
    leases_adopt(l, &rules, &leases, worker_now(s->w));
    enforce_cut(s->e, on_cut, &c);
    wait_for(s, &c);
    arena_done(&a);
}

struct poll {
    struct side *s;
    struct leases *l;
    bool came, found;
};

static void on_poll(void *arg, bool readable, const struct ip *list, size_t n)
{
    struct poll *p = arg;
    struct ip lost = address(LOST, 0).ip;
    p->came = true;
    for (size_t i = 0; i < n; i++)
        p->found |= ip_eq(&list[i], &lost);
    leases_poll(p->l, readable, list, n, worker_now(p->s->w));
}

static void poll_leases(struct side *s, struct leases *l)
{
    struct poll p = {s, l, false, false};
    enforce_in_use(s->e, on_poll, &p);
    for (uint64_t end = now_ms() + WAIT_MS; !p.came && now_ms() < end;)
        turn(s);
    assert_true(p.came && p.found);
}

static void a_udp_flow_outlives_its_lease_and_changes_that_leave_its_name_alone(void **state)
{
    (void)state;
    for (unsigned polled = 0; polled < 2; polled++) {
        struct side s;
        side_make(&s, EGRESS_DNS_NFT, NULL, 0);
        side_start(&s, POLICY(ALLOW(GOOD_NAME) "," ALLOW(KEPT)), NULL, NULL);
        assert_well(&s);
        struct lasting f = last_open(&s, 2);
        turn_until_over(&s);
        if (polled)
            poll_leases(&s, f.l);
        assert_int_equal(reaches(LOST), polled); /* a new one needs a lease that runs */
        change_with(&s, f.l, POLICY(ALLOW(GOOD_NAME)));
        assert_true(flows(&f));
        change_with(&s, f.l, POLICY(ALLOW("other.test") "," ALLOW(GOOD_NAME)));
        assert_true(flows(&f));
        change_with(&s, f.l, POLICY(ALLOW("other.test")));
        assert_false(flows(&f));
        assert_false(reaches(LOST));
        last_close(&f);
        side_end(&s);
    }
}

/* 4,096 rules, another half of them each time. */
static char *big_policy(unsigned which)
{
    enum { RULES = 4096, ROW = 80 };
    char *p = mem_new(RULES * ROW + 100);
    size_t n = 0;
    n += (size_t)snprintf(p + n, ROW, "{\"defaultAction\":\"deny\",\"egress\":[");
    for (unsigned i = 0; i < RULES; i++)
        n += (size_t)snprintf(p + n, ROW, "%s{\"action\":\"allow\",\"target\":\"10.%u.%u.%u\"}",
                              i ? "," : "", i % 2 ? which : 0, i / 256, i % 256);
    snprintf(p + n, ROW, "]}");
    return p;
}

static void large_policies_change_ten_times_a_second(void **state)
{
    struct side s;
    struct enforce_counts c;
    char *policies[] = {big_policy(1), big_policy(2)};
    const char *seconds = getenv("ENFORCE_TEST_SECONDS");
    uint64_t spent = 0, worst = 0;
    unsigned n = 0;
    (void)state;
    side_make(&s, EGRESS_DNS_NFT, NULL, 0);
    side_start(&s, policies[0], NULL, NULL);
    assert_well(&s);
    learn(&s, KEPT);
    uint64_t end = now_ms() + (seconds && strcmp(seconds, "60") == 0 ? 60000 : 5000);
    while (now_ms() < end) {
        uint64_t start = now_ms();
        change(&s, policies[++n % 2]);
        uint64_t took = now_ms() - start;
        spent += took;
        worst = took > worst ? took : worst;
        assert_true(reaches(KEPT));
        if (took < 100)
            turn_for(&s, (unsigned)(100 - took));
    }
    enforce_counts(s.e, &c);
    printf("figure: %u changes of 2,048 of 4,096 rules, %u ms each, cut included, %u at worst\n", n,
           (unsigned)(spent / n), (unsigned)worst);
    assert_true(n >= 3 && c.repaired == 0 && c.apply_failed == 0);
    assert_true(is_well(&s));
    mem_free(policies[0]);
    mem_free(policies[1]);
    side_end(&s);
}

static void on_in_use(void *arg, bool readable, const struct ip *list, size_t n)
{
    struct answer *a = arg;
    struct ip kept = address(KEPT, 0).ip;
    a->came = true;
    a->ok = readable && n == 1 && ip_eq(&list[0], &kept);
}

static void addresses_in_use_are_told_once(void **state)
{
    struct side s;
    struct answer a = {false, false, 0};
    (void)state;
    side_make(&s, EGRESS_DNS_NFT, NULL, 0);
    side_start(&s, allow_kept, NULL, NULL);
    assert_well(&s);
    int listener = netns_listen(ns.outside, SOCK_STREAM, KEPT, 7400);
    int one = fixture_connect(&ns, SOCK_STREAM, KEPT, 7400);
    int two = fixture_connect(&ns, SOCK_STREAM, KEPT, 7400);
    assert_true(one >= 0 && two >= 0);
    enforce_in_use(s.e, on_in_use, &a);
    wait_for(&s, &a);
    assert_true(a.ok);
    close(one);
    close(two);
    close(listener);
    side_end(&s);
}

static void the_end_waits_for_what_is_under_way(void **state)
{
    struct side s;
    struct answer r = {false, false, 0};
    (void)state;
    side_make(&s, EGRESS_DNS_NFT, NULL, 0);
    side_start(&s, deny, NULL, NULL);
    assert_well(&s);
    enforce_replace(s.e, NULL, s.view->policy, NULL, on_replaced, &r);
    side_end(&s);
    assert_false(r.came);
    assert_false(there("nft list table inet opensandbox 2>/dev/null"));
}

static void between_closing_and_start_nothing_leaves(void **state)
{
    struct side s;
    struct arena a;
    struct str error;
    (void)state;
    arena_init(&a, NULL, 0);
    assert_true(reaches(KEPT));
    assert_true(enforce_close(RULES_PROGRAM, &a, &error));
    assert_false(reaches(KEPT));
    arena_done(&a);
    side_make(&s, EGRESS_DNS_NFT, NULL, 0);
    assert_false(enforce_is_ours(s.e));
    side_start(&s, allow_kept, NULL, NULL);
    assert_true(reaches(KEPT));
    assert_well(&s);
    udp_close(s.dns);
    enforce_end(s.e, false);
    worker_free(s.w);
    view_unref(s.view);
    drop_guards(&s);
    assert_false(reaches(KEPT));
}

/* What this kernel can do is taken away by a program that refuses it. */
static void a_kernel_without_log_gets_rules_without(void **state)
{
    struct side s;
    struct enforce_counts c;
    char path[64];
    (void)state;
    snprintf(path, sizeof path, "/tmp/enforce_test.%d", (int)getpid());
    FILE *f = fopen(path, "we");
    assert_non_null(f);
    fputs("#!/bin/sh\ntext=$(cat)\ncase $text in *'log group'*) echo no log >&2; exit 1;; esac\n"
          "printf '%s\\n' \"$text\" | exec " RULES_PROGRAM " \"$1\"\n",
          f);
    fclose(f);
    assert_int_equal(chmod(path, 0755), 0);
    side_make(&s, EGRESS_DNS_NFT, NULL, 0);
    snprintf(s.program, sizeof s.program, "%s", path);
    side_start(&s, allow_kept, NULL, NULL);
    assert_well(&s);
    enforce_counts(s.e, &c);
    assert_int_equal(c.lacks, RULESET_NO_LOG);
    assert_true(reaches(KEPT) && !reaches(LOST));
    fixture_nft(&ns, "delete table inet opensandbox");
    assert_true(until(&s, is_repaired));
    assert_well(&s);
    assert_true(reaches(KEPT));
    side_end(&s);
    unlink(path);
}

static bool is_broken(struct side *s)
{
    const char *fault = enforce_fault(s->e);
    return fault && strstr(fault, "not in force");
}

static void what_cannot_be_put_back_is_a_fault_until_it_can(void **state)
{
    struct side s;
    struct answer a = {false, false, 0}, r = {false, false, 0};
    (void)state;
    side_make(&s, EGRESS_DNS_NFT, NULL, 0);
    side_start(&s, deny, NULL, NULL);
    assert_well(&s);
    learn(&s, KEPT);
    snprintf(s.program, sizeof s.program, "/nonexistent/rules");
    fixture_nft(&ns, "delete table inet opensandbox");
    assert_true(until(&s, is_broken));
    ask_learn(&s, LOST, LEASE_USER, &a);
    wait_for(&s, &a);
    assert_false(a.ok);
    enforce_replace(s.e, s.view->policy, s.view->policy, NULL, on_replaced, &r);
    wait_for(&s, &r);
    assert_int_not_equal(r.error, 0);
    snprintf(s.program, sizeof s.program, "%s", RULES_PROGRAM);
    assert_well(&s);
    assert_true(reaches(KEPT) && !reaches(LOST));
    side_end(&s);
}

static void a_set_that_is_full_refuses_and_stays_as_it_is(void **state)
{
    struct side s;
    struct leases_kernel k;
    struct answer a;
    struct enforce_counts c;
    unsigned n = 0;
    (void)state;
    side_make(&s, EGRESS_DNS_NFT, NULL, 0);
    side_start(&s, deny, NULL, NULL);
    assert_well(&s);
    k = enforce_leases(s.e);
    do {
        struct lease_address list[200];
        for (unsigned i = 0; i < 200; i++, n++) {
            list[i] = address("10.7.0.0", 300);
            list[i].ip.b[14] = (uint8_t)(n >> 8);
            list[i].ip.b[15] = (uint8_t)n;
        }
        a = (struct answer){false, false, 0};
        k.learn(k.user, STR(GOOD_NAME), list, 200, LEASE_USER, on_learned, &a);
        wait_for(&s, &a);
    } while (a.ok && n < 10000);
    enforce_counts(s.e, &c);
    assert_true(!a.ok && c.learn_failed == 1);
    assert_int_equal(c.elements[0], n - 200);
    turn_for(&s, 300);
    assert_true(is_well(&s));
    enforce_counts(s.e, &c);
    assert_true(c.repaired == 0);
    withdraw(&s, "10.7.0.0");
    side_end(&s);
}

static void the_upstream_proxy_is_for_us_alone(void **state)
{
    struct side s;
    struct enforce_setup setup = {.program = RULES_PROGRAM,
                                  .own_mark = OWN_MARK,
                                  .pass_mark = PASS_MARK,
                                  .group_mark = GROUP_MARK,
                                  .dns_port = 15353};
    struct ip parent = address(KEPT, 0).ip;
    char byte;
    (void)state;
    s = (struct side){.w = worker_new(0)};
    s.set.mode = EGRESS_DNS_NFT;
    s.set.parent = (struct egress_parent){STR("proxy.test"), 7500, false};
    setup.w = s.w;
    setup.set = &s.set;
    listen_dns(&s);
    s.e = enforce_new(&setup);
    side_start(&s, allow_kept, NULL, NULL);
    assert_well(&s);
    int listener = netns_listen(ns.outside, SOCK_STREAM, KEPT, 7500);
    int near = fixture_connect(&ns, SOCK_STREAM, KEPT, 7500);
    assert_true(near >= 0);
    enforce_parent(s.e, &parent, 1, 300);
    uint64_t end = now_ms() + WAIT_MS;
    while (recv(near, &byte, 1, MSG_DONTWAIT) < 0 && errno == EAGAIN && now_ms() < end)
        turn(&s);
    assert_int_equal(errno, ECONNABORTED);
    assert_true(fixture_connect(&ns, SOCK_STREAM, KEPT, 7500) < 0);
    assert_true(reaches(KEPT)); /* on another port */
    turn_for(&s, 200);
    assert_true(is_well(&s));
    close(near);
    close(listener);
    side_end(&s);
}

static int clean(void **state)
{
    (void)state;
    must_run(RULES_PROGRAM " remove");
    return 0;
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup(name, clean)
    const struct CMUnitTest tests[] = {
        TEST(rules_are_in_force_and_proven),
        TEST(mode_dns_redirects_and_filters_nothing),
        TEST(the_test_fails_where_nobody_answers_queries),
        TEST(without_the_right_to_it_says_so_and_goes_on),
        TEST(a_program_that_is_missing_is_a_fault),
        TEST(a_crash_forgets_nothing_and_cuts_nothing),
        TEST(a_successor_with_a_narrower_policy_ends_what_it_denies),
        TEST(what_somebody_else_changes_is_put_back),
        TEST(tables_that_are_deleted_again_and_again_are_put_back_at_once),
        TEST(changes_to_other_tables_are_not_ours),
        TEST(a_lesson_puts_the_table_back_first),
        TEST(a_device_that_comes_is_judged_too),
        TEST(learning_during_a_change_comes_after_it),
        TEST(a_change_takes_leases_with_it),
        TEST(a_change_that_does_not_know_what_was_reads_first),
        TEST(flows_that_lost_their_permission_end),
        TEST(a_udp_flow_outlives_its_lease_and_changes_that_leave_its_name_alone),
        TEST(large_policies_change_ten_times_a_second),
        TEST(addresses_in_use_are_told_once),
        TEST(the_end_waits_for_what_is_under_way),
        TEST(between_closing_and_start_nothing_leaves),
        TEST(a_kernel_without_log_gets_rules_without),
        TEST(what_cannot_be_put_back_is_a_fault_until_it_can),
        TEST(a_set_that_is_full_refuses_and_stays_as_it_is),
        TEST(the_upstream_proxy_is_for_us_alone),
    };
    if (!netns_start(&ns))
        return 0;
    /* The worker and its pool live inside, and so does this test. */
    close(ns.home);
    ns.home = fcntl(ns.inside, F_DUPFD_CLOEXEC, 0);
    netns_enter(ns.home);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    netns_stop(&ns);
    return failed;
}
