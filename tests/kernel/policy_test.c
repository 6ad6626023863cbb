/* policy_test.c — the kernel and policies/ must be of one mind: rows of the contract's table and
 * random policies, each packet judged by packet_judge() and by the rules in force. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <cmocka.h>

#include "egress/kernel/sets.h"
#include "kernel/fixture.h"
#include "policies/packet.h"
#include "vectors/run_policy.h"

static struct netns ns;
static struct sets *sets;

/* ---- what a policy is to the kernel */

static void enforce(const struct policy *p, const struct sets_address *learned, size_t n)
{
    struct sets_rules r = {.always = *policy_always_ranges(p),
                           .user = *policy_user_ranges(p),
                           .allow = policy_default(p)};
    assert_int_equal(sets_replace(sets, NULL, &r, NULL, 0), 0);
    for (size_t i = 0; i < n; i++)
        assert_int_equal(sets_learn(sets, STR("a.test"), &learned[i].ip, 1, 60, learned[i].kinds),
                         0);
}

/* ---- rows */

static struct ruleset settings_of(struct row *r, struct packet_rules *rules, struct ip *exempt)
{
    struct ruleset s = fixture_settings();
    struct str bad;
    rules->nft = !str_eq(row_env(r, "MODE"), STR("dns"));
    rules->block_doh = row_env(r, "BLOCK_DOH_443").n > 0;
    assert_true(cidr_set_parse(row_env(r, "DOH_BLOCKLIST"), r->a, &rules->doh_blocklist, &bad));
    assert_true(cidr_set_parse(row_env(r, "NAMESERVER_EXEMPT"), r->a, &rules->exempt, &bad));
    s.shape = rules->nft ? RULESET_FULL : RULESET_DNS;
    s.relay_port = 0;
    s.block_doh = rules->block_doh;
    s.doh = rules->doh_blocklist;
    s.exempt = exempt;
    s.nexempt = rules->exempt.n;
    for (unsigned i = 0; i < rules->exempt.n; i++)
        exempt[i] = rules->exempt.nets[i].ip;
    return s;
}

static bool is_listed(const struct json *list, struct str text)
{
    for (const struct json *v = list ? json_first(list) : NULL; v; v = json_next(v)) {
        if (str_eq(json_string(v), text))
            return true;
    }
    return false;
}

static size_t learned_of(struct row *r, const struct policy *p, struct sets_address *out)
{
    const struct json *list = row_member(r->v, "learned");
    bool intercepts = row_env(r, "MITMPROXY_TRANSPARENT").n > 0;
    size_t n = 0;
    for (const struct json *v = list ? json_first(list) : NULL; v; v = json_next(v)) {
        struct str name = row_text(v, "name");
        enum learned worth = policy_learns(p, name);
        struct sets_address a = {.kinds = worth == LEARNED_ALWAYS ? SETS_LEARNED_ALWAYS
                                          : worth == LEARNED_USER ? SETS_LEARNED
                                                                  : 0};
        assert_true(ip_parse(row_text(v, "addr"), &a.ip));
        if (intercepts && is_listed(row_member(r->v, "intercepted"), name))
            a.kinds |= SETS_BOUND;
        out[n++] = a;
    }
    return n;
}

static const char *try_packet(struct row *r)
{
    char ip[64], what[160];
    bool v4 = !memchr(row_text(r->v, "addr").p, ':', row_text(r->v, "addr").n);
    bool udp = row_is(r->v, "proto", "udp"), tcp = row_is(r->v, "proto", "tcp");
    uint16_t port = (uint16_t)row_int(r, r->v, "port", 0);
    snprintf(ip, sizeof ip, "%.*s", STR_ARG(row_text(r->v, "addr")));
    struct attempt a = {.run = udp ? try_udp : tcp ? try_tcp : try_ping, .ip = ip, .port = port};
    a.number = (uint32_t)row_int(r, r->v, "mark", 0);
    int type = udp ? SOCK_DGRAM : SOCK_STREAM;
    int dns = netns_listen(ns.inside, type, v4 ? "127.0.0.1" : "::1", 15353);
    int local = row_is(r->v, "rule", "loopback") ? netns_listen(ns.inside, type, ip, port) : -1;
    netns_tap_forget(&ns);
    enum outcome o = attempt_as(&ns, &a, a.number ? AS_RAW : AS_USER);
    bool ours = netns_readable(dns, 5), out = netns_tap_count(&ns, 10, what) > 0;
    close(dns);
    if (local >= 0)
        close(local);
    return ours ? "dns" : out || (local >= 0 && o == REACHED) ? "accept" : "drop";
}

/* Replies and our own traffic have tests of their own. */
static bool check_row(struct str line)
{
    struct json_fault fault;
    struct json_doc *doc = json_parse(line, 0, 64, &fault);
    assert_non_null(doc);
    struct arena a;
    arena_init(&a, NULL, 0);
    struct row r = {.doc = doc, .v = json_root(doc), .a = &a};
    bool skip = row_bool(r.v, "own") || row_bool(r.v, "reply"), good = true;
    if (!skip) {
        struct packet_rules rules;
        struct sets_address learned[8];
        struct ip exempt[8];
        struct ruleset s = settings_of(&r, &rules, exempt);
        struct policy *p = row_policy(&r);
        assert_non_null(p);
        fixture_apply(&ns, &s);
        if (rules.nft)
            enforce(p, learned, learned_of(&r, p, learned));
        const char *got = try_packet(&r);
        good = str_eq(str_of(got), row_text(r.v, "verdict"));
        if (!good)
            printf("%.*s: %s, not %.*s\n", STR_ARG(row_text(r.v, "id")), got,
                   STR_ARG(row_text(r.v, "verdict")));
        policy_free(p);
    }
    arena_done(&a);
    json_free(doc);
    return good;
}

static void the_kernel_gives_the_verdicts_of_the_contract(void **state)
{
    FILE *f = fopen(SOURCE_DIR "/tests/vectors/egress-policy/policy_eval_ip.jsonl", "re");
    char *line = NULL;
    size_t room = 0;
    ssize_t n;
    unsigned bad = 0, rows = 0;
    (void)state;
    assert_non_null(f);
    while ((n = getline(&line, &room, f)) > 1) {
        bad += !check_row((struct str){line, (size_t)n});
        rows++;
    }
    free(line);
    fclose(f);
    assert_true(rows > 50);
    assert_int_equal(bad, 0);
}

/* ---- random policies */

static struct rules *random_rules(unsigned *seed, unsigned n, int allow)
{
    struct rules *list = rules_new();
    for (unsigned i = 0; i < n; i++) {
        char text[64];
        bool yes = allow < 0 ? rand_r(seed) % 2 : allow;
        unsigned low = (unsigned)rand_r(seed) % 64, bits = 24 + (unsigned)rand_r(seed) % 9;
        if (rand_r(seed) % 2)
            snprintf(text, sizeof text, "198.51.100.%u/%u", low, bits);
        else
            snprintf(text, sizeof text, "2001:db8::%x/%u", low, bits + 96);
        assert_int_equal(rules_add(list, yes, str_of(text)), TARGET_OK);
    }
    return list;
}

static enum learned random_address(unsigned *seed, struct sets_address *ret)
{
    static const unsigned kinds[] = {0, SETS_LEARNED, SETS_LEARNED_ALWAYS};
    static const enum learned worth[] = {LEARNED_NOT, LEARNED_USER, LEARNED_ALWAYS};
    char text[64];
    unsigned low = (unsigned)rand_r(seed) % 64, k = (unsigned)rand_r(seed) % 3;
    snprintf(text, sizeof text, rand_r(seed) % 2 ? "198.51.100.%u" : "2001:db8::%x", low);
    assert_true(ip_parse(str_of(text), &ret->ip));
    ret->kinds = kinds[k];
    return worth[k];
}

static bool leaves(const int fds[2], const struct ip *ip)
{
    union addr to;
    addr_make(&to, ip, 9999);
    return sendto(fds[ip_is_v4(ip) ? 0 : 1], "x", 1, 0, &to.sa, addr_len(&to.sa)) == 1;
}

static struct document document_of(const struct rules *rules, bool allow)
{
    struct document d = document_deny();
    rules_unref(d.rules);
    d.rules = rules;
    d.allow = allow;
    return d;
}

static void random_policies_are_judged_alike(void **state)
{
    enum { POLICIES = 60, ADDRESSES = 40 };
    unsigned seed = 20260;
    struct ruleset s = fixture_settings();
    int fds[2];
    (void)state;
    s.relay_port = 0;
    netns_enter(ns.inside);
    fds[0] = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    fds[1] = socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    netns_enter(ns.home);
    for (unsigned i = 0; i < POLICIES; i++) {
        struct rules *deny = random_rules(&seed, 3, 0), *allow = random_rules(&seed, 3, 1);
        struct document user = document_of(random_rules(&seed, 8, -1), rand_r(&seed) % 2);
        struct policy *p = policy_new(deny, allow, &user);
        struct packet_rules rules = {.nft = true};
        fixture_apply(&ns, &s);
        enforce(p, NULL, 0);
        for (unsigned k = 0; k < ADDRESSES; k++) {
            struct sets_address a = {.kinds = 0};
            struct packet packet = {.port = 9999, .proto = PACKET_UDP};
            packet.learned = random_address(&seed, &a);
            packet.to = a.ip;
            if (a.kinds)
                assert_int_equal(sets_learn(sets, STR("a.test"), &a.ip, 1, 60, a.kinds), 0);
            bool wanted = packet_judge(p, &rules, &packet).verdict == PACKET_ACCEPT;
            if (leaves(fds, &a.ip) != wanted)
                fail_msg("policy %u, address %u", i, k);
            assert_int_equal(sets_forget(sets, &a, 1), 0);
        }
        policy_free(p);
        document_done(&user);
        rules_unref(deny);
        rules_unref(allow);
    }
    close(fds[0]);
    close(fds[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_kernel_gives_the_verdicts_of_the_contract),
        cmocka_unit_test(random_policies_are_judged_alike),
    };
    if (!netns_start(&ns))
        return 0;
    netns_enter(ns.inside);
    if (sets_open(&sets) != 0)
        return 1;
    netns_enter(ns.home);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    sets_close(sets);
    netns_stop(&ns);
    return failed;
}
