/* run_env.c — env: the environment judged in-process, from the variables to exit status, message
 * and effective settings. */
#include <stdlib.h>

#include "app/command.h"
#include "egress/settings.h"
#include "egress/state/policy_store.h"
#include "vectors/run_egress.h"

/* The row being run; row_getenv() is given to code that hands no pointer through. */
static struct row *the_row;

void set_env_row(struct row *r)
{
    the_row = r;
}

struct row *env_row(void)
{
    return the_row;
}

const char *row_getenv(const char *name)
{
    const struct json *v = row_member(row_member(the_row->v, "env"), name);
    if (!v)
        return NULL;
    unsetenv(name);
    setenv(name, arena_printf(the_row->a, "%.*s", STR_ARG(json_string(v))).p, 1);
    const char *value = egress_getenv(name);
    value = value ? arena_str(the_row->a, (struct str){value, strlen(value) + 1}).p : NULL;
    unsetenv(name);
    return value;
}

static bool same_scalar(const struct json_doc *da, const struct json *a, const struct json_doc *db,
                        const struct json *b)
{
    int64_t x = 0, y = 0;
    switch (json_type(a)) {
    case JSON_STRING:
        return str_eq(json_string(a), json_string(b));
    case JSON_NUMBER:
        return json_int(da, a, &x) && json_int(db, b, &y) && x == y;
    case JSON_BOOL:
        return json_bool(a) == json_bool(b);
    default:
        return true;
    }
}

/* Rows are our own files and nested a few levels. */
bool same_json(const struct json_doc *da, const struct json *a, const struct json_doc *db,
               const struct json *b)
{
    bool object = json_type(a) == JSON_OBJECT;
    if (json_type(a) != json_type(b))
        return false;
    if (!object && json_type(a) != JSON_ARRAY)
        return same_scalar(da, a, db, b);
    if (json_count(a) != json_count(b))
        return false;
    const struct json *y = json_first(b);
    for (const struct json *x = json_first(a); x; x = json_next(x), y = json_next(y)) {
        const struct json *other = object ? json_member(b, json_name(x)) : y;
        if (!other || !same_json(da, x, db, other))
            return false;
    }
    return true;
}

/* ---- env */

struct outcome {
    struct egress_settings settings;
    int status;
    bool run;
    struct str out, err;
};

static bool check(void *settings, struct arena *a, struct str *ret_error)
{
    return egress_settings_check(settings, a, ret_error);
}

static void run_program(struct row *r, const char *flag, struct outcome *o)
{
    char program[] = "sallyport-egress", word[32] = "", *argv[] = {program, word}, *out = NULL,
         *err = NULL;
    size_t out_n = 0, err_n = 0;
    struct command c = {.schema = &egress_schema,
                        .environment_only = true,
                        .check = check,
                        .getenv = row_getenv,
                        .out = open_memstream(&out, &out_n),
                        .err = open_memstream(&err, &err_n)};
    if (flag)
        memcpy(word, flag, strlen(flag) + 1);
    *o = (struct outcome){.status = 0};
    o->status = command_line(&c, flag ? 2 : 1, argv, r->a, &o->settings, &o->run);
    fclose(c.out);
    fclose(c.err);
    o->out = arena_str(r->a, (struct str){out, out_n});
    o->err = arena_str(r->a, (struct str){err, err_n});
    free(out);
    free(err);
}

static void put_doh(struct row *r, struct json_out *o, const struct egress_settings *s)
{
    json_open(o, '[');
    for (size_t i = 0; i < s->doh.n; i++) {
        char text[CIDR_TEXT_BYTES];
        struct str shown = {text, cidr_text(&s->doh.nets[i], text)};
        if (s->doh.nets[i].prefix == 128)
            shown = str_head(shown, (size_t)str_rchr(shown, '/'));
        json_put_str(o, arena_str(r->a, shown));
    }
    json_close(o, ']');
}

static void put_attrs(struct row *r, struct json_out *o, const struct egress_settings *s)
{
    json_open(o, '{');
    for (size_t i = 0; i < s->nattrs; i++) {
        json_key(o, arena_printf(r->a, "%.*s", STR_ARG(s->attrs[i].name)).p);
        json_put_str(o, s->attrs[i].value);
    }
    json_close(o, '}');
}

static void put_policy(struct row *r, struct json_out *o, const struct egress_settings *s)
{
    struct document d;
    enum policy_source source;
    struct str error;
    if (!policy_start(s->policy_file, s->rules, &d, &source, r->a, &error)) {
        json_put_str(o, error);
        return;
    }
    document_put(o, &d);
    document_done(&d);
}

static void put_text(struct json_out *o, struct str text)
{
    if (text.n)
        json_put_str(o, text);
    else
        json_put_raw(o, STR("null"));
}

/* The redirected ports. */
static struct str ports_text(struct row *r, const struct egress_settings *s)
{
    struct str text = STR("80,443");
    for (unsigned i = 0; i < s->nextra_ports; i++)
        text = arena_printf(r->a, "%.*s,%u", STR_ARG(text), s->extra_ports[i]);
    return text;
}

/* By the vector's name for it; false: nobody knows it. */
static bool put_effective(struct row *r, struct json_out *o, struct str key,
                          const struct egress_settings *s)
{
    static const struct {
        const char *key, *variable;
    } shown[] = {{"mitm", "MITMPROXY_TRANSPARENT"},
                 {"max_rules", "MAX_RULES"},
                 {"dns_timeout", "DNS_UPSTREAM_TIMEOUT"},
                 {"probe_interval", "DNS_UPSTREAM_PROBE_INTERVAL_SEC"},
                 {"mitm_port", "MITMPROXY_PORT"},
                 {"block_doh", "BLOCK_DOH_443"},
                 {"allow_unenforced", "ALLOW_UNENFORCED"},
                 {"log_level", "LOG_LEVEL"},
                 {"redirect_backend", "REDIRECT_BACKEND"},
                 {"http_addr", "HTTP_ADDR"},
                 {"webhook", "DENY_WEBHOOK"},
                 {"private_answers", "PRIVATE_ANSWERS"},
                 {"on_exit", "ON_EXIT"},
                 {"mitm_scope", "MITM_SCOPE"},
                 {"proxy_addr", "PROXY_ADDR"},
                 {"profile", "PROFILE"}};
    for (size_t i = 0; i < sizeof shown / sizeof *shown; i++) {
        if (!str_eq(key, str_of(shown[i].key)))
            continue;
        const struct setting *row = schema_find(
            &egress_schema, arena_printf(r->a, EGRESS_VARIABLE "%s", shown[i].variable));
        struct str text = schema_show(row, s, true, r->a);
        bool quoted = row->type == SET_TEXT || row->type == SET_CHOICE;
        if (quoted)
            put_text(o, text);
        else
            json_put_raw(o, text);
        return true;
    }
    if (str_eq(key, STR("mode")))
        json_put_str(o, str_of(egress_mode_text(s->mode)));
    else if (str_eq(key, STR("mitm_ports")))
        json_put_str(o, ports_text(r, s));
    else if (str_eq(key, STR("attrs")))
        put_attrs(r, o, s);
    else if (str_eq(key, STR("doh_blocklist")))
        put_doh(r, o, s);
    else if (str_eq(key, STR("policy")))
        put_policy(r, o, s);
    else
        return false;
    return true;
}

static bool same_effective(struct row *r, const struct egress_settings *s)
{
    const struct json *effective = row_member(r->v, "effective");
    struct json_out o;
    struct json_fault fault;
    json_out_init(&o);
    json_open(&o, '{');
    for (const struct json *v = effective ? json_first(effective) : NULL; v; v = json_next(v)) {
        json_key(&o, arena_printf(r->a, "%.*s", STR_ARG(json_name(v))).p);
        if (!put_effective(r, &o, json_name(v), s))
            json_put_raw(&o, STR("\"unknown\""));
    }
    json_close(&o, '}');
    struct json_doc *d = json_parse((struct str){o.p, o.n}, 0, 8, &fault);
    bool good = d && (!effective || same_json(d, json_root(d), r->doc, effective));
    if (!good)
        row_fail(r, "effective: %.*s", (int)o.n, o.p);
    json_free(d);
    json_out_done(&o);
    return good;
}

static unsigned lines_of(struct str s)
{
    unsigned n = 0;
    for (size_t i = 0; i < s.n; i++)
        n += s.p[i] == '\n';
    return n;
}

bool run_env(struct row *r)
{
    struct outcome checked, o;
    set_env_row(r);
    run_program(r, "--check", &checked);
    run_program(r, NULL, &o);
    if (row_bool(r->v, "ok")) {
        if (checked.status != 0 || !o.run)
            return row_fail(r, "does not start: %.*s", STR_ARG(o.err));
        return same_effective(r, &o.settings);
    }
    int64_t exit = row_int(r, r->v, "exit", -1);
    if (o.run || !row_same_int(r, "exit", o.status, exit) ||
        !row_same_int(r, "exit of --check", checked.status, exit))
        return row_fail(r, "starts");
    if (lines_of(o.err) > 2 || o.out.n)
        return row_fail(r, "more than usage and one line: %.*s", STR_ARG(o.err));
    return row_has(o.err, row_text(r->v, "names")) ||
           row_fail(r, "not named: %.*s", STR_ARG(o.err));
}
