/* routes_file.c — the JSON of --routes, read as strictly as a configuration deserves: what is not
 * understood is a fault of the whole file, named by its place, and never half a list.  Each object
 * is first matched against a table of its members, so that their order in the file does not matter.
 */
#include "ingress/routes_file.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/ip.h"
#include "base/text.h"
#include "policies/signature.h"

enum { DEPTH = 8, ID_BYTES = 256, NAME_BYTES = 253, LABEL_BYTES = 63, SHOWN_BYTES = 40 };

struct reader {
    struct json_doc *doc;
    struct json_fault *fault;
    struct str id;        /* of the sandbox being read; empty before the first */
    struct arena scratch; /* of that sandbox, until its record is made */
};

/* ---- faults ---- */

/* Part of a name for a message of one line: cut, and without control bytes. */
static const char *shown(struct str s, char out[SHOWN_BYTES + 4])
{
    size_t n = s.n <= SHOWN_BYTES ? s.n : SHOWN_BYTES;
    while (n > 0 && n < s.n && ((uint8_t)s.p[n] & 0xc0) == 0x80)
        n--; /* no half characters */
    for (size_t i = 0; i < n; i++)
        out[i] = (uint8_t)s.p[i] < 0x20 || s.p[i] == 0x7f ? '?' : s.p[i];
    snprintf(out + n, 4, "%s", n < s.n ? "..." : "");
    return out;
}

/* Always false, so that a reader can end with it. */
__attribute__((format(printf, 3, 4))) static bool fault(struct reader *r, const struct json *at,
                                                        const char *format, ...)
{
    char text[160], id[SHOWN_BYTES + 4];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (r->id.n)
        json_fault_at(r->doc, at, r->fault, "sandbox \"%s\": %s", shown(r->id, id), text);
    else
        json_fault_at(r->doc, at, r->fault, "%s", text);
    return false;
}

/* ---- members ---- */

struct member {
    const char *name;
    enum json_type type;
};

enum { FILE_SANDBOXES, FILE_MEMBERS };
static const struct member file_members[FILE_MEMBERS] = {
    [FILE_SANDBOXES] = {"sandboxes", JSON_OBJECT},
};

enum { S_ADDRESS, S_STATE, S_TOKEN, S_EXPIRES, S_PORTS, S_MEMBERS };
static const struct member sandbox_members[S_MEMBERS] = {
    [S_ADDRESS] = {"address", JSON_STRING},
    [S_STATE] = {"state", JSON_STRING},
    [S_TOKEN] = {"secureAccessToken", JSON_STRING},
    [S_EXPIRES] = {"expiresAt", JSON_STRING},
    [S_PORTS] = {"ports", JSON_OBJECT},
};

enum { P_ADDRESS, P_PROTOCOL, P_MEMBERS };
static const struct member port_members[P_MEMBERS] = {
    [P_ADDRESS] = {"address", JSON_STRING},
    [P_PROTOCOL] = {"protocol", JSON_STRING},
};

static unsigned find_member(const struct member *rows, unsigned n, struct str name)
{
    unsigned i = 0;
    while (i < n && !str_eq(str_of(rows[i].name), name))
        i++;
    return i;
}

/* Puts the members of an object into `ret`, by row; NULL stays where there is none. */
static bool take_members(struct reader *r, const struct json *object, const struct member *rows,
                         unsigned n, const struct json **ret)
{
    for (const struct json *v = json_first(object); v; v = json_next(v)) {
        char name[SHOWN_BYTES + 4];
        unsigned i = find_member(rows, n, json_name(v));
        if (i == n)
            return fault(r, v, "unknown member \"%s\"", shown(json_name(v), name));
        if (json_type(v) != rows[i].type)
            return fault(r, v, "\"%s\" must be of type %s, not %s", rows[i].name,
                         json_type_name(rows[i].type), json_type_name(json_type(v)));
        ret[i] = v;
    }
    return true;
}

/* ---- addresses ---- */

static bool is_label(struct str s)
{
    if (s.n == 0 || s.n > LABEL_BYTES || s.p[0] == '-' || s.p[s.n - 1] == '-')
        return false;
    for (size_t i = 0; i < s.n; i++) {
        char c = ascii_lower(s.p[i]);
        if (!((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_'))
            return false;
    }
    return true;
}

/* "256", "0x7f": as last label the mark of an address that somebody meant and nobody should guess.
 */
static bool is_numeric(struct str label)
{
    bool hex = str_istarts(label, STR("0x"));
    for (size_t i = hex ? 2 : 0; i < label.n; i++)
        if (hex ? text_hex(label.p[i]) < 0 : label.p[i] < '0' || label.p[i] > '9')
            return false;
    return true;
}

static bool is_host_name(struct str s)
{
    if (s.n && s.p[s.n - 1] == '.')
        s.n--;
    if (s.n == 0 || s.n > NAME_BYTES)
        return false;
    struct str label = STR_NONE;
    while (str_next(&s, '.', &label))
        if (!is_label(label))
            return false;
    return !is_numeric(label);
}

static struct str canonical_ip(const struct ip *ip, struct arena *a)
{
    char text[IP_TEXT_BYTES];
    return arena_str(a, (struct str){text, ip_text(ip, text)});
}

/* An IP address or a name; must_bracket: an IPv6 address only in brackets, since a port follows. */
static bool read_host(struct str s, bool must_bracket, struct arena *a, struct str *ret)
{
    bool brackets = s.n > 2 && s.p[0] == '[' && s.p[s.n - 1] == ']';
    bool colons = str_chr(s, ':') >= 0;
    struct ip ip;
    if (brackets ? !colons : colons && must_bracket)
        return false;
    if (ip_parse(brackets ? (struct str){s.p + 1, s.n - 2} : s, &ip)) {
        *ret = canonical_ip(&ip, a);
        return true;
    }
    if (!is_host_name(s))
        return false;
    *ret = s;
    return true;
}

static bool read_host_port(struct str s, struct arena *a, struct endpoint *ret)
{
    ptrdiff_t colon = str_rchr(s, ':');
    return colon > 0 && signature_port(str_skip(s, (size_t)colon + 1), false, &ret->to) &&
           read_host(str_head(s, (size_t)colon), true, a, &ret->host);
}

/* ---- ports ---- */

static bool read_protocol(struct reader *r, const struct json *v, enum wire *ret)
{
    static const struct {
        struct str text;
        enum wire wire;
    } wires[] = {{{"auto", 4}, WIRE_AUTO}, {{"h1", 2}, WIRE_H1}, {{"h2c", 3}, WIRE_H2C}};
    for (size_t i = 0; i < sizeof wires / sizeof wires[0]; i++)
        if (str_eq(json_string(v), wires[i].text)) {
            *ret = wires[i].wire;
            return true;
        }
    return fault(r, v, "\"protocol\" must be auto, h1 or h2c");
}

static bool read_port(struct reader *r, const struct json *v, struct str host, struct endpoint *ret)
{
    const struct json *m[P_MEMBERS] = {NULL};
    char name[SHOWN_BYTES + 4];
    *ret = (struct endpoint){.host = host, .wire = WIRE_DEFAULT};
    if (!signature_port(json_name(v), false, &ret->port))
        return fault(r, v, "\"%s\" is no port: 1 to 65535, digits without leading zero",
                     shown(json_name(v), name));
    if (json_type(v) != JSON_OBJECT)
        return fault(r, v, "port %u must be of type object, not %s", ret->port,
                     json_type_name(json_type(v)));
    if (!take_members(r, v, port_members, P_MEMBERS, m))
        return false;
    if (m[P_ADDRESS] && !read_host_port(json_string(m[P_ADDRESS]), &r->scratch, ret))
        return fault(r, m[P_ADDRESS], "\"address\" of a port must be host:port, IPv6 in brackets");
    return !m[P_PROTOCOL] || read_protocol(r, m[P_PROTOCOL], &ret->wire);
}

static int by_port(const void *a, const void *b)
{
    const struct endpoint *x = a, *y = b;
    return (x->port > y->port) - (x->port < y->port);
}

/* All that are named, by port, then the one for all others. */
static bool read_ports(struct reader *r, const struct json *ports, struct str host,
                       struct sandbox *s)
{
    size_t n = ports ? json_count(ports) : 0;
    struct endpoint *ends = arena_get(&r->scratch, (n + 1) * sizeof *ends);
    const struct json *v = ports ? json_first(ports) : NULL;
    for (size_t i = 0; i < n; i++, v = json_next(v))
        if (!read_port(r, v, host, &ends[i]))
            return false;
    qsort(ends, n, sizeof *ends, by_port);
    ends[n] = (struct endpoint){.host = host, .wire = WIRE_DEFAULT};
    s->ends = ends;
    s->nends = (unsigned)n + 1;
    return true;
}

/* ---- sandboxes ---- */

static const struct {
    const char *text;
    enum sandbox_state state;
} states[] = {
    {"Running", SANDBOX_RUNNING},       {"Pausing", SANDBOX_RUNNING},
    {"Stopping", SANDBOX_RUNNING},      {"Pending", SANDBOX_NOT_READY},
    {"Allocated", SANDBOX_NOT_READY},   {"Paused", SANDBOX_NOT_READY},
    {"Resuming", SANDBOX_NOT_READY},    {"Failed", SANDBOX_NOT_READY},
    {"Terminated", SANDBOX_TERMINATED},
};

static bool read_state(struct reader *r, const struct json *v, struct sandbox *s)
{
    s->state = SANDBOX_RUNNING;
    if (!v)
        return true;
    size_t i = 0, n = sizeof states / sizeof states[0];
    while (i < n && !str_eq(str_of(states[i].text), json_string(v)))
        i++;
    if (i == n)
        return fault(r, v,
                     "\"state\" must be Pending, Allocated, Running, Pausing, Paused, Resuming, "
                     "Stopping, Failed or "
                     "Terminated");
    s->state = states[i].state;
    if (s->state == SANDBOX_NOT_READY)
        s->reason = str_of(states[i].text);
    return true;
}

/* White space of Unicode, as UTF-8: what a token is trimmed of (contract 4.1). */
static const char *const spaces[] = {
    "\t",           "\n",           "\v",           "\f",           "\r",           " ",
    "\xc2\x85",     "\xc2\xa0",     "\xe1\x9a\x80", "\xe2\x80\x80", "\xe2\x80\x81", "\xe2\x80\x82",
    "\xe2\x80\x83", "\xe2\x80\x84", "\xe2\x80\x85", "\xe2\x80\x86", "\xe2\x80\x87", "\xe2\x80\x88",
    "\xe2\x80\x89", "\xe2\x80\x8a", "\xe2\x80\xa8", "\xe2\x80\xa9", "\xe2\x80\xaf", "\xe2\x81\x9f",
    "\xe3\x80\x80",
};

/* Bytes of white space at the front or at the end; 0: none. */
static size_t space_at(struct str s, bool end)
{
    for (size_t i = 0; i < sizeof spaces / sizeof spaces[0]; i++) {
        size_t n = strlen(spaces[i]);
        if (n <= s.n && memcmp(end ? s.p + s.n - n : s.p, spaces[i], n) == 0)
            return n;
    }
    return 0;
}

static struct str trim_spaces(struct str s)
{
    for (size_t n; (n = space_at(s, false)) > 0;)
        s = str_skip(s, n);
    for (size_t n; (n = space_at(s, true)) > 0;)
        s.n -= n;
    return s;
}

/* Of the years 0 and 9999: an offset may lead out of them, four digits do not. */
static const int64_t FIRST_SECOND = -62167219200, LAST_SECOND = 253402300799;

static int64_t within_years(int64_t s)
{
    return s < FIRST_SECOND ? FIRST_SECOND : s > LAST_SECOND ? LAST_SECOND : s;
}

static bool read_expiry(struct reader *r, const struct json *v, struct sandbox *s)
{
    uint32_t ns;
    s->until_unix_s = INT64_MAX;
    if (v && !text_rfc3339(json_string(v), &s->until_unix_s, &ns))
        return fault(r, v, "\"expiresAt\" must be a time as in RFC 3339, 2026-01-31T12:00:00Z");
    if (v)
        s->until_unix_s = within_years(s->until_unix_s);
    return true;
}

static bool read_members(struct reader *r, const struct json *v, struct sandbox *s)
{
    const struct json *m[S_MEMBERS] = {NULL};
    struct str host;
    if (json_type(v) != JSON_OBJECT)
        return fault(r, v, "must be of type object, not %s", json_type_name(json_type(v)));
    if (!take_members(r, v, sandbox_members, S_MEMBERS, m))
        return false;
    if (!m[S_ADDRESS])
        return fault(r, v, "\"address\" is missing");
    if (!read_host(json_string(m[S_ADDRESS]), false, &r->scratch, &host))
        return fault(r, m[S_ADDRESS],
                     "\"address\" must be an IP address or a host name, without port");
    if (m[S_TOKEN])
        s->token = trim_spaces(json_string(m[S_TOKEN]));
    return read_state(r, m[S_STATE], s) && read_expiry(r, m[S_EXPIRES], s) &&
           read_ports(r, m[S_PORTS], host, s);
}

bool routes_is_id(struct str s)
{
    if (s.n == 0 || s.n > ID_BYTES)
        return false;
    for (size_t i = 0; i < s.n; i++)
        if ((uint8_t)s.p[i] < 0x20 || s.p[i] == 0x7f)
            return false;
    return text_utf8(s);
}

static struct sandbox *read_sandbox(struct reader *r, struct str id, const struct json *v)
{
    char first[1024];
    struct sandbox s = {.id = id};
    r->id = STR_NONE;
    if (!routes_is_id(s.id)) {
        fault(r, v, "a sandbox id must be 1 to %d bytes without control characters", ID_BYTES);
        return NULL;
    }
    r->id = s.id;
    arena_init(&r->scratch, first, sizeof first);
    struct sandbox *made = read_members(r, v, &s) ? sandbox_new(&s) : NULL;
    arena_done(&r->scratch);
    return made;
}

static int by_id(const void *a, const void *b)
{
    const struct sandbox *const *x = a, *const *y = b;
    return str_cmp((*x)->id, (*y)->id);
}

static bool read_list(struct reader *r, struct routes_list *l)
{
    const struct json *root = json_root(r->doc), *m[FILE_MEMBERS] = {NULL};
    if (json_type(root) != JSON_OBJECT)
        return fault(r, root, "must be of type object, not %s", json_type_name(json_type(root)));
    if (!take_members(r, root, file_members, FILE_MEMBERS, m))
        return false;
    if (!m[FILE_SANDBOXES])
        return fault(r, root, "\"sandboxes\" is missing");
    size_t n = json_count(m[FILE_SANDBOXES]);
    l->items = mem_new(n * sizeof *l->items);
    for (const struct json *v = json_first(m[FILE_SANDBOXES]); v; v = json_next(v)) {
        struct sandbox *s = read_sandbox(r, json_name(v), v);
        if (!s)
            return false;
        assert(l->n < n);
        l->items[l->n++] = s;
    }
    qsort(l->items, l->n, sizeof *l->items, by_id);
    return true;
}

bool routes_parse(struct str text, struct routes_list *ret, struct json_fault *ret_fault)
{
    struct routes_list l = {NULL, 0};
    struct reader r = {.doc = json_parse(text, 0, DEPTH, ret_fault), .fault = ret_fault};
    if (!r.doc)
        return false;
    bool good = read_list(&r, &l);
    json_free(r.doc);
    if (good)
        *ret = l;
    else
        routes_list_free(&l);
    return good;
}

struct sandbox *routes_parse_entry(struct str id, struct str text, struct json_fault *ret_fault)
{
    struct reader r = {.doc = json_parse(text, 0, DEPTH, ret_fault), .fault = ret_fault};
    if (!r.doc)
        return NULL;
    struct sandbox *s = read_sandbox(&r, id, json_root(r.doc));
    json_free(r.doc);
    return s;
}

size_t routes_list_find(const struct routes_list *l, struct str id, bool *ret_there)
{
    size_t from = 0, to = l->n;
    while (from < to) {
        size_t middle = from + (to - from) / 2;
        if (str_cmp(l->items[middle]->id, id) < 0)
            from = middle + 1;
        else
            to = middle;
    }
    *ret_there = from < l->n && str_eq(l->items[from]->id, id);
    return from;
}

void routes_list_free(struct routes_list *l)
{
    for (size_t i = 0; i < l->n; i++)
        sandbox_unref(l->items[i]);
    mem_free(l->items);
    *l = (struct routes_list){NULL, 0};
}
