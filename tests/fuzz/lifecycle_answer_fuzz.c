/* lifecycle_answer_fuzz.c — any bytes as an answer of the lifecycle server: what is taken can be
 * dialled and sent, and a code is safe to log. */
#include <assert.h>
#include <stdint.h>

#include "base/text.h"
#include "ingress/lifecycle_answer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void expect_endpoint(const struct endpoint *e, const struct endpoint_url *u)
{
    assert(e->host.n > 0 && e->to > 0 && e->url == u && !e->tls);
    assert(u->path.n == 0 || (u->path.p[0] == '/' && u->path.p[u->path.n - 1] != '/'));
    assert(str_chr(u->path, '?') < 0 && str_chr(u->path, '#') < 0 && u->query.n == 0);
    for (unsigned i = 0; i < u->nadd; i++) {
        assert(text_is_token(u->add[i].name));
        for (size_t k = 0; k < u->add[i].name.n; k++)
            assert(u->add[i].name.p[k] == ascii_lower(u->add[i].name.p[k]));
        assert(str_chr(u->add[i].value, '\n') < 0 && str_chr(u->add[i].value, '\r') < 0);
        assert(!str_eq(u->add[i].name, STR("host")));
        assert(!str_eq(u->add[i].name, STR("content-length")));
        assert(!str_eq(u->add[i].name, STR("opensandbox-egress-auth")));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct str s = {(const char *)data, size}, target;
    struct lifecycle_state state;
    struct lifecycle_endpoint e;
    struct endpoint end;
    struct endpoint_url url;
    struct arena a;
    const char *fault = NULL;
    arena_init(&a, NULL, 0);
    if (lifecycle_read_state(s, STR("sb1"), &a, &state, &fault))
        assert(state.name.n > 0 && state.name.n <= 64 && state.state <= SANDBOX_TERMINATED);
    else
        assert(fault);
    fault = NULL;
    if (!lifecycle_read_endpoint(s, &a, &e, &fault))
        assert(fault);
    else if (!e.gateway)
        expect_endpoint(&e.end, &e.url);
    if (lifecycle_read_address(s, &a, &end, &url))
        expect_endpoint(&end, &url);
    assert(lifecycle_read_code(s, &a).n <= 64);
    if (lifecycle_target(s, &a, &target))
        for (size_t i = strlen("/v1/sandboxes/"); i < target.n; i++)
            assert(target.p[i] > ' ' && target.p[i] < 127 && target.p[i] != '/');
    arena_done(&a);
    return 0;
}
