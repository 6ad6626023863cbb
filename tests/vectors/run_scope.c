/* run_scope.c — route_scope: tokens that are made, and tokens that are looked at. */
#include "base/text.h"
#include "ingress/faults.h"
#include "policies/scope.h"
#include "vectors/vectors.h"

/* {"a": "BASE64", …} as the text of the flag; the caller frees the ring. */
static struct keyring *ring_of(struct row *r, struct str text)
{
    struct keyring *k = NULL;
    char error[200] = "";
    if (!keyring_parse(text, &k, NULL, error, sizeof error))
        row_fail(r, "keys: %s", error);
    return k;
}

static struct str keys_text(struct row *r)
{
    struct str text = STR("");
    const struct json *keys = row_member(r->v, "keys");
    for (const struct json *key = keys ? json_first(keys) : NULL; key; key = json_next(key))
        text = arena_printf(r->a, "%.*s,%.*s=%.*s", STR_ARG(text), STR_ARG(json_name(key)),
                            STR_ARG(json_string(key)));
    return text;
}

static bool run_mint(struct row *r, const struct json *expect)
{
    struct str key_id = row_text(r->v, "key_id"), token = STR_NONE,
               base64 = row_text(r->v, "secret_b64");
    struct scope s = {row_text(r->v, "namespace"), row_text(r->v, "sandbox_id"),
                      (uint16_t)row_int(r, r->v, "port", 0)};
    struct keyring *k =
        ring_of(r, arena_printf(r->a, "%.*s=%.*s", STR_ARG(key_id), STR_ARG(base64)));
    bool made = scope_mint(&s, key_id.p[0], k, r->a, &token);
    keyring_free(k);
    if (!made)
        return row_fail(r, "no token was made");
    return row_same(r, "token", token, row_text(expect, "token"));
}

static bool expect_fault(struct row *r, const struct json *expect, enum scope_verdict verdict)
{
    static const enum fault_id faults[] = {[SCOPE_NO_VERIFIER] = FAULT_SCOPE_NO_VERIFIER,
                                           [SCOPE_MALFORMED] = FAULT_SCOPE_MALFORMED,
                                           [SCOPE_BAD_NAMESPACE] = FAULT_SCOPE_NAMESPACE,
                                           [SCOPE_BAD_ID] = FAULT_SCOPE_ID,
                                           [SCOPE_BAD_PORT] = FAULT_SCOPE_PORT,
                                           [SCOPE_BAD_KEY_ID] = FAULT_SCOPE_KEY_ID,
                                           [SCOPE_BAD_MAC_FORM] = FAULT_SCOPE_MAC_FORM,
                                           [SCOPE_KEY_UNKNOWN] = FAULT_SCOPE_KEY_UNKNOWN,
                                           [SCOPE_MAC_MISMATCH] = FAULT_SCOPE_MAC};
    struct fault fault = {.id = faults[verdict]};
    return row_same_int(r, "status", fault_status(fault.id), row_int(r, expect, "status", 0)) &&
           row_same(r, "code", fault_code(fault.id), row_text(expect, "code")) &&
           row_same(r, "message", fault_message(&fault, r->a), row_text(expect, "message"));
}

static bool run_look(struct row *r, const struct json *expect)
{
    struct scope s;
    struct keyring *k = ring_of(r, keys_text(r));
    enum scope_verdict verdict = scope_verify(row_bytes(r, r->v, "token"), k, r->a, &s);
    keyring_free(k);
    if (row_member(expect, "status"))
        return verdict == SCOPE_OK ? row_fail(r, "the token was taken")
                                   : expect_fault(r, expect, verdict);
    if (verdict != SCOPE_OK)
        return row_fail(r, "verdict %d", (int)verdict);
    return row_same(r, "namespace", s.ns, row_text(expect, "namespace")) &&
           row_same(r, "sandbox_id", s.id, row_text(expect, "sandbox_id")) &&
           row_same_int(r, "port", s.port, row_int(r, expect, "port", 0));
}

bool run_route_scope(struct row *r)
{
    const struct json *expect = row_member(r->v, "expect");
    return row_is(r->v, "kind", "mint") ? run_mint(r, expect) : run_look(r, expect);
}
