/* run_access.c — signature, access_matrix (with its failure limit), keyring. */
#include "base/secret.h"
#include "base/text.h"
#include "policies/access.h"
#include "policies/limits.h"
#include "vectors/run_request.h"

static struct str hex_of(struct row *r, struct str bytes)
{
    char *out = arena_get(r->a, 2 * bytes.n);
    text_put_hex(out, bytes.p, bytes.n);
    return (struct str){out, 2 * bytes.n};
}

/* {"a": "BASE64", …} as the text of the flag; the caller frees the ring. */
static struct keyring *keys_of(struct row *r)
{
    struct keyring *k = NULL;
    struct str text = STR("");
    char error[200] = "";
    const struct json *keys = row_member(r->v, "keys");
    for (const struct json *key = keys ? json_first(keys) : NULL; key; key = json_next(key))
        text = arena_printf(r->a, "%.*s,%.*s=%.*s", STR_ARG(text), STR_ARG(json_name(key)),
                            STR_ARG(json_string(key)));
    if (!keyring_parse(text, &k, NULL, error, sizeof error))
        row_fail(r, "keys: %s", error);
    return k;
}

/* Decimal text of up to 64 bits; what a clock cannot show is its end. */
static int64_t clock_of(struct str text)
{
    uint64_t v;
    if (text.n && text.p[0] == '-')
        return text_u64(str_skip(text, 1), INT64_MAX, &v) ? -(int64_t)v : 0;
    return text_u64(text, INT64_MAX, &v) ? (int64_t)v : INT64_MAX;
}

/* ---- signature ---- */

static bool run_sign(struct row *r, const struct json *expect)
{
    struct str base64 = row_text(r->v, "secret_b64"), id = row_text(r->v, "sandbox_id"),
               key_id = row_text(r->v, "key_id");
    uint16_t port = (uint16_t)row_int(r, r->v, "port", 0);
    uint8_t *key = arena_get(r->a, base64.n), inner[32];
    char exp[13], signature[9];
    size_t key_n = 0;
    uint64_t seconds = 0;
    if (!text_base64(base64, key, &key_n) || !text_u64(row_text(r->v, "exp"), UINT64_MAX, &seconds))
        return row_fail(r, "the row's key or expiry is not to be read");
    struct str secret = {(char *)key, key_n}, exp36 = {exp, text_put_base36(exp, seconds)};
    struct str canonical = signature_canonical(id, port, exp36, r->a);
    signature_inner(secret, canonical, inner);
    signature_make(secret, key_id.p[0], id, port, exp36, signature);
    return row_same(r, "exp36", exp36, row_text(expect, "exp36")) &&
           row_same(r, "canonical_hex", hex_of(r, canonical), row_text(expect, "canonical_hex")) &&
           row_same(r, "inner_sha256", hex_of(r, (struct str){(char *)inner, 32}),
                    row_text(expect, "inner_sha256")) &&
           row_same(r, "signature", (struct str){signature, 9}, row_text(expect, "signature"));
}

static bool run_verify(struct row *r, const struct json *expect)
{
    static const char *const words[] = {
        [SIGNATURE_OK] = "ok",
        [SIGNATURE_EXPIRED] = "expired",
        [SIGNATURE_KEY_UNKNOWN] = "key_unknown",
        [SIGNATURE_MISMATCH] = "mismatch",
        [SIGNATURE_FORMAT] = "format",
    };
    struct keyring *keys = keys_of(r);
    struct signed_route route = {
        .id = row_text(r->v, "sandbox_id"),
        .exp36 = row_text(r->v, "exp36"),
        .signature = row_text(r->v, "signature"),
        .port = (uint16_t)row_int(r, r->v, "port", 0),
    };
    enum signature_verdict verdict =
        signature_verify(keys, &route, clock_of(row_text(r->v, "now")));
    keyring_free(keys);
    return row_same(r, "verdict", str_of(words[verdict]), row_text(expect, "verdict"));
}

static bool run_form(struct row *r, const struct json *expect)
{
    struct str input = row_text(r->v, "input");
    uint64_t value = 0;
    uint16_t port = 0;
    bool valid;
    if (row_is(r->v, "kind", "exp36")) {
        valid = signature_is_exp36(input);
        text_base36(input, &value);
    } else if (row_is(r->v, "kind", "port")) {
        valid = signature_port(input, row_bool(r->v, "lenient_ports"), &port);
    } else {
        valid = signature_is_signature(input);
    }
    if (!row_same_int(r, "valid", valid, row_bool(expect, "valid")) || !valid)
        return valid == row_bool(expect, "valid");
    if (row_is(r->v, "kind", "port"))
        return row_same_int(r, "value", port, row_int(r, expect, "value", -1));
    char digits[20];
    return !row_is(r->v, "kind", "exp36") ||
           row_same(r, "value", (struct str){digits, text_put_u64(digits, value)},
                    row_text(expect, "value"));
}

bool run_signature(struct row *r)
{
    const struct json *expect = row_member(r->v, "expect");
    if (row_is(r->v, "kind", "sign"))
        return run_sign(r, expect);
    return row_is(r->v, "kind", "verify") ? run_verify(r, expect) : run_form(r, expect);
}

/* ---- access matrix ---- */

static const enum fault_id access_faults[] = {
    [ACCESS_TOKEN_MISMATCH] = FAULT_ACCESS_TOKEN_MISMATCH,
    [ACCESS_REQUIRED] = FAULT_SIGNATURE_REQUIRED,
    [ACCESS_NO_VERIFIER] = FAULT_VERIFIER_MISSING,
    [ACCESS_EXPIRED] = FAULT_SIGNATURE_EXPIRED,
    [ACCESS_KEY_UNKNOWN] = FAULT_SIGNATURE_KEY_UNKNOWN,
    [ACCESS_MISMATCH] = FAULT_SIGNATURE_MISMATCH,
    [ACCESS_TOO_MANY] = FAULT_SIGNATURE_FAILURES,
};

/* Order of contract 6.1: route, sandbox, reading of signed paths, access. */
static bool judge(struct row *r, const struct http_head *head, const struct route *route,
                  const struct keyring *keys)
{
    static const char *const by[] = {
        [ACCESS_OPEN] = "open", [ACCESS_TOKEN] = "token", [ACCESS_SIGNATURE] = "signature"};
    const struct json *expect = row_member(r->v, "expect"), *sandbox = row_member(r->v, "sandbox");
    struct str token = signature_trim(row_text(sandbox, "token"));
    bool signed_reading = route->by && token.n > 0;
    if (!row_same(r, "sandbox", route->id, row_bytes(r, sandbox, "id")))
        return false;
    if (signed_reading && route->by->climbs)
        return row_same_fault(r, &(struct fault){.id = FAULT_PATH_ESCAPES});
    struct signed_route signed_route = {.id = route->id, .port = route->port};
    if (route->by) {
        signed_route.exp36 = route->by->exp36;
        signed_route.signature = route->by->signature;
    }
    enum access access =
        access_check(token, head_get(head, STR("OpenSandbox-Secure-Access")),
                     route->by ? &signed_route : NULL, keys, false, row_int(r, r->v, "now", 0));
    if (!access_allows(access))
        return row_same_fault(r, &(struct fault){.id = access_faults[access]});
    if (!row_bool(expect, "allow"))
        return row_fail(r, "allowed by %s, expected a refusal", by[access]);
    return row_same(r, "by", str_of(by[access]), row_text(expect, "by")) &&
           row_same(r, "forward", signed_reading ? route->by->forward : route->forward,
                    row_bytes(r, expect, "forward"));
}

/* One request of the kind `limit`: its status. */
static int judge_event(struct failures *failures, struct str sandbox, struct str kind,
                       uint64_t now_s, int64_t limit)
{
    static const struct {
        const char *kind;
        enum access access;
    } kinds[] = {
        {"valid", ACCESS_SIGNATURE},
        {"token", ACCESS_TOKEN},
        {"mismatch", ACCESS_MISMATCH},
        {"key_unknown", ACCESS_KEY_UNKNOWN},
    };
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        enum access access = kinds[i].access;
        if (!str_eq(kind, str_of(kinds[i].kind)))
            continue;
        if (access != ACCESS_TOKEN && limit > 0 &&
            failures_recent(failures, sandbox, now_s) >= limit)
            access = ACCESS_TOO_MANY;
        if (access_counts(access))
            failures_add(failures, sandbox, now_s);
        return access_allows(access) ? 200 : fault_status(access_faults[access]);
    }
    return 0;
}

static bool run_limit(struct row *r)
{
    const struct json *expect = json_first(row_member(r->v, "expect"));
    struct failures *failures = failures_new(64);
    bool good = true;
    for (const struct json *e = json_first(row_member(r->v, "events")); e && good;
         e = json_next(e), expect = json_next(expect)) {
        int64_t status = 0;
        int got = judge_event(failures, row_text(e, "sandbox"), row_text(e, "kind"),
                              (uint64_t)row_int(r, e, "t", 0), row_int(r, r->v, "limit", 0));
        json_int(r->doc, expect, &status);
        good = row_same_int(r, "status of an event", got, status);
    }
    failures_free(failures);
    return good;
}

bool run_access_matrix(struct row *r)
{
    struct http_head head;
    struct http_fault broken;
    struct route route;
    struct fault fault;
    if (row_is(r->v, "kind", "limit"))
        return run_limit(r);
    struct route_rules rules = row_route_rules(r);
    if (row_request(r, &head, &broken) != WHY_OK)
        return row_fail(r, "the request is refused: %s", broken.text);
    if (!route_parse(&rules, &head, r->a, &route, &fault))
        return row_same_fault(r, &fault);
    struct keyring *keys = keys_of(r);
    bool good = judge(r, &head, &route, keys);
    keyring_free(keys);
    return good;
}

/* ---- key ring ---- */

static bool same_keys(struct row *r, const struct json *expect, const struct keyring *k,
                      const char *warn)
{
    const struct json *keys = row_member(expect, "keys");
    unsigned n = 0;
    for (const char *id = "0123456789abcdefghijklmnopqrstuvwxyz"; *id; id++)
        n += keyring_has(k, *id);
    for (const struct json *key = keys ? json_first(keys) : NULL; key; key = json_next(key))
        if (!row_same(r, "key", hex_of(r, keyring_key(k, json_name(key).p[0])), json_string(key)))
            return false;
    return row_same_int(r, "keys", n, keys ? (int64_t)json_count(keys) : 0) &&
           row_same(r, "warn", str_of(warn), row_joined(r, row_member(expect, "warn")));
}

bool run_keyring(struct row *r)
{
    const struct json *expect = row_member(r->v, "expect");
    struct keyring *k = NULL;
    char error[200] = "", warn[40];
    bool taken = keyring_parse(row_text(r->v, "value"), &k, warn, error, sizeof error);
    bool off = taken && !k, good;
    if (row_member(expect, "error") || !taken)
        good = row_same_int(r, "taken", taken, row_member(expect, "error") == NULL);
    else if (off || row_bool(expect, "off"))
        good = row_same_int(r, "off", off, row_bool(expect, "off"));
    else
        good = same_keys(r, expect, k, warn);
    keyring_free(k);
    return good;
}
