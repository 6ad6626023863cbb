/* dsn.h — where a Redis server is and how to talk to it: redis://, rediss:// and unix:// (contract
 * ingress 10.4).  Pure. */
#ifndef INGRESS_DSN_H
#define INGRESS_DSN_H

#include <stdbool.h>
#include <stdint.h>

#include "base/mem.h"

/* Options of the query: id, name, type, default.  Those from POOL_FIFO on are judged and have no
 * meaning here. */
#define DSN_OPTION_MAP(X)                                      \
    X(DB, "db", NUMBER, 0)                                     \
    X(PROTOCOL, "protocol", NUMBER, 0)                         \
    X(MAX_RETRIES, "max_retries", NUMBER, 3)                   \
    X(MIN_RETRY_BACKOFF, "min_retry_backoff", DURATION, 8)     \
    X(MAX_RETRY_BACKOFF, "max_retry_backoff", DURATION, 512)   \
    X(DIAL_TIMEOUT, "dial_timeout", DURATION, 5000)            \
    X(READ_TIMEOUT, "read_timeout", DURATION, 3000)            \
    X(WRITE_TIMEOUT, "write_timeout", DURATION, 3000)          \
    X(SKIP_VERIFY, "skip_verify", BOOL, 0)                     \
    X(POOL_FIFO, "pool_fifo", BOOL, 0)                         \
    X(POOL_SIZE, "pool_size", NUMBER, 0)                       \
    X(POOL_TIMEOUT, "pool_timeout", DURATION, 0)               \
    X(MIN_IDLE_CONNS, "min_idle_conns", NUMBER, 0)             \
    X(MAX_IDLE_CONNS, "max_idle_conns", NUMBER, 0)             \
    X(MAX_ACTIVE_CONNS, "max_active_conns", NUMBER, 0)         \
    X(MAX_CONCURRENT_DIALS, "max_concurrent_dials", NUMBER, 0) \
    X(CONN_MAX_IDLE_TIME, "conn_max_idle_time", DURATION, 0)   \
    X(IDLE_TIMEOUT, "idle_timeout", DURATION, 0)               \
    X(CONN_MAX_LIFETIME, "conn_max_lifetime", DURATION, 0)     \
    X(MAX_CONN_AGE, "max_conn_age", DURATION, 0)               \
    X(CONN_MAX_LIFETIME_JITTER, "conn_max_lifetime_jitter", DURATION, 0)

enum dsn_option {
#define X(id, name, type, def) DSN_##id,
    DSN_OPTION_MAP(X)
#undef X
        DSN_OPTIONS
};

struct dsn {
    bool tls;         /* certificate checked for server_name, unless DSN_SKIP_VERIFY */
    bool unix_socket; /* then host is the path and port 0 */
    struct str host;  /* name or address, no brackets */
    uint16_t port;
    struct str address;            /* "host:port", IPv6 in brackets; or the path */
    struct str server_name;        /* with tls: host */
    struct str username, password; /* decoded; empty: none */
    int64_t db;
    struct str client_name;
    /* Durations in ms, -1: off; booleans 0 and 1.  Options that were not given have their defaults;
     * 0 where there is none. */
    int64_t option[DSN_OPTIONS];
};

/* The option of that name, or DSN_OPTIONS. */
enum dsn_option dsn_option_by_name(struct str name);
/* Texts lie in the arena.  False: *ret_error is what is wrong, a static text that holds nothing of
 * the DSN (it has a password). */
bool dsn_parse(struct str text, struct arena *a, struct dsn *ret, const char **ret_error);

#endif
