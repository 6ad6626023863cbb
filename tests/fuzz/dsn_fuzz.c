/* dsn_fuzz.c — any text as a Redis DSN: refused with a reason, or whole. */
#include <assert.h>
#include <stdint.h>

#include "ingress/dsn.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct arena a;
    struct dsn d;
    const char *error = NULL;
    arena_init(&a, NULL, 0);
    if (!dsn_parse((struct str){(const char *)data, size}, &a, &d, &error)) {
        assert(error && *error);
    } else {
        assert(d.host.n > 0 && d.address.n > 0 && d.db >= 0);
        assert(d.unix_socket ? d.port == 0 && d.host.n <= 107 : d.port > 0);
        assert(d.tls == (d.server_name.n > 0));
        for (int i = 0; i < DSN_OPTIONS; i++)
            assert(d.option[i] >= -2147483647);
    }
    arena_done(&a);
    return 0;
}
