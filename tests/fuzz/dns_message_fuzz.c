/* dns_message_fuzz.c — any bytes as a DNS message: read within bounds, and what was read can be
 * written and reads the same. */
#include <assert.h>
#include <stdlib.h>

#include "dns/answer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { ROOM = DNS_MESSAGE_MAX };

static void copy_record(struct dns_writer *w, const struct dns_reader *r,
                        const struct dns_record *rec)
{
    struct dns_name target;
    struct dns_soa soa;
    struct ip ip;
    if (dns_record_ip(rec, &ip) &&
        ip_is_v4(&ip) == (rec->type == DNS_A)) /* a mapped AAAA would become an A */
        dns_write_ip(w, rec->section, &rec->name, rec->ttl, &ip);
    else if (dns_record_target(r, rec, &target))
        dns_write_target(w, rec->section, &rec->name, rec->type, rec->ttl, &target);
    else if (dns_record_soa(r, rec, &soa))
        dns_write_soa(w, rec->section, &rec->name, rec->ttl, &soa);
    else
        dns_write_record(w, rec->section, &rec->name, rec->type, rec->class, rec->ttl, rec->data);
}

static void walk_options(const struct dns_record *rec)
{
    struct dns_edns edns;
    struct str data;
    uint16_t code;
    if (!dns_record_edns(rec, &edns))
        return;
    while (dns_next_option(&edns.options, &code, &data))
        assert(data.p + data.n == edns.options.p);
}

/* Reads everything and writes it anew; true: the input was in order. */
static bool copy(const uint8_t *p, size_t n, struct dns_writer *w, uint8_t *out)
{
    struct dns_reader r;
    struct dns_question q;
    struct dns_record rec;
    if (!dns_read(&r, p, n))
        return false;
    dns_write(w, out, ROOM, r.id, r.flags & (uint16_t)~DNS_TC);
    while (dns_next_question(&r, &q))
        dns_write_question(w, &q);
    while (dns_next_record(&r, &rec)) {
        char text[DNS_NAME_TEXT_BYTES];
        assert(dns_name_text(&rec.name, text) < sizeof text);
        assert((const uint8_t *)rec.data.p >= p && rec.at + rec.data.n <= n);
        walk_options(&rec);
        copy_record(w, &r, &rec);
    }
    return dns_read_whole(&r);
}

static void expect_same(const uint8_t *a, size_t an, const uint8_t *b, size_t bn)
{
    struct dns_reader x, y;
    struct dns_question q, s;
    struct dns_record m, o;
    assert(dns_read(&x, a, an) && dns_read(&y, b, bn));
    while (dns_next_question(&x, &q)) {
        assert(dns_next_question(&y, &s));
        assert(dns_name_eq(&q.name, &s.name) && q.type == s.type && q.class == s.class);
    }
    while (dns_next_record(&x, &m)) {
        assert(dns_next_record(&y, &o));
        assert(m.section == o.section && dns_name_eq(&m.name, &o.name));
        assert(m.type == o.type && m.class == o.class && m.ttl == o.ttl);
        struct dns_name t, u;
        if (dns_record_target(&x, &m, &t))
            assert(dns_record_target(&y, &o, &u) && dns_name_eq(&t, &u));
    }
    assert(dns_read_whole(&y));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static uint8_t out[ROOM];
    struct dns_writer w;
    struct dns_answer a;
    struct dns_name root = {.n = 1};
    if (copy(data, size, &w, out)) {
        size_t n = dns_write_end(&w);
        assert(n <= ROOM);
        if (!w.cut)
            expect_same(data, size, out, n);
    }
    struct dns_reader r;
    struct dns_question q;
    if (!dns_read(&r, data, size) || !dns_next_question(&r, &q))
        q.name = root;
    dns_answer(data, size, &q.name, DNS_A, &a);
    assert(a.n <= DNS_ADDRESSES_MAX && (a.finding == DNS_FOUND) == (a.n > 0));
    return 0;
}
