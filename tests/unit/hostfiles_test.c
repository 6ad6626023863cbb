/* hostfiles_test.c — the texts of resolv.conf and the hosts file. */
#include "net/hostfiles.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <cmocka.h>

/* "servers|search|ndots timeout attempts" */
static void expect_conf(const char *text, const char *want)
{
    struct resolv_conf c;
    struct arena a;
    char got[2048], ip[IP_TEXT_BYTES];
    size_t n = 0;
    arena_init(&a, NULL, 0);
    resolv_conf_parse(str_of(text), &a, &c);
    for (unsigned i = 0; i < c.nservers; i++)
        n += (size_t)snprintf(got + n, sizeof got - n, "%s%.*s", i ? " " : "",
                              (int)ip_text(&c.server[i], ip), ip);
    n += (size_t)snprintf(got + n, sizeof got - n, "|");
    for (unsigned i = 0; i < c.nsearch; i++)
        n +=
            (size_t)snprintf(got + n, sizeof got - n, "%s%.*s", i ? " " : "", STR_ARG(c.search[i]));
    snprintf(got + n, sizeof got - n, "|%u %u %u", c.ndots, c.timeout_s, c.attempts);
    arena_done(&a);
    if (strcmp(got, want) != 0)
        fail_msg("%s\ngave %s, not %s", text, got, want);
}

static void resolv_conf_is_read(void **state)
{
    static const char *const rows[][2] = {
        {"", "||1 5 2"},
        {"nameserver 10.0.0.1\nnameserver 2001:db8::1\n", "10.0.0.1 2001:db8::1||1 5 2"},
        {"nameserver 10.0.0.1", "10.0.0.1||1 5 2"},
        {"  nameserver\t10.0.0.1  \r\n", "10.0.0.1||1 5 2"},
        {"nameserver 10.0.0.1 # ours\n;nameserver 10.0.0.2\n# nameserver 10.0.0.3\nnameserver "
         "10.0.0.4;x",
         "10.0.0.1 10.0.0.4||1 5 2"},
        {"nameserver 10.0.0.1\nnameserver ::ffff:10.0.0.1\n", "10.0.0.1||1 5 2"},
        {"nameserver\nnameserver dns.test\nnameserver fe80::1%eth0\nnameservers "
         "10.0.0.1\nNAMESERVER 10.0.0.1\n",
         "||1 5 2"},
        {"search a.test b.test.\n", "|a.test b.test|1 5 2"},
        {"search a.test\nsearch b.test c.test\n", "|b.test c.test|1 5 2"},
        {"search a.test\ndomain d.test e.test\n", "|d.test|1 5 2"},
        {"domain d.test\nsearch .\n", "||1 5 2"},
        {"options ndots:5 timeout:3 attempts:4 edns0 rotate\n", "||5 3 4"},
        {"options ndots:5\noptions timeout:3\noptions attempts:4\n", "||5 3 4"},
        {"options ndots:99 timeout:99 attempts:99\n", "||15 30 5"},
        {"options ndots:0 timeout:0 attempts:0\n", "||0 1 1"},
        {"options ndots: timeout:x attempts:-1 ndots:99999999999999999999\n", "||1 5 2"},
        {"sortlist 10.0.0.0\nlookup file bind\nnameserver 10.0.0.1\n", "10.0.0.1||1 5 2"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        expect_conf(rows[i][0], rows[i][1]);
}

static void the_numbers_of_servers_and_domains_are_bounded(void **state)
{
    (void)state;
    char text[4096];
    struct resolv_conf c;
    struct arena a;
    size_t n = 0;
    for (int i = 0; i < 40; i++)
        n += (size_t)snprintf(text + n, sizeof text - n, "nameserver 10.0.0.%d\n", i);
    n += (size_t)snprintf(text + n, sizeof text - n, "search");
    for (int i = 0; i < 100; i++)
        n += (size_t)snprintf(text + n, sizeof text - n, " d%d.test", i);
    arena_init(&a, NULL, 0);
    resolv_conf_parse((struct str){text, n}, &a, &c);
    assert_int_equal(c.nservers, RESOLV_SERVERS);
    assert_int_equal(c.nsearch, RESOLV_SEARCH);
    arena_done(&a);
}

/* The names that are asked for, in order; those skipped as "-". */
static void expect_candidates(const char *conf, const char *host, const char *want)
{
    struct resolv_conf c;
    struct arena a;
    struct dns_name name;
    enum candidate kind;
    char got[4096], text[DNS_NAME_TEXT_BYTES];
    size_t n = 0;
    arena_init(&a, NULL, 0);
    resolv_conf_parse(str_of(conf), &a, &c);
    for (unsigned i = 0; (kind = resolv_candidate(&c, str_of(host), i, &name)) != CANDIDATE_END;
         i++)
        n += (size_t)snprintf(got + n, sizeof got - n, "%s%.*s", i ? " " : "",
                              kind == CANDIDATE_OK ? (int)dns_name_text(&name, text) : 1,
                              kind == CANDIDATE_OK ? text : "-");
    arena_done(&a);
    if (strcmp(got, want) != 0)
        fail_msg("%s: %s, not %s", host, got, want);
}

static void names_are_searched_for_as_ndots_says(void **state)
{
    static const char *const rows[][3] = {
        {"", "db", "db"},
        {"", "db.", "db"},
        {"search a b\n", "db", "db.a db.b db"},
        {"search a b\n", "db.x", "db.x db.x.a db.x.b"},
        {"search a b\n", "db.x.", "db.x"},
        {"search a b\noptions ndots:0\n", "db", "db db.a db.b"},
        {"search a b\noptions ndots:5\n", "w.x.y.z", "w.x.y.z.a w.x.y.z.b w.x.y.z"},
        {"search a b\noptions ndots:3\n", "w.x.y.z", "w.x.y.z w.x.y.z.a w.x.y.z.b"},
        {"search a..b c\n", "db", "- db.c db"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        expect_candidates(rows[i][0], rows[i][1], rows[i][2]);
}

static void candidates_that_are_too_long_are_skipped(void **state)
{
    (void)state;
    char host[300], want[1000];
    memset(host, 'a', sizeof host);
    host[63] = host[127] = host[191] = '.';
    host[253] = 0;
    snprintf(want, sizeof want, "- - %s", host);
    expect_candidates("search b cc\noptions ndots:5\n", host, want);
    host[251] = 0;
    snprintf(want, sizeof want, "%s.b - %s", host, host);
    expect_candidates("search b cc\noptions ndots:5\n", host, want);
}

static void expect_hosts(const struct hosts *h, const char *name, const char *want)
{
    struct ip ips[HOSTS_ADDRESSES];
    char got[1024], ip[IP_TEXT_BYTES];
    size_t len = 0;
    unsigned n = hosts_find(h, str_of(name), ips);
    got[0] = 0;
    for (unsigned i = 0; i < n; i++)
        len += (size_t)snprintf(got + len, sizeof got - len, "%s%.*s", i ? " " : "",
                                (int)ip_text(&ips[i], ip), ip);
    if (strcmp(got, want) != 0)
        fail_msg("%s: %s, not %s", name, got, want);
}

static void the_hosts_file_is_read(void **state)
{
    (void)state;
    struct hosts *h = hosts_parse(STR("# a comment\n"
                                      "127.0.0.1\tlocalhost loop # here\n"
                                      "::1 localhost ip6-localhost\r\n"
                                      "2001:db8::2 box\n"
                                      "192.0.2.2 Box BOX\n"
                                      "192.0.2.1 box\n"
                                      "nonsense box\n"
                                      "fe80::1%lo box\n"
                                      "192.0.2.9\n"
                                      "\n"
                                      "192.0.2.3 last"));
    expect_hosts(h, "localhost", "127.0.0.1 ::1");
    expect_hosts(h, "loop", "127.0.0.1");
    expect_hosts(h, "ip6-localhost", "::1");
    expect_hosts(h, "box", "192.0.2.2 192.0.2.1 2001:db8::2");
    expect_hosts(h, "last", "192.0.2.3");
    expect_hosts(h, "here", "");
    expect_hosts(h, "", "");
    hosts_free(h);
    h = hosts_parse(STR_NONE);
    expect_hosts(h, "box", "");
    hosts_free(h);
    hosts_free(NULL);
}

static void a_host_has_sixteen_addresses_at_most(void **state)
{
    (void)state;
    char text[2048];
    struct ip ips[HOSTS_ADDRESSES];
    size_t n = 0;
    for (int i = 0; i < 40; i++)
        n += (size_t)snprintf(text + n, sizeof text - n, "192.0.2.%d many\n", i);
    struct hosts *h = hosts_parse((struct str){text, n});
    assert_int_equal(hosts_find(h, STR("many"), ips), HOSTS_ADDRESSES);
    hosts_free(h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(resolv_conf_is_read),
        cmocka_unit_test(the_numbers_of_servers_and_domains_are_bounded),
        cmocka_unit_test(names_are_searched_for_as_ndots_says),
        cmocka_unit_test(candidates_that_are_too_long_are_skipped),
        cmocka_unit_test(the_hosts_file_is_read),
        cmocka_unit_test(a_host_has_sixteen_addresses_at_most),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
