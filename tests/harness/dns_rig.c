/* dns_rig.c — everything on one worker that the tests turn by hand. */
#include "harness/dns_rig.h"

#include <arpa/inet.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>
#include <cmocka.h>

#include "harness/dns_text.h"
#include "net/listen.h"
#include "net/udp.h"
#include "net/worker_impl.h"
#include "policies/document.h"

/* The clock of the tests. */
static uint64_t now_ms;

uint64_t __wrap_uv_now(const uv_loop_t *loop);
uint64_t __wrap_uv_now(const uv_loop_t *loop)
{
    (void)loop;
    return now_ms;
}

struct policy *dns_rig_policy(const char *json)
{
    struct document d;
    struct json_fault fault;
    assert_true(document_parse(str_of(json), &d, &fault));
    struct policy *p = policy_new(NULL, NULL, &d);
    document_done(&d);
    return p;
}

void dns_rig_answer(struct dns_rig *rig, const struct dns_asked *a)
{
    struct dns_reply *reply = mem_new(sizeof *reply);
    bool six = a->q.type == DNS_AAAA && rig->answer6;
    struct str rest = str_of(six ? rig->answer6 : rig->answer), line;
    char text[1024], name[DNS_NAME_TEXT_BYTES];
    name[dns_name_text(&a->q.name, name)] = '\0';
    dns_reply_begin(reply, a, 0);
    while (rest.n && str_next(&rest, '\n', &line)) {
        int n = snprintf(text, sizeof text, "%s.%.*s", name, STR_ARG(line));
        assert_true(dns_text_write(&reply->w, DNS_ANSWER, (struct str){text, (size_t)n}));
    }
    dns_reply_send(reply);
    mem_free(reply);
}

static void on_asked(void *user, const struct dns_asked *a)
{
    struct dns_rig *rig = user;
    rig->asked++;
    if (!rig->silent && !(rig->silent6 && a->q.type == DNS_AAAA))
        dns_rig_answer(rig, a);
    else if (rig->nkept < 64)
        rig->kept[rig->nkept++] = *a;
}

static void on_learn(void *user, struct str name, const struct lease_address *list, size_t n,
                     unsigned kinds, void (*done)(void *arg, bool ok), void *arg)
{
    struct dns_rig *rig = user;
    (void)name;
    (void)list;
    (void)kinds;
    assert_true(n > 0);
    if (rig->kernel == KERNEL_IS_SLOW) {
        assert_true(rig->norders < DNS_RIG_ORDERS);
        rig->order[rig->norders++] = (struct dns_rig_order){done, arg};
    } else {
        done(arg, rig->kernel == KERNEL_OBEYS);
    }
}

static void on_withdraw(void *user, const struct lease_gone *list, size_t n)
{
    struct dns_rig *rig = user;
    (void)list;
    rig->withdrawn += (unsigned)n;
}

void dns_rig_kernel_catches_up(struct dns_rig *rig)
{
    for (unsigned i = 0; i < rig->norders; i++)
        rig->order[i].done(rig->order[i].arg, true);
    rig->norders = 0;
}

static void on_told(void *user, const struct dns_told *t)
{
    struct dns_rig *rig = user;
    rig->told++;
    rig->denied += t->why == WHY_DENIED;
}

const struct dns_limits dns_rig_limits = {.in_flight = 32,
                                          .cache_entries = 64,
                                          .tcp_clients = 4,
                                          .tcp_in_flight = 4,
                                          .tcp_queries = 20,
                                          .tcp_first_ms = 2000,
                                          .tcp_idle_ms = 8000,
                                          .upstream_ms = 5000,
                                          .kernel_ms = 5000};

struct dns_rig *dns_rig_new(const char *policy, const struct dns_limits *limits)
{
    struct dns_rig *rig = mem_new(sizeof *rig);
    uint16_t port;
    struct arena a;
    struct str error;
    union addr any = {.v4 = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)}};
    now_ms = 1000000;
    arena_init(&a, NULL, 0);
    rig->answer = " 60 A 192.0.2.1";
    rig->w = worker_new(0);
    rig->servers = dns_servers_new(1, &port, on_asked, rig);
    struct nameserver_list list = {.n = 1, .rounds = 1, .try_ms = 5000, .addr[0] = any};
    list.addr[0].v4.sin_port = htons(port);
    rig->ns = nameservers_new(rig->w, &list);
    rig->leases = leases_new(&(struct leases_limits){64, 128},
                             &(struct leases_kernel){on_learn, on_withdraw, rig});
    rig->policy = dns_rig_policy(policy);
    rig->rules = (struct gate_rules){.policy = rig->policy};
    rig->upkeep = upkeep_new(&(struct upkeep_setup){
        .w = rig->w, .servers = rig->ns, .leases = rig->leases, .rules = &rig->rules});
    rig->dns = dns_service_new(&(struct dns_setup){.w = rig->w,
                                                   .servers = rig->ns,
                                                   .leases = rig->leases,
                                                   .upkeep = rig->upkeep,
                                                   .rules = &rig->rules,
                                                   .limits = *limits,
                                                   .told = on_told,
                                                   .user = rig});
    dns_service_udp(rig->dns, udp_bind(&any.sa, &rig->udp, &a, &error));
    dns_service_tcp(rig->dns, listen_bind(&any.sa, &rig->tcp, &a, &error));
    arena_done(&a);
    return rig;
}

void dns_rig_settle(struct dns_rig *rig)
{
    for (int quiet = 0; quiet < 6; quiet++) {
        usleep(100);
        worker_turn(rig->w);
        wheel_turn(&rig->w->wheel, worker_now(rig->w));
        if (dns_servers_step(rig->servers) > 0)
            quiet = 0;
    }
}

void dns_rig_free(struct dns_rig *rig)
{
    dns_rig_settle(rig);
    dns_service_free(rig->dns);
    upkeep_free(rig->upkeep);
    nameservers_free(rig->ns);
    worker_turn(rig->w);
    leases_free(rig->leases);
    worker_free(rig->w);
    dns_servers_free(rig->servers);
    policy_free(rig->policy);
    mem_free(rig);
}

void dns_rig_pass(struct dns_rig *rig, uint64_t ms)
{
    dns_rig_settle(rig);
    for (uint64_t step; ms > 0; ms -= step) {
        step = ms < WHEEL_SLOT_MS ? ms : WHEEL_SLOT_MS;
        now_ms += step;
        worker_turn(rig->w);
        wheel_turn(&rig->w->wheel, now_ms);
        dns_servers_step(rig->servers);
    }
    dns_rig_settle(rig);
}

uint64_t dns_rig_now(void)
{
    return now_ms;
}

/* ---- clients */

int dns_rig_client(const struct dns_rig *rig, bool tcp)
{
    const union addr *to = tcp ? &rig->tcp : &rig->udp;
    int fd = socket(AF_INET, (tcp ? SOCK_STREAM : SOCK_DGRAM) | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(fd, &to->sa, addr_len(&to->sa)), 0);
    return fd;
}

size_t dns_rig_query(uint8_t out[DNS_WRITE_MIN], uint16_t id, const char *name, uint16_t type)
{
    struct dns_question q = {.type = type, .class = DNS_IN};
    struct dns_writer w;
    assert_true(dns_name_parse(str_of(name), &q.name));
    dns_write(&w, out, DNS_WRITE_MIN, id, DNS_RD);
    dns_write_question(&w, &q);
    return dns_write_end(&w);
}

void dns_rig_ask(int fd, uint16_t id, const char *name)
{
    uint8_t p[DNS_WRITE_MIN];
    size_t n = dns_rig_query(p, id, name, DNS_A);
    assert_int_equal(send(fd, p, n, 0), n);
}

struct dns_got dns_rig_read(const uint8_t *p, size_t n)
{
    struct dns_reader r;
    struct dns_question q;
    struct dns_record rec;
    assert_true(dns_read(&r, p, n));
    struct dns_got got = {.id = r.id, .rcode = r.flags & DNS_RCODE_MASK};
    if (dns_next_question(&r, &q))
        got.name = q.name;
    while (dns_next_record(&r, &rec)) {
        got.answers += rec.section == DNS_ANSWER;
        got.ttl = rec.ttl;
    }
    return got;
}

struct dns_got dns_rig_hear(int fd)
{
    uint8_t p[4096];
    ssize_t n = recv(fd, p, sizeof p, MSG_DONTWAIT);
    return n < 0 ? (struct dns_got){.id = -1, .rcode = -1} : dns_rig_read(p, (size_t)n);
}

struct dns_got dns_rig_asked(struct dns_rig *rig, const char *name)
{
    int fd = dns_rig_client(rig, false);
    dns_rig_ask(fd, 7, name);
    dns_rig_settle(rig);
    struct dns_got got = dns_rig_hear(fd);
    close(fd);
    return got;
}
