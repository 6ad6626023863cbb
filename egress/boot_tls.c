/* boot_tls.c — see boot_tls.h.  Origins and the upstream proxy are judged alike: whoever could
 * stand in for one could do so for the other. */
#include "egress/boot_tls.h"

#include "egress/state/file.h"

enum { PEM_BYTES = 4 << 20 };

/* What the operator trusts beside the system; nothing where there is no such setting. */
static bool read_extra(const struct egress_settings *set, struct file_bytes *ret, struct arena *a,
                       struct str *ret_error)
{
    if (set->extra_ca.n == 0)
        return true;
    char *path = mem_strdup(set->extra_ca);
    int error = file_get(path, PEM_BYTES, ret);
    mem_free(path);
    if (!error && ret->exists)
        return true;
    *ret_error =
        arena_printf(a, EGRESS_VARIABLE "MITMPROXY_UPSTREAM_EXTRA_CA: %.*s: %s",
                     STR_ARG(set->extra_ca), error ? strerrordesc_np(-error) : "no such file");
    return false;
}

struct tls_ctx *boot_tls_client(const struct egress_settings *set, struct str never_pem,
                                unsigned sessions, struct arena *a, struct str *ret_error)
{
    struct file_bytes pem = {0};
    struct tls_ctx *ctx = NULL;
    if (read_extra(set, &pem, a, ret_error)) {
        struct tls_client_rules rules = {.roots_pem = {pem.p, pem.n},
                                         .roots_dir = set->trust_dir,
                                         .never_pem = never_pem,
                                         .sessions = sessions,
                                         .insecure = set->ssl_insecure,
                                         .wipe = true};
        ctx = tls_client_new(&rules, a, ret_error);
    }
    file_bytes_done(&pem);
    return ctx;
}
