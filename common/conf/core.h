/* core.h — the settings that common/ reads itself; each product's struct of settings begins with
 * one of these. */
#ifndef CONF_CORE_H
#define CONF_CORE_H

#include "conf/schema.h"

struct settings {
    struct str config_file; /* --config */
    int log_level;          /* index into the choices debug info warn warning error fatal */
    int64_t workers;        /* 0: one per core */
    struct str admin_addr;
    int64_t drain_timeout; /* all durations: ns */
    int64_t head_timeout, keep_alive_timeout, connect_timeout, response_timeout, decide_timeout,
        idle_timeout, tunnel_idle_timeout, half_close_timeout, linger_timeout, backend_idle_timeout;
    int64_t backend_idle_max, max_head_bytes, max_fields, max_connections, max_memory;
    int64_t h2_max_streams, h2_max_resets, h2_max_control;
};

/* Whole milliseconds, rounded up. */
static inline uint64_t settings_ms(int64_t ns)
{
    return ns <= 0 ? 0 : (uint64_t)ns / 1000000 + ((uint64_t)ns % 1000000 != 0);
}

/* A row for one of these fields, to be put among a product's rows (contract ingress 1.3, B6): with
 * a struct `type` whose first member is `struct settings core`. */
#define CORE_SETTING(type, name, field, kind, def, min, max, flags, help)                         \
    {                                                                                             \
        name, NULL, kind, offsetof(type, core) + offsetof(struct settings, field), def, min, max, \
            NULL, flags, "Limits", help, 0                                                        \
    }

#endif
