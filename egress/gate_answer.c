/* gate_answer.c — what comes back from a host whose TLS we read or whose requests carry
 * credentials: its heads, trailers and bodies lose the secrets of the vault and the hints that
 * would lead the client around us (contract egress-vault 14).  All of it by the snapshot of the
 * request. */
#include "egress/gate_impl.h"
#include "egress/state/view.h"
#include "egress/vault/scrub.h"
#include "net/worker.h"

static struct redaction *redaction_of(const struct facts *f, const struct errand *e)
{
    return e->credential.own ? e->credential.own : vault_redaction(view_of(f->snap)->vault);
}

/* ---- fields */

static void take_out(struct http_head *h, const struct str *names, size_t n)
{
    unsigned kept = 0;
    for (unsigned i = 0; i < h->nfields; i++) {
        bool out = false;
        for (size_t k = 0; k < n; k++)
            out |= str_ieq(h->fields[i].name, names[k]);
        if (!out)
            h->fields[kept++] = h->fields[i];
    }
    h->nfields = kept;
}

static void drop_hints(struct http_head *h)
{
    static const struct str names[] = {{"alt-svc", 7}};
    take_out(h, names, sizeof names / sizeof *names);
}

/* They are of the bytes as the origin coded them. */
static void drop_sums(struct http_head *h)
{
    static const struct str names[] = {{"content-length", 14},
                                       {"content-md5", 11},
                                       {"digest", 6},
                                       {"content-digest", 14},
                                       {"repr-digest", 11}};
    take_out(h, names, sizeof names / sizeof *names);
    h->length = -1;
}

static struct http_head *clean(const struct facts *f, const struct errand *e,
                               const struct http_head *head, struct arena *a)
{
    struct http_head *h = head_copy(head, 0, a);
    drop_hints(h);
    if (e->credential.bound)
        redact_fields(redaction_of(f, e), h->fields, h->nfields, a);
    return h;
}

/* ---- bodies */

static bool is_scrubbed(const struct facts *f, const struct errand *e, const struct http_head *head,
                        bool end)
{
    if (end || head->status < 200 || head->protocol.n > 0 || !e->credential.bound)
        return false;
    struct redaction *r = redaction_of(f, e);
    return gate_sidecar(f)->set->scrub_bodies && r && redaction_body(r);
}

static enum why scrub(const struct facts *f, struct errand *e, struct http_head *h,
                      struct filter **ret)
{
    enum coding coding = coding_read(h->fields, h->nfields);
    if (coding == CODING_UNKNOWN)
        return WHY_VAULT;
    *ret = scrub_new(redaction_of(f, e), coding, worker_pool(gate_sidecar(f)->w),
                     &e->credential.masked);
    if (!*ret)
        return WHY_OVERLOAD;
    if (coding != CODING_NONE)
        drop_sums(h);
    return WHY_OK;
}

/* ---- the gate's */

enum why gate_answered(const struct facts *f, const struct verdict *v, const struct http_head *head,
                       bool end, struct arena *a, struct answer *ret)
{
    struct errand *e = errand_of(v);
    ret->head = head;
    ret->filter = NULL;
    if (!e->read && !e->credential.bound)
        return WHY_OK;
    struct http_head *h = clean(f, e, head, a);
    ret->head = h;
    return is_scrubbed(f, e, head, end) ? scrub(f, e, h, &ret->filter) : WHY_OK;
}

const struct http_head *gate_trailers(const struct facts *f, const struct verdict *v,
                                      const struct http_head *trailers, bool request,
                                      struct arena *a)
{
    const struct errand *e = errand_of(v);
    if (!request)
        return e->read || e->credential.bound ? clean(f, e, trailers, a) : trailers;
    if (!e->credential.armed)
        return trailers;
    struct http_head *h = head_copy(trailers, 0, a);
    inject_trailers(e->credential.armed, h->fields, &h->nfields);
    return h;
}
