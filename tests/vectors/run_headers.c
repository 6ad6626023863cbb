/* run_headers.c — headers and upgrade: a head that comes in → the head that goes on.  The rows list
 * framing and hop-by-hop fields as lines of the other side; here they are typed members, so they
 * are put back into lines before comparing. */
#include <stdlib.h>

#include "base/text.h"
#include "ingress/forward.h"
#include "proxy/requestid.h"
#include "vectors/vectors.h"

static const uint8_t noise[16] = {0xab, 0xcd};

/* ---- comparing lists of fields ---- */

static int by_name(const void *a, const void *b)
{
    const struct field *x = *(const struct field *const *)a, *y = *(const struct field *const *)b;
    size_t n = x->name.n < y->name.n ? x->name.n : y->name.n;
    for (size_t i = 0; i < n; i++)
        if (ascii_lower(x->name.p[i]) != ascii_lower(y->name.p[i]))
            return ascii_lower(x->name.p[i]) - ascii_lower(y->name.p[i]);
    if (x->name.n != y->name.n)
        return x->name.n < y->name.n ? -1 : 1;
    return x < y ? -1 : x > y; /* lines of one name keep their order */
}

static const struct field **sorted(struct row *r, const struct field *fields, unsigned n)
{
    const struct field **list = arena_get(r->a, (n + 1) * sizeof *list);
    for (unsigned i = 0; i < n; i++)
        list[i] = &fields[i];
    qsort(list, n, sizeof *list, by_name);
    return list;
}

static struct str shown(struct row *r, const struct field *fields, unsigned n)
{
    struct str text = STR("");
    for (unsigned i = 0; i < n; i++)
        text = arena_printf(r->a, "%.*s%s%.*s: %.*s", STR_ARG(text), i ? " | " : "",
                            STR_ARG(fields[i].name), STR_ARG(fields[i].value));
    return text;
}

static bool same_value(struct str got, struct str expected, struct str generated)
{
    return str_eq(got, str_eq(expected, STR("<generated>")) ? generated : expected);
}

static bool same_fields(struct row *r, const struct http_head *h, struct str generated)
{
    unsigned n;
    struct field *want = row_fields(r, row_member(r->v, "expect"), 0, &n);
    const struct field **a = sorted(r, h->fields, h->nfields), **b = sorted(r, want, n);
    bool same = n == h->nfields;
    for (unsigned i = 0; i < n && same; i++)
        same = str_ieq(a[i]->name, b[i]->name) && same_value(a[i]->value, b[i]->value, generated);
    if (same)
        return true;
    struct str x = shown(r, h->fields, h->nfields), y = shown(r, want, n);
    return row_fail(r, "got %.*s\n    expected %.*s", STR_ARG(x), STR_ARG(y));
}

/* ---- typed members as lines ---- */

static void put_back(struct row *r, struct http_head *h, bool request)
{
    char digits[20];
    if (request)
        head_add(h, STR("Host"), h->authority);
    if (h->protocol.n) {
        head_add(h, STR("Connection"), STR("Upgrade"));
        head_add(h, STR("Upgrade"), h->protocol);
    }
    if (h->te_trailers)
        head_add(h, STR("TE"), STR("trailers"));
    if (h->length >= 0)
        head_add(h, STR("Content-Length"),
                 arena_str(r->a, (struct str){digits, text_put_u64(digits, (uint64_t)h->length)}));
}

static bool run_request(struct row *r)
{
    const struct json *method = row_member(r->v, "method"),
                      *authority = row_member(r->v, "authority");
    bool tls = row_is(r->v, "scheme", "https");
    struct http_raw raw = {.method = method ? json_string(method) : STR("GET"), .minor = 1};
    struct http_head head;
    struct http_fault broken;
    struct str bad;
    struct forward_rules rules = {.preserve_host = row_is(r->v, "backend_host", "preserve")};
    struct forward_facts facts = {
        .local_port = (uint16_t)row_int(r, r->v, "local_port", 0),
        .tls = tls,
        .target = row_text(r->v, "target"),
        .path = STR("/forwarded"),
        .prefix = row_bytes(r, r->v, "prefix"),
        .credential = row_text(r->v, "credential"),
    };
    raw.target = authority ? arena_cat(r->a, STR("http://"),
                                       arena_cat(r->a, row_to_bytes(r, authority), STR("/")))
                           : STR("/");
    raw.fields = row_fields(r, row_member(r->v, "headers"), 0, &raw.nfields);
    if (row_read_request(r, &raw, tls ? STR("https") : STR("http"), &head, &broken) != WHY_OK)
        return row_fail(r, "the request is refused: %s", broken.text);
    if (!cidr_set_parse(row_joined(r, row_member(r->v, "trusted_proxies")), r->a, &rules.trusted,
                        &bad) ||
        !ip_parse(row_text(r->v, "peer"), &facts.peer))
        return row_fail(r, "an address of the row is not to be read");
    facts.request_id = request_id(&head, noise, r->a);
    struct http_head *sent = head_copy(forward_request(&rules, &facts, &head, r->a), 5, r->a);
    put_back(r, sent, true);
    return row_same(r, "path", sent->path, facts.path) && same_fields(r, sent, facts.request_id);
}

static bool run_response(struct row *r)
{
    struct http_raw raw = {.status = (int)row_int(r, r->v, "status", 0), .minor = 1};
    struct http_head request = {.method = STR("GET"),
                                .protocol = raw.status == 101 ? STR("websocket") : STR("")},
                     head;
    raw.fields = row_fields(r, row_member(r->v, "headers"), 0, &raw.nfields);
    if (row_read_response(r, &raw, &request, &head) != WHY_OK)
        return row_fail(r, "the answer is refused");
    struct http_head *sent = head_copy(forward_response(&head, row_text(r->v, "request_id"),
                                                        STR("Wed, 02 Jan 2030 00:00:00 GMT"), r->a),
                                       5, r->a);
    put_back(r, sent, false);
    return row_same_int(r, "status", sent->status, raw.status) && same_fields(r, sent, STR(""));
}

bool run_headers(struct row *r)
{
    return row_is(r->v, "kind", "response") ? run_response(r) : run_request(r);
}

/* ---- upgrade ---- */

static bool h1_protocol(struct row *r, struct str *ret)
{
    struct http_raw raw = {.method = row_text(r->v, "method"), .target = STR("/"), .minor = 1};
    struct http_head head;
    struct http_fault broken;
    raw.fields = row_fields(r, row_member(r->v, "headers"), 1, &raw.nfields);
    raw.fields[0] = (struct field){STR("Host"), STR("gw.test")};
    if (row_read_request(r, &raw, STR("http"), &head, &broken) != WHY_OK)
        return row_fail(r, "the request is refused: %s", broken.text);
    *ret = head.protocol;
    return true;
}

/* An extended CONNECT for what nobody serves is 501 (contract 9.1). */
static bool h2_protocol(struct row *r, struct str *ret)
{
    struct http_head head;
    struct http_fault broken;
    bool refused = row_extended_connect(r, &head, &broken) != WHY_OK;
    *ret = refused ? STR("") : head.protocol;
    if (refused)
        return row_same_int(r, "status", broken.status, 501);
    return row_same(r, "method", head.method, STR("GET"));
}

bool run_upgrade(struct row *r)
{
    struct str protocol = STR("");
    if (!(row_is(r->v, "kind", "h2") ? h2_protocol(r, &protocol) : h1_protocol(r, &protocol)))
        return false;
    struct str word = protocol.n == 0                      ? STR("none")
                      : str_eq(protocol, STR("websocket")) ? protocol
                                                           : STR("other");
    return row_same(r, "upgrade", word, row_text(r->v, "expect"));
}
