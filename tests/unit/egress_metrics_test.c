/* egress_metrics_test.c — the sidecar's numbers as text (contract egress-policy 6.3), and where the
 * machine's come from.  The parts that are asked are the test's own. */
#include "egress/events/metrics.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "egress/events/events.h"
#include "egress/events/figures.h"
#include "egress/events/labels.h"
#include "egress/kernel/enforce.h"
#include "egress/intercept/intercept.h"
#include "egress/relay/relay.h"

/* ---- the parts that are asked */

static struct dns_counters dns; /* as dns_service_counters() tells */

const struct dns_counters *dns_service_counters(const struct dns_service *s)
{
    (void)s;
    return &dns;
}

unsigned dns_service_waiting(const struct dns_service *s)
{
    (void)s;
    return 7;
}

struct leases_counts leases_counts(const struct leases *l)
{
    (void)l;
    return (struct leases_counts){.leases = 11, .names = 12, .addresses = 13};
}

void enforce_counts(const struct enforce *e, struct enforce_counts *ret)
{
    (void)e;
    *ret = (struct enforce_counts){.rules = 4096,
                                   .applied = 2,
                                   .learned = 3,
                                   .removed = 4,
                                   .apply_failed = 5,
                                   .learn_failed = 6,
                                   .remove_failed = 7,
                                   .elements = {21, 22, 23, 24},
                                   .lacks = 5,
                                   .packets = {31, 32, 33, 34}};
}

const char *enforce_fault(const struct enforce *e)
{
    (void)e;
    return NULL;
}

const struct intercept_counters *intercept_counters(const struct intercept *i)
{
    static const struct intercept_counters c = {.foreign = {2}};
    (void)i;
    return &c;
}

const struct relay_counters *relay_counters(const struct relay *r)
{
    static const struct relay_counters c = {.loops = {3}};
    (void)r;
    return &c;
}

unsigned relay_open(const struct relay *r)
{
    (void)r;
    return 41;
}

unsigned relay_open_asked(const struct relay *r)
{
    (void)r;
    return 42;
}

/* ---- the page */

struct fixture {
    struct arena a;
    struct worker *w;
    struct egress_settings set;
    struct sidecar s;
    struct metrics_out out;
};

static int setup(void **state)
{
    struct fixture *f = mem_new(sizeof *f);
    struct str error;
    arena_init(&f->a, NULL, 0);
    f->w = worker_new(0);
    struct events_setup e = {.w = f->w, .set = &f->set};
    f->s = (struct sidecar){.set = &f->set, .w = f->w, .events = events_new(&e, &f->a, &error)};
    metrics_out_init(&f->out);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    events_free(f->s.events);
    worker_free(f->w);
    metrics_out_done(&f->out);
    arena_done(&f->a);
    mem_free(f);
    return 0;
}

static const char *page(struct fixture *f)
{
    metrics_out_done(&f->out);
    egress_measure(&f->s);
    egress_metrics(&f->s, &f->out);
    return arena_printf(&f->a, "%.*s", (int)f->out.n, f->out.p).p;
}

static void has_line(const char *text, const char *line)
{
    size_t n = strlen(line);
    const char *at = text;
    while ((at = strstr(at, line)) && (at[n] != '\n' || (at > text && at[-1] != '\n')))
        at++;
    if (!at)
        fail_msg("no line %s in\n%s", line, text);
}

/* A family is told once, before its samples; samples are NAME[{…}] NUMBER; no sample twice. */
static void is_well_formed(struct fixture *f, struct str text)
{
    struct str line, family = STR_NONE, before[1024];
    size_t n = 0;
    while (str_next(&text, '\n', &line)) {
        if (line.n == 0 || str_starts(line, STR("# HELP ")))
            continue;
        if (str_starts(line, STR("# TYPE "))) {
            family = str_skip(line, 7);
            family = str_head(family, (size_t)str_chr(family, ' '));
            continue;
        }
        assert_true(family.n && str_starts(line, family));
        ptrdiff_t space = str_rchr(line, ' ');
        assert_true(space > 0);
        char number[64];
        snprintf(number, sizeof number, "%.*s", (int)(line.n - (size_t)space - 1),
                 line.p + space + 1);
        char *end;
        strtod(number, &end);
        assert_true(end != number && *end == '\0');
        struct str sample = str_head(line, (size_t)space);
        for (size_t i = 0; i < n; i++)
            assert_false(str_eq(before[i], sample));
        assert_true(n < 1024);
        before[n++] = sample;
        for (size_t i = 0; i < family.n; i++)
            assert_true(family.p[i] != '.');
    }
    assert_true(n > 20);
    (void)f;
}

static void numbers_have_their_names_and_places(void **state)
{
    struct fixture *f = *state;
    static const struct gate_learned none;
    f->s.dns = (struct dns_service *)&dns; /* only asked through the functions above */
    f->s.leases = (struct leases *)&dns;
    f->s.enforce = (struct enforce *)&dns;
    f->s.relay = (struct relay *)&dns;
    counter_add(&dns.malformed, 9);
    struct dns_told t = {.name = STR("a.test"), .ips = &none, .took_us = 1000};
    events_dns(f->s.events, &t); /* in time: at the bound */
    t.took_us = 1001;
    t.why = WHY_DENIED;
    events_dns(f->s.events, &t);
    t.took_us = UINT64_C(700000000);
    t.why = WHY_DEADLINE;
    events_dns(f->s.events, &t);
    const char *text = page(f);
    is_well_formed(f, str_of(text));
    static const char *const lines[] = {
        "# TYPE egress_dns_query_duration_seconds histogram",
        "egress_dns_query_duration_seconds_bucket{le=\"0.001\"} 1",
        "egress_dns_query_duration_seconds_bucket{le=\"0.0025\"} 2",
        "egress_dns_query_duration_seconds_bucket{le=\"600\"} 2",
        "egress_dns_query_duration_seconds_bucket{le=\"+Inf\"} 3",
        "egress_dns_query_duration_seconds_sum 700.002001",
        "egress_dns_query_duration_seconds_count 3",
        "egress_dns_query_failed_total{reason=\"no_upstreams\"} 0",
        "egress_dns_query_failed_total{reason=\"upstream_error\"} 1",
        "egress_dns_query_failed_total{reason=\"empty_response\"} 0",
        "egress_dns_query_failed_total{reason=\"rcode\"} 0",
        "egress_dns_reply_failed_total{stage=\"malformed\"} 9",
        "egress_dns_reply_failed_total{stage=\"deny\"} 1",
        "egress_policy_denied_total 1",
        "# TYPE egress_nftables_rules_count gauge",
        "egress_nftables_rules_count 4096",
        "egress_nftables_updates_count_total 5",
        "egress_nftables_updates_failed_total{operation=\"static_apply\"} 5",
        "egress_nftables_updates_failed_total{operation=\"dynamic_add\"} 6",
        "egress_nftables_updates_failed_total{operation=\"remove\"} 7",
        "sallyport_enforced 1",
        "sallyport_kernel_elements{set=\"bound\"} 23",
        "sallyport_kernel_packets_total{reason=\"wrong_mark\"} 33",
        "sallyport_kernel_lacks 2",
        "sallyport_dns_waiting 7",
        "sallyport_lease_names 12",
        "sallyport_relay_connections{result=\"asked\"} 42",
        "sallyport_relay_connections_total{result=\"loop\"} 3",
        "sallyport_webhook_events_total{result=\"dropped\"} 0",
        "# TYPE egress_system_memory_usage_bytes gauge",
        "# TYPE egress_system_cpu_utilization gauge",
    };
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
        has_line(text, lines[i]);
}

static void parts_that_are_not_there_have_no_numbers(void **state)
{
    struct fixture *f = *state;
    const char *text = page(f);
    is_well_formed(f, str_of(text));
    assert_null(strstr(text, "nftables"));
    assert_null(strstr(text, "sallyport_kernel"));
    assert_null(strstr(text, "sallyport_relay"));
    assert_non_null(strstr(text, "egress_policy_denied_total 0\n"));
}

static void nothing_is_enforced_before_it_was_looked_at(void **state)
{
    struct fixture *f = *state;
    f->s.enforce = (struct enforce *)&dns;
    egress_metrics(&f->s, &f->out);
    has_line(arena_printf(&f->a, "%.*s", (int)f->out.n, f->out.p).p, "sallyport_enforced 0");
}

static void every_sample_carries_the_attributes(void **state)
{
    static const struct field attrs[] = {{{"team", 4}, {"a\"b", 3}}};
    struct fixture *f = *state;
    f->set.sandbox_id = STR("sb-1");
    f->set.attrs = attrs;
    f->set.nattrs = 1;
    f->s.enforce = (struct enforce *)&dns;
    const char *text = page(f);
    static const char both[] = "{sandbox_id=\"sb-1\",team=\"a\\\"b\"";
    struct str rest = str_of(text), line;
    while (str_next(&rest, '\n', &line))
        if (line.n && line.p[0] != '#' && !memmem(line.p, line.n, both, sizeof both - 1))
            fail_msg("without attributes: %.*s", STR_ARG(line));
    has_line(text, "egress_policy_denied_total{sandbox_id=\"sb-1\",team=\"a\\\"b\"} 0");
    has_line(text, "egress_nftables_updates_failed_total{sandbox_id=\"sb-1\",team=\"a\\\"b\","
                   "operation=\"remove\"} 7");
}

static void labels_are_bent_into_form(void **state)
{
    static const struct field attrs[] = {
        {{"a.b-c", 5}, {"1", 1}},
        {{"9x", 2}, {"2", 1}},
        {{"le", 2}, {"3", 1}},
        {{"a_b_c", 5}, {"again", 5}},
        {{"token", 5}, {"hush", 4}},
        {{"v", 1}, {"x\\y\nz\xff", 6}},
        {{"sandbox_id", 10}, {"other", 5}},
    };
    struct fixture *f = *state;
    f->set.sandbox_id = STR(" id ");
    f->set.attrs = attrs;
    f->set.nattrs = sizeof attrs / sizeof *attrs;
    assert_string_equal(labels_make(&f->set, &f->a).p,
                        "sandbox_id=\"id\",a_b_c=\"1\",attr_9x=\"2\",attr_le=\"3\","
                        "token=\"***\",v=\"x\\\\y\\nz?\"");
    f->set = (struct egress_settings){0};
    assert_string_equal(labels_make(&f->set, &f->a).p, "");
}

/* ---- the machine, as files say */

static char root[64];

static void put(const char *path, const char *text)
{
    char at[256];
    snprintf(at, sizeof at, "%s%s", root, path);
    for (char *slash = at + strlen(root) + 1; (slash = strchr(slash, '/')); slash++) {
        *slash = '\0';
        assert_true(mkdir(at, 0700) == 0 || errno == EEXIST);
        *slash = '/';
    }
    int fd = open(at, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    close(fd);
}

static int root_new(void **state)
{
    (void)state;
    snprintf(root, sizeof root, "/tmp/figures_test.XXXXXX");
    return mkdtemp(root) ? 0 : -1;
}

static int root_free(void **state)
{
    char command[128];
    (void)state;
    snprintf(command, sizeof command, "rm -r %s", root);
    return system(command);
}

static void the_node_is_read_from_proc(void **state)
{
    struct cpu_ticks last = {0};
    struct figures f;
    (void)state;
    figures_read(root, &last, &f);
    assert_false(f.has_node_memory || f.has_node_cpu || f.has_memory || f.has_cpu);
    put("/proc/meminfo", "MemTotal:  1000 kB\nMemFree: 100 kB\nMemAvailable:   400 kB\n");
    put("/proc/stat", "cpu  10 0 10 60 20 0 0 0 99 99\ncpu0 1 1 1 1 1 1 1 1 1 1\n");
    figures_read(root, &last, &f);
    assert_true(f.has_node_memory && f.node_memory == 600 * 1024);
    assert_true(f.has_node_cpu && f.node_cpu == 0.2);
    put("/proc/meminfo", "MemTotal:  1000 kB\nMemFree: 100 kB\n");
    put("/proc/stat", "cpu  20 0 20 70 30 10 5 5 99 99\n");
    figures_read(root, &last, &f);
    assert_true(f.has_node_memory && f.node_memory == 900 * 1024);
    assert_true(f.has_node_cpu && f.node_cpu == 40.0 / 60);
    figures_read(root, &last, &f); /* no time has passed */
    assert_false(f.has_node_cpu);
    put("/proc/stat", "cpu  1 2 3\n");
    put("/proc/meminfo", "MemTotal: 1 kB\nMemAvailable: 2 kB\n");
    figures_read(root, &last, &f);
    assert_false(f.has_node_memory || f.has_node_cpu);
}

static void our_cgroup_is_found_in_version_2(void **state)
{
    struct cpu_ticks last = {0};
    struct figures f;
    (void)state;
    put("/proc/self/cgroup", "0::/pod/box\n");
    put("/proc/self/mountinfo",
        "30 20 0:1 / / rw - ext4 /dev/a rw\n"
        "31 20 0:2 /other /wrong rw,relatime - cgroup2 cgroup2 rw\n"
        "32 20 0:2 /po /wrong2 rw,relatime - cgroup2 cgroup2 rw\n"
        "33 20 0:2 /pod /cg rw,relatime shared:9 master:1 - cgroup2 cgroup2 rw\n");
    figures_read(root, &last, &f);
    assert_false(f.has_memory || f.has_cpu);
    put("/cg/box/memory.current", "12345\n");
    put("/cg/box/cpu.stat", "nr_periods 3\nusage_usec 2500000\nuser_usec 1\n");
    figures_read(root, &last, &f);
    assert_true(f.has_memory && f.memory == 12345);
    assert_true(f.has_cpu && f.cpu_s == 2.5);
}

static void our_cgroup_is_found_in_version_1(void **state)
{
    struct cpu_ticks last = {0};
    struct figures f;
    (void)state;
    put("/proc/self/cgroup", "4:memory:/docker/x\n2:cpu,cpuacct:/docker/x\n0::/\n");
    put("/proc/self/mountinfo", "31 20 0:2 /docker/x /cg/cpu rw - cgroup cgroup rw,cpu,cpuacct\n"
                                "32 20 0:3 /docker/x /cg/memory rw - cgroup cgroup rw,memory\n"
                                "33 20 0:4 / /cg/unified rw - cgroup2 cgroup2 rw\n");
    put("/cg/memory/memory.usage_in_bytes", "777\n");
    put("/cg/cpu/cpuacct.usage", "1500000000\n");
    figures_read(root, &last, &f);
    assert_true(f.has_memory && f.memory == 777);
    assert_true(f.has_cpu && f.cpu_s == 1.5);
    put("/cg/memory/memory.usage_in_bytes", "many\n");
    figures_read(root, &last, &f);
    assert_false(f.has_memory);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
#define F(name) cmocka_unit_test_setup_teardown(name, root_new, root_free)
    const struct CMUnitTest tests[] = {
        T(numbers_have_their_names_and_places),
        T(parts_that_are_not_there_have_no_numbers),
        T(nothing_is_enforced_before_it_was_looked_at),
        T(every_sample_carries_the_attributes),
        T(labels_are_bent_into_form),
        F(the_node_is_read_from_proc),
        F(our_cgroup_is_found_in_version_2),
        F(our_cgroup_is_found_in_version_1),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
