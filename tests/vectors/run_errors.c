/* run_errors.c — errors: a refusal, the request's Accept and id → the whole answer, as the client
 * of either version reads it. */
#include "ingress/faults.h"
#include "ingress/forward.h"
#include "proxy/requestid.h"
#include "proxy/reply.h"
#include "vectors/vectors.h"

static const uint8_t noise[16] = {1, 2, 3};

/* method, Accept lines and X-Request-Id of the row. */
static bool read_request(struct row *r, struct http_head *ret)
{
    const struct json *accept = row_member(r->v, "accept"), *id = row_member(r->v, "request_id"),
                      *method = row_member(r->v, "method");
    struct http_head lines = {0};
    struct http_fault broken;
    lines.fields = arena_get(r->a, ((accept ? json_count(accept) : 0) + 2) * sizeof *lines.fields);
    head_add(&lines, STR("Host"), STR("gw.test"));
    for (const struct json *v = accept ? json_first(accept) : NULL; v; v = json_next(v))
        head_add(&lines, STR("Accept"), row_to_bytes(r, v));
    if (id)
        head_add(&lines, STR("X-Request-Id"), row_to_bytes(r, id));
    struct http_raw raw = {.method = method ? json_string(method) : STR("GET"),
                           .target = STR("/"),
                           .minor = 1,
                           .fields = lines.fields,
                           .nfields = lines.nfields};
    return row_read_request(r, &raw, STR("http"), ret, &broken) == WHY_OK ||
           row_fail(r, "the request is refused: %s", broken.text);
}

/* The row's value, with the id that was made in the place of <generated>. */
static struct str expected_id(struct str text, struct str request_id)
{
    return str_eq(text, STR("<generated>")) ? request_id : text;
}

static bool same_fields(struct row *r, const struct json *expect, const struct http_head *answer,
                        struct str request_id)
{
    const struct json *fields = row_member(expect, "headers");
    for (const struct json *f = fields ? json_first(fields) : NULL; f; f = json_next(f)) {
        const struct str *value = head_get(answer, json_name(f));
        struct str name = json_name(f);
        if (!value)
            return row_fail(r, "field %.*s is missing", STR_ARG(name));
        if (!row_same(r, "field", *value, expected_id(json_string(f), request_id)))
            return false;
    }
    const struct str *type = head_get(answer, STR("Content-Type")),
                     *id = head_get(answer, STR("X-Request-Id"));
    if (!id || !str_eq(*id, request_id))
        return row_fail(r, "X-Request-Id is not the request's");
    return row_same(r, "content_type", type ? *type : STR_NONE, row_text(expect, "content_type"));
}

static bool same_json(struct row *r, const struct json *expect, struct str body,
                      struct str request_id)
{
    struct json_fault fault;
    struct json_doc *doc = json_parse(body, 0, 8, &fault);
    if (!doc)
        return row_fail(r, "the body is no JSON: %s", fault.text);
    const struct json *got = row_member(json_root(doc), "error"),
                      *want = row_member(expect, "error");
    bool good = row_same_int(r, "members", (int64_t)json_count(got), (int64_t)json_count(want)) &&
                row_same(r, "error.code", row_text(got, "code"), row_text(want, "code")) &&
                row_same(r, "error.message", row_text(got, "message"), row_text(want, "message")) &&
                row_same(r, "error.request_id", row_text(got, "request_id"),
                         expected_id(row_text(want, "request_id"), request_id));
    json_free(doc);
    return good;
}

static bool same_body(struct row *r, const struct json *expect, struct str body,
                      struct str request_id)
{
    const struct json *json = row_member(expect, "json"),
                      *contains = row_member(expect, "body_contains");
    if (row_member(expect, "body"))
        return row_same(r, "body", body, row_bytes(r, expect, "body"));
    if (json)
        return same_json(r, json, body, request_id);
    for (const struct json *v = contains ? json_first(contains) : NULL; v; v = json_next(v)) {
        struct str part = row_to_bytes(r, v);
        if (!memmem(body.p, body.n, part.p, part.n))
            return row_fail(r, "the body \"%.*s\" does not hold \"%.*s\"", STR_ARG(body),
                            STR_ARG(part));
    }
    return contains ? true : row_fail(r, "the row expects no body that is known here");
}

bool run_errors(struct row *r)
{
    const struct json *expect = row_member(r->v, "expect"), *args = row_member(r->v, "args");
    struct http_head request, answer;
    struct str body;
    if (!read_request(r, &request))
        return false;
    struct str id = request_id(&request, noise, r->a);
    struct fault fault = {.id = fault_by_name(row_text(r->v, "condition")),
                          .port = (unsigned)row_int(r, args, "port", 0)};
    if (fault.id == FAULTS)
        return row_fail(r, "there is no such condition");
    fault.value =
        row_member(args, "value") ? row_bytes(r, args, "value") : row_bytes(r, args, "id");
    struct reply reply = {
        .status = fault_status(fault.id),
        .brand = STR("OpenSandbox Ingress"),
        .code = fault_code(fault.id),
        .message = fault_message(&fault, r->a),
        .request_id = id,
        .retry = fault_retry(fault.id),
    };
    reply_make(&reply, &request, STR("Tue, 01 Jan 2030 00:00:00 GMT"), r->a, &answer, &body);
    if (!row_answer_arrives(r, &request, &answer) ||
        !row_same_int(r, "status", answer.status, row_int(r, expect, "status", 0)) ||
        !row_same_int(r, "Retry-After", head_get(&answer, STR("Retry-After")) != NULL,
                      row_member(row_member(expect, "headers"), "Retry-After") != NULL) ||
        !row_same_int(r, "length", answer.length, (int64_t)body.n) ||
        !same_fields(r, expect, &answer, id))
        return false;
    if (str_eq(request.method, STR("HEAD")))
        body = STR(""); /* the codec sends none */
    return same_body(r, expect, body, id);
}
