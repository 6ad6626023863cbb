/* run_provider.c — provider_batchsandbox, provider_agent_sandbox: what is in the API server, what a
 * route asks for, and what it gets.  The objects come as a page of a list, and the table is that
 * page. */
#include "ingress/kube/objects.h"
#include "vectors/vectors.h"

enum { OBJECTS_MAX = 8 };

struct store {
    struct row *row;
    enum kube_kind kind;
    struct kube_object at[OBJECTS_MAX];
    unsigned n;
};

static void add_object(void *user, struct str text)
{
    struct store *s = user;
    const char *error;
    struct kube_object *o = &s->at[s->n];
    if (s->n == OBJECTS_MAX || !kube_object_read(text, s->kind, s->row->a, o, &error))
        row_fail(s->row, "an object is not to be read");
    else
        s->n++;
}

/* The objects of the row as they stand in its line. */
static struct str objects_text(struct row *r)
{
    struct json_pick objects = {.name = STR("objects")};
    return json_pick(r->line, &objects, 1) == NULL ? objects.value : STR("[]");
}

static bool read_store(struct row *r, enum kube_kind kind, struct store *s)
{
    struct kube_page page;
    const char *error = "";
    struct str objects = objects_text(r);
    struct str text = arena_printf(
        r->a, "{\"metadata\":{\"resourceVersion\":\"1\"},\"items\":%.*s}", STR_ARG(objects));
    *s = (struct store){.row = r, .kind = kind};
    if (!kube_page_read(text, r->a, add_object, s, &page, &error))
        return row_fail(r, "the page: %s", error);
    return r->trouble.n == 0;
}

/* How many objects have that name; *ret is the last of them. */
static unsigned find(struct store *s, struct str name, const struct kube_object **ret)
{
    unsigned n = 0;
    for (unsigned i = 0; i < s->n; i++) {
        if (!str_eq(s->at[i].name, name))
            continue;
        *ret = &s->at[i];
        n++;
    }
    return n;
}

/* The first name that anybody has. */
static unsigned look_up(struct store *s, struct str id, const struct kube_object **ret)
{
    struct str names[3] = {id};
    unsigned count = s->kind == KUBE_AGENT_SANDBOX ? agent_names(id, s->row->a, names) : 1;
    for (unsigned i = 0; i < count; i++) {
        unsigned n = find(s, names[i], ret);
        if (n > 0)
            return n;
    }
    return 0;
}

/* ---- what is expected ---- */

static bool same_fault(struct row *r, const struct json *expect, const struct fault *f)
{
    struct str message = row_text(expect, "message");
    if (message.n == 0)
        message = row_text(expect, "message_contains");
    return row_same_int(r, "status", fault_status(f->id), row_int(r, expect, "status", 0)) &&
           row_same(r, "code", fault_code(f->id), row_text(expect, "code")) &&
           (message.n == 0 || row_same(r, "message", fault_message(f, r->a), message));
}

static bool contains(struct str s, struct str part)
{
    return part.n == 0 || memmem(s.p, s.n, part.p, part.n) != NULL;
}

static bool same_endpoint(struct row *r, const struct json *expect, const struct sandbox *s)
{
    uint16_t port = (uint16_t)row_int(r, r->v, "port", 0);
    const struct endpoint *e = &s->ends[0];
    bool v6 = str_chr(e->host, ':') >= 0;
    struct str dial =
        arena_printf(r->a, v6 ? "[%.*s]:%u" : "%.*s:%u", STR_ARG(e->host), e->to ? e->to : port);
    return row_same_int(r, "endpoints", s->nends, 1) && row_same_int(r, "port", e->port, 0) &&
           row_same(r, "endpoint", e->host, row_text(expect, "endpoint")) &&
           row_same(r, "token", s->token, row_text(expect, "token")) &&
           row_same(r, "dial", dial, row_text(expect, "dial"));
}

static bool same_found(struct row *r, const struct json *expect, const struct sandbox *s)
{
    if (row_member(expect, "endpoint"))
        return row_same_int(r, "state", s->state, SANDBOX_RUNNING) && same_endpoint(r, expect, s);
    struct str reason = row_text(expect, "reason_contains");
    if (!contains(s->reason, reason))
        return row_fail(r, "reason: got %.*s, expected %.*s", STR_ARG(s->reason), STR_ARG(reason));
    return row_same_int(r, "state", s->state, SANDBOX_NOT_READY) &&
           same_fault(r, expect,
                      &(struct fault){FAULT_SANDBOX_NOT_READY, row_text(r->v, "lookup"), 0});
}

static bool run_lookup(struct row *r, enum kube_kind kind)
{
    struct store store;
    const struct json *expect = row_member(r->v, "expect");
    const struct kube_object *o = NULL;
    struct str id = row_text(r->v, "lookup");
    if (!read_store(r, kind, &store))
        return false;
    unsigned n = look_up(&store, id, &o);
    if (n != 1)
        return same_fault(
            r, expect,
            &(struct fault){n == 0 ? FAULT_SANDBOX_NOT_FOUND : FAULT_SANDBOX_AMBIGUOUS, id, 0});
    return same_found(r, expect, &o->draft);
}

static bool run_names(struct row *r)
{
    const struct json *expect = row_member(r->v, "expect");
    struct str id = row_text(r->v, "lookup"), names[3];
    unsigned n = agent_names(id, r->a, names), i = 0;
    const struct json *candidates = row_member(expect, "candidates");
    if (!row_same(r, "dns1035", agent_dns1035(id, r->a), row_text(expect, "dns1035")) ||
        !row_same_int(r, "candidates", n, (int64_t)json_count(candidates)))
        return false;
    for (const struct json *v = json_first(candidates); v; v = json_next(v), i++)
        if (!row_same(r, "candidate", names[i], json_string(v)))
            return false;
    return true;
}

bool run_provider_batchsandbox(struct row *r)
{
    return run_lookup(r, KUBE_BATCHSANDBOX);
}

bool run_provider_agent_sandbox(struct row *r)
{
    return row_is(r->v, "kind", "names") ? run_names(r) : run_lookup(r, KUBE_AGENT_SANDBOX);
}
