/* mischief.c — the cast, the acts and what is looked at afterwards.  Each client writes requests
 * with a number of their own in the id, the path and every byte of the body; each origin answers in
 * kind; so whatever comes out at the wrong place is seen. */
#include "harness/mischief.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/text.h"
#include "harness/rig.h"
#include "harness/wire.h"

enum { CLIENTS = 8, ORIGINS = 24, REQUESTS = 64, POOLS = 3 };

/* ---- what is asked */

struct method {
    const char *name;
    bool idempotent;
};
static const struct method methods[] = {{"GET", true},     {"POST", false}, {"PUT", true},
                                        {"HEAD", true},    {"POST", false}, {"DELETE", true},
                                        {"OPTIONS", true}, {"BREW", false}};
static const char *const pools[POOLS] = {"a", "b", "a@v"};
static const size_t sizes[] = {0, 1, 100, 700, 5000, 30000, 70000, 120000};

struct request {
    const struct method *method;
    size_t body;
    unsigned pool;
    bool keyed, upgrade, old;
    unsigned seen, lines; /* origin connections it came on, access lines */
    bool spoilt;          /* its origin put other bytes into its answer */
    unsigned again;       /* so often it was decided once more */
};

struct script {
    char *p;
    size_t n, room, at; /* at: said so far */
};

struct asker {
    struct conn *c;
    struct script script;
    unsigned asked[REQUESTS], nasked;
    bool foul; /* what it says from here on is no request, or may be none */
    bool left, reset;
};

struct origin {
    struct conn *c;
    struct script script;
    size_t at;     /* of what was written to it: the request that is looked at */
    int pool;      /* of its first request, or -1 */
    int current;   /* number of the request it answers, or -1 */
    bool answered; /* the script holds the whole answer to it */
    bool left, ends, spoilt;
    bool moved; /* its pool was left: it may finish what it has */
};

struct play {
    struct rig rig;
    const uint8_t *tape;
    size_t left;
    struct asker clients[CLIENTS];
    struct origin origins[ORIGINS];
    struct request requests[REQUESTS];
    unsigned nclients, norigins, nrequests;
    struct mischief_sum sum;
    bool draining;
};

static unsigned next(struct play *p)
{
    if (p->left == 0)
        return 0;
    p->left--;
    return *p->tape++;
}

/* ---- texts */

static void add(struct script *s, const void *p, size_t n)
{
    if (s->n + n > s->room) {
        s->room = 2 * (s->n + n);
        s->p = mem_renew(s->p, s->room);
    }
    if (n > 0)
        memcpy(s->p + s->n, p, n);
    s->n += n;
}

static void add_text(struct script *s, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static void add_text(struct script *s, const char *format, ...)
{
    char text[512];
    va_list args;
    va_start(args, format);
    int n = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    assert(n >= 0 && (size_t)n < sizeof text);
    add(s, text, (size_t)n);
}

static char body_byte(unsigned id, size_t i, bool answer)
{
    return (char)((answer ? 'A' : 'a') + (id * 7 + i) % 23);
}

static void add_body(struct script *s, unsigned id, size_t from, size_t n, bool answer)
{
    char part[1024];
    for (size_t done = 0; done < n;) {
        size_t k = n - done < sizeof part ? n - done : sizeof part;
        for (size_t i = 0; i < k; i++)
            part[i] = body_byte(id, from + done + i, answer);
        add(s, part, k);
        done += k;
    }
}

static void add_chunks(struct script *s, unsigned id, size_t n, size_t piece, bool answer,
                       bool trailers)
{
    for (size_t at = 0; at < n; at += piece) {
        size_t k = n - at < piece ? n - at : piece;
        add_text(s, "%zx\r\n", k);
        add_body(s, id, at, k, answer);
        add_text(s, "\r\n");
    }
    add_text(s, "0\r\n%s\r\n", trailers ? "x-trailer: 1\r\n" : "");
}

static void assert_body(struct str body, unsigned id, bool answer)
{
    for (size_t i = 0; i < body.n; i++)
        assert(body.p[i] == body_byte(id, i, answer));
}

/* "r7" → 7; -1: not one of ours. */
static int number_of(struct str id)
{
    uint64_t n;
    if (id.n < 2 || id.p[0] != 'r' || !text_u64(str_skip(id, 1), REQUESTS - 1, &n))
        return -1;
    return (int)n;
}

/* ---- clients */

static void new_client(struct play *p)
{
    if (p->nclients == CLIENTS || p->draining)
        return;
    p->clients[p->nclients++] = (struct asker){.c = rig_client(&p->rig)};
}

static void write_request(struct play *p, struct asker *c, unsigned arg)
{
    unsigned more = next(p), id = p->nrequests;
    if (id == REQUESTS || c->foul)
        return;
    struct request *q = &p->requests[p->nrequests++];
    *q = (struct request){
        .method = &methods[arg & 7], .pool = (arg >> 3) % POOLS, .keyed = (more & 7) == 1};
    q->body = arg & 64 ? sizes[arg & 128 ? more >> 5 : (more >> 5) & 3] : 0;
    q->old = (more & 31) == 9;
    q->upgrade = (more & 31) == 10;
    bool chunked = (more & 8) && !q->old;
    c->asked[c->nasked++] = id;
    add_text(&c->script, "%s /%s/%u HTTP/1.%d\r\nhost: x\r\nx-request-id: r%u\r\n", q->method->name,
             pools[q->pool], id, !q->old, id);
    if (q->keyed)
        add_text(&c->script, "idempotency-key: k\r\n");
    if ((more & 15) == 3)
        add_text(&c->script, "expect: 100-continue\r\n");
    if (q->upgrade) {
        c->foul = true;
        q->body = 0;
        add_text(&c->script, "connection: upgrade\r\nupgrade: wire\r\n\r\n");
        add_body(&c->script, id, 0, 3000, false);
        return;
    }
    if (q->body == 0) {
        add_text(&c->script, "\r\n");
    } else if (chunked) {
        add_text(&c->script, "transfer-encoding: chunked\r\n\r\n");
        add_chunks(&c->script, id, q->body, 1 + (more & 16) * 500, false, more & 4);
    } else {
        add_text(&c->script, "content-length: %zu\r\n\r\n", q->body);
        add_body(&c->script, id, 0, q->body, false);
    }
}

static void speak(struct script *s, struct conn *c, size_t n)
{
    if (n > s->n - s->at)
        n = s->n - s->at;
    if (n == 0)
        return;
    fake_feed(c, s->p + s->at, n);
    s->at += n;
}

static size_t piece(unsigned arg)
{
    return arg < 64 ? arg : arg < 96 ? (arg - 63u) * 50 : arg < 128 ? (arg - 95u) * 2000 : SIZE_MAX;
}

static void act_client(struct play *p, unsigned act, unsigned arg)
{
    if (p->nclients == 0)
        new_client(p);
    if (p->nclients == 0)
        return;
    struct asker *c = &p->clients[next(p) % p->nclients];
    switch (act) {
    case 0: /* something new to say */
        write_request(p, c, arg);
        break;
    case 1:
        if (!c->left)
            speak(&c->script, c->c, piece(arg));
        break;
    case 2: /* nonsense, from here on */
        if (arg < 200)
            break;
        c->foul = true;
        add_body(&c->script, arg, 0, arg, arg & 1);
        break;
    case 3:
        if (!c->left && arg > 210) {
            c->left = true;
            c->reset = arg > 232;
            c->reset ? fake_feed_error(c->c) : fake_feed_eof(c->c);
        }
        break;
    default:
        fake_room(c->c, arg > 200 ? SIZE_MAX : arg < 20 ? 0 : arg * 40);
        break;
    }
}

/* ---- origins */

static void new_origin(struct play *p, unsigned arg)
{
    static const enum why whys[] = {WHY_DIAL, WHY_DNS, WHY_DEADLINE, WHY_OVERLOAD};
    struct dial *d = fake_dial_first(p->rig.w);
    if (!d)
        return;
    if (p->norigins == ORIGINS || arg > 220) {
        fake_dial_fail(d, whys[arg & 3], arg & 4 ? 111 : 0);
        return;
    }
    struct conn *c = fake_dial_up(d);
    rig_keep(&p->rig, c);
    p->origins[p->norigins++] = (struct origin){.c = c, .pool = -1, .current = -1};
}

static unsigned pool_of(struct str start)
{
    for (unsigned i = 0; i < POOLS; i++) {
        char text[16];
        int n = snprintf(text, sizeof text, " /%s/", pools[i]);
        if (memmem(start.p, start.n, text, (size_t)n))
            return i;
    }
    assert(false);
    return 0;
}

/* What was written to the origin so far, checked; true: there is a request that it may answer. */
static bool look(struct play *p, struct origin *o, struct wire_message *m, enum wire *ret,
                 struct arena *a, struct str *rest)
{
    *rest = str_skip(fake_written(o->c), o->at);
    *ret = wire_request(rest, a, m);
    if (!m->has_head)
        return false;
    int id = number_of(wire_field(m, "x-rid"));
    unsigned pool = pool_of(m->start);
    if (o->pool < 0)
        o->pool = (int)pool;
    assert((unsigned)o->pool == pool); /* no connection is ever shared between pools */
    if (id < 0)
        return o->current == -1; /* a nonsense that happened to be a request */
    struct request *q = &p->requests[id];
    q->spoilt |= o->spoilt;
    if (!q->upgrade)
        assert_body(m->body, (unsigned)id, false);
    if (o->current != id) {
        o->current = id;
        q->seen++;
        bool twice = q->method->idempotent || q->keyed;
        assert(q->seen <= (twice ? 2u : 1u) + q->again);
        if (q->seen == 2 && !q->again)
            p->sum.retries++;
    }
    assert(*ret != WIRE_BAD || q->upgrade);
    return true;
}

static void answer_body(struct origin *o, unsigned id, size_t n, unsigned how)
{
    if (how == 1)
        add_chunks(&o->script, id, n, n / 3 + 1, true, n & 1);
    else
        add_body(&o->script, id, 0, n, true);
}

/* The whole answer to the current request, or what passes for one. */
static void write_answer(struct play *p, struct origin *o, struct wire_message *m, unsigned arg)
{
    static const int statuses[] = {200, 200, 404, 200, 304, 204, 200, 500};
    unsigned more = next(p), id = (unsigned)o->current, how = more & 3;
    int status = statuses[arg & 7];
    size_t n = sizes[arg & 128 ? more >> 5 : (more >> 5) & 3];
    bool head = str_starts(m->start, STR("HEAD")), upgrade = wire_field(m, "upgrade").p != NULL;
    o->answered = true;
    if (arg < 4) /* nonsense */
        add_text(&o->script, "HTTP/1.1 2x0 \r\n%u", arg);
    if ((arg & 0x18) == 0x08)
        add_text(&o->script, "HTTP/1.1 %d \r\nx-echo: r%u\r\n\r\n", arg & 64 ? 100 : 103, id);
    if (upgrade && (more & 4)) {
        add_text(&o->script,
                 "HTTP/1.1 101 \r\nx-echo: r%u\r\nconnection: upgrade\r\nupgrade: wire\r\n\r\n",
                 id);
        add_body(&o->script, id, 0, n, true);
        return;
    }
    add_text(&o->script, "HTTP/1.1 %d \r\nx-echo: r%u\r\n", status, id);
    if (how != 2)
        add_text(&o->script, "x-len: %zu\r\n", n);
    if (how == 1)
        add_text(&o->script, "transfer-encoding: chunked\r\n");
    if (how == 0 || how == 3)
        add_text(&o->script, "content-length: %zu\r\n", n);
    add_text(&o->script, (more & 31) == 21 ? "connection: close\r\n\r\n" : "\r\n");
    if (head || status == 204 || status == 304)
        return;
    answer_body(o, id, n, how);
    o->ends = how == 2;
}

static void answer(struct play *p, struct origin *o, unsigned arg, bool early)
{
    struct arena a;
    struct wire_message m;
    enum wire w;
    struct str rest;
    arena_init(&a, NULL, 0);
    if (!o->answered && look(p, o, &m, &w, &a, &rest) && o->current >= 0 &&
        (w == WIRE_WHOLE || early))
        write_answer(p, o, &m, arg);
    if (o->answered && o->script.at == o->script.n && look(p, o, &m, &w, &a, &rest) &&
        w == WIRE_WHOLE && rest.n > 0) {
        o->at = fake_written(o->c).n - rest.n; /* on to the next one */
        o->answered = false;
        look(p, o, &m, &w, &a, &rest);
    }
    arena_done(&a);
}

static void leave(struct origin *o, bool reset)
{
    if (o->left)
        return;
    o->left = true;
    reset ? fake_feed_error(o->c) : fake_feed_eof(o->c);
}

static void act_origin(struct play *p, unsigned act, unsigned arg)
{
    if (act == 0) {
        new_origin(p, arg);
        return;
    }
    if (p->norigins == 0)
        return;
    struct origin *o = &p->origins[next(p) % p->norigins];
    switch (act) {
    case 1:
        answer(p, o, arg, arg > 220);
        if (!o->left && (arg & 1))
            speak(&o->script, o->c, SIZE_MAX);
        break;
    case 2:
        if (!o->left)
            speak(&o->script, o->c, piece(arg));
        break;
    case 3:
        if (arg > 180 || (o->ends && o->script.at == o->script.n))
            leave(o, arg > 220);
        break;
    case 4:
        if (o->left || arg <= 200)
            break;
        o->spoilt = true;
        if (o->current >= 0)
            p->requests[o->current].spoilt = true;
        fake_feed(o->c, "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n",
                  arg & 31); /* nobody asked */
        break;
    default:
        fake_room(o->c, arg > 200 ? SIZE_MAX : arg < 20 ? 0 : arg * 40);
        break;
    }
}

/* ---- what the gate has to ask first, and thinks of twice */

enum { UNWANTED = 404, KEPT = 40000 };

static struct request *request_of(struct play *p, const struct facts *f)
{
    int id = number_of(f->request_id);
    return id < 0 ? NULL : &p->requests[id];
}

static bool decide(struct rig *r, const struct facts *f, struct arena *a, struct verdict *v)
{
    struct play *p = r->user;
    const struct request *q = request_of(p, f);
    unsigned kind = q ? (unsigned)(q - p->requests) & 7 : 0, waits = kind > 5 ? kind - 5 : 0;
    if (f->turn >= waits)
        return false;
    *v = (struct verdict){.act = ACT_WAIT, .key = arena_str(a, str_of(pools[q->pool]))};
    return true;
}

static bool again(struct rig *r, const struct facts *f, enum why why, enum stage stage)
{
    struct play *p = r->user;
    struct request *q = request_of(p, f);
    (void)why;
    if (!q || ((q - p->requests) & 3) == 0)
        return false;
    q->again++;
    p->sum.again += stage == STAGE_ANSWER;
    return true;
}

static void tell(struct play *p)
{
    for (int i = 0; i < POOLS; i++)
        proxy_resume(p->rig.p, str_of(pools[i]), NULL, NULL);
}

/* ---- the rest of the world */

/* What stands before an '@' names the pool. */
static struct str pool_name(unsigned pool)
{
    struct str name = str_of(pools[pool]);
    ptrdiff_t at = str_chr(name, '@');
    return at < 0 ? name : str_head(name, (size_t)at);
}

static bool is_in(const struct origin *o, struct str pool)
{
    return o->pool >= 0 && !o->moved && str_eq(pool_name((unsigned)o->pool), pool);
}

/* Which origins are of which pool by now? */
static void look_at_origins(struct play *p)
{
    struct arena a;
    arena_init(&a, NULL, 0);
    for (unsigned i = 0; i < p->norigins; i++) {
        struct wire_message m;
        enum wire w;
        struct str rest;
        look(p, &p->origins[i], &m, &w, &a, &rest);
    }
    arena_done(&a);
}

static void purge(struct play *p, struct str pool)
{
    look_at_origins(p);
    proxy_purge(p->rig.p, pool);
    for (unsigned i = 0; i < p->norigins; i++) {
        struct origin *o = &p->origins[i];
        assert(!is_in(o, pool) || fake_end(o->c) == FAKE_CLOSED || fake_end(o->c) == FAKE_RESET);
    }
}

static void move(struct play *p, struct str pool, struct str to)
{
    if (str_eq(pool, to))
        return;
    look_at_origins(p);
    proxy_move(p->rig.p, pool, to);
    for (unsigned i = 0; i < p->norigins; i++)
        p->origins[i].moved |= is_in(&p->origins[i], pool);
}

static void on_drained(void *user)
{
    (void)user;
}

static void act_world(struct play *p, unsigned act, unsigned arg)
{
    switch (act) {
    case 0:
        fake_settle(p->rig.w);
        break;
    case 1:
        fake_time(p->rig.w, arg);
        break;
    case 2:
        fake_time(p->rig.w, arg > 200 ? arg * 100 : arg * 10);
        break;
    case 3:
        if (arg < 180)
            break;
        fake_settle(p->rig.w); /* what was decided has been said */
        if (arg > 220)
            move(p, pool_name(arg % POOLS), pool_name(arg / POOLS % POOLS));
        else
            purge(p, pool_name(arg % POOLS));
        break;
    case 4:
        if (arg > 250 && !p->draining) {
            p->draining = true;
            proxy_drain(p->rig.p, on_drained, NULL);
        }
        break;
    case 5:
        if (arg > 250 && p->draining)
            proxy_cut(p->rig.p);
        break;
    default:
        tell(p);
        break;
    }
}

static void step(struct play *p)
{
    /* who acts, and how: the rows say how often */
    static const struct row {
        void (*act)(struct play *p, unsigned act, unsigned arg);
        uint8_t how;
    } rows[32] = {{act_client, 0}, {act_client, 0}, {act_client, 0}, {act_client, 1},
                  {act_client, 1}, {act_client, 1}, {act_client, 1}, {act_client, 2},
                  {act_client, 3}, {act_client, 4}, {act_origin, 0}, {act_origin, 0},
                  {act_origin, 0}, {act_origin, 0}, {act_origin, 1}, {act_origin, 1},
                  {act_origin, 1}, {act_origin, 1}, {act_origin, 2}, {act_origin, 2},
                  {act_origin, 2}, {act_origin, 2}, {act_origin, 3}, {act_origin, 4},
                  {act_origin, 5}, {act_world, 0},  {act_world, 6},  {act_world, 1},
                  {act_world, 2},  {act_world, 3},  {act_world, 4},  {act_world, 5}};
    unsigned who = next(p), arg = next(p);
    if ((who & 31) == 0 && arg < 64)
        new_client(p);
    rows[who & 31].act(p, rows[who & 31].how, arg);
    if (who & 0x60) /* else the next one acts within the same turn */
        fake_settle(p->rig.w);
    rig_check(&p->rig);
    p->sum.steps++;
}

/* ---- the end of the play */

/* All that has been written to anybody. */
static size_t written(const struct play *p)
{
    size_t n = 0;
    for (unsigned i = 0; i < p->rig.nconns; i++)
        n += fake_written(p->rig.conns[i]).n;
    return n;
}

/* Everybody does what is right: whoever is still there must be served. */
static void politely(struct play *p)
{
    size_t before = SIZE_MAX;
    for (unsigned i = 0; i < p->nclients; i++)
        fake_room(p->clients[i].c, SIZE_MAX);
    for (int quiet = 0; quiet < 3; quiet = written(p) == before ? quiet + 1 : 0) {
        before = written(p);
        for (unsigned i = 0; i < p->nclients; i++)
            if (!p->clients[i].left)
                speak(&p->clients[i].script, p->clients[i].c, SIZE_MAX);
        tell(p);
        fake_settle(p->rig.w);
        while (fake_dials(p->rig.w) > 0)
            new_origin(p, 0);
        fake_settle(p->rig.w);
        for (unsigned i = 0; i < p->norigins; i++) {
            struct origin *o = &p->origins[i];
            fake_room(o->c, SIZE_MAX);
            answer(p, o, 8, false);
            if (!o->left)
                speak(&o->script, o->c, SIZE_MAX);
            if (o->spoilt || (o->ends && o->script.at == o->script.n))
                leave(o, false);
        }
        fake_settle(p->rig.w);
    }
}

/* Whose answer is it?  An origin's says so in x-echo, one of ours in the request's id. */
static void check_owner(const struct asker *c, unsigned n, const struct request *q,
                        const struct wire_message *m)
{
    struct str echo = wire_field(m, "x-echo"), id = wire_field(m, "x-request-id");
    bool unasked = wire_field(m, "x-gate").p && !echo.p; /* what an origin said to nobody */
    assert(q || (c->foul && !echo.p) || m->status == 408);
    if (echo.p)
        assert(q->spoilt || number_of(echo) == (int)c->asked[n]);
    else if (m->status >=
             200) /* an interim head without an echo may be what an origin said to nobody, too */
        assert(unasked || (id.n > 0 && (number_of(id) < 0 || number_of(id) == (int)c->asked[n])));
}

/* What looks whole is whole, and every byte is this request's. */
static void check_body(unsigned id, const struct request *q, const struct wire_message *m,
                       bool whole)
{
    struct str length = wire_field(m, "x-len");
    bool bodyless =
        m->status == 204 || m->status == 304 || str_eq(str_of(q->method->name), STR("HEAD"));
    uint64_t expected;
    assert_body(m->body, id, true);
    if (whole && !bodyless && length.p && text_u64(length, SIZE_MAX, &expected))
        assert(m->body.n == expected);
}

/* The answers on a client's connection; returns how many were final. */
static unsigned read_answers(struct play *p, struct asker *c)
{
    struct str rest = fake_written(c->c);
    bool ended = fake_end(c->c) == FAKE_CLOSED || fake_end(c->c) == FAKE_FIN;
    unsigned n = 0;
    struct arena a;
    arena_init(&a, NULL, 0);
    for (;;) {
        const struct request *q = n < c->nasked ? &p->requests[c->asked[n]] : NULL;
        bool head = q && str_eq(str_of(q->method->name), STR("HEAD"));
        struct wire_message m;
        enum wire w = wire_response(&rest, head, ended && !c->reset, &a, &m);
        assert(w != WIRE_BAD);
        if (w == WIRE_NONE || !m.has_head)
            break;
        check_owner(c, n, q, &m);
        assert(m.status >= 200 || !q || !q->old);
        if (m.status < 200 && m.status != 101)
            continue;
        bool theirs = wire_field(&m, "x-echo").p;
        n++;
        *(m.status == 101 ? &p->sum.tunnels : theirs ? &p->sum.answers : &p->sum.own_answers) += 1;
        assert(m.status != 101 || q->upgrade);
        if (m.status == 101)
            m.body = rest;
        if (theirs && !q->spoilt)
            check_body(c->asked[n - 1], q, &m, w == WIRE_WHOLE && m.status != 101);
        if (m.status == 101)
            break;
    }
    arena_done(&a);
    return n;
}

static void on_line(struct rig *r, struct str line)
{
    static const char key[] = "\"request_id\":\"";
    struct play *p = r->user;
    const char *at = memmem(line.p, line.n, key, sizeof key - 1);
    assert(at);
    struct str rest = str_skip(line, (size_t)(at - line.p) + sizeof key - 1), id;
    p->sum.lines++;
    if (str_next(&rest, '"', &id) && number_of(id) >= 0) {
        struct request *q = &p->requests[number_of(id)];
        assert(q->lines == 0);
        q->lines++;
    }
}

static void check_end(struct play *p, bool polite)
{
    for (unsigned i = 0; i < p->nclients; i++) {
        struct asker *c = &p->clients[i];
        unsigned n = read_answers(p, c);
        assert(n <= c->nasked + (c->foul ? 100 : 1));
        if (polite && fake_end(c->c) == FAKE_UP && !c->left && !c->foul)
            assert(n == c->nasked); /* it was polite: it was served */
    }
}

static bool is_gone(const struct play *p)
{
    return rig_running(&p->rig) == 0 && proxy_clients(p->rig.p) == 0 &&
           origin_open(proxy_origins(p->rig.p)) == 0;
}

static void check_gone(struct play *p)
{
    assert(is_gone(p));
    uint64_t ended = 0;
    for (int i = 0; i < WHYS; i++)
        ended += counter_get(&proxy_metrics(p->rig.p)->ended[i]);
    assert(ended == meter()->streams[0]);
    for (unsigned i = 0; i < p->nrequests; i++)
        assert(p->requests[i].seen == 0 || p->requests[i].lines == 1);
}

void mischief(const uint8_t *tape, size_t n, struct mischief_sum *sum)
{
    struct play *p = mem_new(sizeof *p);
    p->tape = tape;
    p->left = n;
    rig_init(&p->rig, NULL);
    p->rig.quiet = p->rig.judged.quiet = true;
    p->rig.on_line = on_line;
    p->rig.decide = decide;
    p->rig.again = again;
    p->rig.unwanted = UNWANTED;
    p->rig.keep = KEPT;
    p->rig.user = p;
    bool polite = next(p) & 1;
    while (p->left > 0)
        step(p);
    if (polite)
        politely(p);
    else
        fake_settle(p->rig.w);
    check_end(p, polite);
    /* nobody does anything any more: each request may take its deadlines, one after the other */
    for (unsigned i = 0; i < 20 + 3 * p->nrequests && !is_gone(p); i++)
        fake_time(p->rig.w, 15000);
    check_gone(p);
    for (unsigned i = 0; i < p->nclients; i++)
        mem_free(p->clients[i].script.p);
    for (unsigned i = 0; i < p->norigins; i++)
        mem_free(p->origins[i].script.p);
    p->sum.requests = p->nrequests;
    if (sum)
        *sum = (struct mischief_sum){
            sum->steps + p->sum.steps,     sum->requests + p->sum.requests,
            sum->answers + p->sum.answers, sum->own_answers + p->sum.own_answers,
            sum->retries + p->sum.retries, sum->tunnels + p->sum.tunnels,
            sum->lines + p->sum.lines,     sum->again + p->sum.again};
    rig_done(&p->rig);
    mem_free(p);
}
