/* run_dns_query.c — rows of dns_query over the whole: a client's socket, the sidecar's DNS,
 * scripted upstreams on loopback; the kernel is a list of what it was asked. */
#include <arpa/inet.h>
#include <stdio.h>
#include <unistd.h>

#include "base/text.h"
#include "egress/dns/service.h"
#include "harness/dns_server.h"
#include "harness/dns_text.h"
#include "net/listen.h"
#include "net/udp.h"
#include "net/worker.h"
#include "vectors/run_policy.h"

enum { TRY_MS = 80, WAIT_MS = 3000, SILENT_MS = 40, STEP_US = 200, LEARNED_TEXT = 8192 };

struct rig {
    struct row *r;
    struct worker *w;
    struct dns_server *servers;
    struct gate_rules rules;
    struct nameservers *ns;
    struct leases *leases;
    struct dns_service *dns;
    union addr udp, tcp;
    unsigned asked; /* upstreams, as bits */
    char learned[LEARNED_TEXT];
    size_t nlearned;
    bool bad; /* a record of the row cannot be read */
};

static const struct json *upstream_of(struct rig *rig, unsigned index)
{
    const struct json *list = row_member(rig->r->v, "upstream"),
                      *u = list ? json_first(list) : NULL;
    while (u && index-- > 0)
        u = json_next(u);
    return u;
}

static unsigned rcode_of(struct str name)
{
    static const char *const names[] = {"NOERROR",  "FORMERR", "SERVFAIL",
                                        "NXDOMAIN", "NOTIMP",  "REFUSED"};
    unsigned i = 0;
    while (i < 5 && !str_eq(name, str_of(names[i])))
        i++;
    return i;
}

static void put_records(struct rig *rig, struct dns_writer *w, enum dns_section section,
                        const struct json *list)
{
    for (const struct json *v = list ? json_first(list) : NULL; v; v = json_next(v))
        rig->bad |= !dns_text_write(w, section, json_string(v));
}

/* What an upstream of the row says. */
static void on_asked(void *user, const struct dns_asked *a)
{
    struct rig *rig = user;
    unsigned index = dns_server_index(a->server);
    const struct json *u = upstream_of(rig, index);
    rig->asked |= 1u << index;
    if (!u || row_bool(u, "timeout"))
        return;
    struct dns_reply *reply = mem_new(sizeof *reply);
    struct dns_asked other = *a;
    if (row_member(u, "question"))
        rig->bad |= !dns_name_parse(row_text(u, "question"), &other.q.name);
    bool cut = row_bool(u, "truncates_udp") && !a->tcp;
    dns_reply_begin(reply, &other, rcode_of(row_text(u, "rcode")) | (cut ? DNS_TC : 0));
    if (a->udp_size)
        dns_write_edns(&reply->w, &(struct dns_edns){.udp_size = 4096});
    if (!cut) {
        put_records(rig, &reply->w, DNS_ANSWER, row_member(u, "answer"));
        put_records(rig, &reply->w, DNS_AUTHORITY, row_member(u, "authority"));
        put_records(rig, &reply->w, DNS_ADDITIONAL, row_member(u, "additional"));
    }
    dns_reply_send(reply);
    mem_free(reply);
}

static void on_learn(void *user, struct str name, const struct lease_address *list, size_t n,
                     unsigned kinds, void (*done)(void *arg, bool ok), void *arg)
{
    struct rig *rig = user;
    char text[IP_TEXT_BYTES];
    (void)name;
    (void)kinds;
    for (size_t i = 0; i < n; i++) {
        size_t len = ip_text(&list[i].ip, text);
        rig->nlearned +=
            (size_t)snprintf(rig->learned + rig->nlearned, LEARNED_TEXT - rig->nlearned, "%.*s %u,",
                             (int)len, text, list[i].seconds);
    }
    done(arg, true);
}

static void on_withdraw(void *user, const struct lease_gone *list, size_t n)
{
    (void)user;
    (void)list;
    (void)n;
}

static bool is_intercepted(void *user, struct str name)
{
    struct rig *rig = user;
    const struct json *list = row_member(rig->r->v, "intercepted");
    for (const struct json *v = list ? json_first(list) : NULL; v; v = json_next(v))
        if (str_ieq(json_string(v), name))
            return true;
    return false;
}

static void rig_open(struct rig *rig, const struct policy *policy)
{
    struct row *r = rig->r;
    const struct json *ups = row_member(r->v, "upstream");
    unsigned n = ups && json_count(ups) ? (unsigned)json_count(ups) : 1;
    uint16_t port;
    struct str error;
    struct nameserver_list list = {.n = n, .rounds = 1, .try_ms = TRY_MS};
    rig->w = worker_new(0);
    rig->servers = dns_servers_new(n, &port, on_asked, rig);
    for (unsigned i = 0; i < n; i++)
        list.addr[i].v4 = (struct sockaddr_in){.sin_family = AF_INET,
                                               .sin_port = htons(port),
                                               .sin_addr.s_addr = htonl(INADDR_LOOPBACK + i)};
    rig->ns = nameservers_new(rig->w, &list);
    rig->leases = leases_new(&(struct leases_limits){1024, 4096},
                             &(struct leases_kernel){on_learn, on_withdraw, rig});
    rig->rules =
        (struct gate_rules){.policy = policy,
                            .private_deny = str_eq(row_env(r, "PRIVATE_ANSWERS"), STR("deny")),
                            .bound = is_intercepted,
                            .user = rig};
    struct dns_limits limits = {.in_flight = 16,
                                .cache_entries = 16,
                                .tcp_clients = 4,
                                .tcp_in_flight = 4,
                                .tcp_queries = 16,
                                .tcp_first_ms = WAIT_MS,
                                .tcp_idle_ms = WAIT_MS,
                                .upstream_ms = n * TRY_MS,
                                .kernel_ms = WAIT_MS};
    rig->dns = dns_service_new(&(struct dns_setup){.w = rig->w,
                                                   .servers = rig->ns,
                                                   .leases = rig->leases,
                                                   .rules = &rig->rules,
                                                   .limits = limits});
    union addr any = {.v4 = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)}};
    dns_service_udp(rig->dns, udp_bind(&any.sa, &rig->udp, r->a, &error));
    dns_service_tcp(rig->dns, listen_bind(&any.sa, &rig->tcp, r->a, &error));
}

static void rig_close(struct rig *rig)
{
    dns_service_free(rig->dns);
    nameservers_free(rig->ns);
    leases_free(rig->leases);
    dns_servers_free(rig->servers);
    worker_turn(rig->w);
    worker_free(rig->w);
}

/* ---- the client */

static size_t make_query(struct row *r, uint8_t out[DNS_WRITE_MIN])
{
    const struct json *query = row_member(r->v, "query");
    struct dns_question q = {.type = dns_text_type(row_text(query, "type")),
                             .class = row_is(query, "class", "CH") ? 3 : DNS_IN};
    struct dns_writer w;
    int64_t edns = row_int(r, query, "edns", -1);
    if (q.type == 0 || !dns_name_parse(row_text(query, "name"), &q.name))
        return 0;
    dns_write(&w, out, DNS_WRITE_MIN, 0x1234, DNS_RD);
    dns_write_question(&w, &q);
    if (edns >= 0)
        dns_write_edns(&w, &(struct dns_edns){.udp_size = (uint16_t)edns});
    return dns_write_end(&w);
}

static size_t unhex(struct str hex, uint8_t *out)
{
    for (size_t i = 0; i + 1 < hex.n; i += 2)
        out[i / 2] = (uint8_t)(text_hex(hex.p[i]) << 4 | text_hex(hex.p[i + 1]));
    return hex.n / 2;
}

/* A whole reply in p (with its length in front over TCP), or nothing yet. */
static bool is_whole(const uint8_t *p, size_t n, bool tcp)
{
    return tcp ? n >= 2 && n - 2 >= ((size_t)p[0] << 8 | p[1]) : n > 0;
}

/* Sends and waits; the length of the reply, 0: none came. */
static size_t exchange(struct rig *rig, const uint8_t *query, size_t n, bool tcp, int wait_ms,
                       uint8_t out[DNS_MESSAGE_MAX + 2])
{
    const union addr *to = tcp ? &rig->tcp : &rig->udp;
    uint8_t framed[DNS_WRITE_MIN + 2] = {(uint8_t)(n >> 8), (uint8_t)n};
    int fd = socket(AF_INET, (tcp ? SOCK_STREAM : SOCK_DGRAM) | SOCK_CLOEXEC, 0);
    size_t got = 0;
    memcpy(framed + 2, query, n);
    if (connect(fd, &to->sa, addr_len(&to->sa)) == 0)
        send(fd, framed + (tcp ? 0 : 2), n + (tcp ? 2 : 0), MSG_NOSIGNAL);
    for (int i = 0; i < wait_ms * 1000 / STEP_US && !is_whole(out, got, tcp); i++) {
        worker_turn(rig->w);
        dns_servers_step(rig->servers);
        ssize_t more = recv(fd, out + got, DNS_MESSAGE_MAX + 2 - got, MSG_DONTWAIT);
        got += more > 0 ? (size_t)more : 0;
        usleep(STEP_US);
    }
    close(fd);
    if (tcp && got >= 2)
        memmove(out, out + 2, got -= 2);
    return got;
}

/* ---- what is expected */

/* A section as bytes that can be compared: its records alone, written anew, in lower case. */
static struct str section_of(struct row *r, const uint8_t *p, size_t n, enum dns_section section)
{
    struct dns_reader reader;
    struct dns_record rec;
    struct dns_writer w;
    uint8_t *out = arena_get(r->a, DNS_MESSAGE_MAX);
    dns_write(&w, out, DNS_MESSAGE_MAX, 0, 0);
    dns_read(&reader, p, n);
    while (dns_next_record(&reader, &rec))
        if (rec.section == section && rec.type != DNS_OPT)
            dns_write_copy(&w, DNS_ANSWER, &reader, &rec, rec.ttl);
    size_t len = dns_write_end(&w);
    for (size_t i = 0; i < len; i++)
        out[i] = (uint8_t)ascii_lower((char)out[i]);
    return (struct str){(char *)out, len};
}

static bool same_section(struct rig *rig, const uint8_t *p, size_t n, enum dns_section section,
                         const char *name)
{
    struct row *r = rig->r;
    const struct json *list = row_member(row_member(r->v, "answer"), name);
    struct dns_writer w;
    uint8_t *expected = arena_get(r->a, DNS_MESSAGE_MAX);
    if (!list)
        return true;
    dns_write(&w, expected, DNS_MESSAGE_MAX, 0, DNS_QR);
    put_records(rig, &w, section, list);
    size_t len = dns_write_end(&w);
    return row_same(r, name, section_of(r, p, n, section), section_of(r, expected, len, section));
}

struct extras {
    bool opt;
    int ede;
    int64_t soa_ttl;
};

static struct extras extras_of(const uint8_t *p, size_t n)
{
    struct extras x = {.ede = -1, .soa_ttl = -1};
    struct dns_reader reader;
    struct dns_record rec;
    struct dns_edns edns;
    struct dns_soa soa;
    struct str data;
    uint16_t code;
    dns_read(&reader, p, n);
    while (dns_next_record(&reader, &rec)) {
        if (rec.section == DNS_AUTHORITY && dns_record_soa(&reader, &rec, &soa))
            x.soa_ttl = rec.ttl == soa.minimum ? (int64_t)rec.ttl : -2;
        if (!dns_record_edns(&rec, &edns))
            continue;
        x.opt = true;
        while (dns_next_option(&edns.options, &code, &data))
            if (code == DNS_OPTION_EDE && data.n >= 2)
                x.ede = (uint8_t)data.p[0] << 8 | (uint8_t)data.p[1];
    }
    return x;
}

static bool same_extras(struct row *r, const struct json *answer, const uint8_t *p, size_t n)
{
    struct extras x = extras_of(p, n);
    if (json_member(answer, STR("soa_ttl")) &&
        !row_same_int(r, "soa_ttl", x.soa_ttl, row_int(r, answer, "soa_ttl", -1)))
        return false;
    if (json_member(answer, STR("ede")) &&
        !row_same_int(r, "ede", x.ede, row_int(r, answer, "ede", -1)))
        return false;
    return !json_member(answer, STR("opt")) ||
           row_same_int(r, "opt", x.opt, row_bool(answer, "opt"));
}

static bool same_head(struct row *r, const struct json *answer, const uint8_t *p, size_t n)
{
    struct dns_reader reader;
    struct dns_question q;
    char text[DNS_NAME_TEXT_BYTES];
    if (!dns_read(&reader, p, n) || reader.id != 0x1234 || !(reader.flags & DNS_QR))
        return row_fail(r, "no reply to the query");
    if (!row_same_int(r, "rcode", reader.flags & DNS_RCODE_MASK,
                      rcode_of(row_text(answer, "rcode"))))
        return false;
    if (json_member(answer, STR("tc")) &&
        !row_same_int(r, "tc", (reader.flags & DNS_TC) != 0, row_bool(answer, "tc")))
        return false;
    if (row_member(answer, "max_bytes") && (int64_t)n > row_int(r, answer, "max_bytes", 0))
        return row_fail(r, "%zu bytes", n);
    if (!row_member(answer, "question"))
        return true;
    if (!dns_next_question(&reader, &q))
        return row_fail(r, "no question");
    size_t len = dns_name_text(&q.name, text);
    text[len++] = '.';
    return row_same(r, "question", (struct str){text, len}, row_text(answer, "question"));
}

static bool same_learned(struct rig *rig)
{
    struct row *r = rig->r;
    const struct json *list = row_member(r->v, "learned");
    struct str expected = STR("");
    for (const struct json *v = list ? json_first(list) : NULL; v; v = json_next(v))
        expected =
            arena_printf(r->a, "%.*s%.*s %lld,", STR_ARG(expected), STR_ARG(row_text(v, "addr")),
                         (long long)row_int(r, v, "seconds", 0));
    return !list || row_same(r, "learned", (struct str){rig->learned, rig->nlearned}, expected);
}

static bool run(struct rig *rig)
{
    struct row *r = rig->r;
    const struct json *answer = row_member(r->v, "answer");
    uint8_t query[DNS_WRITE_MIN], *reply = arena_get(r->a, DNS_MESSAGE_MAX + 2);
    struct str wire = row_text(r->v, "wire");
    size_t n = wire.n ? unhex(wire, query) : make_query(r, query);
    if (n == 0)
        return row_fail(r, "the row's query cannot be read");
    bool tcp = row_is(row_member(r->v, "query"), "transport", "tcp");
    size_t got = exchange(rig, query, n, tcp, answer ? WAIT_MS : SILENT_MS, reply);
    if (!answer)
        return got == 0 || row_fail(r, "a reply came");
    return same_head(r, answer, reply, got) && same_extras(r, answer, reply, got) &&
           same_section(rig, reply, got, DNS_ANSWER, "answer") &&
           same_section(rig, reply, got, DNS_AUTHORITY, "authority") && same_learned(rig) &&
           row_same_int(r, "asked", __builtin_popcount(rig->asked), row_int(r, r->v, "asked", 0)) &&
           (!rig->bad || row_fail(r, "a record of the row cannot be read"));
}

bool run_dns_query(struct row *r)
{
    struct rig *rig = arena_zero(r->a, sizeof *rig);
    struct policy *p = row_policy(r);
    if (!p)
        return false;
    rig->r = r;
    rig_open(rig, p);
    bool good = run(rig);
    rig_close(rig);
    policy_free(p);
    return good;
}
