/* dns_text.c — reads the small part of the presentation format that rows of vectors use. */
#include "harness/dns_text.h"

#include "base/text.h"

enum { DATA_BYTES = 1024 };

struct data {
    uint8_t b[DATA_BYTES];
    size_t n;
};

uint16_t dns_text_type(struct str name)
{
    static const struct {
        const char *name;
        uint16_t type;
    } types[] = {{"A", DNS_A},       {"NS", DNS_NS},       {"CNAME", DNS_CNAME}, {"SOA", DNS_SOA},
                 {"NULL", 10},       {"MX", DNS_MX},       {"TXT", DNS_TXT},     {"AAAA", DNS_AAAA},
                 {"SVCB", DNS_SVCB}, {"HTTPS", DNS_HTTPS}, {"ANY", DNS_ANY}};
    uint64_t number;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (str_eq(name, str_of(types[i].name)))
            return types[i].type;
    return str_starts(name, STR("TYPE")) && text_u64(str_skip(name, 4), UINT16_MAX, &number)
               ? (uint16_t)number
               : 0;
}

static void put(struct data *d, const void *p, size_t n)
{
    memcpy(d->b + d->n, p, n);
    d->n += n;
}

static void put16(struct data *d, uint64_t v)
{
    put(d, (uint8_t[]){(uint8_t)(v >> 8), (uint8_t)v}, 2);
}

static bool next(struct str *rest, struct str *ret)
{
    return str_next(rest, ' ', ret);
}

static bool next_number(struct str *rest, uint64_t *ret)
{
    struct str word;
    return next(rest, &word) && text_u64(word, UINT32_MAX, ret);
}

static bool next_name(struct str *rest, struct dns_name *ret)
{
    struct str word;
    return next(rest, &word) && dns_name_parse(word, ret);
}

static bool put_ips(struct data *d, struct str list, size_t bytes)
{
    struct str word;
    struct ip ip;
    while (str_next(&list, ',', &word)) {
        if (!ip_parse(word, &ip))
            return false;
        put(d, ip.b + 16 - bytes, bytes);
    }
    return true;
}

static bool put_param(struct data *d, struct str word)
{
    static const char *const keys[] = {"mandatory", "alpn", "no-default-alpn", "port",
                                       "ipv4hint",  "ech",  "ipv6hint"};
    struct str key, piece;
    if (!str_next(&word, '=', &key))
        return false;
    uint16_t k = 0;
    while (k < 7 && !str_eq(key, str_of(keys[k])))
        k++;
    struct data v = {.n = 0};
    if (k == 1)
        while (str_next(&word, ',', &piece)) {
            put(&v, &(uint8_t){(uint8_t)piece.n}, 1);
            put(&v, piece.p, piece.n);
        }
    else if (k == 5 && text_base64(word, v.b, &v.n))
        (void)0;
    else if ((k != 4 && k != 6) || !put_ips(&v, word, k == 4 ? 4 : 16))
        return false;
    put16(d, k);
    put16(d, v.n);
    put(d, v.b, v.n);
    return true;
}

static bool svcb_data(struct data *d, struct str rest)
{
    uint64_t priority;
    struct dns_name target;
    struct str word;
    if (!next_number(&rest, &priority) || !next_name(&rest, &target))
        return false;
    put16(d, priority);
    put(d, target.b, target.n);
    while (rest.p && next(&rest, &word))
        if (!put_param(d, word))
            return false;
    return true;
}

static bool soa_of(struct str rest, struct dns_soa *soa)
{
    uint64_t v[5];
    if (!next_name(&rest, &soa->primary) || !next_name(&rest, &soa->mailbox))
        return false;
    for (int i = 0; i < 5; i++)
        if (!next_number(&rest, &v[i]))
            return false;
    soa->serial = (uint32_t)v[0];
    soa->refresh = (uint32_t)v[1];
    soa->retry = (uint32_t)v[2];
    soa->expire = (uint32_t)v[3];
    soa->minimum = (uint32_t)v[4];
    return true;
}

static bool data_of(struct data *d, uint16_t type, struct str rest)
{
    uint64_t preference;
    struct dns_name name;
    if (type == DNS_A || type == DNS_AAAA)
        return put_ips(d, rest, type == DNS_A ? 4 : 16);
    if (type == DNS_SVCB || type == DNS_HTTPS)
        return svcb_data(d, rest);
    if (type == DNS_TXT && rest.n >= 2) {
        put(d, &(uint8_t){(uint8_t)(rest.n - 2)}, 1);
        put(d, rest.p + 1, rest.n - 2);
        return true;
    }
    if (type != DNS_MX || !next_number(&rest, &preference) || !next_name(&rest, &name))
        return false;
    put16(d, preference);
    put(d, name.b, name.n);
    return true;
}

bool dns_text_write(struct dns_writer *w, enum dns_section section, struct str text)
{
    struct dns_name owner, target;
    struct dns_soa soa;
    struct str word, rest = text;
    struct data d = {.n = 0};
    uint64_t ttl;
    if (!next_name(&rest, &owner) || !next_number(&rest, &ttl) || !next(&rest, &word))
        return false;
    uint16_t type = dns_text_type(word);
    if (type == DNS_CNAME || type == DNS_NS) {
        if (!next_name(&rest, &target))
            return false;
        dns_write_target(w, section, &owner, type, (uint32_t)ttl, &target);
    } else if (type == DNS_SOA) {
        if (!soa_of(rest, &soa))
            return false;
        dns_write_soa(w, section, &owner, (uint32_t)ttl, &soa);
    } else {
        if (!data_of(&d, type, rest))
            return false;
        dns_write_record(w, section, &owner, type, DNS_IN, (uint32_t)ttl,
                         (struct str){(char *)d.b, d.n});
    }
    return true;
}
