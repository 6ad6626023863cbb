/* gate.c — replies are written anew, record by record, never patched: what is not looked at here
 * does not come through.  The question decides; an answer is only what hangs on it by the answer's
 * own aliases, in whatever order they stand. */
#include "egress/dns/gate.h"

#include "egress/dns/svcb.h"
#include "policies/special.h"

enum { OPCODE_NOTIFY = 4 << 11, OUR_UDP_BYTES = 1232, CHAIN_MAX = 16 };

/* ---- queries */

/* The records behind the question; false: not as a query has them. */
static bool read_rest(struct dns_reader *r, bool tcp, struct gate_query *q, bool *ret_version_known)
{
    struct dns_record rec;
    struct dns_edns edns;
    *ret_version_known = true;
    while (dns_next_record(r, &rec)) {
        if (rec.type != DNS_OPT)
            continue;
        if (q->edns || !dns_record_edns(&rec, &edns))
            return false;
        q->edns = true;
        q->dnssec_ok = edns.dnssec_ok;
        *ret_version_known = edns.version == 0;
        if (!tcp && edns.udp_size > q->room)
            q->room = edns.udp_size < GATE_UDP_BYTES ? edns.udp_size : GATE_UDP_BYTES;
    }
    return dns_read_whole(r);
}

static enum gate_step fault(struct gate_query *q, enum dns_rcode rcode)
{
    q->fault = rcode;
    return GATE_REPLY;
}

enum gate_step gate_read(const void *p, size_t n, bool tcp, struct gate_query *ret)
{
    struct dns_reader r;
    bool version_known;
    if (!dns_read(&r, p, n) || r.flags & DNS_QR)
        return GATE_IGNORE;
    *ret = (struct gate_query){
        .id = r.id, .flags = r.flags, .room = tcp ? DNS_MESSAGE_MAX : DNS_WRITE_MIN};
    uint16_t opcode = r.flags & DNS_OPCODE_MASK;
    if (opcode != 0 && opcode != OPCODE_NOTIFY)
        return fault(ret, DNS_NOTIMP);
    if (r.count[DNS_QUESTION] != 1 || r.count[DNS_ANSWER] > 1 || r.count[DNS_AUTHORITY] > 1 ||
        r.count[DNS_ADDITIONAL] > 2 || !dns_next_question(&r, &ret->question))
        return fault(ret, DNS_FORMERR);
    ret->asked = true;
    if (!read_rest(&r, tcp, ret, &version_known))
        return fault(ret, DNS_FORMERR);
    return version_known ? GATE_JUDGE : fault(ret, DNS_BADVERS);
}

struct str gate_name(const struct gate_query *q, char out[GATE_NAME_BYTES])
{
    struct dns_name lower = q->question.name;
    dns_name_lower(&lower);
    return (struct str){out, dns_name_text(&lower, out)};
}

static struct str host_of(struct str name)
{
    ptrdiff_t dot;
    while (name.n && name.p[0] == '_' && (dot = str_chr(name, '.')) >= 0)
        name = str_skip(name, (size_t)dot + 1);
    return name;
}

bool gate_is_bound(const struct gate_rules *rules, struct str name)
{
    return rules->bound && rules->bound(rules->user, host_of(name));
}

bool gate_has_answer(const struct gate_query *q)
{
    const struct dns_question *asked = &q->question;
    return asked->class != DNS_NONE && asked->type != DNS_IXFR && asked->type != DNS_AXFR;
}

/* ---- replies */

/* Starts a reply: what every one of ours has. */
static void begin(struct dns_writer *w, const struct gate_query *q, enum dns_rcode rcode,
                  uint16_t flags, struct str options, uint8_t *out)
{
    uint16_t kept = q->flags & (DNS_OPCODE_MASK | DNS_RD | DNS_CD);
    dns_write(w, out, q->room, q->id, (uint16_t)(DNS_QR | kept | flags | (rcode & DNS_RCODE_MASK)));
    if (q->asked)
        dns_write_question(w, &q->question);
    if (q->edns)
        dns_write_edns(w, &(struct dns_edns){.udp_size = OUR_UDP_BYTES,
                                             .rcode_high = (uint8_t)(rcode >> 4),
                                             .dnssec_ok = q->dnssec_ok,
                                             .options = options});
}

size_t gate_error(const struct gate_query *q, enum dns_rcode rcode, uint8_t *out)
{
    struct dns_writer w;
    begin(&w, q, rcode, 0, STR_NONE, out);
    return dns_write_end(&w);
}

size_t gate_denial(const struct gate_query *q, uint8_t *out)
{
    static const char blocked[] = {0, DNS_OPTION_EDE, 0, 2, 0, DNS_EDE_BLOCKED};
    static const struct dns_soa soa = {
        .primary = {.n = 1}, .mailbox = {.n = 1}, .serial = 1, .minimum = 1};
    struct dns_writer w;
    begin(&w, q, DNS_NXDOMAIN, 0, (struct str){blocked, sizeof blocked}, out);
    dns_write_soa(&w, DNS_AUTHORITY, &q->question.name, 1, &soa);
    return dns_write_end(&w);
}

/* ---- answers */

struct chain {
    unsigned n;
    struct dns_name name[CHAIN_MAX];
};

struct reply {
    const struct gate_rules *rules;
    struct chain chain; /* the question, and what it is an alias of */
    struct dns_writer w;
    struct dns_reader r;
    struct gate_learned *learned;
    uint32_t age_s;
    bool bound; /* the question's host is intercepted */
    bool changed;
};

static bool on_chain(const struct chain *c, const struct dns_name *name)
{
    for (unsigned i = 0; i < c->n; i++)
        if (dns_name_eq(&c->name[i], name))
            return true;
    return false;
}

/* The next name of the chain; false: it ends here, goes round, or is too long. */
static bool follow(struct chain *c, struct str upstream)
{
    struct dns_reader r;
    struct dns_record rec;
    struct dns_name target;
    dns_read(&r, upstream.p, upstream.n);
    while (c->n < CHAIN_MAX && dns_next_record(&r, &rec) && rec.section == DNS_ANSWER) {
        if (rec.type != DNS_CNAME || !dns_name_eq(&rec.name, &c->name[c->n - 1]) ||
            !dns_record_target(&r, &rec, &target) || on_chain(c, &target))
            continue;
        c->name[c->n++] = target;
        return true;
    }
    return false;
}

/* A DNAME stands above the name it redirects; its signature goes with it. */
static bool stands_above(const struct chain *c, const struct dns_record *rec)
{
    if (rec->type != DNS_DNAME && rec->type != DNS_RRSIG)
        return false;
    for (unsigned i = 0; i < c->n; i++)
        if (dns_name_below(&c->name[i], &rec->name))
            return true;
    return false;
}

static struct gate_address *find(struct gate_learned *l, const struct ip *ip)
{
    for (unsigned i = 0; i < l->n; i++)
        if (ip_eq(&l->at[i].ip, ip))
            return &l->at[i];
    return NULL;
}

static void learn(struct gate_learned *l, const struct ip *ip, uint32_t ttl)
{
    struct gate_address *a = find(l, ip);
    if (!a) {
        a = &l->at[l->n++];
        *a = (struct gate_address){*ip, 0};
    }
    if (ttl > a->ttl)
        a->ttl = ttl;
}

static uint32_t ttl_now(const struct reply *b, const struct dns_record *rec)
{
    return rec->ttl > b->age_s ? rec->ttl - b->age_s : 0;
}

static bool write_address(struct reply *b, const struct dns_record *rec)
{
    struct ip ip;
    if (!dns_record_ip(rec, &ip) || !answer_kept(b->rules->policy, &ip, b->rules->private_deny))
        return false;
    bool learned = rec->section == DNS_ANSWER;
    if (learned && b->learned->n == GATE_ADDRESSES && !find(b->learned, &ip))
        return false;
    if (!dns_write_copy(&b->w, rec->section, &b->r, rec, ttl_now(b, rec)))
        return false;
    if (learned && !b->w.cut)
        learn(b->learned, &ip, ttl_now(b, rec));
    return true;
}

static bool write_svcb(struct reply *b, const struct dns_record *rec)
{
    struct svcb_rules rules = {b->rules->policy, b->rules->private_deny, b->bound};
    char text[GATE_NAME_BYTES];
    uint8_t data[DNS_MESSAGE_MAX];
    size_t n;
    struct gate_query owner = {.question.name = rec->name};
    rules.bound = b->bound || gate_is_bound(b->rules, gate_name(&owner, text));
    if (!svcb_filter(&rules, rec->data, data, &n))
        return false;
    b->changed |= n != rec->data.n;
    dns_write_record(&b->w, rec->section, &rec->name, rec->type, rec->class, ttl_now(b, rec),
                     (struct str){(char *)data, n});
    return true;
}

/* True: it is in the reply, or did not fit. */
static bool write_record(struct reply *b, const struct dns_record *rec)
{
    if (rec->section == DNS_ANSWER && !on_chain(&b->chain, &rec->name) &&
        !stands_above(&b->chain, rec))
        return false;
    if (rec->class == DNS_IN && (rec->type == DNS_A || rec->type == DNS_AAAA))
        return write_address(b, rec);
    if (rec->class == DNS_IN && (rec->type == DNS_SVCB || rec->type == DNS_HTTPS))
        return write_svcb(b, rec);
    return dns_write_copy(&b->w, rec->section, &b->r, rec, ttl_now(b, rec));
}

static void write_records(struct reply *b)
{
    struct dns_record rec;
    while (!b->w.cut && dns_next_record(&b->r, &rec)) {
        if (rec.type == DNS_OPT)
            continue;
        b->changed |= !write_record(b, &rec);
        if (rec.section == DNS_ADDITIONAL && b->w.cut) {
            b->w.cut = false; /* nobody misses it (RFC 2181 section 9) */
            return;
        }
    }
}

/* AD is the upstream's word for its own answer, not for what is left of it. */
static void take_back_ad(uint8_t *out)
{
    out[3] &= (uint8_t)~DNS_AD;
}

size_t gate_reply(const struct gate_rules *rules, const struct gate_query *q, struct str upstream,
                  uint32_t age_s, uint8_t *out, struct gate_learned *ret)
{
    char text[GATE_NAME_BYTES];
    struct reply b;
    b.rules = rules;
    b.learned = ret;
    b.age_s = age_s;
    b.changed = false;
    b.bound = rules->bound && gate_is_bound(rules, gate_name(q, text));
    b.chain.n = 1;
    b.chain.name[0] = q->question.name;
    ret->n = 0;
    while (follow(&b.chain, upstream))
        ;
    dns_read(&b.r, upstream.p, upstream.n);
    begin(&b.w, q, b.r.flags & DNS_RCODE_MASK, b.r.flags & (DNS_AA | DNS_RA | DNS_AD), STR_NONE,
          out);
    write_records(&b);
    size_t n = dns_write_end(&b.w);
    if (b.changed)
        take_back_ad(out);
    return n;
}
