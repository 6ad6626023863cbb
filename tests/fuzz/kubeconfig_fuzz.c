/* kubeconfig_fuzz.c — any bytes as a kubeconfig, up to where it names files: a server and one way
 * to be known there, or a fault of one printable line. */
#include <assert.h>

#include "base/text.h"
#include "ingress/kube/kubeconfig_impl.h"
#include "net/resolve.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_line(struct str s)
{
    assert(s.n > 0);
    for (size_t i = 0; i < s.n; i++)
        assert((uint8_t)s.p[i] >= 0x20 && s.p[i] != 0x7f);
}

static void check_access(const struct kube_access *u, const struct kube_named *named)
{
    assert(u->server.host.n > 0 && u->server.port > 0 && !u->server.user.p);
    assert(u->token.n == 0 || text_is_visible(u->token));
    assert(u->username.n == 0 || (u->token.n == 0 && u->token_file.n == 0));
    assert((u->cert_pem.n || named->cert.n) == (u->key_pem.n || named->key.n));
    assert(!u->insecure || (u->ca_pem.n == 0 && named->ca.n == 0));
    assert(u->tls_name.n == 0 || resolve_is_host(u->tls_name));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct arena tree, a;
    struct kube_file file = {.dir = STR("/dir")};
    struct kube_access access;
    struct kube_named named;
    struct str error = STR("");
    arena_init_private(&tree, NULL, 0);
    arena_init(&a, NULL, 0);
    bool good = kube_yaml_read((struct str){(const char *)data, size}, &tree, &file.root, &error);
    if (!good)
        check_line(error);
    bool picked = good && kubeconfig_pick(&file, 1, &a, &access, &named, &error);
    arena_done(&tree); /* what was picked does not lie in it, nor does what is wrong with it */
    if (picked)
        check_access(&access, &named);
    else if (good)
        check_line(error);
    arena_done(&a);
    return 0;
}
