/* row_h2.c — the same rows over HTTP/2: what a row says in the words of HTTP/1 is put into header
 * lists and read by h2head.c, and what we answer goes through a list and back.  Rows that HTTP/2
 * has no words for say so by fits. */
#include "http/h2head.h"
#include "vectors/vectors.h"

/* Connection-specific fields, and te as far as our rows have it. */
static bool is_link(struct str name)
{
    static const struct str names[] = {STR("connection"), STR("keep-alive"),
                                       STR("upgrade"),    STR("proxy-connection"),
                                       STR("te"),         STR("transfer-encoding")};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (str_ieq(name, names[i]))
            return true;
    return false;
}

bool row_fits_h2(struct row *r)
{
    const struct json *list = row_member(r->v, "headers");
    unsigned cookies = 0;
    for (const struct json *pair = list ? json_first(list) : NULL; pair; pair = json_next(pair)) {
        struct str name = json_string(json_first(pair));
        if (is_link(name))
            return false;
        cookies += str_ieq(name, STR("cookie"));
    }
    return cookies < 2 /* crumbs, which are joined */ && !row_member(r->v, "authority") &&
           row_int(r, r->v, "status", 0) != 101;
}

bool row_request_fits_h2(struct row *r)
{
    struct str target = row_text(r->v, "target");
    bool path = target.n > 0 && (target.p[0] == '/' || str_eq(target, STR("*")));
    return row_member(r->v, "host") && path && row_fits_h2(r);
}

static void put(struct h2_list *list, struct str name, struct str value)
{
    list->fields[list->nfields++] = (struct field){name, value};
}

static struct str lower(struct row *r, struct str name)
{
    char *to = arena_get(r->a, name.n + 1);
    for (size_t i = 0; i < name.n; i++)
        to[i] = ascii_lower(name.p[i]);
    return (struct str){to, name.n};
}

static void put_fields(struct row *r, struct h2_list *list, const struct http_raw *raw)
{
    for (unsigned i = 0; i < raw->nfields; i++)
        put(list, lower(r, raw->fields[i].name), raw->fields[i].value);
}

static void begin(struct row *r, struct h2_list *list, const struct http_raw *raw)
{
    list->fields = arena_get(r->a, (raw->nfields + 4) * sizeof *list->fields);
    list->nfields = 0;
}

enum why row_read_request(struct row *r, const struct http_raw *raw, struct str scheme,
                          struct http_head *ret_head, struct http_fault *ret_fault)
{
    struct framing framing;
    struct h2_list list;
    if (!r->h2)
        return rules_request(raw, scheme, ret_head, &framing, ret_fault);
    begin(r, &list, raw);
    put(&list, STR(":method"), raw->method);
    put(&list, STR(":scheme"), scheme);
    put(&list, STR(":path"), raw->target);
    put_fields(r, &list, raw); /* Host among them */
    return h2head_request(&list, true, scheme, r->a, ret_head, ret_fault);
}

enum why row_read_response(struct row *r, const struct http_raw *raw,
                           const struct http_head *request, struct http_head *ret_head)
{
    struct framing framing;
    struct h2_list list;
    if (!r->h2)
        return rules_response(raw, request, ret_head, &framing);
    begin(r, &list, raw);
    put(&list, STR(":status"), arena_printf(r->a, "%d", raw->status));
    put_fields(r, &list, raw);
    return h2head_response(&list, request, ret_head);
}

bool row_answer_arrives(struct row *r, const struct http_head *request, struct http_head *answer)
{
    struct h2_list list;
    struct http_head head;
    if (!r->h2)
        return true;
    h2head_write_response(answer, request, false, r->a, &list);
    if (h2head_response(&list, request, &head) != WHY_OK)
        return row_fail(r, "the answer is malformed HTTP/2");
    *answer = head;
    return true;
}

enum why row_extended_connect(struct row *r, struct http_head *ret_head,
                              struct http_fault *ret_fault)
{
    const struct json *protocol = row_member(r->v, "protocol");
    struct http_raw raw = {0};
    struct h2_list list;
    raw.fields = row_fields(r, row_member(r->v, "headers"), 0, &raw.nfields);
    list.fields = arena_get(r->a, (raw.nfields + 5) * sizeof *list.fields);
    list.nfields = 0;
    put(&list, STR(":method"), row_text(r->v, "method"));
    if (protocol)
        put(&list, STR(":protocol"), row_to_bytes(r, protocol));
    put(&list, STR(":scheme"), STR("https"));
    put(&list, STR(":authority"), STR("gw.test"));
    put(&list, STR(":path"), STR("/"));
    put_fields(r, &list, &raw);
    return h2head_request(&list, false, STR("https"), r->a, ret_head, ret_fault);
}
