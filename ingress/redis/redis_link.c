/* redis_link.c — one connection to Redis, from dialling to its end.  The greeting goes step by
 * step, each command after the answer to the one before: it is rare, and so it needs no care for
 * answers of two protocols in one stream.  A server may refuse what only decorates (a name, RESP3),
 * not what says who we are and where. */
#include <errno.h>
#include <stdio.h>

#include "base/secret.h"
#include "base/text.h"
#include "ingress/redis/redis_impl.h"
#include "net/dial.h"
#include "net/local.h"
#include "net/tls.h"

enum { CONNECT_MAX_MS = 30000, HELLO_BYTES = 16 << 10 };
enum step { STEP_AUTH, STEP_HELLO, STEP_NAME, STEP_SELECT, STEP_PING, STEP_UP };

struct redis_link {
    struct redis_link_rules rules; /* user NULL after link_drop() */
    struct dial *dial;
    struct conn *conn;
    struct timer timer; /* until it is up */
    enum step step;
    bool live;    /* somebody wants to hear of it */
    bool greeted; /* the command of this step has left */
    bool failing; /* `trouble` is known, closed() is on its way */
    struct resp_reader *reader;
    char hello[HELLO_BYTES];
    size_t nhello;
    char trouble[96];
};

static void destroy(void *p)
{
    struct redis_link *l = p;
    resp_reader_free(l->reader);
    secret_unref(l->rules.password);
    tls_ctx_unref(l->rules.tls);
    mem_free(l);
}

/* The last of it: nothing of the network is held any more. */
static void end(struct redis_link *l)
{
    timer_clear(l->rules.w, &l->timer);
    if (l->live) {
        l->live = false;
        l->rules.events->down(l->rules.user, l->trouble);
    }
    worker_bury(l->rules.w, destroy, l);
}

static void set_trouble(struct redis_link *l, struct str text)
{
    if (!l->failing)
        snprintf(l->trouble, sizeof l->trouble, "%.*s", STR_ARG(text));
    l->failing = true;
}

static void fail(struct redis_link *l, struct str trouble, enum why why)
{
    set_trouble(l, trouble);
    conn_close(l->conn, why);
}

/* ---- greeting */

static bool is_wanted(const struct redis_link *l, enum step step)
{
    const struct dsn *d = l->rules.dsn;
    switch (step) {
    case STEP_AUTH:
        return l->rules.password != NULL;
    case STEP_HELLO:
        return d->option[DSN_PROTOCOL] == 3;
    case STEP_NAME:
        return d->client_name.n > 0;
    case STEP_SELECT:
        return d->db > 0;
    default:
        return true;
    }
}

static void write_auth(struct redis_link *l, struct buf *out)
{
    struct resp_command c = {{STR("AUTH")}, 1};
    size_t n;
    if (l->rules.dsn->username.n > 0)
        c.args[c.n++] = l->rules.dsn->username;
    c.args[c.n++] = secret_bytes(l->rules.password);
    char *text = resp_encode(&c, &n);
    buf_write(out, text, n);
    mem_free_wiped(text);
}

static void write_step(struct redis_link *l, struct buf *out)
{
    char db[20];
    struct resp_command commands[] = {
        [STEP_AUTH] = {{STR_NONE}, 0},
        [STEP_HELLO] = {{STR("HELLO"), STR("3")}, 2},
        [STEP_NAME] = {{STR("CLIENT"), STR("SETNAME"), l->rules.dsn->client_name}, 3},
        [STEP_SELECT] = {{STR("SELECT"), {db, text_put_u64(db, (uint64_t)l->rules.dsn->db)}}, 2},
        [STEP_PING] = {{STR("PING")}, 1},
    };
    size_t n;
    if (l->step == STEP_AUTH) {
        write_auth(l, out);
        return;
    }
    char *text = resp_encode(&commands[l->step], &n);
    buf_write(out, text, n);
    mem_free(text);
}

static void next_step(struct redis_link *l, enum step from)
{
    l->step = from;
    while (!is_wanted(l, l->step))
        l->step++;
    l->greeted = false;
    if (l->step != STEP_UP) {
        conn_wake(l->conn);
        return;
    }
    timer_clear(l->rules.w, &l->timer);
    l->rules.events->up(l->rules.user);
}

/* Who may not PING may still do what we are here for. */
static bool is_fatal(enum step step, const struct resp_reply *reply)
{
    static const char *const codes[] = {"NOAUTH", "LOADING", "MASTERDOWN", "WRONGPASS"};
    if (reply->type != RESP_ERROR)
        return false;
    if (step == STEP_AUTH || step == STEP_SELECT)
        return true;
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++)
        if (resp_is_error(reply, codes[i]))
            return true;
    return false;
}

static void on_greeting(struct redis_link *l, const struct resp_reply *reply)
{
    static const char *const names[] = {"AUTH", "HELLO", "CLIENT SETNAME", "SELECT", "PING"};
    char text[80];
    if (!is_fatal(l->step, reply)) {
        next_step(l, l->step + 1);
        return;
    }
    snprintf(text, sizeof text, "%s refused: %.*s", names[l->step], (int)reply->n, reply->text);
    fail(l, str_of(text), WHY_REFUSED);
}

/* ---- bytes */

/* The answer to HELLO has RESP3's types; it is stepped over.  False: there is not all of it. */
static bool take_hello(struct redis_link *l, struct buf *in)
{
    size_t room = sizeof l->hello - l->nhello, n = in->len < room ? in->len : room;
    buf_peek(in, l->hello + l->nhello, n);
    buf_drop(in, n);
    l->nhello += n;
    ptrdiff_t span = resp3_span((struct str){l->hello, l->nhello});
    if (span == 0 && l->nhello < sizeof l->hello)
        return false;
    if (span != (ptrdiff_t)l->nhello) /* we ask one thing at a time */
        fail(l, STR("an answer that is not Redis'"), WHY_ORIGIN_PROTOCOL);
    else
        next_step(l, STEP_HELLO + 1);
    return true;
}

static bool feed(struct redis_link *l, struct buf *in)
{
    char bytes[4096];
    size_t n = in->len < sizeof bytes ? in->len : sizeof bytes;
    buf_peek(in, bytes, n);
    buf_drop(in, n);
    return resp_feed(l->reader, bytes, n);
}

/* What was not asked for is an answer to nothing. */
static bool take_replies(struct redis_link *l)
{
    struct resp_reply reply;
    for (int got; (got = resp_next(l->reader, &reply)) != 0;) {
        if (got < 0)
            return false;
        if (l->step == STEP_UP && !l->rules.events->reply(l->rules.user, &reply))
            return false;
        if (l->step != STEP_UP && !l->greeted)
            return false;
        if (l->step != STEP_UP)
            on_greeting(l, &reply);
        if (!l->live || l->failing)
            return true;
    }
    return true;
}

static void on_bytes(void *user, struct buf *in)
{
    struct redis_link *l = user;
    while (in->len > 0 && l->live && !l->failing) {
        if (l->step == STEP_HELLO && l->greeted) {
            if (!take_hello(l, in))
                return;
        } else if (!feed(l, in) || !take_replies(l)) {
            fail(l, STR("an answer that is not Redis'"), WHY_ORIGIN_PROTOCOL);
        }
    }
}

static void on_fill(void *user, struct buf *out, size_t max)
{
    struct redis_link *l = user;
    if (!l->live)
        return;
    if (l->step == STEP_UP) {
        l->rules.events->fill(l->rules.user, out, max);
    } else if (!l->greeted && l->reader) {
        l->greeted = true;
        write_step(l, out);
    }
}

static void on_eof(void *user)
{
    struct redis_link *l = user;
    fail(l, STR("the server has hung up"), WHY_ORIGIN_GONE);
}

static void on_closed(void *user, enum why why)
{
    struct redis_link *l = user;
    struct str fault = conn_info(l->conn)->fault;
    l->conn = NULL;
    set_trouble(l, fault.n > 0 ? fault : str_of(why_text(why)));
    end(l);
}

static void begin(struct redis_link *l)
{
    l->reader = resp_reader_new();
    next_step(l, STEP_AUTH);
}

static void on_secure(void *user)
{
    begin(user);
}

static const struct conn_events link_events = {on_secure, on_bytes, on_eof, on_fill, on_closed};

/* ---- the way there */

static void on_conn(struct redis_link *l, struct conn *c)
{
    struct tls_to to = {.name = l->rules.dsn->server_name};
    l->conn = c;
    conn_attach(c, &link_events, l);
    if (l->rules.tls)
        conn_secure(c, l->rules.tls, &to);
    else
        begin(l);
}

/* Redis is where the operator says. */
static enum why allow(void *user, const struct sockaddr *addr)
{
    (void)user;
    (void)addr;
    return WHY_OK;
}

static void on_dialled(void *user, struct conn *c, enum why why)
{
    struct redis_link *l = user;
    l->dial = NULL;
    if (c) {
        on_conn(l, c);
        return;
    }
    set_trouble(l, str_of(why_text(why)));
    end(l);
}

static void on_timer(struct timer *t)
{
    struct redis_link *l = container_of(t, struct redis_link, timer);
    if (l->conn) {
        fail(l, STR("deadline"), WHY_DEADLINE);
        return;
    }
    if (l->dial)
        dial_cancel(l->dial);
    l->dial = NULL;
    set_trouble(l, STR("deadline"));
    end(l);
}

static void reach_socket(struct redis_link *l, uint64_t *ms)
{
    int err = 0;
    struct conn *c = conn_local(l->rules.w, l->rules.dsn->host, &err);
    if (c) {
        on_conn(l, c);
        return;
    }
    set_trouble(l, err == ENOENT ? STR("no such socket") : STR("dial"));
    *ms = 0; /* told when this has returned */
}

struct redis_link *link_new(const struct redis_link_rules *rules)
{
    struct redis_link *l = mem_new(sizeof *l);
    int64_t wanted = rules->dsn->option[DSN_DIAL_TIMEOUT];
    uint64_t ms = wanted > 0 && wanted < CONNECT_MAX_MS ? (uint64_t)wanted : CONNECT_MAX_MS;
    l->rules = *rules;
    l->rules.password = rules->password ? secret_ref(rules->password) : NULL;
    l->rules.tls = rules->tls ? tls_ctx_ref(rules->tls) : NULL;
    l->live = true;
    timer_init(&l->timer, on_timer);
    if (rules->dsn->unix_socket) {
        reach_socket(l, &ms);
    } else {
        struct dial_to to = {
            .host = rules->dsn->host, .port = rules->dsn->port, .names = rules->names};
        l->dial = dial_start(rules->w, &to, ms, allow, on_dialled, l);
    }
    timer_set(rules->w, &l->timer, ms);
    return l;
}

void link_wake(struct redis_link *l)
{
    if (l->conn && !l->failing)
        conn_wake(l->conn);
}

size_t link_unsent(const struct redis_link *l)
{
    return l->conn ? conn_unsent(l->conn) : 0;
}

void link_drop(struct redis_link *l)
{
    if (!l || !l->live)
        return;
    l->live = false;
    timer_clear(l->rules.w, &l->timer);
    if (l->conn) {
        fail(l, STR("dropped"), WHY_DRAIN);
        return;
    }
    if (l->dial)
        dial_cancel(l->dial);
    l->dial = NULL;
    worker_bury(l->rules.w, destroy, l);
}
