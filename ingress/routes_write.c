/* routes_write.c — sandboxes back into the JSON of --routes, in one canonical form: reading it
 * gives the same records again, whatever form they came in. */
#include <stdio.h>
#include <time.h>

#include "ingress/routes_file.h"

enum { MEMBER_BYTES = 256, PORT_BYTES = 96, ESCAPE_BYTES = 6, HOST_PORT_BYTES = 300 };

static void put_name(struct json_out *o, struct str name)
{
    json_put_str(o, name);
    o->comma = false;
    json_put_raw(o, STR(":"));
    o->comma = false;
}

static void put_text(struct json_out *o, const char *name, struct str s)
{
    json_key(o, name);
    json_put_str(o, s);
}

/* What was not ready keeps the word it came with. */
static struct str state_of(const struct sandbox *s)
{
    if (s->state == SANDBOX_TERMINATED)
        return STR("Terminated");
    return s->state == SANDBOX_NOT_READY ? s->reason : STR_NONE;
}

static void put_time(struct json_out *o, int64_t unix_s)
{
    char text[80];
    struct tm t;
    time_t at = (time_t)unix_s;
    gmtime_r(&at, &t);
    snprintf(text, sizeof text, "%04d-%02d-%02dT%02d:%02d:%02dZ", t.tm_year + 1900, t.tm_mon + 1,
             t.tm_mday, t.tm_hour, t.tm_min, t.tm_sec);
    put_text(o, "expiresAt", str_of(text));
}

static void put_host_port(struct json_out *o, const struct endpoint *e)
{
    char text[HOST_PORT_BYTES];
    bool v6 = str_chr(e->host, ':') >= 0;
    snprintf(text, sizeof text, "%s%.*s%s:%u", v6 ? "[" : "", STR_ARG(e->host), v6 ? "]" : "",
             e->to);
    put_text(o, "address", str_of(text));
}

static void put_port(struct json_out *o, const struct endpoint *e)
{
    static const char *const wires[] = {
        [WIRE_DEFAULT] = NULL, [WIRE_AUTO] = "auto", [WIRE_H1] = "h1", [WIRE_H2C] = "h2c"};
    char port[8];
    snprintf(port, sizeof port, "%u", e->port);
    json_key(o, port);
    json_open(o, '{');
    if (e->to)
        put_host_port(o, e);
    if (wires[e->wire])
        put_text(o, "protocol", str_of(wires[e->wire]));
    json_close(o, '}');
}

static void put_ports(struct json_out *o, const struct sandbox *s)
{
    json_key(o, "ports");
    json_open(o, '{');
    for (unsigned i = 0; i + 1 < s->nends; i++)
        put_port(o, &s->ends[i]);
    json_close(o, '}');
}

static void put_token(struct json_out *o, const struct sandbox *s, bool secrets)
{
    if (secrets) {
        put_text(o, "secureAccessToken", s->token);
        return;
    }
    json_key(o, "secureAccess");
    json_put_bool(o, true);
}

void routes_put_entry(struct json_out *o, const struct sandbox *s, bool secrets)
{
    struct str state = state_of(s);
    json_open(o, '{');
    put_text(o, "address", s->ends[s->nends - 1].host);
    if (state.n)
        put_text(o, "state", state);
    if (s->token.n)
        put_token(o, s, secrets);
    if (s->until_unix_s != INT64_MAX)
        put_time(o, s->until_unix_s);
    if (s->nends > 1)
        put_ports(o, s);
    json_close(o, '}');
}

void routes_put_member(struct json_out *o, const struct sandbox *s, bool secrets)
{
    put_name(o, s->id);
    routes_put_entry(o, s, secrets);
}

size_t routes_member_room(const struct sandbox *s)
{
    size_t n = MEMBER_BYTES + ESCAPE_BYTES * (s->id.n + s->token.n + s->reason.n);
    for (unsigned i = 0; i < s->nends; i++)
        n += PORT_BYTES + ESCAPE_BYTES * (s->ends[i].host.n + HOST_PORT_BYTES - 256);
    return n;
}
