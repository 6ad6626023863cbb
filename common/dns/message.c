/* message.c — the DNS wire format, both ways.  Everything a message says about itself (lengths,
 * counts, pointers) is a claim to be checked against the bytes at hand: a pointer may only lead
 * further back than the piece of name it continues, so a name ends after finitely many steps
 * whatever was sent (DESIGN 18.7 D1). */
#include "dns/message.h"

#include <assert.h>
#include <stdio.h>

enum { LABEL_MAX = 63, POINTER = 0xc0, POINTER_REACH = 0x4000, JUMPS_MAX = 64 };

static uint16_t get16(const uint8_t *p)
{
    return (uint16_t)(p[0] << 8 | p[1]);
}

static uint32_t get32(const uint8_t *p)
{
    return (uint32_t)get16(p) << 16 | get16(p + 2);
}

static void set16(uint8_t *p, uint16_t v)
{
    p[0] = (uint8_t)(v >> 8);
    p[1] = (uint8_t)v;
}

/* ---- names ---- */

static bool plain(char c)
{
    return c > ' ' && c < 0x7f && c != '.' && c != '\\';
}

bool dns_name_parse(struct str text, struct dns_name *ret)
{
    struct dns_name name;
    size_t len = 0;
    if (text.n && text.p[text.n - 1] == '.')
        text.n--;
    else if (text.n == 0)
        return false;
    struct str label, rest = text;
    while (text.n && str_next(&rest, '.', &label)) {
        if (label.n == 0 || label.n > LABEL_MAX || len + 1 + label.n + 1 > DNS_NAME_MAX)
            return false;
        for (size_t i = 0; i < label.n; i++)
            if (!plain(label.p[i]))
                return false;
        name.b[len++] = (uint8_t)label.n;
        memcpy(name.b + len, label.p, label.n);
        len += label.n;
    }
    name.b[len++] = 0;
    name.n = (uint8_t)len;
    *ret = name;
    return true;
}

size_t dns_name_text(const struct dns_name *name, char out[DNS_NAME_TEXT_BYTES])
{
    size_t n = 0;
    for (size_t at = 0; name->b[at]; at += name->b[at] + 1u) {
        if (n)
            out[n++] = '.';
        for (size_t i = at + 1; i <= at + name->b[at]; i++) {
            char c = (char)name->b[i];
            if (plain(c))
                out[n++] = c;
            else
                n += (size_t)snprintf(out + n, DNS_NAME_TEXT_BYTES - n, "\\%03u", name->b[i]);
        }
    }
    if (n == 0)
        out[n++] = '.';
    return n;
}

static bool same_without_case(const uint8_t *a, const uint8_t *b, size_t n)
{
    /* lengths are at most 63, so no length byte is mistaken for a letter */
    for (size_t i = 0; i < n; i++)
        if (ascii_lower((char)a[i]) != ascii_lower((char)b[i]))
            return false;
    return true;
}

bool dns_name_eq(const struct dns_name *a, const struct dns_name *b)
{
    return a->n == b->n && same_without_case(a->b, b->b, a->n);
}

bool dns_name_same(const struct dns_name *a, const struct dns_name *b)
{
    return a->n == b->n && memcmp(a->b, b->b, a->n) == 0;
}

void dns_name_lower(struct dns_name *name)
{
    for (size_t i = 0; i < name->n; i++)
        name->b[i] = (uint8_t)ascii_lower((char)name->b[i]);
}

bool dns_name_below(const struct dns_name *name, const struct dns_name *top)
{
    size_t at = 0;
    while (name->n - at > top->n)
        at += name->b[at] + 1u;
    return name->n - at == top->n && same_without_case(name->b + at, top->b, top->n);
}

/* Where a pointer at `at` leads, or 0.  It must lead to before `start`, where the piece of name
 * that it continues begins. */
static size_t pointer_target(const uint8_t *p, size_t n, size_t at, size_t start)
{
    if (n - at < 2)
        return 0;
    size_t to = get16(p + at) & (POINTER_REACH - 1);
    return to >= DNS_HEADER_BYTES && to < start ? to : 0;
}

/* Reads the name at `at`; returns where it ends in the message, 0 on a fault. */
static size_t read_name(const uint8_t *p, size_t n, size_t at, struct dns_name *ret)
{
    size_t end = 0, start = at, len = 0;
    unsigned jumps = 0;
    while (at < n) {
        size_t label = p[at];
        if (label >= POINTER) {
            size_t to = ++jumps <= JUMPS_MAX ? pointer_target(p, n, at, start) : 0;
            if (to == 0)
                return 0;
            if (end == 0)
                end = at + 2;
            start = at = to;
            continue;
        }
        if (label > LABEL_MAX || label + 1 > n - at || len + label + 1 > DNS_NAME_MAX)
            return 0;
        memcpy(ret->b + len, p + at, label + 1);
        len += label + 1;
        at += label + 1;
        if (label == 0) {
            ret->n = (uint8_t)len;
            return end ? end : at;
        }
    }
    return 0;
}

/* ---- reading ---- */

bool dns_read(struct dns_reader *r, const void *p, size_t n)
{
    if (n < DNS_HEADER_BYTES || n > DNS_MESSAGE_MAX)
        return false;
    *r = (struct dns_reader){.p = p, .n = n, .at = DNS_HEADER_BYTES};
    r->id = get16(r->p);
    r->flags = get16(r->p + 2);
    for (int i = 0; i < DNS_SECTIONS; i++)
        r->left[i] = r->count[i] = get16(r->p + 4 + 2 * i);
    return true;
}

static bool fault(struct dns_reader *r)
{
    r->bad = true;
    return false;
}

/* Moves past a name and the `fixed` bytes after it, which it returns; NULL on a fault. */
static const uint8_t *take_name(struct dns_reader *r, struct dns_name *ret, size_t fixed)
{
    size_t end = read_name(r->p, r->n, r->at, ret);
    if (end == 0 || fixed > r->n - end)
        return NULL;
    r->at = end + fixed;
    return r->p + end;
}

bool dns_next_question(struct dns_reader *r, struct dns_question *ret)
{
    if (r->bad || r->left[DNS_QUESTION] == 0)
        return false;
    const uint8_t *f = take_name(r, &ret->name, 4);
    if (!f)
        return fault(r);
    ret->type = get16(f);
    ret->class = get16(f + 2);
    r->left[DNS_QUESTION]--;
    return true;
}

static bool read_record(struct dns_reader *r, struct dns_record *ret)
{
    const uint8_t *f = take_name(r, &ret->name, 10);
    if (!f)
        return fault(r);
    size_t len = get16(f + 8);
    if (len > r->n - r->at)
        return fault(r);
    ret->type = get16(f);
    ret->class = get16(f + 2);
    ret->ttl = get32(f + 4);
    if (ret->ttl >> 31 && ret->type != DNS_OPT) /* OPT keeps other things there */
        ret->ttl = 0;
    ret->at = r->at;
    ret->data = (struct str){(const char *)r->p + r->at, len};
    r->at += len;
    return true;
}

bool dns_next_record(struct dns_reader *r, struct dns_record *ret)
{
    struct dns_question q;
    while (dns_next_question(r, &q))
        continue;
    if (r->bad)
        return false;
    enum dns_section s = DNS_ANSWER;
    while (s < DNS_SECTIONS && r->left[s] == 0)
        s++;
    if (s == DNS_SECTIONS || !read_record(r, ret))
        return false;
    ret->section = s;
    r->left[s]--;
    return true;
}

bool dns_read_whole(const struct dns_reader *r)
{
    return !r->bad && r->left[DNS_QUESTION] == 0 && r->left[DNS_ANSWER] == 0 &&
           r->left[DNS_AUTHORITY] == 0 && r->left[DNS_ADDITIONAL] == 0;
}

bool dns_record_ip(const struct dns_record *rec, struct ip *ret)
{
    static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
    if (rec->class != DNS_IN)
        return false;
    if (rec->type == DNS_A && rec->data.n == 4) {
        memcpy(ret->b, mapped, 12);
        memcpy(ret->b + 12, rec->data.p, 4);
        return true;
    }
    if (rec->type == DNS_AAAA && rec->data.n == 16) {
        memcpy(ret->b, rec->data.p, 16);
        return true;
    }
    return false;
}

static bool is_target_type(uint16_t type)
{
    return type == DNS_CNAME || type == DNS_NS || type == DNS_PTR;
}

bool dns_record_target(const struct dns_reader *r, const struct dns_record *rec,
                       struct dns_name *ret)
{
    size_t end = rec->at + rec->data.n;
    struct dns_name name;
    if (rec->class != DNS_IN || !is_target_type(rec->type) ||
        read_name(r->p, end, rec->at, &name) != end)
        return false;
    *ret = name;
    return true;
}

bool dns_record_soa(const struct dns_reader *r, const struct dns_record *rec, struct dns_soa *ret)
{
    size_t end = rec->at + rec->data.n;
    struct dns_soa soa;
    if (rec->class != DNS_IN || rec->type != DNS_SOA)
        return false;
    size_t at = read_name(r->p, end, rec->at, &soa.primary);
    if (at)
        at = read_name(r->p, end, at, &soa.mailbox);
    if (at == 0 || end - at != 20)
        return false;
    soa.serial = get32(r->p + at);
    soa.refresh = get32(r->p + at + 4);
    soa.retry = get32(r->p + at + 8);
    soa.expire = get32(r->p + at + 12);
    soa.minimum = get32(r->p + at + 16);
    *ret = soa;
    return true;
}

bool dns_record_edns(const struct dns_record *rec, struct dns_edns *ret)
{
    if (rec->type != DNS_OPT || rec->section != DNS_ADDITIONAL || rec->name.n != 1)
        return false;
    *ret = (struct dns_edns){.udp_size = rec->class,
                             .rcode_high = (uint8_t)(rec->ttl >> 24),
                             .version = (uint8_t)(rec->ttl >> 16),
                             .dnssec_ok = (rec->ttl & 0x8000) != 0,
                             .options = rec->data};
    return true;
}

bool dns_next_option(struct str *rest, uint16_t *ret_code, struct str *ret_data)
{
    if (rest->n < 4)
        return false;
    const uint8_t *p = (const uint8_t *)rest->p;
    size_t len = get16(p + 2);
    if (len > rest->n - 4)
        return false;
    *ret_code = get16(p);
    *ret_data = str_head(str_skip(*rest, 4), len);
    *rest = str_skip(*rest, 4 + len);
    return true;
}

/* ---- writing ---- */

void dns_write(struct dns_writer *w, void *p, size_t room, uint16_t id, uint16_t flags)
{
    assert(room >= DNS_WRITE_MIN && room <= DNS_MESSAGE_MAX);
    *w = (struct dns_writer){.p = p, .room = room, .n = DNS_HEADER_BYTES};
    set16(w->p, id);
    set16(w->p + 2, flags);
}

static void put(struct dns_writer *w, const void *p, size_t n)
{
    if (n > w->room - w->n)
        w->cut = true;
    if (w->cut || n == 0)
        return;
    memcpy(w->p + w->n, p, n);
    w->n += n;
}

static void put16(struct dns_writer *w, uint16_t v)
{
    uint8_t b[2];
    set16(b, v);
    put(w, b, 2);
}

static void put32(struct dns_writer *w, uint32_t v)
{
    put16(w, (uint16_t)(v >> 16));
    put16(w, (uint16_t)v);
}

/* Where the n bytes of name at b stand already, or 0.  Case does not count: an owner that is the
 * question becomes a pointer to the question, spelt as it was asked. */
static size_t find_name(const struct dns_writer *w, const uint8_t *b, size_t n)
{
    struct dns_name name;
    for (unsigned i = 0; i < w->nnames; i++)
        if (read_name(w->p, w->n, w->names[i], &name) && name.n == n &&
            same_without_case(name.b, b, n))
            return w->names[i];
    return 0;
}

static void put_name(struct dns_writer *w, const struct dns_name *name)
{
    size_t at = 0;
    for (; name->b[at] && !w->cut; at += name->b[at] + 1u) {
        size_t there = find_name(w, name->b + at, name->n - at);
        if (there) {
            put16(w, (uint16_t)(POINTER << 8 | there));
            return;
        }
        if (w->nnames < DNS_NAMES_KEPT && w->n < POINTER_REACH)
            w->names[w->nnames++] = (uint16_t)w->n;
        put(w, name->b + at, name->b[at] + 1u);
    }
    put(w, "", 1);
}

/* To which what does not fit is rolled back. */
struct mark {
    size_t n;
    unsigned nnames;
};

static struct mark mark_of(const struct dns_writer *w)
{
    return (struct mark){w->n, w->nnames};
}

static void roll_back(struct dns_writer *w, struct mark to)
{
    w->n = to.n;
    w->nnames = to.nnames;
}

void dns_write_question(struct dns_writer *w, const struct dns_question *q)
{
    assert(w->section == DNS_QUESTION);
    struct mark before = mark_of(w);
    put_name(w, &q->name);
    put16(w, q->type);
    put16(w, q->class);
    if (w->cut)
        roll_back(w, before);
    else
        w->count[DNS_QUESTION]++;
}

enum { OPT_BYTES = 11 };

void dns_write_edns(struct dns_writer *w, const struct dns_edns *edns)
{
    size_t need = OPT_BYTES + edns->options.n;
    assert(!w->has_edns && need <= w->room - w->n);
    w->room -= need;
    w->has_edns = true;
    w->edns = *edns;
}

/* Writes a record up to its data.  What comes until record_close() counts as its data. */
static size_t record_open(struct dns_writer *w, enum dns_section section,
                          const struct dns_name *owner, uint16_t type, uint16_t class, uint32_t ttl)
{
    assert(section != DNS_QUESTION && section >= w->section);
    w->section = section;
    put_name(w, owner);
    put16(w, type);
    put16(w, class);
    put32(w, ttl);
    put16(w, 0);
    return w->n;
}

static void record_close(struct dns_writer *w, struct mark before, size_t data)
{
    if (w->cut) {
        roll_back(w, before);
        return;
    }
    set16(w->p + data - 2, (uint16_t)(w->n - data));
    w->count[w->section]++;
}

void dns_write_record(struct dns_writer *w, enum dns_section section, const struct dns_name *owner,
                      uint16_t type, uint16_t class, uint32_t ttl, struct str data)
{
    struct mark before = mark_of(w);
    size_t at = record_open(w, section, owner, type, class, ttl);
    put(w, data.p, data.n);
    record_close(w, before, at);
}

void dns_write_ip(struct dns_writer *w, enum dns_section section, const struct dns_name *owner,
                  uint32_t ttl, const struct ip *ip)
{
    const char *b = (const char *)ip->b;
    if (ip_is_v4(ip))
        dns_write_record(w, section, owner, DNS_A, DNS_IN, ttl, (struct str){b + 12, 4});
    else
        dns_write_record(w, section, owner, DNS_AAAA, DNS_IN, ttl, (struct str){b, 16});
}

void dns_write_target(struct dns_writer *w, enum dns_section section, const struct dns_name *owner,
                      enum dns_type type, uint32_t ttl, const struct dns_name *target)
{
    assert(is_target_type(type));
    struct mark before = mark_of(w);
    size_t at = record_open(w, section, owner, type, DNS_IN, ttl);
    put_name(w, target);
    record_close(w, before, at);
}

void dns_write_soa(struct dns_writer *w, enum dns_section section, const struct dns_name *owner,
                   uint32_t ttl, const struct dns_soa *soa)
{
    struct mark before = mark_of(w);
    size_t at = record_open(w, section, owner, DNS_SOA, DNS_IN, ttl);
    put_name(w, &soa->primary);
    put_name(w, &soa->mailbox);
    put32(w, soa->serial);
    put32(w, soa->refresh);
    put32(w, soa->retry);
    put32(w, soa->expire);
    put32(w, soa->minimum);
    record_close(w, before, at);
}

/* Where names stand in the data of a type that may have compressed ones: after so many bytes and so
 * many texts with their lengths.  What follows them is plain. */
static const struct layout {
    uint16_t type;
    uint8_t before, texts, names;
    bool compressed; /* by us too: only types of RFC 1035 */
} layouts[] = {
    {DNS_NS, 0, 0, 1, true},      {3, 0, 0, 1, true},       {4, 0, 0, 1, true},
    {DNS_CNAME, 0, 0, 1, true},   {DNS_SOA, 0, 0, 2, true}, {7, 0, 0, 1, true},
    {8, 0, 0, 1, true},           {9, 0, 0, 1, true},       {DNS_PTR, 0, 0, 1, true},
    {14, 0, 0, 2, true},          {DNS_MX, 2, 0, 1, true},  {17, 0, 0, 2, false},
    {18, 2, 0, 1, false},         {21, 2, 0, 1, false},     {24, 18, 0, 1, false},
    {26, 2, 0, 2, false},         {30, 0, 0, 1, false},     {33, 6, 0, 1, false},
    {35, 4, 3, 1, false},         {36, 2, 0, 1, false},     {DNS_DNAME, 0, 0, 1, false},
    {DNS_RRSIG, 18, 0, 1, false},
};

static const struct layout *layout_of(uint16_t type)
{
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++)
        if (layouts[i].type == type)
            return &layouts[i];
    return NULL;
}

/* Where the names of the data begin; false: it ends before. */
static bool skip_to_names(const struct layout *l, const struct dns_record *rec, size_t *ret)
{
    size_t at = l->before;
    for (unsigned i = 0; i < l->texts; i++) {
        if (at >= rec->data.n)
            return false;
        at += (uint8_t)rec->data.p[at] + 1u;
    }
    *ret = at;
    return at <= rec->data.n;
}

/* Data with names; false on a fault. */
static bool put_data(struct dns_writer *w, const struct layout *l, const struct dns_reader *r,
                     const struct dns_record *rec)
{
    size_t plain_bytes, end = rec->at + rec->data.n;
    if (!skip_to_names(l, rec, &plain_bytes))
        return false;
    put(w, rec->data.p, plain_bytes);
    size_t at = rec->at + plain_bytes;
    for (unsigned i = 0; i < l->names; i++) {
        struct dns_name name;
        at = read_name(r->p, end, at, &name);
        if (at == 0)
            return false;
        if (l->compressed)
            put_name(w, &name);
        else
            put(w, name.b, name.n);
    }
    put(w, r->p + at, end - at);
    return true;
}

bool dns_write_copy(struct dns_writer *w, enum dns_section section, const struct dns_reader *r,
                    const struct dns_record *rec, uint32_t ttl)
{
    const struct layout *l = layout_of(rec->type);
    struct mark before = mark_of(w);
    size_t at = record_open(w, section, &rec->name, rec->type, rec->class, ttl);
    if (!l) {
        put(w, rec->data.p, rec->data.n);
    } else if (!put_data(w, l, r, rec)) {
        roll_back(w, before);
        return false;
    }
    record_close(w, before, at);
    return true;
}

/* Into the room that dns_write_edns() set aside, so it fits even when records were cut. */
static void put_opt(struct dns_writer *w)
{
    const struct dns_edns *e = &w->edns;
    bool cut = w->cut;
    w->cut = false;
    w->room += OPT_BYTES + e->options.n;
    put(w, "", 1);
    put16(w, DNS_OPT);
    put16(w, e->udp_size);
    put32(w, (uint32_t)e->rcode_high << 24 | (uint32_t)e->version << 16 |
                 (e->dnssec_ok ? 0x8000u : 0u));
    put16(w, (uint16_t)e->options.n);
    put(w, e->options.p, e->options.n);
    assert(!w->cut);
    w->cut = cut;
    w->count[DNS_ADDITIONAL]++;
}

size_t dns_write_end(struct dns_writer *w)
{
    if (w->has_edns)
        put_opt(w);
    for (int i = 0; i < DNS_SECTIONS; i++)
        set16(w->p + 4 + 2 * i, w->count[i]);
    if (w->cut)
        set16(w->p + 2, get16(w->p + 2) | DNS_TC);
    return w->n;
}
