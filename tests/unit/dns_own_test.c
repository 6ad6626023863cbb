/* dns_own_test.c — names of our own connections, asked for through the workload's DNS. */
#include <setjmp.h>
#include <stdarg.h>
#include <unistd.h>
#include <cmocka.h>

#include "egress/dns/own_names.h"
#include "egress/dns/service_impl.h"
#include "harness/dns_rig.h"

struct heard {
    unsigned times, n;
    enum why why;
    struct ip ip[RESOLVE_ADDRESSES];
    struct dns_rig *rig;
    bool ends_service, asks_again;
};

static void on_heard(void *arg, const struct ip *ips, unsigned n, enum why why)
{
    struct heard *h = arg;
    h->times++;
    h->why = why;
    h->n = n;
    assert_int_equal(n > 0, why == WHY_OK);
    assert_int_equal(ips != NULL, n > 0);
    for (unsigned i = 0; i < n; i++)
        h->ip[i] = ips[i];
    if (h->asks_again && h->times < 3)
        dns_service_resolve(h->rig->dns, STR("ok.test"), 5000, on_heard, h);
    if (h->ends_service) {
        dns_service_free(h->rig->dns);
        h->rig->dns = NULL;
    }
}

static struct dns_own *resolve(struct dns_rig *rig, const char *name, struct heard *h)
{
    h->rig = rig;
    struct dns_own *o = dns_service_resolve(rig->dns, str_of(name), 3000, on_heard, h);
    assert_int_equal(h->times, 0);
    return o;
}

static struct heard resolved(struct dns_rig *rig, const char *name)
{
    struct heard h = {0};
    resolve(rig, name, &h);
    dns_rig_settle(rig);
    assert_int_equal(h.times, 1);
    return h;
}

static bool is_ip(const struct ip *ip, const char *text)
{
    struct ip want;
    assert_true(ip_parse(str_of(text), &want));
    return ip_eq(ip, &want);
}

static struct dns_rig *rig_of_both(void)
{
    struct dns_rig *rig = dns_rig_new(DNS_RIG_OK, &dns_rig_limits);
    rig->answer6 = " 60 AAAA 2001:db8::1";
    return rig;
}

static void both_families_are_told_ipv4_first_and_leased(void **state)
{
    (void)state;
    struct dns_rig *rig = rig_of_both();
    struct heard h = resolved(rig, "oK.Test.");
    assert_int_equal(h.n, 2);
    assert_true(is_ip(&h.ip[0], "192.0.2.1"));
    assert_true(is_ip(&h.ip[1], "2001:db8::1"));
    assert_int_equal(leases_counts(rig->leases).leases, 2);
    assert_true(leases_covers(rig->leases, STR("ok.test"), &h.ip[0], dns_rig_now()));
    assert_true(leases_covers(rig->leases, STR("ok.test"), &h.ip[1], dns_rig_now()));
    dns_rig_free(rig);
}

static void a_clients_answer_serves_us_too(void **state)
{
    (void)state;
    struct dns_rig *rig = rig_of_both();
    dns_rig_asked(rig, "ok.test");
    assert_int_equal(resolved(rig, "ok.test").n, 2);
    assert_int_equal(rig->asked, 2); /* A by the client, AAAA by us */
    assert_int_equal(resolved(rig, "ok.test").n, 2);
    assert_int_equal(rig->asked, 2);
    dns_rig_free(rig);
}

static void a_denied_name_is_neither_asked_for_nor_reported(void **state)
{
    (void)state;
    struct dns_rig *rig = rig_of_both();
    assert_int_equal(resolved(rig, "evil.test").why, WHY_DENIED);
    assert_int_equal(resolved(rig, "ok.test.evil.test").why, WHY_DENIED);
    assert_int_equal(rig->asked, 0);
    assert_int_equal(rig->told, 0);
    dns_rig_free(rig);
}

static void what_is_no_name_is_told_later_too(void **state)
{
    (void)state;
    static const char *const names[] = {"", "a..b", "a b", "ok.test\\", "."};
    struct dns_rig *rig = rig_of_both();
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct heard h = resolved(rig, names[i]);
        assert_true(h.why == WHY_DNS || h.why == WHY_DENIED);
    }
    assert_int_equal(rig->asked, 0);
    dns_rig_free(rig);
}

static void filtered_answers_are_none(void **state)
{
    (void)state;
    struct dns_rig *rig = rig_of_both();
    rig->answer = " 60 A 127.0.0.1\n 60 A 169.254.169.254";
    rig->answer6 = " 60 AAAA ::1\n 60 AAAA ::ffff:127.0.0.1";
    assert_int_equal(resolved(rig, "ok.test").why, WHY_DNS);
    assert_int_equal(leases_counts(rig->leases).leases, 0);
    dns_rig_free(rig);
}

static void nothing_is_told_before_the_kernel_has_it(void **state)
{
    (void)state;
    struct dns_rig *rig = rig_of_both();
    struct heard h = {0};
    rig->kernel = KERNEL_IS_SLOW;
    resolve(rig, "ok.test", &h);
    dns_rig_settle(rig);
    assert_int_equal(h.times, 0);
    dns_rig_kernel_catches_up(rig);
    dns_rig_settle(rig);
    assert_int_equal(h.times, 1);
    assert_int_equal(h.n, 2);
    dns_rig_free(rig);
}

static void a_kernel_that_refuses_means_no_address(void **state)
{
    (void)state;
    struct dns_rig *rig = rig_of_both();
    rig->kernel = KERNEL_REFUSES;
    assert_int_equal(resolved(rig, "ok.test").why, WHY_OVERLOAD);
    dns_rig_free(rig);
}

static void one_family_does_not_wait_long_for_the_other(void **state)
{
    (void)state;
    struct dns_rig *rig = rig_of_both();
    struct heard h = {0};
    rig->silent6 = true;
    resolve(rig, "ok.test", &h);
    dns_rig_pass(rig, 100);
    assert_int_equal(h.times, 0);
    dns_rig_pass(rig, 200);
    assert_int_equal(h.times, 1);
    assert_int_equal(h.n, 1);
    dns_rig_pass(rig, 6000); /* the other one is over */
    assert_int_equal(h.times, 1);
    dns_rig_free(rig);
}

static void silence_ends_at_our_own_deadline(void **state)
{
    (void)state;
    struct dns_rig *rig = rig_of_both();
    struct heard h = {0};
    rig->silent = true;
    resolve(rig, "ok.test", &h);
    dns_rig_pass(rig, 2900);
    assert_int_equal(h.times, 0);
    dns_rig_pass(rig, 200);
    assert_int_equal(h.times, 1);
    assert_int_equal(h.why, WHY_DEADLINE);
    dns_rig_pass(rig, 6000);
    assert_int_equal(h.times, 1);
    assert_int_equal(dns_service_waiting(rig->dns), 0);
    assert_true(list_empty(&rig->dns->owns));
    dns_rig_free(rig);
}

static void limits_are_told_as_such(void **state)
{
    (void)state;
    struct dns_limits limits = dns_rig_limits;
    limits.domain_asks = (struct rate){1, 2};
    struct dns_rig *rig = dns_rig_new(DNS_RIG_OK, &limits);
    resolved(rig, "a.ok.test");
    assert_int_equal(resolved(rig, "b.ok.test").why, WHY_LIMIT);
    dns_rig_free(rig);
    limits = dns_rig_limits;
    limits.in_flight = 0;
    rig = dns_rig_new(DNS_RIG_OK, &limits);
    assert_int_equal(resolved(rig, "ok.test").why, WHY_OVERLOAD);
    dns_rig_free(rig);
}

static void a_change_of_policy_meets_what_waits(void **state)
{
    (void)state;
    struct dns_rig *rig = rig_of_both();
    struct gate_rules fresh = {.policy = dns_rig_policy("{}")};
    struct heard h = {0};
    rig->silent = true;
    resolve(rig, "ok.test", &h);
    dns_rig_settle(rig);
    dns_service_adopt(rig->dns, &fresh, NULL);
    for (unsigned i = 0; i < rig->nkept; i++)
        dns_rig_answer(rig, &rig->kept[i]);
    dns_rig_settle(rig);
    assert_int_equal(h.times, 1);
    assert_int_equal(h.why, WHY_DENIED);
    dns_rig_free(rig);
    policy_free((struct policy *)fresh.policy);
}

/* Who cancels hears nothing, wherever the queries are. */
static void cancelled_ones_are_never_told(void **state)
{
    (void)state;
    struct dns_rig *rig = rig_of_both();
    struct heard h = {0};
    dns_service_cancel(resolve(rig, "evil.test", &h)); /* in the mailbox already */
    dns_service_cancel(resolve(rig, "a..b", &h));
    dns_rig_settle(rig);
    rig->silent = true;
    struct dns_own *o = resolve(rig, "ok.test", &h);
    dns_rig_settle(rig);
    dns_service_cancel(o); /* asked upstream */
    for (unsigned i = 0; i < rig->nkept; i++)
        dns_rig_answer(rig, &rig->kept[i]);
    dns_rig_settle(rig);
    rig->silent = false;
    rig->kernel = KERNEL_IS_SLOW;
    o = resolve(rig, "x.ok.test", &h);
    dns_rig_settle(rig);
    dns_service_cancel(o); /* asked of the kernel */
    dns_rig_kernel_catches_up(rig);
    dns_rig_settle(rig);
    assert_int_equal(h.times, 0);
    assert_int_equal(dns_service_waiting(rig->dns), 0);
    assert_true(list_empty(&rig->dns->owns)); /* nothing of them is kept */
    dns_rig_free(rig);
}

static void who_is_told_may_ask_again(void **state)
{
    (void)state;
    struct dns_rig *rig = rig_of_both();
    struct heard h = {.asks_again = true};
    resolve(rig, "ok.test", &h);
    dns_rig_settle(rig);
    assert_int_equal(h.times, 3);
    dns_rig_free(rig);
}

static void who_is_told_may_end_the_service(void **state)
{
    (void)state;
    struct dns_rig *rig = rig_of_both();
    struct heard h = {.ends_service = true}, other = {0};
    resolve(rig, "evil.test", &h);
    resolve(rig, "evil.test", &other);
    dns_rig_settle(rig);
    assert_int_equal(h.times, 1);
    assert_int_equal(other.times, 0);
    dns_rig_free(rig);
}

static void an_end_with_questions_under_way_leaves_nothing(void **state)
{
    (void)state;
    for (int place = 0; place < 3; place++) {
        struct dns_rig *rig = rig_of_both();
        struct heard h = {0};
        rig->silent = place == 1;
        rig->kernel = KERNEL_IS_SLOW;
        resolve(rig, place == 0 ? "evil.test" : "ok.test", &h);
        if (place > 0)
            dns_rig_settle(rig);
        dns_service_free(rig->dns);
        rig->dns = NULL;
        dns_rig_free(rig);
        assert_int_equal(h.times, 0);
    }
}

/* As a dial asks. */
static void names_of_dials_take_this_way(void **state)
{
    (void)state;
    struct dns_rig *rig = rig_of_both();
    struct names *names = own_names_new(rig->w, rig->dns);
    struct heard ok = {0}, evil = {0}, literal = {0}, cancelled = {0};
    resolve_start(names, STR("ok.test"), 3000, on_heard, &ok);
    resolve_start(names, STR("evil.test"), 3000, on_heard, &evil);
    resolve_start(names, STR("192.0.2.7"), 3000, on_heard, &literal);
    resolve_cancel(resolve_start(names, STR("x.ok.test"), 3000, on_heard, &cancelled));
    assert_int_equal(ok.times + evil.times + literal.times, 0);
    dns_rig_settle(rig);
    assert_int_equal(ok.times, 1);
    assert_int_equal(ok.n, 2);
    assert_int_equal(evil.times, 1);
    assert_int_equal(evil.why, WHY_DENIED);
    assert_int_equal(literal.times, 1);
    assert_int_equal(literal.n, 1);
    assert_int_equal(cancelled.times, 0);
    names_free(names);
    dns_rig_free(rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_families_are_told_ipv4_first_and_leased),
        cmocka_unit_test(a_clients_answer_serves_us_too),
        cmocka_unit_test(a_denied_name_is_neither_asked_for_nor_reported),
        cmocka_unit_test(what_is_no_name_is_told_later_too),
        cmocka_unit_test(filtered_answers_are_none),
        cmocka_unit_test(nothing_is_told_before_the_kernel_has_it),
        cmocka_unit_test(a_kernel_that_refuses_means_no_address),
        cmocka_unit_test(one_family_does_not_wait_long_for_the_other),
        cmocka_unit_test(silence_ends_at_our_own_deadline),
        cmocka_unit_test(limits_are_told_as_such),
        cmocka_unit_test(a_change_of_policy_meets_what_waits),
        cmocka_unit_test(cancelled_ones_are_never_told),
        cmocka_unit_test(who_is_told_may_ask_again),
        cmocka_unit_test(who_is_told_may_end_the_service),
        cmocka_unit_test(an_end_with_questions_under_way_leaves_nothing),
        cmocka_unit_test(names_of_dials_take_this_way),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
