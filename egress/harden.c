/* harden.c — see harden.h.  /proc/PID/environ shows the bytes the process was started with, so
 * they are overwritten in place: to unset a variable only hides it from ourselves. */
#include "egress/harden.h"

#include <stdlib.h>

void harden_environment(const struct schema *s)
{
    for (size_t i = 0; i < s->nrows; i++) {
        const struct setting *row = &s->rows[i];
        char *value = row->flags & SETTING_SECRET && row->env ? getenv(row->env) : NULL;
        if (!value)
            continue;
        mem_wipe(value, strlen(value));
        unsetenv(row->env);
    }
}
