/* mitm_config_fuzz.c — any bytes as config.yaml: what is read is bounded, never blank, and stands
 * in the text; what is refused has one line. */
#include <assert.h>

#include "egress/intercept/passlist.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void expect_from(struct str text, const struct str *at, unsigned n)
{
    for (unsigned i = 0; i < n; i++) {
        assert(at[i].n > 0 && memmem(text.p, text.n, at[i].p, at[i].n));
        assert(str_chr(at[i], '\n') < 0 && str_chr(at[i], '\0') < 0);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct arena a;
    struct mitm_config c;
    struct str error = STR_NONE, text = {(const char *)data, size};
    arena_init(&a, NULL, 0);
    if (mitm_config_read(text, &a, &c, &error)) {
        assert(c.stream_large_bodies >= -1);
        expect_from(text, c.ignore_hosts, c.nignore_hosts);
        expect_from(text, c.others, c.nothers);
        passlist_free(passlist_new(c.ignore_hosts, c.nignore_hosts, NULL, NULL));
    } else {
        assert(error.n > 0 && str_chr(error, '\n') < 0);
    }
    arena_done(&a);
    return 0;
}
