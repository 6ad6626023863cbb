/* mint_name_fuzz.c — any bytes as a name, from a small cache: what gets a leaf is named by it and
 * by nothing else. */
#include <assert.h>
#include <openssl/x509v3.h>

#include "base/ip.h"
#include "egress/intercept/ca_impl.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { NOW = 1700000000, NAMES = 3 };

static void expect_named(const struct tls_leaf *l, struct str name)
{
    struct ip ip, named;
    struct str first = tls_leaf_name(l, 0);
    if (ip_parse(name, &ip)) { /* however it was spelt */
        assert(ip_parse(first, &named) && ip_eq(&ip, &named));
        return;
    }
    assert(str_eq(first, name) && tls_leaf_name(l, 1).n == 0);
    for (size_t i = 0; i < name.n; i++)
        assert(name.p[i] > ' ' && name.p[i] < 0x7f && name.p[i] != '*' && name.p[i] != '/');
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    /* made once: a key for each input would be all that is measured */
    static struct ca *ca;
    static struct mint *m;
    if (!ca)
        ca = ca_make(CA_KEY_EC, NOW);
    if (!m)
        m = mint_new(ca, NAMES);
    struct str name, rest = {size ? (const char *)data : "", size};
    while (str_next(&rest, '\n', &name)) {
        struct tls_leaf *l = mint_leaf(m, name, NOW);
        if (l)
            expect_named(l, name);
        assert(mint_counts(m).names <= NAMES);
    }
    return 0;
}
