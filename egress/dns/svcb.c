/* svcb.c — an HTTPS record is a list of parameters by rising key; some name addresses, some steer
 * the protocol.  It is gone through twice: the list of mandatory keys stands first, and must not
 * name what is taken out behind it. */
#include "egress/dns/svcb.h"

#include "policies/domains.h"
#include "policies/special.h"

enum key {
    KEY_MANDATORY,
    KEY_ALPN,
    KEY_NO_DEFAULT_ALPN,
    KEY_PORT,
    KEY_V4HINT,
    KEY_ECH,
    KEY_V6HINT
};
enum { KEYS_KNOWN = 7 };

struct param {
    uint16_t key;
    struct str value;
};

struct filter {
    const struct svcb_rules *rules;
    bool gone[KEYS_KNOWN]; /* keys that are taken out */
};

static uint16_t get16(const char *p)
{
    return (uint16_t)((uint8_t)p[0] << 8 | (uint8_t)p[1]);
}

static void put16(uint8_t *p, size_t v)
{
    p[0] = (uint8_t)(v >> 8);
    p[1] = (uint8_t)v;
}

/* Priority and target name, which is never compressed; 0: faulty. */
static size_t head_bytes(struct str data)
{
    size_t at = 2;
    while (at < data.n && at - 2 < 255) {
        size_t label = (uint8_t)data.p[at];
        if (label > LABEL_BYTES_MAX)
            return 0;
        at += label + 1;
        if (label == 0)
            return at <= data.n ? at : 0;
    }
    return 0;
}

/* Cuts the next parameter off; false at the end, with bytes left in *rest on a fault. */
static bool next_param(struct str *rest, struct param *ret)
{
    if (rest->n < 4)
        return false;
    size_t len = get16(rest->p + 2);
    if (len > rest->n - 4)
        return false;
    ret->key = get16(rest->p);
    ret->value = str_head(str_skip(*rest, 4), len);
    *rest = str_skip(*rest, 4 + len);
    return true;
}

static bool keeps_address(const struct svcb_rules *r, const char *p, size_t bytes)
{
    struct ip ip = {.b = {[10] = 0xff, [11] = 0xff}};
    memcpy(ip.b + 16 - bytes, p, bytes);
    return answer_kept(r->policy, &ip, r->private_deny);
}

static bool put_hints(const struct svcb_rules *r, struct str v, size_t bytes, uint8_t *out,
                      size_t *n)
{
    if (v.n % bytes)
        return false;
    for (; v.n; v = str_skip(v, bytes)) {
        if (!keeps_address(r, v.p, bytes))
            continue;
        memcpy(out + *n, v.p, bytes);
        *n += bytes;
    }
    return true;
}

static bool is_http3(struct str protocol)
{
    return str_eq(protocol, STR("h3")) || str_starts(protocol, STR("h3-"));
}

static bool put_protocols(const struct svcb_rules *r, struct str v, uint8_t *out, size_t *n)
{
    while (v.n) {
        size_t len = (uint8_t)v.p[0];
        if (len + 1 > v.n)
            return false;
        if (!r->bound || !is_http3((struct str){v.p + 1, len})) {
            memcpy(out + *n, v.p, len + 1);
            *n += len + 1;
        }
        v = str_skip(v, len + 1);
    }
    return true;
}

static bool put_mandatory(const struct filter *f, struct str v, uint8_t *out, size_t *n)
{
    if (v.n % 2)
        return false;
    for (; v.n; v = str_skip(v, 2)) {
        uint16_t key = get16(v.p);
        if (key < KEYS_KNOWN && f->gone[key])
            continue;
        put16(out + *n, key);
        *n += 2;
    }
    return true;
}

/* The value as it may be told; false: faulty.  Writes at most as much as it reads. */
static bool put_value(const struct filter *f, const struct param *p, uint8_t *out, size_t *n)
{
    switch (p->key) {
    case KEY_MANDATORY:
        return put_mandatory(f, p->value, out, n);
    case KEY_ALPN:
        return put_protocols(f->rules, p->value, out, n);
    case KEY_V4HINT:
        return put_hints(f->rules, p->value, 4, out, n);
    case KEY_V6HINT:
        return put_hints(f->rules, p->value, 16, out, n);
    default:
        if (p->value.n)
            memcpy(out + *n, p->value.p, p->value.n);
        *n += p->value.n;
        return true;
    }
}

/* Does a parameter that had a value, and has n bytes of it now, go as a whole? */
static bool goes(const struct filter *f, const struct param *p, size_t n)
{
    if (p->key == KEY_ECH)
        return f->rules->bound;
    if (p->key == KEY_NO_DEFAULT_ALPN)
        return f->gone[KEY_ALPN]; /* it may not stand alone (RFC 9460 section 7.1.1) */
    return n == 0 && (p->key == KEY_MANDATORY || p->key == KEY_ALPN || p->key == KEY_V4HINT ||
                      p->key == KEY_V6HINT);
}

static bool put_params(struct filter *f, struct str rest, uint8_t *out, size_t *n)
{
    struct param p;
    int last = -1;
    while (next_param(&rest, &p)) {
        size_t at = *n + 4, end = at;
        if (p.key <= last || !put_value(f, &p, out, &end))
            return false;
        last = p.key;
        bool gone = goes(f, &p, end - at);
        if (p.key < KEYS_KNOWN)
            f->gone[p.key] = gone;
        if (gone)
            continue;
        put16(out + *n, p.key);
        put16(out + *n + 2, end - at);
        *n = end;
    }
    return rest.n == 0;
}

bool svcb_filter(const struct svcb_rules *rules, struct str data, uint8_t *out, size_t *ret_n)
{
    struct filter f = {.rules = rules};
    size_t head = head_bytes(data), n = head;
    if (head == 0)
        return false;
    memcpy(out, data.p, head);
    if (!put_params(&f, str_skip(data, head), out, &n))
        return false;
    n = head;
    f.gone[KEY_MANDATORY] = false;
    if (!put_params(&f, str_skip(data, head), out, &n))
        return false;
    *ret_n = n;
    return true;
}
