/* events_test.c — what is told of queries, connections, packets and the policy: lines to the letter
 * (contract egress-policy 6.2), the decision log, counters; and what no line ever holds. */
#include "egress/events/events.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/log.h"
#include "egress/events/events_impl.h"
#include "net/worker.h"
#include "policies/edit.h"

#define CANARY "c4n4ry"

struct fixture {
    struct arena a;
    char path[64];
    struct worker *w;
    struct egress_settings set;
    struct decisions *decisions;
    struct events *e;
    char *text; /* of the log, once it was read */
};

static int setup(void **state)
{
    struct fixture *f = mem_new(sizeof *f);
    struct str error;
    char problem[256];
    arena_init(&f->a, NULL, 0);
    snprintf(f->path, sizeof f->path, "/tmp/events_test.XXXXXX");
    int fd = mkstemp(f->path);
    assert_true(fd >= 0);
    close(fd);
    assert_true(
        log_start("opensandbox.egress", str_of(f->path), LOG_DEBUG, problem, sizeof problem));
    f->w = worker_new(0);
    f->decisions = decisions_new();
    struct events_setup s = {.w = f->w, .set = &f->set, .decisions = f->decisions};
    f->e = events_new(&s, &f->a, &error);
    assert_non_null(f->e);
    *state = f;
    return 0;
}

/* Ends the events and gives all lines. */
static const char *lines(struct fixture *f)
{
    struct stat st;
    events_free(f->e);
    f->e = NULL;
    log_stop();
    int fd = open(f->path, O_RDONLY);
    assert_true(fd >= 0 && fstat(fd, &st) == 0);
    f->text = mem_new((size_t)st.st_size + 1);
    assert_int_equal(read(fd, f->text, (size_t)st.st_size), st.st_size);
    close(fd);
    return f->text;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    events_free(f->e);
    decisions_free(f->decisions);
    worker_free(f->w);
    log_stop();
    unlink(f->path);
    mem_free(f->text);
    arena_done(&f->a);
    mem_free(f);
    return 0;
}

/* One line: its level, and all behind the time and the logger. */
static const char *is_line(const char *line, const char *level, const char *rest)
{
    char begin[64];
    static const char logger[] = ",\"logger\":\"opensandbox.egress\",";
    int n = snprintf(begin, sizeof begin, "{\"level\":\"%s\",\"ts\":\"", level);
    if (strncmp(line, begin, (size_t)n) != 0)
        fail_msg("not at level %s: %.200s", level, line);
    const char *at = line + n + 25;
    assert_memory_equal(at, logger, sizeof logger - 1);
    at += sizeof logger - 1;
    size_t length = strlen(rest);
    if (strncmp(at, rest, length) != 0 || at[length] != '\n')
        fail_msg("got      %.*s\nexpected %s", (int)strcspn(at, "\n"), at, rest);
    return at + length + 1;
}

static unsigned count(const char *text, const char *piece)
{
    unsigned n = 0;
    for (; (text = strstr(text, piece)); text += strlen(piece))
        n++;
    return n;
}

static void is_decided(struct fixture *f, const char *piece)
{
    struct json_out o;
    json_out_init(&o);
    decisions_put(f->decisions, 0, &o);
    if (!o.n || !memmem(o.p, o.n, piece, strlen(piece)))
        fail_msg("no %s in %.*s", piece, (int)o.n, o.p);
    json_out_done(&o);
}

static struct ip ip_of(const char *text)
{
    struct ip ip;
    assert_true(ip_parse(str_of(text), &ip));
    return ip;
}

/* ---- queries ---- */

static void query(struct fixture *f, const char *name, enum why why, enum dns_rcode rcode,
                  const struct gate_learned *ips)
{
    static const struct gate_learned none;
    union addr from;
    assert_true(addr_parse(STR("127.0.0.1:40000"), &from));
    struct dns_told t = {.name = str_of(name),
                         .type = DNS_A,
                         .judged = {why != WHY_DENIED, LAYER_USER, 3},
                         .rcode = rcode,
                         .ips = ips ? ips : &none,
                         .why = why,
                         .took_us = 1500,
                         .client = &from.sa};
    events_dns(f->e, &t);
}

static void a_query_is_told_as_the_contract_says(void **state)
{
    struct fixture *f = *state;
    struct gate_learned two = {.n = 2};
    two.at[0].ip = ip_of("192.0.2.1");
    two.at[1].ip = ip_of("2001:db8::1");
    query(f, "a.test", WHY_OK, DNS_NOERROR, &two);
    query(f, "b.test", WHY_OK, DNS_NXDOMAIN, NULL);
    query(f, "c.test", WHY_DEADLINE, DNS_SERVFAIL, NULL);
    query(f, "d.test", WHY_OK, DNS_REFUSED, NULL);
    query(f, "evil.test", WHY_DENIED, DNS_NXDOMAIN, NULL);
    const char *at = lines(f);
    at = is_line(at, "info",
                 "\"msg\":\"egress outbound\",\"opensandbox.event\":\"egress.outbound\","
                 "\"target.host\":\"a.test\",\"target.ips\":[\"192.0.2.1\",\"2001:db8::1\"]}");
    at = is_line(at, "info",
                 "\"msg\":\"egress outbound\",\"opensandbox.event\":\"egress.outbound\","
                 "\"target.host\":\"b.test\"}");
    at = is_line(at, "info",
                 "\"msg\":\"egress outbound\",\"opensandbox.event\":\"egress.outbound\","
                 "\"target.host\":\"c.test\",\"error\":\"no answer in time\"}");
    at = is_line(at, "info",
                 "\"msg\":\"egress outbound\",\"opensandbox.event\":\"egress.outbound\","
                 "\"target.host\":\"d.test\",\"error\":\"upstream's rcode 5\"}");
    at = is_line(at, "warn",
                 "\"msg\":\"[dns] denied by policy (remote=127.0.0.1:40000 question=evil.test "
                 "type=1)\",\"rule\":\"user:3\"}");
    assert_string_equal(at, "");
    is_decided(f,
               "\"kind\":\"dns\",\"name\":\"evil.test\",\"verdict\":\"deny\",\"rule\":\"user:3\"");
    is_decided(f, "\"kind\":\"dns\",\"name\":\"a.test\",\"verdict\":\"allow\"");
}

static void every_query_is_counted_once_by_what_became_of_it(void **state)
{
    static const struct {
        enum why why;
        enum dns_rcode rcode;
    } rows[] = {{WHY_OK, DNS_NOERROR},        {WHY_OK, DNS_NXDOMAIN},      {WHY_DNS, DNS_SERVFAIL},
                {WHY_DEADLINE, DNS_SERVFAIL}, {WHY_LIMIT, DNS_SERVFAIL},   {WHY_OK, DNS_REFUSED},
                {WHY_DENIED, DNS_NXDOMAIN},   {WHY_OVERLOAD, DNS_SERVFAIL}};
    struct fixture *f = *state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        query(f, "a.test", rows[i].why, rows[i].rcode, NULL);
    const struct event_counters *c = &f->e->counters;
    assert_int_equal(counter_get(&c->denied), 1);
    assert_int_equal(counter_get(&c->upstream_error), 2);
    assert_int_equal(counter_get(&c->rcode), 1);
    assert_int_equal(counter_get(&c->not_told), 2);
    assert_int_equal(counter_get(&c->took[1]), sizeof rows / sizeof *rows); /* up to 2.5 ms */
    assert_int_equal(counter_get(&c->took_us), 1500 * sizeof rows / sizeof *rows);
}

static void more_addresses_than_a_line_holds_are_counted(void **state)
{
    struct fixture *f = *state;
    struct gate_learned many = {.n = GATE_ADDRESSES};
    for (unsigned i = 0; i < many.n; i++) {
        many.at[i].ip = ip_of("2001:db8:1111:2222:3333:4444:5555:6666");
        many.at[i].ip.b[15] = (uint8_t)i;
    }
    query(f, "a.test", WHY_OK, DNS_NOERROR, &many);
    const char *text = lines(f);
    assert_int_equal(count(text, "2001:db8:1111"), 32);
    assert_int_equal(count(text, "\"target.ips_left_out\":224}"), 1);
    assert_int_equal(count(text, "\"cut\""), 0);
}

static struct egress_view *view_of_lists(const struct rules *skip, const char *policy)
{
    struct document d;
    struct json_fault fault;
    struct always_lists lists = {.log_skip = skip};
    assert_true(document_parse(str_of(policy), &d, &fault));
    struct egress_view *v = view_new(&d, &lists, 1);
    document_done(&d);
    return v;
}

static void log_skip_silences_success_alone(void **state)
{
    struct fixture *f = *state;
    struct rules *skip = rules_new();
    assert_int_equal(rules_add(skip, true, STR("*.quiet.test")), TARGET_OK);
    struct egress_view *v = view_of_lists(skip, "{}");
    rules_unref(skip);
    events_adopt(f->e, v);
    view_unref(v); /* the events hold it */
    query(f, "a.quiet.test", WHY_OK, DNS_NOERROR, NULL);
    query(f, "b.quiet.test", WHY_OK, DNS_NXDOMAIN, NULL);
    query(f, "c.quiet.test", WHY_DNS, DNS_SERVFAIL, NULL);
    query(f, "d.quiet.test", WHY_DENIED, DNS_NXDOMAIN, NULL);
    query(f, "quiet.test", WHY_OK, DNS_NOERROR, NULL);
    const char *text = lines(f);
    assert_int_equal(count(text, "\n"), 3);
    assert_int_equal(count(text, "c.quiet.test"), 1);
    assert_int_equal(count(text, "d.quiet.test"), 1);
    assert_int_equal(count(text, "\"quiet.test\""), 1);
}

static void names_cannot_break_out_of_their_line(void **state)
{
    struct fixture *f = *state;
    static const char name[] = "a\"}\n{\"level\":\"\\010\x1b[31m\xff.test";
    query(f, name, WHY_OK, DNS_NOERROR, NULL);
    query(f, name, WHY_DENIED, DNS_NXDOMAIN, NULL);
    struct ip ip = ip_of("192.0.2.1");
    events_connection(
        f->e, &(struct event_connection){
                  .host = str_of(name), .ip = &ip, .rule = STR("default"), .why = WHY_DENIED});
    const char *text = lines(f), *line = text;
    assert_int_equal(count(text, "\n"), 3);
    for (const char *end; (end = strchr(line, '\n')); line = end + 1) {
        struct json_fault fault;
        struct json_doc *d = json_parse((struct str){line, (size_t)(end - line)}, 0, 4, &fault);
        assert_non_null(d);
        json_free(d);
    }
}

static void a_flood_of_refusals_is_some_lines_and_a_number(void **state)
{
    struct fixture *f = *state;
    for (int i = 0; i < 1000; i++)
        query(f, "evil.test", WHY_DENIED, DNS_NXDOMAIN, NULL);
    assert_int_equal(counter_get(&f->e->counters.denied), 1000);
    assert_int_equal(counter_get(&f->e->counters.lines_left_out), 900);
    const char *text = lines(f);
    assert_int_equal(count(text, "question=evil.test"), 100);
    assert_int_equal(count(text, "\"msg\":\"[dns] denied by policy, more\",\"repeated\":900}"), 1);
}

static void a_second_later_there_are_lines_again(void **state)
{
    struct fixture *f = *state;
    for (int i = 0; i < 150; i++)
        query(f, "evil.test", WHY_DENIED, DNS_NXDOMAIN, NULL);
    for (uint64_t end = worker_now_us(f->w) + 1500000; worker_now_us(f->w) < end; usleep(10000))
        worker_turn(f->w);
    query(f, "late.test", WHY_DENIED, DNS_NXDOMAIN, NULL);
    const char *text = lines(f), *more = strstr(text, "\"repeated\":50}");
    assert_non_null(more);
    assert_non_null(strstr(more, "question=late.test"));
}

/* ---- connections and packets ---- */

static void refused_connections_and_packets_are_told(void **state)
{
    struct fixture *f = *state;
    struct ip ip = ip_of("192.0.2.7");
    struct drop d = {.dst = ip_of("2001:db8::7"),
                     .dst_port = 853,
                     .protocol = IPPROTO_TCP,
                     .has_uid = true,
                     .uid = 1000};
    events_connection(
        f->e,
        &(struct event_connection){
            .host = STR("a.test"), .ip = &ip, .port = 443, .allow = true, .rule = STR("user:1")});
    events_connection(f->e, &(struct event_connection){.host = STR("b.test"),
                                                       .ip = &ip,
                                                       .port = 443,
                                                       .rule = STR("user:2"),
                                                       .why = WHY_IDENTITY});
    events_connection(
        f->e, &(struct event_connection){.ip = &ip, .rule = STR("default"), .why = WHY_DENIED});
    events_drop(f->e, &d, STR("port853"));
    d.protocol = 132;
    d.dst_port = 0;
    d.has_uid = false;
    events_drop(f->e, &d, STR("default"));
    assert_int_equal(counter_get(&f->e->counters.connections_allowed), 1);
    assert_int_equal(counter_get(&f->e->counters.connections_denied), 2);
    assert_int_equal(counter_get(&f->e->counters.drops), 2);
    const char *at = lines(f);
    at = is_line(at, "warn",
                 "\"msg\":\"connection denied by policy\",\"target.host\":\"b.test\","
                 "\"target.ip\":\"192.0.2.7\",\"target.port\":443,\"rule\":\"user:2\","
                 "\"why\":\"identity\"}");
    at = is_line(at, "warn",
                 "\"msg\":\"connection denied by policy\",\"target.ip\":\"192.0.2.7\","
                 "\"rule\":\"default\",\"why\":\"denied\"}");
    at = is_line(at, "info",
                 "\"msg\":\"packet refused\",\"target.ip\":\"2001:db8::7\",\"target.port\":853,"
                 "\"proto\":\"tcp\",\"uid\":1000,\"rule\":\"port853\"}");
    at = is_line(at, "info",
                 "\"msg\":\"packet refused\",\"target.ip\":\"2001:db8::7\",\"proto\":132,"
                 "\"rule\":\"default\"}");
    assert_string_equal(at, "");
    is_decided(f, "\"kind\":\"connection\",\"name\":\"a.test\",\"address\":\"192.0.2.7\","
                  "\"port\":443,\"proto\":\"tcp\",\"verdict\":\"allow\",\"rule\":\"user:1\"");
    is_decided(f, "\"kind\":\"packet\",\"address\":\"2001:db8::7\",\"port\":853,\"proto\":\"tcp\","
                  "\"verdict\":\"deny\",\"rule\":\"port853\"");
}

static void packets_and_connections_have_shares_of_their_own(void **state)
{
    struct fixture *f = *state;
    struct drop d = {.protocol = IPPROTO_UDP};
    for (int i = 0; i < 500; i++) {
        events_drop(f->e, &d, STR("default"));
        events_connection(f->e, &(struct event_connection){.host = STR("a.test")});
    }
    query(f, "evil.test", WHY_DENIED, DNS_NXDOMAIN, NULL);
    const char *text = lines(f);
    assert_int_equal(count(text, "\"msg\":\"packet refused\""), 10);
    assert_int_equal(count(text, "\"msg\":\"packet refused, more\",\"repeated\":490}"), 1);
    assert_int_equal(count(text, "\"msg\":\"connection denied by policy\""), 20);
    assert_int_equal(count(text, "question=evil.test"), 1);
}

/* ---- the policy ---- */

static void the_policy_at_the_start_is_told(void **state)
{
    struct fixture *f = *state;
    struct egress_view *v = view_of_lists(
        NULL,
        "{\"defaultAction\":\"allow\",\"egress\":[{\"action\":\"allow\",\"target\":\"A.test.\"},"
        "{\"target\":\"10.0.0.0/8\"}]}");
    events_loaded(f->e, v);
    view_unref(v);
    const char *at = is_line(
        lines(f), "info",
        "\"msg\":\"egress policy loaded\",\"opensandbox.event\":\"egress.loaded\","
        "\"egress.default\":\"allow\",\"rules\":[{\"action\":\"allow\",\"target\":\"A.test.\"},"
        "{\"action\":\"deny\",\"target\":\"10.0.0.0/8\"}]}");
    assert_string_equal(at, "");
}

/* A request's body as the API takes it, and tells of it. */
static void update(struct fixture *f, enum edit_kind kind, const char *policy, struct str body)
{
    struct document before, after;
    struct json_fault fault;
    char text[EDIT_TEXT_BYTES] = "";
    assert_true(document_parse(str_of(policy), &before, &fault));
    enum edit_result r = edit_apply(kind, &before, body, 4096, &after, text);
    bool good = r == EDIT_DONE || r == EDIT_RESET;
    struct api_update u = {.kind = kind,
                           .status = good                 ? 200
                                     : r == EDIT_TOO_MANY ? 413
                                                          : 400,
                           .error = good ? NULL : text,
                           .body = body,
                           .before = &before,
                           .after = good ? &after : NULL};
    events_update(f->e, &u);
    document_done(&before);
    if (good)
        document_done(&after);
}

#define THREE                                                    \
    "{\"egress\":[{\"action\":\"allow\",\"target\":\"a.test\"}," \
    "{\"action\":\"deny\",\"target\":\"b.test\"},{\"action\":\"allow\",\"target\":\"B.test.\"}]}"
#define UPDATED                \
    "\"msg\":\"egress policy " \
    "updated\",\"opensandbox.event\":\"egress.updated\",\"egress.default\":"

static void an_update_is_told_with_the_rules_it_was_about(void **state)
{
    static const struct {
        enum edit_kind kind;
        const char *policy, *body, *line;
    } rows[] = {
        {EDIT_REPLACE, "{}", "{\"defaultAction\":\"allow\",\"egress\":[{\"target\":\"x.test\"}]}",
         "\"allow\",\"rules\":[{\"action\":\"deny\",\"target\":\"x.test\"}]}"},
        {EDIT_REPLACE, THREE, "", "\"deny\",\"rules\":[]}"},
        {EDIT_PATCH, THREE,
         "[{\"action\":\"allow\",\"target\":\"b.TEST\"},{\"action\":\"deny\",\"target\":\"b.test\"}"
         "]",
         "\"deny\",\"rules\":[{\"action\":\"allow\",\"target\":\"b.TEST\"},"
         "{\"action\":\"deny\",\"target\":\"b.test\"}]}"},
        {EDIT_DELETE, THREE, "[\"B.TEST\",\"nobody.test\"]",
         "\"deny\",\"rules\":[{\"action\":\"deny\",\"target\":\"b.test\"},"
         "{\"action\":\"allow\",\"target\":\"B.test.\"}]}"},
        {EDIT_DELETE, THREE, "[\"a.test\"]",
         "\"deny\",\"rules\":[{\"action\":\"allow\",\"target\":\"a.test\"}]}"},
    };
    struct fixture *f = *state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        update(f, rows[i].kind, rows[i].policy, str_of(rows[i].body));
    const char *at = lines(f);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char expected[512];
        snprintf(expected, sizeof expected, UPDATED "%s", rows[i].line);
        at = is_line(at, "info", expected);
    }
    assert_string_equal(at, "");
}

static void a_refused_update_is_told_without_what_it_said(void **state)
{
    static const struct {
        enum edit_kind kind;
        const char *body, *error;
    } rows[] = {
        {EDIT_PATCH, "", "empty body"},
        {EDIT_PATCH, "[{\"action\":\"" CANARY "\",\"target\":\"a.test\"}]",
         "invalid merged policy: unsupported action \\\"***\\\""},
        {EDIT_REPLACE, "{\"" CANARY "\":1}", "invalid policy: unknown field \\\"***\\\""},
        {EDIT_REPLACE, "{\"a\\\"" CANARY "\":1}", "invalid policy: unknown field \\\"***\\\""},
        {EDIT_REPLACE, "{\"a\":1,\"a\":\"" CANARY "\"}",
         "invalid policy: doubled member name \\\"***\\\""},
    };
    struct fixture *f = *state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        update(f, rows[i].kind, THREE, str_of(rows[i].body));
    struct api_update ours = {.status = 500, .error = "failed to persist policy: No space"};
    events_update(f->e, &ours);
    const char *text = lines(f), *at = text;
    assert_null(strstr(text, CANARY));
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char expected[512];
        snprintf(expected, sizeof expected,
                 "\"msg\":\"egress policy update failed\",\"opensandbox.event\":"
                 "\"egress.update_failed\",\"error\":\"%s\"}",
                 rows[i].error);
        at = is_line(at, "warn", expected);
    }
    at = is_line(at, "error",
                 "\"msg\":\"egress policy update failed\",\"opensandbox.event\":"
                 "\"egress.update_failed\",\"error\":\"failed to persist policy: No space\"}");
    assert_string_equal(at, "");
}

static void no_number_of_rules_and_no_flood_loses_an_audit_line(void **state)
{
    struct fixture *f = *state;
    struct json_out body;
    uint64_t lost = log_lost();
    json_out_init(&body);
    json_open(&body, '[');
    for (int i = 0; i < 4096; i++) {
        char name[80];
        snprintf(name, sizeof name, "host-%04d.of-a-rather-long-domain-name.example.test", i);
        json_open(&body, '{');
        json_key(&body, "action");
        json_put_str(&body, STR("allow"));
        json_key(&body, "target");
        json_put_str(&body, str_of(name));
        json_close(&body, '}');
    }
    json_close(&body, ']');
    update(f, EDIT_PATCH, "{}", (struct str){body.p, body.n});
    json_out_done(&body);
    const char *text = lines(f), *rules = strstr(text, "\"rules\":");
    assert_int_equal(count(text, "\n"), 1);
    assert_non_null(rules);
    struct json_fault fault;
    struct json_doc *d = json_parse((struct str){text, strlen(text) - 1}, 0, 4, &fault);
    assert_non_null(d);
    assert_int_equal(json_count(json_member(json_root(d), STR("rules"))), 4096);
    json_free(d);
    assert_true(log_lost() == lost);
}

/* ---- attributes ---- */

static void attributes_that_would_say_something_else_are_left_out(void **state)
{
    static const struct field attrs[] = {
        {{"team", 4}, {"a=b", 3}},   {{"opensandbox.event", 17}, {"egress.updated", 14}},
        {{"msg", 3}, {"x", 1}},      {{"sandbox_id", 10}, {"other", 5}},
        {{"token", 5}, {CANARY, 6}},
    };
    struct fixture *f = *state;
    f->set.sandbox_id = STR("  sb-1 ");
    f->set.attrs = attrs;
    f->set.nattrs = sizeof attrs / sizeof *attrs;
    events_attributes(&f->set);
    query(f, "a.test", WHY_OK, DNS_NOERROR, NULL);
    const char *text = lines(f), *second = strchr(text, '\n') + 1;
    assert_null(strstr(text, CANARY));
    assert_non_null(strstr(text, "\"attributes\":3}"));
    is_line(second, "info",
            "\"msg\":\"egress outbound\",\"sandbox_id\":\"sb-1\",\"team\":\"a=b\","
            "\"token\":\"***\",\"opensandbox.event\":\"egress.outbound\","
            "\"target.host\":\"a.test\"}");
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(a_query_is_told_as_the_contract_says),
        T(every_query_is_counted_once_by_what_became_of_it),
        T(more_addresses_than_a_line_holds_are_counted),
        T(log_skip_silences_success_alone),
        T(names_cannot_break_out_of_their_line),
        T(a_flood_of_refusals_is_some_lines_and_a_number),
        T(a_second_later_there_are_lines_again),
        T(refused_connections_and_packets_are_told),
        T(packets_and_connections_have_shares_of_their_own),
        T(the_policy_at_the_start_is_told),
        T(an_update_is_told_with_the_rules_it_was_about),
        T(a_refused_update_is_told_without_what_it_said),
        T(no_number_of_rules_and_no_flood_loses_an_audit_line),
        T(attributes_that_would_say_something_else_are_left_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
