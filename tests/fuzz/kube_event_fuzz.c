/* kube_event_fuzz.c — any bytes as a line of a watch, as a page of a list, as an object: a whole
 * record of a sandbox with a name, or a fault. */
#include <assert.h>
#include <stdlib.h>

#include "base/text.h"
#include "ingress/kube/objects.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_record(const struct kube_object *o)
{
    const struct sandbox *s = &o->draft;
    bool runs = s->state == SANDBOX_RUNNING;
    assert(o->name.n > 0 && o->name.n <= 253 && text_utf8(o->name) && str_eq(s->id, o->name));
    assert(text_utf8(o->ns) && text_utf8(o->uid) && text_utf8(o->version) && text_utf8(s->token));
    assert(runs || s->state == SANDBOX_NOT_READY);
    assert(s->nends == runs && s->reason.n <= 256 && (s->reason.n == 0) == runs);
    assert(text_utf8(s->reason));
    for (size_t i = 0; runs && i < o->end.host.n; i++)
        assert(o->end.host.p[i] > ' ' && o->end.host.p[i] < 127);
    struct sandbox *made = sandbox_new(s);
    if (runs)
        assert(sandbox_endpoint(made, 80)->host.n > 0);
    sandbox_unref(made);
}

static void check_object(struct str text, enum kube_kind kind)
{
    struct arena a;
    struct kube_object o;
    const char *error = NULL;
    arena_init(&a, NULL, 0);
    if (kube_object_read(text, kind, &a, &o, &error))
        check_record(&o);
    else
        assert(error && *error);
    arena_done(&a);
}

static void check_both(void *user, struct str object)
{
    (*(unsigned *)user)++;
    assert(object.n > 0);
    check_object(object, KUBE_BATCHSANDBOX);
    check_object(object, KUBE_AGENT_SANDBOX);
}

static void check_event(struct str text)
{
    struct arena a;
    struct kube_event e;
    const char *error = NULL;
    unsigned n = 0;
    arena_init(&a, NULL, 0);
    if (kube_event_read(text, &a, &e, &error)) {
        assert(e.object.n >= 2 && e.object.p >= text.p &&
               e.object.p + e.object.n <= text.p + text.n);
        assert((e.version.n > 0) == (e.type == KUBE_BOOKMARK) && text_utf8(e.message));
        assert(e.code == 0 || (e.type == KUBE_ERROR && e.code >= 100 && e.code <= 999));
        check_both(&n, e.object);
    } else {
        assert(error && *error);
    }
    arena_done(&a);
}

static void check_page(struct str text)
{
    struct arena a;
    struct kube_page page;
    const char *error = NULL;
    unsigned n = 0;
    arena_init(&a, NULL, 0);
    bool good = kube_page_read(text, &a, check_both, &n, &page, &error);
    assert(good || (n == 0 && error && *error));
    assert(!good || (text_utf8(page.version) && text_utf8(page.more)));
    arena_done(&a);
}

static void check_names(struct str id)
{
    struct arena a;
    struct str names[3];
    arena_init(&a, NULL, 0);
    unsigned n = agent_names(id, &a, names);
    assert(n >= 1 && n <= 3 && names[0].n > 0 && names[0].n <= 63);
    assert(names[0].p[0] >= 'a' && names[0].p[0] <= 'z' && names[0].p[names[0].n - 1] != '-');
    for (unsigned i = 1; i < n; i++)
        assert(!str_eq(names[i], names[i - 1]) && !str_eq(names[i], names[0]));
    assert(str_eq(agent_dns1035(names[0], &a), names[0]));
    arena_done(&a);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct str text = {(const char *)data, size};
    unsigned n = 0;
    check_event(text);
    check_page(text);
    if (size > 0)
        check_both(&n, text);
    check_names(text);
    return 0;
}
