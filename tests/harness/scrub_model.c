/* scrub_model.c — the contract of scrub.h as two loops. */
#include "harness/scrub_model.h"

void scrub_model(const struct str *strings, unsigned n, struct str text, char *ret)
{
    if (text.n)
        memcpy(ret, text.p, text.n);
    for (unsigned i = 0; i < n; i++)
        for (size_t at = 0; strings[i].n && at + strings[i].n <= text.n; at++)
            if (memcmp(text.p + at, strings[i].p, strings[i].n) == 0)
                memset(ret + at, '*', strings[i].n);
}

size_t scrub_model_held(const struct str *strings, unsigned n, struct str text)
{
    for (size_t at = 0; at < text.n; at++)
        for (unsigned i = 0; i < n; i++)
            if (strings[i].n > text.n - at && memcmp(text.p + at, strings[i].p, text.n - at) == 0)
                return text.n - at;
    return 0;
}
