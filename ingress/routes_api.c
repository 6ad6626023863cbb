/* routes_api.c — requests to /routes.  What can be judged by the head is, before a body is asked
 * for; reads are answered from the list in force; a change goes to static.c, where its conditions
 * are judged when its turn comes, and then, as an empty delta, behind its own record through the
 * tables: when that has been applied everywhere, so has the change.
 *
 * A change outlives its request and may outlive us, so what it needs on the way is its own. */
#include "ingress/routes_api.h"

#include <assert.h>

#include "base/digest.h"
#include "base/log.h"
#include "base/secret.h"
#include "base/text.h"
#include "conf/sources.h"
#include "ingress/etag.h"
#include "ingress/routes_file.h"
#include "net/worker.h"

enum { TOKEN_FILE_BYTES = 4096, KEY_BYTES = 32, TAG_BYTES = 16, CHANGES_MOST = 256 };

struct routes_api {
    struct routes_api_host host;
    struct worker *w;
    struct secret *token;
    uint8_t key[KEY_BYTES]; /* of ETags: nobody can try tokens against one */
    struct list making;     /* changes in the hands of static.c */
    struct list applying;   /* in those of the tables, in that order */
    unsigned nchanges;
};

struct change {
    struct static_edit edit;
    struct list link;
    struct routes_api *api; /* NULL: it has stopped */
    struct admin_visit *visit;
    uint8_t key[KEY_BYTES];
    struct etag_list match, none_match;
    struct arena mem; /* of texts */
};

/* ---- answers ---- */

static const char json_type_text[] = "application/json";

static void answer(struct admin_visit *v, struct admin_answer *a, struct json_out *o)
{
    o->comma = false;
    json_put_raw(o, STR("\n"));
    a->type = json_type_text;
    a->body = (struct str){o->p, o->n};
    admin_answer(v, a);
    json_out_done(o);
}

static void put_error(struct json_out *o, const char *code, struct str message)
{
    json_out_init(o);
    json_open(o, '{');
    json_key(o, "error");
    json_open(o, '{');
    json_key(o, "code");
    json_put_str(o, str_of(code));
    json_key(o, "message");
    json_put_str(o, message);
}

static void refuse_with(struct admin_visit *v, int status, const char *code, struct str message,
                        struct field field)
{
    struct admin_answer a = {.status = status};
    struct json_out o;
    put_error(&o, code, message);
    json_close(&o, '}');
    json_close(&o, '}');
    if (field.name.n)
        a.fields[a.nfields++] = field;
    answer(v, &a, &o);
}

static void refuse(struct admin_visit *v, int status, const char *code, const char *message)
{
    refuse_with(v, status, code, str_of(message), (struct field){STR_NONE, STR_NONE});
}

static void refuse_later(struct admin_visit *v, const char *code, const char *message)
{
    refuse_with(v, 503, code, str_of(message), (struct field){STR("Retry-After"), STR("1")});
}

void routes_api_refuse(struct admin_visit *v, int status, struct str why)
{
    refuse_with(v, status, status == 413 ? "too_long" : "bad_request", why,
                (struct field){STR_NONE, STR_NONE});
}

static void refuse_entry(struct admin_visit *v, const struct json_fault *f)
{
    struct admin_answer a = {.status = 400};
    struct json_out o;
    put_error(&o, "invalid_entry",
              arena_printf(admin_mem(v), "line %u, column %u: %s", f->line, f->column, f->text));
    json_key(&o, "line");
    json_put_int(&o, f->line);
    json_key(&o, "column");
    json_put_int(&o, f->column);
    json_close(&o, '}');
    json_close(&o, '}');
    answer(v, &a, &o);
}

/* ---- entity tags ---- */

/* The entry as it is shown, then the token it has. */
static struct str tag_of(const uint8_t key[KEY_BYTES], const struct sandbox *s,
                         char out[2 * TAG_BYTES + 2])
{
    uint8_t hash[SHA256_BYTES];
    struct json_out o;
    json_out_init(&o);
    routes_put_entry(&o, s, false);
    struct str pieces[] = {{(const char *)key, KEY_BYTES}, {o.p, o.n}, s->token};
    digest_sha256(hash, pieces, sizeof pieces / sizeof *pieces);
    json_out_done(&o);
    out[0] = '"';
    text_put_hex(out + 1, hash, TAG_BYTES);
    out[2 * TAG_BYTES + 1] = '"';
    return (struct str){out, 2 * TAG_BYTES + 2};
}

static void answer_entry(struct routes_api *r, struct admin_visit *v, int status,
                         const struct sandbox *s)
{
    char tag[2 * TAG_BYTES + 2];
    struct admin_answer a = {.status = status};
    struct json_out o;
    json_out_init(&o);
    routes_put_entry(&o, s, false);
    a.fields[a.nfields++] =
        (struct field){STR("ETag"), arena_str(admin_mem(v), tag_of(r->key, s, tag))};
    answer(v, &a, &o);
}

/* ---- who may ask ---- */

static bool has_token(const struct routes_api *r, const struct http_head *h)
{
    const struct field *f = head_next(h, STR("authorization"), NULL);
    if (!f || head_next(h, STR("authorization"), f) || !str_istarts(f->value, STR("bearer ")))
        return false;
    return digest_equal(str_trim(str_skip(f->value, 7)), secret_bytes(r->token));
}

static void refuse_token(struct admin_visit *v)
{
    refuse_with(v, 401, "unauthorized", STR("this needs the token of --admin-token-file"),
                (struct field){STR("WWW-Authenticate"), STR("Bearer realm=\"routes\"")});
}

static bool is_read(const struct admin_visit *v)
{
    struct str method = admin_head(v)->method;
    return str_eq(method, STR("GET")) || str_eq(method, STR("HEAD"));
}

static bool is_put(const struct admin_visit *v)
{
    return str_eq(admin_head(v)->method, STR("PUT"));
}

static bool takes_method(struct admin_visit *v, bool one)
{
    if (is_read(v) || (one && (is_put(v) || str_eq(admin_head(v)->method, STR("DELETE")))))
        return true;
    struct str allowed = one ? STR("GET, HEAD, PUT, DELETE") : STR("GET, HEAD");
    refuse_with(v, 405, "method_not_allowed", arena_cat(admin_mem(v), STR("only "), allowed),
                (struct field){STR("Allow"), allowed});
    return false;
}

/* Behind "/routes"; false: it is refused. */
static bool read_id(struct admin_visit *v, struct str *ret_id)
{
    struct str path = str_skip(admin_path(v), sizeof "/routes" - 1);
    if (path.n == 0) {
        *ret_id = STR_NONE;
        return true;
    }
    path = str_skip(path, 1);
    char *text = arena_get(admin_mem(v), path.n + 1);
    struct str id = {text, 0};
    if (path.n == 0 || str_chr(path, '/') >= 0) {
        refuse(v, 404, "not_found", "there is /routes and /routes/<id>");
        return false;
    }
    if (!text_percent(path, text, &id.n) || !routes_is_id(id)) {
        refuse(v, 400, "invalid_id",
               "a sandbox id is 1 to 256 bytes of UTF-8 without control characters");
        return false;
    }
    *ret_id = id;
    return true;
}

bool routes_api_admit(struct routes_api *r, struct admin_visit *v)
{
    struct str id;
    if (!r) {
        admin_answer(v, &(struct admin_answer){.status = 404,
                                               .type = "text/plain; charset=utf-8",
                                               .body = STR("no such page\n")});
        return false;
    }
    if (!has_token(r, admin_head(v))) {
        refuse_token(v);
        return false;
    }
    if (!read_id(v, &id) || !takes_method(v, id.n > 0))
        return false;
    if (!is_read(v) && app_phase(r->host.app) == APP_DRAINING) {
        refuse_later(v, "stopping", "this gateway is stopping");
        return false;
    }
    return true;
}

/* ---- reading ---- */

static void put_one(void *user, const struct sandbox *s)
{
    routes_put_member(user, s, false);
}

static void serve_list(struct routes_api *r, struct admin_visit *v)
{
    struct json_out o;
    json_out_init(&o);
    json_open(&o, '{');
    json_key(&o, "sandboxes");
    json_open(&o, '{');
    static_each(r->host.routes, put_one, &o);
    json_close(&o, '}');
    json_close(&o, '}');
    answer(v, &(struct admin_answer){.status = 200}, &o);
}

static bool read_conditions(struct admin_visit *v, struct arena *a, struct etag_list *ret_match,
                            struct etag_list *ret_none_match)
{
    if (etag_read(admin_head(v), STR("if-match"), a, ret_match) &&
        etag_read(admin_head(v), STR("if-none-match"), a, ret_none_match))
        return true;
    refuse(v, 400, "invalid_condition", "If-Match and If-None-Match are * or quoted tags");
    return false;
}

static void refuse_condition(struct admin_visit *v)
{
    refuse(v, 412, "condition_failed", "the entry is not what If-Match or If-None-Match wants");
}

static void refuse_missing(struct admin_visit *v)
{
    refuse(v, 404, "not_found", "no such sandbox");
}

static void serve_one(struct routes_api *r, struct admin_visit *v, struct str id)
{
    char room[2 * TAG_BYTES + 2];
    struct etag_list match, none_match, no = {.given = false};
    const struct sandbox *s = static_get(r->host.routes, id);
    struct str tag = s ? tag_of(r->key, s, room) : STR_NONE;
    if (!read_conditions(v, admin_mem(v), &match, &none_match))
        return;
    if (!etag_allows(&match, &no, tag)) {
        refuse_condition(v);
    } else if (!s) {
        refuse_missing(v);
    } else if (!etag_allows(&no, &none_match, tag)) {
        struct admin_answer a = {.status = 304};
        a.fields[a.nfields++] = (struct field){STR("ETag"), arena_str(admin_mem(v), tag)};
        admin_answer(v, &a);
    } else {
        answer_entry(r, v, 200, s);
    }
}

/* ---- changing ---- */

static void change_free(struct change *c)
{
    list_del(&c->link);
    if (c->api)
        c->api->nchanges--;
    sandbox_unref(c->edit.put);
    arena_done(&c->mem);
    mem_free(c);
}

static void note_change(const struct change *c)
{
    static const char *const how[] = {[EDIT_CREATED] = "created",
                                      [EDIT_REPLACED] = "replaced",
                                      [EDIT_SAME] = "unchanged",
                                      [EDIT_DELETED] = "deleted"};
    struct log_line line;
    log_begin(&line, LOG_INFO, "route changed over REST");
    log_str(&line, "sandbox", c->edit.id);
    log_str(&line, "how", str_of(how[c->edit.outcome]));
    log_end(&line);
}

/* Every worker has applied the first of them. */
static void on_applied(void *user)
{
    struct routes_api *r = user;
    struct list *first = list_first(&r->applying);
    assert(first);
    struct change *c = container_of(first, struct change, link);
    note_change(c);
    if (c->edit.outcome == EDIT_DELETED)
        admin_answer(c->visit, &(struct admin_answer){.status = 204});
    else
        answer_entry(r, c->visit, c->edit.outcome == EDIT_CREATED ? 201 : 200, c->edit.put);
    change_free(c);
}

static void answer_refused(struct change *c)
{
    struct admin_visit *v = c->visit;
    if (c->edit.outcome == EDIT_MISSING)
        refuse_missing(v);
    else if (c->edit.outcome == EDIT_REFUSED)
        refuse_condition(v);
    else if (c->edit.outcome == EDIT_FULL)
        refuse(v, 507, "too_many", "there are as many sandboxes as there may be");
    else if (c->edit.outcome == EDIT_FAILED)
        refuse_with(v, 500, "not_saved", c->edit.fault, (struct field){STR_NONE, STR_NONE});
    else
        refuse_later(v, "stopping", "this gateway is stopping");
}

static void on_done(struct static_edit *e)
{
    struct change *c = container_of(e, struct change, edit);
    struct routes_api *r = c->api;
    if (r && e->outcome <= EDIT_DELETED) {
        list_del(&c->link);
        list_push(&r->applying, &c->link);
        table_publish(r->host.tables, r->host.ntables, NULL, 0, NULL, 0, false, r->w, on_applied,
                      r);
        return;
    }
    if (r)
        answer_refused(c);
    change_free(c);
}

static bool may(const struct static_edit *e, const struct sandbox *there)
{
    const struct change *c = (const struct change *)(const void *)e; /* its first member */
    char room[2 * TAG_BYTES + 2];
    if (!c->match.given && !c->none_match.given)
        return true;
    return etag_allows(&c->match, &c->none_match, there ? tag_of(c->key, there, room) : STR_NONE);
}

/* false: it is refused, *ret_put is NULL for DELETE. */
static bool read_entry(struct routes_api *r, struct admin_visit *v, struct str id,
                       struct sandbox **ret_put)
{
    struct json_fault fault;
    *ret_put = NULL;
    if (!is_put(v))
        return true;
    struct sandbox *s = routes_parse_entry(id, admin_body(v), &fault);
    if (!s) {
        refuse_entry(v, &fault);
        return false;
    }
    if (s->until_unix_s <= worker_unix_s(r->w)) {
        refuse(v, 400, "invalid_entry", "\"expiresAt\" is over");
        sandbox_unref(s);
        return false;
    }
    *ret_put = s;
    return true;
}

static void serve_change(struct routes_api *r, struct admin_visit *v, struct str id)
{
    struct sandbox *put;
    struct etag_list match, none_match;
    if (r->nchanges >= CHANGES_MOST) {
        refuse_later(v, "overloaded", "too many changes at once");
        return;
    }
    if (!read_conditions(v, admin_mem(v), &match, &none_match) || !read_entry(r, v, id, &put))
        return;
    struct change *c = mem_new(sizeof *c);
    arena_init(&c->mem, NULL, 0);
    c->api = r;
    c->visit = v;
    c->match = match;
    c->match.tags = arena_str(&c->mem, match.tags);
    c->none_match = none_match;
    c->none_match.tags = arena_str(&c->mem, none_match.tags);
    memcpy(c->key, r->key, sizeof c->key);
    c->edit =
        (struct static_edit){.id = arena_str(&c->mem, id), .put = put, .may = may, .done = on_done};
    list_init(&c->edit.link);
    list_push(&r->making, &c->link);
    r->nchanges++;
    static_change(r->host.routes, &c->edit);
}

void routes_api_serve(struct routes_api *r, struct admin_visit *v)
{
    struct str id;
    bool good = read_id(v, &id); /* as when it was admitted */
    assert(good);
    if (!id.n)
        serve_list(r, v);
    else if (is_read(v))
        serve_one(r, v, id);
    else
        serve_change(r, v, id);
}

/* ---- life ---- */

static struct str trim_end(struct str s)
{
    while (s.n && (s.p[s.n - 1] == '\n' || s.p[s.n - 1] == '\r'))
        s.n--;
    return str_trim(s);
}

static struct secret *read_token(struct str path, struct arena *a, struct str *ret_error)
{
    char first[TOKEN_FILE_BYTES];
    struct str text, error;
    struct secret *token = NULL;
    struct arena private;
    arena_init_private(&private, first, sizeof first);
    if (!conf_read_file(path, TOKEN_FILE_BYTES, &private, &text, &error))
        *ret_error = arena_cat(a, STR("admin-token-file: "), error);
    else if (!text_is_visible(trim_end(text)))
        *ret_error = arena_printf(a, "admin-token-file: %.*s: must hold one token of visible ASCII",
                                  STR_ARG(path));
    else
        token = secret_new(trim_end(text).p, trim_end(text).n);
    arena_done(&private);
    return token;
}

struct routes_api *routes_api_start(const struct routes_api_host *host, struct arena *a,
                                    struct str *ret_error)
{
    struct secret *token = read_token(host->token_file, a, ret_error);
    if (!token)
        return NULL;
    struct routes_api *r = mem_new(sizeof *r);
    r->host = *host;
    r->w = app_main(host->app);
    r->token = token;
    digest_random(r->key, sizeof r->key);
    list_init(&r->making);
    list_init(&r->applying);
    return r;
}

void routes_api_reload(struct routes_api *r)
{
    char first[512];
    struct arena a;
    struct str error;
    arena_init(&a, first, sizeof first);
    struct secret *token = read_token(r->host.token_file, &a, &error);
    if (token) {
        secret_unref(r->token);
        r->token = token;
    } else {
        struct log_line line;
        log_begin(&line, LOG_ERROR, "admin-token-file: not usable, nothing changed");
        log_str(&line, "fault", error);
        log_end(&line);
    }
    arena_done(&a);
}

void routes_api_stop(struct routes_api *r)
{
    if (!r)
        return;
    worker_turn(r->w); /* what the tables have told by now; nothing more will come from them */
    for (struct list *l; (l = list_first(&r->applying));) {
        struct change *c = container_of(l, struct change, link);
        c->edit.outcome = EDIT_STOPPED;
        answer_refused(c);
        change_free(c);
    }
    for (struct list *l; (l = list_pop(&r->making));) {
        struct change *c = container_of(l, struct change, link);
        refuse_later(c->visit, "stopping", "this gateway is stopping");
        c->api = NULL; /* static.c still has it, and on_done() frees it */
    }
    secret_unref(r->token);
    mem_wipe(r->key, sizeof r->key);
    mem_free(r);
}
