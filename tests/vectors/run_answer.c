/* run_answer.c — those rows of redact that the gate decides: is the host bound, are bodies looked
 * into, which hints go.  The gate answers over a real view with a real vault. */
#include "egress/gate.h"
#include "egress/gate_impl.h"
#include "egress/state/view.h"
#include "vectors/row_vault.h"
#include "vectors/run_redact.h"

struct answering {
    struct row *r;
    struct egress_settings set;
    struct sidecar s;
    struct snapshot *snap;
    struct errand errand;
    struct facts f;
    struct verdict v;
};

/* ---- the vault */

static void put_credential(struct json_out *o, const struct json *v)
{
    json_open(o, '{');
    json_key(o, "name");
    json_put_str(o, json_name(v));
    json_key(o, "source");
    json_open(o, '{');
    json_key(o, "value");
    json_put_str(o, json_string(v));
    json_close(o, '}');
    json_close(o, '}');
}

static void put_binding(struct row *r, struct json_out *o, const struct json *auth)
{
    json_put_raw(o, STR("{\"name\":\"b\",\"match\":{\"hosts\":[\"api.example.com\"]},\"auth\":"));
    o->comma = false;
    row_put(o, r, auth);
    json_close(o, '}');
}

/* Rows of the gate have one binding. */
static struct vault *vault_of(struct row *r)
{
    const struct json *given = row_member(r->v, "vault");
    struct json_out o;
    json_out_init(&o);
    json_open(&o, '{');
    json_key(&o, "credentials");
    json_open(&o, '[');
    for (const struct json *v = json_first(row_member(given, "credentials")); v; v = json_next(v))
        put_credential(&o, v);
    json_close(&o, ']');
    json_key(&o, "bindings");
    json_open(&o, '[');
    put_binding(r, &o, json_first(row_member(given, "auth")));
    json_close(&o, ']');
    json_close(&o, '}');
    return row_vault(r, &o);
}

static bool begin(struct answering *x)
{
    struct always_lists always = {NULL, NULL, NULL};
    struct document user = {.rules = NULL};
    const struct json *bound = row_member(x->r->v, "bound"),
                      *intercepted = row_member(x->r->v, "intercepted"),
                      *switches = row_member(x->r->v, "settings");
    struct vault *vault = vault_of(x->r);
    if (!vault || !row_document(x->r, NULL, &user)) {
        vault_unref(vault);
        return false;
    }
    struct egress_view *policy = view_new(&user, &always, 1),
                       *view = view_with_vault(policy, vault);
    x->set = (struct egress_settings){.scrub_bodies = !switches, .scrub_body_min = 6};
    x->s = (struct sidecar){.set = &x->set};
    x->snap = view_snapshot(&x->set.core, view);
    x->errand.credential.bound = !bound || json_bool(bound);
    x->errand.read = !intercepted || json_bool(intercepted);
    x->v.note = &x->errand;
    x->f = (struct facts){.snap = x->snap, .tables = &x->s};
    document_done(&user);
    view_unref(view);
    view_unref(policy);
    vault_unref(vault);
    return true;
}

/* ---- the answer */

/* No filter: it comes as it was sent. */
static struct str sent(struct row *r, const struct json *given)
{
    const struct json *b64 = row_member(given, "chunks_b64");
    struct str text = STR("");
    for (const struct json *v = json_first(b64 ? b64 : row_member(given, "chunks")); v;
         v = json_next(v))
        text = arena_cat(r->a, text, b64 ? redact_from_base64(r, json_string(v)) : json_string(v));
    return text;
}

static bool compare(struct answering *x, const struct answer *answer, bool has_body)
{
    struct row *r = x->r;
    const struct json *expected = row_member(r->v, "expect");
    unsigned n;
    struct field *want = redact_fields_of(r, row_member(expected, "headers"), &n);
    if (!row_same(r, "headers",
                  redact_joined(r, answer->head->fields, answer->head->nfields, false),
                  redact_joined(r, want, n, false)))
        return false;
    return row_same_int(r, "filtered", answer->filter != NULL, 0) &&
           (!has_body || row_same(r, "body", sent(r, row_member(r->v, "response")),
                                  redact_from_base64(r, row_text(expected, "body_b64"))));
}

bool run_answer(struct row *r)
{
    struct answering x = {.r = r};
    const struct json *given = row_member(r->v, "response");
    struct http_head head = {.status = (int)row_int(r, given, "status", 0), .length = -1};
    bool has_body = row_member(given, "chunks") || row_member(given, "chunks_b64");
    struct answer answer;
    if (!begin(&x))
        return false;
    head.fields = redact_fields_of(r, row_member(given, "headers"), &head.nfields);
    enum why why = egress_gate.answer(&x.f, &x.v, &head, !has_body, r->a, &answer);
    bool good = row_same_int(r, "why", why, WHY_OK) && compare(&x, &answer, has_body);
    if (why == WHY_OK && answer.filter)
        answer.filter->ops->free(answer.filter);
    snapshot_unref(x.snap);
    return good;
}
