/* dns_gate_fuzz.c — any bytes as a query, and as the upstream's reply to it: what goes out is in
 * order, fits, and tells of no address that was filtered; SVCB data is filtered once and for all.
 */
#include <assert.h>

#include "dns/answer.h"
#include "egress/dns/gate.h"
#include "egress/dns/svcb.h"
#include "policies/special.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static bool every_host(void *user, struct str name)
{
    (void)user;
    return name.n % 2;
}

static void expect_clean(const struct policy *p, const uint8_t *out, size_t n,
                         const struct gate_learned *learned)
{
    struct dns_reader r;
    struct dns_record rec;
    struct ip ip;
    bool ok = dns_read(&r, out, n);
    assert(ok);
    while (dns_next_record(&r, &rec)) {
        bool known = false;
        if (!dns_record_ip(&rec, &ip))
            continue;
        assert(answer_kept(p, &ip, true));
        for (unsigned i = 0; i < learned->n; i++)
            known |= ip_eq(&learned->at[i].ip, &ip);
        assert(known || rec.section != DNS_ANSWER);
    }
    assert(dns_read_whole(&r));
}

static void answer_with(const struct gate_rules *rules, const struct gate_query *q,
                        const uint8_t *data, size_t size)
{
    static struct gate_learned learned;
    uint8_t *out = mem_new(q->room); /* of just that size, for the sanitizer */
    size_t n = gate_denial(q, out);
    assert(n <= q->room);
    if (dns_reply_rcode(data, size) >= 0) {
        n = gate_reply(rules, q, (struct str){(const char *)data, size}, 1, out, &learned);
        assert(n <= q->room);
        expect_clean(rules->policy, out, n, &learned);
    }
    mem_free(out);
}

static void filter_svcb(const struct policy *p, const uint8_t *data, size_t size)
{
    struct svcb_rules rules = {.policy = p, .private_deny = true, .bound = true};
    uint8_t *out = mem_new(size + 1), *again = mem_new(size + 1);
    size_t n, m;
    if (size <= DNS_MESSAGE_MAX &&
        svcb_filter(&rules, (struct str){(const char *)data, size}, out, &n)) {
        assert(n <= size);
        bool ok = svcb_filter(&rules, (struct str){(char *)out, n}, again, &m);
        assert(ok && m == n && memcmp(out, again, n) == 0);
    }
    mem_free(out);
    mem_free(again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct policy *p = policy_new(NULL, NULL, NULL);
    struct gate_rules rules = {.policy = p, .private_deny = true, .bound = every_host};
    struct gate_query q;
    uint8_t out[DNS_MESSAGE_MAX];
    enum gate_step step = gate_read(data, size, size % 2, &q);
    if (step == GATE_REPLY)
        assert(gate_error(&q, q.fault, out) <= q.room);
    if (step == GATE_JUDGE)
        answer_with(&rules, &q, data, size);
    struct dns_reader r;
    if (dns_read(&r, data, size)) { /* a reply to its own question */
        q = (struct gate_query){.room = DNS_WRITE_MIN, .edns = size % 2};
        q.asked = dns_next_question(&r, &q.question);
        if (!q.asked)
            q.question.name = (struct dns_name){.n = 1};
        answer_with(&rules, &q, data, size);
    }
    filter_svcb(p, data, size);
    policy_free(p);
    return 0;
}
