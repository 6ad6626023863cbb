/* scope_fuzz.c — any text as a route scope token: one that is taken is the one that its parts make,
 * to the byte. */
#include <assert.h>
#include <stdint.h>

#include "base/text.h"
#include "policies/scope.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct str token = {(const char *)data, size}, again = STR_NONE;
    struct keyring *k = NULL;
    struct scope s;
    struct arena a;
    char error[200];
    bool ring = keyring_parse(STR("k=c2hhcmVkLXNlY3JldA=="), &k, NULL, error, sizeof error);
    assert(ring);
    arena_init(&a, NULL, 0);
    assert(scope_verify(token, NULL, &a, &s) == SCOPE_NO_VERIFIER);
    if (scope_verify(token, k, &a, &s) == SCOPE_OK) {
        assert(s.ns.n > 0 && s.id.n > 0 && s.port > 0);
        assert(text_utf8(s.ns) && text_utf8(s.id));
        bool made = scope_mint(&s, 'k', k, &a, &again);
        assert(made && str_eq(again, token));
    }
    arena_done(&a);
    keyring_free(k);
    return 0;
}
