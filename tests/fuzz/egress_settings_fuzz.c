/* egress_settings_fuzz.c — the sidecar's environment, lines of NAME=value: refused with one line
 * that names a variable, or read whole; a secret is never shown. */
#include <assert.h>
#include <math.h>
#include <stdint.h>

#include "egress/settings.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct setting *row_of(struct str name)
{
    for (size_t i = 0; i < egress_schema.nrows; i++) {
        struct str full = str_of(egress_schema.rows[i].name);
        if (str_eq(full, name) || (str_starts(full, STR(EGRESS_VARIABLE)) &&
                                   str_eq(str_skip(full, sizeof EGRESS_VARIABLE - 1), name)))
            return &egress_schema.rows[i];
    }
    return NULL;
}

static bool set_line(struct egress_settings *s, struct str line, struct arena *a,
                     struct str *ret_error)
{
    ptrdiff_t equals = str_chr(line, '=');
    const struct setting *row = equals < 0 ? NULL : row_of(str_head(line, (size_t)equals));
    /* as egress_getenv(): blank is unset */
    if (!row || str_trim(str_skip(line, (size_t)equals + 1)).n == 0)
        return true;
    return schema_set(row, s, str_skip(line, (size_t)equals + 1), a, ret_error);
}

static void check_good(const struct egress_settings *s, struct arena *a)
{
    assert(s->http.sa.sa_family != 0 && addr_port(&s->http.sa) != 0);
    assert(s->nextra_ports <= EGRESS_EXTRA_PORTS_MAX);
    assert(s->mode != EGRESS_PROXY || s->proxy.sa.sa_family != 0);
    assert(!s->parent_text.n == !s->parent.host.n);
    assert(s->dns_timeout >= 1000000000 && s->dns_timeout <= INT64_C(120000000000));
    egress_settings_warnings(s, a);
    egress_settings_missing(s, a);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct str text = {(const char *)data, size}, line, error = STR("");
    struct egress_settings s = {0};
    struct arena a;
    bool good = true;
    arena_init(&a, NULL, 0);
    for (size_t i = 0; i < egress_schema.nrows; i++)
        good &=
            schema_set(&egress_schema.rows[i], &s, str_of(egress_schema.rows[i].def), &a, &error);
    assert(good);
    while (good && text.n && str_next(&text, '\n', &line))
        good = set_line(&s, line, &a, &error);
    good = good && egress_settings_check(&s, &a, &error);
    if (good)
        check_good(&s, &a);
    else
        assert(error.n && str_chr(error, '\n') < 0);
    arena_done(&a);
    return 0;
}
