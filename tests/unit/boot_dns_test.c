/* boot_dns_test.c — whom the sidecar's DNS asks: the settings, else what the predecessor read, else
 * /etc/resolv.conf, which the sandbox can write.  Link with --wrap=open: the file is the test's. */
#include "egress/boot_dns.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/log.h"
#include "egress/dns/upstreams.h"
#include "harness/keeper.h"

#define MS (1000 * 1000LL)

/* What stands in /etc/resolv.conf; NULL: there is none. */
static const char *resolv_conf;
static unsigned times_read;

int __wrap_open(const char *path, int flags, ...);
int __real_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...)
{
    va_list more;
    va_start(more, flags);
    mode_t mode = flags & O_CREAT ? va_arg(more, mode_t) : 0;
    va_end(more);
    if (strcmp(path, "/etc/resolv.conf") != 0)
        return __real_open(path, flags, mode);
    times_read++;
    if (!resolv_conf)
        return -1;
    int fd = memfd_create("resolv.conf", MFD_CLOEXEC);
    assert_int_equal(write(fd, resolv_conf, strlen(resolv_conf)), strlen(resolv_conf));
    assert_int_equal(lseek(fd, 0, SEEK_SET), 0);
    return fd;
}

struct fixture {
    struct keeper keeper;
    struct egress_settings set;
    struct arena a;
    struct handover *h;
    char log[64];
};

static int setup(void **state)
{
    static struct fixture f;
    char problem[256];
    memset(&f, 0, sizeof f);
    arena_init(&f.a, NULL, 0);
    keeper_init(&f.keeper);
    f.set.dns_timeout = 5000 * MS;
    f.set.probe_interval = 30000 * MS;
    f.set.probe = STR("example.com");
    resolv_conf = NULL;
    times_read = 0;
    snprintf(f.log, sizeof f.log, "/tmp/boot_dns_test.XXXXXX");
    int fd = mkstemp(f.log);
    assert_true(fd >= 0);
    close(fd);
    assert_true(log_start("opensandbox.egress", str_of(f.log), LOG_DEBUG, problem, sizeof problem));
    *state = &f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    log_stop();
    unlink(f->log);
    keeper_done(&f->keeper);
    arena_done(&f->a);
    return 0;
}

/* All lines; none come after this. */
static const char *lines(struct fixture *f)
{
    char *text = arena_zero(&f->a, 65536);
    log_stop();
    int fd = open(f->log, O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0 && read(fd, text, 65535) >= 0);
    close(fd);
    return text;
}

/* What a worker of its own finds, as "address …". */
static const char *found(struct fixture *f)
{
    char *text = arena_zero(&f->a, 2048);
    size_t n = 0;
    keeper_serve(&f->keeper);
    f->h = handover_open(&f->a);
    struct nameserver_list list = boot_upstreams(&f->set, f->h, &f->a);
    handover_close(f->h);
    keeper_wait(&f->keeper);
    assert_true(list.n >= 1 && list.n <= NAMESERVERS_MAX);
    for (unsigned i = 0; i < list.n; i++) {
        n += addr_text(&list.addr[i].sa, text + n);
        text[n++] = ' ';
    }
    return text;
}

static void name_servers(struct fixture *f, const char *const *texts, size_t n)
{
    union addr *at = arena_zero(&f->a, n * sizeof *at);
    for (size_t i = 0; i < n; i++)
        assert_true(addr_parse(str_of(texts[i]), &at[i]));
    f->set.upstreams = at;
    f->set.nupstreams = n;
}

/* ---- where from */

static void the_settings_come_first_and_no_file_is_read(void **state)
{
    static const char *const servers[] = {"192.0.2.53:5353", "[2001:db8::53]:53"};
    struct fixture *f = *state;
    resolv_conf = "nameserver 198.51.100.1\n";
    name_servers(f, servers, 2);
    assert_string_equal(found(f), "192.0.2.53:5353 [2001:db8::53]:53 ");
    assert_string_equal(found(f), "192.0.2.53:5353 [2001:db8::53]:53 ");
    assert_int_equal(times_read, 0);
    assert_int_equal(f->keeper.store.n, 0);
}

static void the_file_is_read_once_for_all_workers(void **state)
{
    struct fixture *f = *state;
    resolv_conf = "# of the machine\nnameserver 127.0.0.11\nnameserver 198.51.100.1\nnameserver "
                  "2001:db8::1\n";
    assert_string_equal(found(f), "198.51.100.1:53 [2001:db8::1]:53 127.0.0.11:53 ");
    resolv_conf = "nameserver 203.0.113.66\n"; /* by the sandbox */
    assert_string_equal(found(f), "198.51.100.1:53 [2001:db8::1]:53 127.0.0.11:53 ");
    resolv_conf = NULL;
    assert_string_equal(found(f), "198.51.100.1:53 [2001:db8::1]:53 127.0.0.11:53 ");
    assert_int_equal(times_read, 1);
}

static void a_file_that_said_nothing_goes_on_to_say_nothing(void **state)
{
    static const char *const nothing[] = {NULL, "", "\n# nothing\nsearch example.test\n",
                                          "nameserver\nnameserver x\n"};
    struct fixture *f = *state;
    for (size_t i = 0; i < sizeof nothing / sizeof *nothing; i++) {
        resolv_conf = nothing[i];
        assert_string_equal(found(f), "8.8.8.8:53 ");
        resolv_conf = "nameserver 203.0.113.66\n";
        assert_string_equal(found(f), "8.8.8.8:53 ");
        keeper_done(&f->keeper);
        keeper_init(&f->keeper);
    }
}

static void without_a_supervisor_the_file_is_read_each_time(void **state)
{
    struct fixture *f = *state;
    unsetenv(KEEP_VARIABLE);
    struct handover *h = handover_open(&f->a);
    resolv_conf = "nameserver 198.51.100.1\n";
    struct nameserver_list list = boot_upstreams(&f->set, h, &f->a);
    assert_int_equal(list.n, 1);
    assert_int_equal(addr_port(&list.addr[0].sa), 53);
    boot_upstreams(&f->set, h, &f->a);
    assert_int_equal(times_read, 2);
    handover_close(h);
    assert_null(strstr(lines(f), "resolv.conf"));
}

static void ten_are_asked_and_a_line_says_that_there_were_more(void **state)
{
    static const char *const servers[] = {"192.0.2.1:53",  "192.0.2.2:53",  "192.0.2.3:53",
                                          "192.0.2.4:53",  "192.0.2.5:53",  "192.0.2.6:53",
                                          "192.0.2.7:53",  "192.0.2.8:53",  "192.0.2.9:53",
                                          "192.0.2.10:53", "192.0.2.11:53", "192.0.2.12:53"};
    struct fixture *f = *state;
    name_servers(f, servers, 10);
    found(f);
    name_servers(f, servers, 12);
    const char *text = found(f);
    assert_null(strstr(text, "192.0.2.11:"));
    assert_non_null(strstr(text, "192.0.2.10:"));
    text = lines(f);
    const char *first = strstr(text, "only the first ten");
    assert_non_null(first);
    assert_null(strstr(first + 1, "only the first ten"));
}

static void loopback_alone_is_worth_a_warning(void **state)
{
    static const struct {
        const char *text;
        bool warns;
    } rows[] = {
        {"nameserver 127.0.0.11\n", true},
        {"nameserver ::1\nnameserver 127.0.0.53\n", true},
        {"nameserver 127.0.0.11\nnameserver 198.51.100.1\n", false},
        {"", false},
    };
    struct fixture *f = *state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        resolv_conf = rows[i].text;
        found(f);
        const char *text = lines(f);
        assert_int_equal(strstr(text, "loopback") != NULL, rows[i].warns);
        assert_int_equal(strstr(text, "\"warn\"") != NULL, rows[i].warns);
        teardown(state);
        setup(state);
    }
}

/* ---- how long, how much */

static void times_follow_the_settings_within_bounds(void **state)
{
    static const char *const servers[] = {"192.0.2.1:53", "192.0.2.2:53", "192.0.2.3:53"};
    static const struct {
        int64_t timeout_ms;
        unsigned n;
        uint64_t try_ms, watch_ms, upstream_ms;
    } rows[] = {
        {5000, 1, 3000, 2000, 5000},
        {5000, 3, 3000, 2000, 15000},
        {1000, 3, 1000, 1000, 3000},
        {120000, 3, 3000, 2000, 120000},
    };
    struct fixture *f = *state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        f->set.dns_timeout = rows[i].timeout_ms * MS;
        name_servers(f, servers, rows[i].n);
        struct handover *h = handover_open(&f->a);
        struct nameserver_list list = boot_upstreams(&f->set, h, &f->a);
        handover_close(h);
        assert_int_equal(list.try_ms, rows[i].try_ms);
        assert_int_equal(list.watch_ms, rows[i].watch_ms);
        assert_int_equal(list.watch_every_ms, 30000);
        assert_int_equal(boot_dns_limits(&f->set, list.n).upstream_ms, rows[i].upstream_ms);
    }
}

static void the_probe_is_the_settings_question(void **state)
{
    struct fixture *f = *state;
    struct dns_question want;
    assert_true(probe_parse(STR("example.com"), &want));
    struct handover *h = handover_open(&f->a);
    struct nameserver_list list = boot_upstreams(&f->set, h, &f->a);
    handover_close(h);
    assert_int_equal(list.probe.type, want.type);
    assert_int_equal(list.probe.name.n, want.name.n);
    assert_memory_equal(list.probe.name.b, want.name.b, want.name.n);
    assert_int_equal(list.rounds, 1);
    assert_non_null(list.news);
}

static void limits_are_those_of_the_settings(void **state)
{
    struct fixture *f = *state;
    f->set.dns_max_rate = 200;
    f->set.dns_max_domain_rate = 7;
    f->set.dns_max_inflight = 11;
    f->set.dns_cache_size = 13;
    f->set.dns_tcp_max_connections = 17;
    f->set.dns_tcp_max_queries = 19;
    f->set.learn_timeout = 250 * MS;
    f->set.dns_tcp_idle_timeout = 4000 * MS;
    struct dns_limits l = boot_dns_limits(&f->set, 1);
    assert_int_equal(l.asks.per_s, 200);
    assert_int_equal(l.asks.burst, 200);
    assert_int_equal(l.domain_asks.per_s, 7);
    assert_int_equal(l.domain_asks.burst, 70);
    assert_int_equal(l.in_flight, 11);
    assert_int_equal(l.cache_entries, 13);
    assert_int_equal(l.tcp_clients, 17);
    assert_int_equal(l.tcp_queries, 19);
    assert_int_equal(l.kernel_ms, 250);
    assert_int_equal(l.tcp_idle_ms, 4000);
}

/* ---- what is told of them */

static void a_line_says_which_server_is_silent(void **state)
{
    static const char *const servers[] = {"192.0.2.1:53", "[2001:db8::53]:5353", "192.0.2.3:53"};
    struct fixture *f = *state;
    name_servers(f, servers, 3);
    struct handover *h = handover_open(&f->a);
    struct nameserver_list list = boot_upstreams(&f->set, h, &f->a);
    handover_close(h);
    list.news(list.user, NS_PROBE_SILENT, &list.addr[1]);
    list.news(list.user, NS_MISSED, &list.addr[2]);
    list.news(list.user, NS_NONE_LEFT, NULL);
    const char *text = lines(f), *probe = strstr(text, "[dns] upstream probe"),
               *exchange = strstr(text, "exchange error"), *none = strstr(text, "all are asked");
    assert_true(probe && exchange && none);
    const char *second = strstr(text, servers[1]), *third = strstr(text, servers[2]);
    assert_true(second && third && second > probe && second < third && third < none);
    assert_null(strstr(text, servers[0]));
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(the_settings_come_first_and_no_file_is_read),
        TEST(the_file_is_read_once_for_all_workers),
        TEST(a_file_that_said_nothing_goes_on_to_say_nothing),
        TEST(without_a_supervisor_the_file_is_read_each_time),
        TEST(ten_are_asked_and_a_line_says_that_there_were_more),
        TEST(loopback_alone_is_worth_a_warning),
        TEST(times_follow_the_settings_within_bounds),
        TEST(the_probe_is_the_settings_question),
        TEST(limits_are_those_of_the_settings),
        TEST(a_line_says_which_server_is_silent),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
