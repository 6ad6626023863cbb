/* gate_credential.c — a request to a bound host: which binding is its own, what that puts in, and
 * whether the peer may have it (contract egress-vault 8.2 steps 4 and 5, 9 to 12).
 *
 * Judged by the snapshot of the request alone, before anything is dialled.  Wherever something does
 * not fit together the request is refused rather than sent without its credential (E13). */
#include "egress/gate_impl.h"
#include "egress/state/view.h"
#include "net/worker.h"

#define UNAVAILABLE "credential proxy unavailable"

/* What is put together for requests lies in the memory of secrets until they are over: so many
 * bytes for all of them, the vault's own among it. */
enum { SECRETS_MOST = 128 << 20 };

static const struct vault *vault_of(const struct facts *f)
{
    return view_of(f->snap)->vault;
}

static bool is_tls(const struct errand *e)
{
    return e->c.kind == IDENTITY_TLS;
}

/* ---- refusals: their texts are the contract's (13) */

static void refuse(struct errand *e, struct verdict *v, int status, const char *text,
                   enum credential_decision decision, struct arena *a)
{
    e->credential.decision = decision;
    e->credential.cause = text;
    v->hold = 0;
    gate_answer(v, status, WHY_VAULT, arena_printf(a, "%s\n", text));
}

void credential_denied(struct errand *e, enum identity fault)
{
    bool policy = fault == IDENTITY_DENIED || fault == IDENTITY_FILTERED || fault == IDENTITY_LOST;
    e->credential.decision = policy ? CREDENTIAL_DENIED : CREDENTIAL_MISMATCH;
    e->credential.cause = identity_text(fault).p;
}

/* ---- which */

void credential_look(const struct facts *f, struct errand *e)
{
    struct host host = e->host;
    struct judge j;
    if (e->c.sni.p && !host_read(e->c.sni, &host))
        return;
    judge_init(&j, f->snap, gate_sidecar(f), f->now_ms);
    enum bound bound = judge_bound(&j, &e->c, &host);
    e->credential.bound = bound == BOUND_HELD;
    e->credential.lost = bound == BOUND_LOST;
}

/* A secret leaves in clear only where the address is the host's (8.2 step 5); of TLS gate_peer()
 * sees the certificate. */
static bool is_endpoint(const struct facts *f, const struct errand *e)
{
    struct judge j;
    if (is_tls(e))
        return true;
    judge_init(&j, f->snap, gate_sidecar(f), f->now_ms);
    return identity_peer(&j.rules, &e->c, &e->host, STR_NONE, true) == IDENTITY_OK;
}

/* ---- what goes in */

static size_t body_max(const struct facts *f)
{
    return (size_t)gate_sidecar(f)->set->body_max;
}

static bool refuses_oversize(const struct facts *f)
{
    return gate_sidecar(f)->set->body_oversize == EGRESS_OVERSIZE_REFUSE;
}

static void refuse_body(struct errand *e, struct verdict *v, struct arena *a)
{
    e->credential.skipped = true;
    refuse(e, v, 413, "request body cannot be searched for placeholders", CREDENTIAL_DENIED, a);
}

/* Of a body that its head says cannot be looked into it has to be known only that there is one. */
static size_t hold_of(const struct facts *f, const struct errand *e, const struct http_head *h)
{
    if (!e->credential.armed->buffers || h->protocol.n > 0)
        return 0;
    bool reads = inject_reads_body(h->fields, h->nfields) && body_max(f) > 0;
    return reads ? body_max(f) : 1;
}

static void redact_made(const struct facts *f, struct errand *e, const struct injected *in)
{
    size_t min = (size_t)gate_sidecar(f)->set->scrub_body_min;
    if (in->nmade > 0)
        e->credential.own = redaction_with(vault_redaction(vault_of(f)), in->made, in->nmade, min);
}

static void refuse_injected(struct errand *e, struct verdict *v, enum inject_fault fault,
                            struct arena *a)
{
    if (fault == INJECT_LONG)
        refuse(e, v, 431, "request head is too long with its placeholders filled in",
               CREDENTIAL_DENIED, a);
    else
        refuse(e, v, 403, "request path contains ambiguous substituted segments", CREDENTIAL_DENIED,
               a);
}

static void inject(const struct facts *f, struct errand *e, struct arena *a, struct verdict *v)
{
    struct errand_credential *c = &e->credential;
    struct http_head *h = head_copy(v->head, 0, a);
    struct inject_request q = {.fields = h->fields,
                               .nfields = h->nfields,
                               .target = h->path,
                               .scrubs = gate_sidecar(f)->set->scrub_bodies};
    struct injected in;
    enum inject_fault fault = inject_head(c->armed, &q, a, &c->bag, &in);
    if (fault != INJECT_OK) {
        refuse_injected(e, v, fault, a);
        return;
    }
    h->fields = in.fields;
    h->nfields = in.nfields;
    h->path = in.target;
    c->sets = in.sets;
    c->hits = in.hits;
    v->head = h;
    redact_made(f, e, &in);
    v->hold = hold_of(f, e, h);
}

/* Fields that a binding sets take no memory of their own. */
static bool is_crowded(const struct errand *e)
{
    return e->credential.binding->nsubstitutions > 0 && secret_held() > SECRETS_MOST;
}

static void arm_request(const struct facts *f, struct errand *e, struct arena *a, struct verdict *v)
{
    struct errand_credential *c = &e->credential;
    if (!is_endpoint(f, e)) {
        refuse(e, v, 421, identity_text(IDENTITY_ENDPOINT).p, CREDENTIAL_MISMATCH, a);
        return;
    }
    c->armed = vault_armed(vault_of(f), c->binding);
    if (!c->armed || is_crowded(e)) {
        refuse(e, v, 503, UNAVAILABLE, CREDENTIAL_DENIED, a);
        return;
    }
    inject(f, e, a, v);
}

/* What the origin sends must be readable for us, whoever asked for it. */
static void narrow(const struct facts *f, struct arena *a, struct verdict *v)
{
    if (!gate_sidecar(f)->set->scrub_bodies)
        return;
    struct http_head *h = head_copy(v->head, 1, a);
    inject_accept_coding(h->fields, &h->nfields, a);
    v->head = h;
}

void credential_apply(const struct facts *f, struct errand *e, struct arena *a, struct verdict *v)
{
    struct errand_credential *c = &e->credential;
    struct binding_request q = {.tls = is_tls(e),
                                .port = e->c.port,
                                .method = f->head->method,
                                .host = host_name(&e->host),
                                .target = f->head->path};
    if (!c->bound)
        return;
    switch (bindings_choose(vault_bindings(vault_of(f)), &q, &c->binding)) {
    case BINDING_NONE:
        c->binding = NULL;
        narrow(f, a, v);
        return;
    case BINDING_ONE:
        arm_request(f, e, a, v);
        return;
    case BINDING_UNSAFE:
        refuse(e, v, 403, "request path contains ambiguous segments", CREDENTIAL_DENIED, a);
        return;
    default:
        refuse(e, v, 403, "credential binding ambiguous", CREDENTIAL_AMBIGUOUS, a);
    }
}

/* ---- who gets it */

enum why gate_peer(const struct facts *f, const struct verdict *v, const struct conn_info *origin)
{
    struct errand *e = errand_of(v);
    struct judge j;
    if (e->question != ERRAND_REQUEST)
        return WHY_OK;
    judge_init(&j, f->snap, gate_sidecar(f), f->now_ms);
    struct str verified = is_tls(e) && origin->tls ? origin->verified : STR_NONE;
    bool credential = e->credential.armed != NULL;
    enum identity fault = identity_peer(&j.rules, &e->c, &e->host, verified, credential);
    e->credential.sent |= fault == IDENTITY_OK;
    if (fault != IDENTITY_OK && errand_takes_part(e))
        credential_denied(e, fault);
    return identity_why(fault);
}

/* ---- bodies */

static struct str flat(const struct buf *b, struct arena *a)
{
    char *p = arena_get(a, b->len);
    buf_peek(b, p, b->len);
    return (struct str){p, b->len};
}

static void replace(struct verdict *v, struct buf *body, struct str text, struct arena *a)
{
    struct http_head *h = head_copy(v->head, 0, a);
    h->length = (int64_t)text.n;
    v->head = h;
    buf_clear(body);
    buf_str(body, text);
}

void gate_held(const struct facts *f, struct verdict *v, struct buf *body, bool whole,
               struct arena *a)
{
    struct errand *e = errand_of(v);
    struct errand_credential *c = &e->credential;
    const struct http_head *h = v->head;
    struct str text = STR("");
    enum body_look look = BODY_PASSED;
    if (whole && body->len == 0)
        return;
    if (!c->armed || is_crowded(e)) {
        refuse(e, v, 503, UNAVAILABLE, CREDENTIAL_DENIED, a);
        return;
    }
    if (whole && body->len <= body_max(f) && inject_reads_body(h->fields, h->nfields))
        look = inject_body(c->armed, h->fields, h->nfields, flat(body, a), &c->bag, &text);
    if (look == BODY_CHANGED) {
        c->hits |= SURFACE_BODY;
        replace(v, body, text, a);
    } else if (look == BODY_PASSED && refuses_oversize(f)) {
        refuse_body(e, v, a);
    } else if (look == BODY_PASSED) {
        c->skipped = true;
    }
}

/* ---- the end */

/* The pattern that it matched by. */
static struct str pattern_of(const struct binding *b, struct str target)
{
    ptrdiff_t query = str_chr(target, '?');
    struct str path = query < 0 ? target : str_head(target, (size_t)query);
    for (unsigned i = 0; i < b->paths.n; i++)
        if (binding_path_matches(b->paths.at[i], path))
            return b->paths.at[i];
    return STR("");
}

static void tell(struct worker *w, const struct facts *f, const struct errand *e, int status)
{
    const struct errand_credential *c = &e->credential;
    const struct sidecar *s = gate_sidecar(f);
    struct event_credential event = {.decision = c->decision,
                                     .cause = c->cause,
                                     .host = e->asked,
                                     .method = f->head->method,
                                     .request_id = f->request_id,
                                     .revision = vault_revision(vault_of(f)),
                                     .skipped = c->skipped,
                                     .masked = c->masked,
                                     .status = status,
                                     .took_ms = worker_now(w) - e->began_ms};
    if (c->binding) {
        event.binding = c->binding->name;
        event.pattern = pattern_of(c->binding, f->head->path);
    }
    if (c->decision == CREDENTIAL_INJECTED) {
        event.headers = c->binding->headers;
        event.nheaders = c->binding->nheaders;
        event.surfaces = c->hits;
    }
    event.missed = c->armed && c->binding->nsubstitutions > 0 && c->hits == 0;
    if (s->events)
        events_credential(s->events, &event);
}

/* What never left was not injected, whatever had been put in. */
static void conclude(struct errand_credential *c, enum why why)
{
    if (c->decision != CREDENTIAL_NO_MATCH || !c->armed || (c->sets == 0 && c->hits == 0))
        return;
    c->decision = c->sent          ? CREDENTIAL_INJECTED
                  : why == WHY_TLS ? CREDENTIAL_MISMATCH
                                   : CREDENTIAL_DENIED;
    if (!c->sent)
        c->cause = why_text(why);
}

void credential_over(struct worker *w, const struct facts *f, struct errand *e, enum why why,
                     int status)
{
    struct errand_credential *c = &e->credential;
    conclude(c, why);
    if (errand_takes_part(e))
        tell(w, f, e, status);
    redaction_unref(c->own);
    c->own = NULL;
    secret_bag_done(&c->bag);
}
