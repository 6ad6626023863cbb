/* run_dns_leases.c — lease, lease_upkeep: how long addresses stay open, and what keeps them so. */
#include "egress/dns/upkeep.h"
#include "egress/kernel/flows.h"
#include "vectors/vectors.h"

enum { TEXT_BYTES = 4096 };

static uint64_t ms(int64_t seconds)
{
    return 1000 * (uint64_t)seconds;
}

static struct leases *leases_of_row(const struct leases_kernel *kernel)
{
    return leases_new(&(struct leases_limits){1024, 4096}, kernel);
}

static void take(struct leases *l, struct str name, struct ip ip, int64_t ttl, uint64_t now)
{
    struct gate_learned learned = {.n = 1, .at[0] = {ip, (uint32_t)ttl}};
    leases_take(l, name, LEASE_USER, &learned, true, now, NULL, NULL);
}

static bool run_many(struct row *r)
{
    struct leases *l = leases_of_row(NULL);
    struct ip ip;
    bool ok = ip_parse(STR("192.0.2.1"), &ip);
    const struct json *list = row_member(r->v, "answers"), *left = row_member(r->v, "lease_left");
    for (const struct json *v = list ? json_first(list) : NULL; v; v = json_next(v))
        take(l, STR("a.test"), ip, row_int(r, v, "ttl", 0), ms(row_int(r, v, "t", 0)));
    uint64_t until = leases_until(l, STR("a.test"), &ip), at = ms(row_int(r, left, "at", 0));
    int64_t seconds = until > at ? (int64_t)(until - at) / 1000 : 0;
    leases_free(l);
    return ok && row_same_int(r, "left", seconds, row_int(r, left, "seconds", -1));
}

bool run_lease(struct row *r)
{
    if (row_is(r->v, "kind", "many"))
        return run_many(r);
    return row_same_int(r, "seconds", lease_seconds((uint32_t)row_int(r, r->v, "ttl", 0)),
                        row_int(r, r->v, "seconds", -1));
}

/* ---- connections */

struct polls {
    struct row *r;
    bool refuses;
    struct str renewed; /* since the poll began, sorted, each with a comma */
};

static struct str insert(struct row *r, struct str list, struct str text)
{
    struct str before = STR(""), rest = list, piece;
    while (str_next(&rest, ',', &piece) && piece.n && str_cmp(piece, text) < 0)
        before = arena_printf(r->a, "%.*s%.*s,", STR_ARG(before), STR_ARG(piece));
    return arena_printf(r->a, "%.*s%.*s,%.*s", STR_ARG(before), STR_ARG(text),
                        STR_ARG(str_skip(list, before.n)));
}

static void on_learn(void *user, struct str name, const struct lease_address *list, size_t n,
                     unsigned kinds, void (*done)(void *arg, bool ok), void *arg)
{
    struct polls *p = user;
    char text[IP_TEXT_BYTES];
    (void)name;
    (void)kinds;
    for (size_t i = 0; i < n && !p->refuses; i++)
        p->renewed = insert(p->r, p->renewed, (struct str){text, ip_text(&list[i].ip, text)});
    done(arg, !p->refuses);
}

static unsigned state_of(struct str name)
{
    static const char *const states[] = {"",           "ESTABLISHED", "SYN_SENT",  "SYN_RECV",
                                         "FIN_WAIT1",  "FIN_WAIT2",   "TIME_WAIT", "CLOSE",
                                         "CLOSE_WAIT", "LAST_ACK",    "LISTEN",    "CLOSING"};
    for (unsigned i = 1; i < sizeof states / sizeof *states; i++)
        if (str_eq(name, str_of(states[i])))
            return i;
    return 0;
}

static void poll_of_row(struct polls *p, struct leases *l, const struct json *poll)
{
    struct ip in_use[16];
    size_t n = 0;
    const struct json *list = row_member(poll, "connections");
    for (const struct json *v = list ? json_first(list) : NULL; v; v = json_next(v))
        if (flow_in_use(state_of(json_string(json_next(json_first(v))))) &&
            ip_parse(json_string(json_first(v)), &in_use[n]))
            n++;
    p->refuses = row_is(poll, "renewal", "fail");
    p->renewed = STR("");
    leases_poll(l, !row_bool(poll, "error"), in_use, n, ms(row_int(p->r, poll, "t", 0)));
    p->refuses = false;
}

static bool same_expiry(struct row *r, const struct leases *l)
{
    const struct json *expiry = row_member(r->v, "expiry");
    for (const struct json *v = expiry ? json_first(expiry) : NULL; v; v = json_next(v)) {
        struct ip ip;
        int64_t expected = 0;
        if (!ip_parse(json_name(v), &ip) || !json_int(r->doc, v, &expected) ||
            !row_same_int(r, "expiry", (int64_t)leases_until(l, STR("a.test"), &ip) / 1000,
                          expected))
            return false;
    }
    return true;
}

static bool run_tcp(struct row *r)
{
    struct polls p = {.r = r, .renewed = STR("")};
    struct leases *l = leases_of_row(&(struct leases_kernel){.learn = on_learn, .user = &p});
    const struct json *list = row_member(r->v, "leases"), *polls = row_member(r->v, "polls"),
                      *expected = json_first(row_member(r->v, "renewed"));
    bool good = true;
    for (const struct json *v = list ? json_first(list) : NULL; v; v = json_next(v)) {
        struct ip ip;
        if (ip_parse(row_text(v, "addr"), &ip))
            take(l, STR("a.test"), ip, row_int(r, v, "ttl", 0), ms(row_int(r, v, "t", 0)));
    }
    for (const struct json *v = json_first(polls); good && v && expected;
         v = json_next(v), expected = json_next(expected)) {
        poll_of_row(&p, l, v);
        struct str joined = row_joined(r, expected);
        if (joined.n)
            joined = arena_cat(r->a, joined, STR(","));
        good = row_same(r, "renewed", p.renewed, joined);
    }
    good = good && same_expiry(r, l);
    leases_free(l);
    return good;
}

/* ---- names */

static unsigned ips_of(const struct json *list, struct ip *ret)
{
    unsigned n = 0;
    for (const struct json *v = list ? json_first(list) : NULL; v; v = json_next(v))
        n += ip_parse(json_string(v), &ret[n]);
    return n;
}

static bool run_domain(struct row *r)
{
    const struct json *lookup = row_member(r->v, "lookup");
    struct gate_learned learned = {.n = 0};
    struct ip observed[16], found[16];
    enum upkeep_found what = UPKEEP_ANSWER;
    struct str renewed = STR("");
    unsigned n = ips_of(row_member(r->v, "observed"), observed);
    if (json_type(lookup) == JSON_STRING)
        what = str_eq(json_string(lookup), STR("nxdomain")) ? UPKEEP_NO_NAME : UPKEEP_FAILED;
    else
        learned.n = ips_of(lookup, found);
    for (unsigned i = 0; i < learned.n; i++)
        learned.at[i].ip = found[i];
    bool forgotten = row_bool(r->v, "policy_changed"); /* and its look-ups are cancelled */
    enum upkeep_verdict v =
        forgotten ? UPKEEP_DROP : upkeep_settle(what, what, observed, n, &learned);
    for (unsigned i = 0; v == UPKEEP_RENEW && i < learned.n; i++) {
        char text[IP_TEXT_BYTES];
        size_t len = ip_text(&learned.at[i].ip, text);
        renewed = insert(r, renewed, (struct str){text, len});
    }
    struct str expected = STR("");
    const struct json *list = row_member(r->v, "renewed");
    for (const struct json *e = json_first(list); e; e = json_next(e))
        expected = insert(r, expected, json_string(e));
    return row_same(r, "renewed", renewed, expected) &&
           row_same_int(r, "kept", v != UPKEEP_DROP, row_bool(r->v, "kept"));
}

static bool run_limit(struct row *r)
{
    struct upkeep_table t;
    struct gate_learned learned = {.n = 0};
    struct dns_name name = {.n = 1};
    const struct json *list = row_member(r->v, "observe");
    bool good = true;
    upkeep_table_init(&t);
    for (const struct json *v = list ? json_first(list) : NULL; v; v = json_next(v))
        upkeep_observe(&t, json_string(v), &name, &learned);
    for (const struct json *v = list ? json_first(list) : NULL; v; v = json_next(v)) {
        const struct json *gone = row_member(r->v, "evicted");
        bool evicted = false;
        for (const struct json *e = json_first(gone); e; e = json_next(e))
            evicted |= str_eq(json_string(e), json_string(v));
        good = good && row_same_int(r, "evicted", !upkeep_find(&t, json_string(v)), evicted);
    }
    for (int64_t i = row_int(r, r->v, "addresses", 0); i > 0; i--)
        learned.at[learned.n++].ip.b[15] = (uint8_t)i;
    if (learned.n) {
        upkeep_observe(&t, STR("a.test"), &name, &learned);
        good = row_same_int(r, "kept", upkeep_find(&t, STR("a.test"))->n,
                            row_int(r, r->v, "kept", -1));
    }
    upkeep_table_done(&t);
    return good;
}

bool run_lease_upkeep(struct row *r)
{
    if (row_is(r->v, "kind", "tcp"))
        return run_tcp(r);
    if (row_is(r->v, "kind", "domain"))
        return run_domain(r);
    if (row_is(r->v, "kind", "limit"))
        return run_limit(r);
    uint64_t next = upkeep_next_s((uint64_t)row_int(r, r->v, "lease_left", 0),
                                  (unsigned)row_int(r, r->v, "failures", 0));
    return row_same_int(r, "next_lookup_in", (int64_t)next, row_int(r, r->v, "next_lookup_in", -1));
}
