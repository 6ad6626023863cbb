/* run_dsn.c — redis_dsn: a DSN and its parts. */
#include "ingress/dsn.h"
#include "vectors/vectors.h"

static bool same_option(struct row *r, const struct json *wanted, const struct dsn *d)
{
    int64_t number = json_type(wanted) == JSON_BOOL && json_bool(wanted);
    struct str name = json_name(wanted);
    if (json_type(wanted) == JSON_STRING)
        return str_eq(name, STR("client_name"))
                   ? row_same(r, "client_name", d->client_name, json_string(wanted))
                   : row_fail(r, "no text %.*s", STR_ARG(name));
    enum dsn_option option = dsn_option_by_name(name);
    if (option == DSN_OPTIONS ||
        (json_type(wanted) == JSON_NUMBER && !json_int(r->doc, wanted, &number)))
        return row_fail(r, "no option %.*s", STR_ARG(name));
    return row_same_int(r, arena_printf(r->a, "%.*s", STR_ARG(name)).p, d->option[option], number);
}

bool run_redis_dsn(struct row *r)
{
    const struct json *expect = row_member(r->v, "expect");
    const char *error = "";
    struct dsn d;
    bool good = dsn_parse(row_text(r->v, "dsn"), r->a, &d, &error);
    if (row_member(expect, "error"))
        return !good || row_fail(r, "taken");
    if (!good)
        return row_fail(r, "refused: %s", error);
    if (!row_same(r, "network", d.unix_socket ? STR("unix") : STR("tcp"),
                  row_text(expect, "network")) ||
        !row_same(r, "username", d.username, row_text(expect, "username")) ||
        !row_same(r, "password", d.password, row_text(expect, "password")) ||
        !row_same(r, "address", d.address, row_text(expect, "address")) ||
        !row_same(r, "server_name", d.server_name, row_text(expect, "server_name")) ||
        !row_same_int(r, "db", d.db, row_int(r, expect, "db", -1)) ||
        !row_same_int(r, "tls", d.tls, row_bool(expect, "tls")))
        return false;
    const struct json *options = row_member(expect, "options");
    for (const struct json *v = options ? json_first(options) : NULL; v; v = json_next(v))
        if (!same_option(r, v, &d))
            return false;
    return true;
}
