/* mixed_test.c — clients and origins of both versions that do anything at any time, by the throw of
 * dice: the laws of streams hold (meter.h, trace.h), every byte that arrives is the right one of
 * the right exchange, nothing is asked twice that may not be, and in the end nothing is left.  The
 * same under a gate that meddles: which lets origins choose, holds bodies, filters and refuses. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <cmocka.h>

#include "base/text.h"
#include "harness/peer.h"
#include "net/tls.h"

enum { PEERS = 40, CLIENTS = 6, IDS = 60, PLAYS = 150, STEPS = 300 };

struct id {
    bool idempotent, refused, tunnel;
    unsigned seen;
};

struct play {
    struct rig rig;
    struct peer peers[PEERS], *all[PEERS];
    unsigned npeers, nclients, nids;
    struct id ids[IDS];
    uint32_t dice;
    bool meddles;
};

/* cmocka runs one test after the other; taps find their play here. */
static struct play *play;
static unsigned whole_answers, own_answers, retries, tunnels, filters, held_bodies;
static struct tls_ctx *tls;

static unsigned throw(unsigned sides)
{
    play->dice = play->dice * 1664525u + 1013904223u;
    return (play->dice >> 8) % sides;
}

static bool chance(unsigned percent)
{
    return throw(100) < percent;
}

/* ---- what is said: letters that tell which exchange they are of, and where in it */

static char letter(unsigned id, uint64_t at, bool answer)
{
    return (char)((answer ? 'A' : 'a') + (id * 7 + at) % 23);
}

static void say(struct call *c, unsigned id, size_t n)
{
    char text[4096];
    for (size_t left = n; left > 0;) {
        size_t k = left < sizeof text ? left : sizeof text;
        for (size_t i = 0; i < k; i++)
            text[i] = letter(id, c->tap.given + i, c->peer->origin);
        tap_data(&c->tap, (struct str){text, k});
        left -= k;
    }
}

static struct call *call_of(struct tap *t)
{
    return container_of(t, struct call, tap);
}

/* "/a@one/7" → 7. */
static unsigned id_of_path(struct str path)
{
    uint64_t id = IDS;
    ptrdiff_t at = str_chr(str_skip(path, 1), '/');
    bool ok = at > 0 && text_u64(str_skip(path, (size_t)at + 2), IDS - 1, &id);
    assert_true(ok);
    return (unsigned)id;
}

static void heard_head(struct tap *t, struct http_head *head, bool end)
{
    struct call *c = call_of(t);
    (void)end;
    if (!c->peer->origin) {
        const struct str *echo = head_get(head, STR("x-echo"));
        uint64_t id;
        own_answers += head->status >= 400 && !echo;
        if (echo)
            assert_true(text_u64(*echo, IDS, &id) && id == c->number);
        return;
    }
    c->number = id_of_path(head->path);
    struct id *id = &play->ids[c->number];
    id->seen++;
    assert_true(id->seen <= (id->idempotent || id->refused ? 2 : 1));
    retries += id->seen == 2;
}

static void heard_data(struct tap *t, struct str bytes)
{
    struct call *c = call_of(t);
    const struct str *echo = t->head ? head_get(t->head, STR("x-echo")) : NULL;
    if (!c->peer->origin && !echo)
        return; /* words of ours */
    uint64_t at = t->received - bytes.n;
    for (size_t i = 0; i < bytes.n; i++)
        assert_true(bytes.p[i] == letter(c->number, at + i, !c->peer->origin));
}

static void heard_end(struct tap *t, struct http_head *trailers)
{
    struct call *c = call_of(t);
    (void)trailers;
    whole_answers += !c->peer->origin && head_get(t->head, STR("x-echo"));
}

static const struct tap_user listener = {heard_head, heard_data, heard_end, NULL, NULL, NULL};

/* ---- acts */

static struct peer *new_peer(void)
{
    if (play->npeers == PEERS)
        return NULL;
    play->all[play->npeers] = &play->peers[play->npeers];
    return &play->peers[play->npeers++];
}

static void act_new_client(void)
{
    if (play->nclients == CLIENTS)
        return;
    struct peer *p = new_peer();
    if (!p)
        return;
    play->nclients++;
    peer_client(p, &play->rig, chance(60) ? H2 : H1);
    p->user = &listener;
    p->hold = chance(30);
}

static struct peer *some_peer(bool origin)
{
    for (int tries = 0; tries < 8 && play->npeers > 0; tries++) {
        struct peer *p = &play->peers[throw(play->npeers)];
        if (p->origin == origin && p->s && !p->broken)
            return p;
    }
    return NULL;
}

static struct call *some_call(bool origin)
{
    struct peer *p = some_peer(origin);
    if (!p || p->ncalls == 0)
        return NULL;
    for (int tries = 0; tries < 6; tries++) {
        struct call *c = &p->calls[throw(p->ncalls)];
        if (!c->tap.over && !c->tap.cancelled)
            return c;
    }
    return NULL;
}

static size_t some_size(void)
{
    static const size_t sizes[] = {1, 10, 700, 5000, 40000, 66000, 150000};
    return sizes[throw(sizeof sizes / sizeof *sizes)];
}

static void act_ask(void)
{
    static const char *const pools[] = {"a@one", "b@one", "a2@two", "b2@two", "b2@two"};
    static const char *const methods[] = {"GET", "POST", "PUT", "POST"};
    struct peer *p = some_peer(false);
    if (!p || p->ncalls == PEER_CALLS || play->nids == IDS)
        return;
    char path[32];
    unsigned id = play->nids, method = throw(4);
    bool tunnel = chance(10), body = !tunnel && method > 0 && chance(70);
    snprintf(path, sizeof path, "/%s/%u", pools[throw(5)], id);
    struct field version = {STR("sec-websocket-version"), STR("13")};
    struct http_head head = {.method = str_of(tunnel ? "GET" : methods[method]),
                             .scheme = STR("http"),
                             .authority = STR("gw.test"),
                             .path = str_of(path),
                             .length = -1,
                             .keyless = true,
                             .fields = &version,
                             .nfields = tunnel};
    if (tunnel)
        head.protocol = STR("websocket");
    play->ids[id] = (struct id){.idempotent = tunnel || method % 2 == 0, .tunnel = tunnel};
    struct call *c = peer_ask_head(p, &head, !body);
    if (!c)
        return;
    play->nids++;
    c->number = id;
    if (body && chance(80))
        say(c, id, some_size());
    if (body && chance(60))
        tap_end(&c->tap, NULL);
}

static bool may_speak(const struct call *c)
{
    return c && !c->tap.said_end && (c->tap.server ? c->answered : !c->tap.got_fault) &&
           (!play->ids[c->number].tunnel || c->tap.tunnel || c->tap.server);
}

static void act_speak(void)
{
    struct call *c = some_call(chance(50));
    if (may_speak(c))
        say(c, c->number, some_size());
}

static void act_end(void)
{
    struct call *c = some_call(chance(60));
    if (may_speak(c))
        tap_end(&c->tap, NULL);
}

static void act_answer(void)
{
    struct call *c = some_call(true);
    if (!c || c->answered || !c->tap.head || c->tap.got_fault)
        return;
    char text[8];
    snprintf(text, sizeof text, "%u", c->number);
    struct field echo = {STR("x-echo"), str_of(text)};
    struct http_head head = {
        .status = 200, .length = -1, .keyless = true, .fields = &echo, .nfields = 1};
    if (chance(20)) {
        head.status = 103;
        call_answer_head(c, &head, false);
        return;
    }
    c->answered = true;
    if (play->ids[c->number].tunnel && chance(80)) {
        head.status = 101;
        head.protocol = STR("websocket");
        tunnels++;
    }
    call_answer_head(c, &head, false);
    if (chance(80))
        say(c, c->number, some_size());
    if (chance(70))
        tap_end(&c->tap, NULL);
}

static void act_cancel(void)
{
    static const enum why whys[] = {WHY_ORIGIN_GONE, WHY_DRAIN, WHY_REVOKED, WHY_CLIENT_GONE};
    struct call *c = some_call(chance(50));
    if (!c)
        return;
    enum why why = whys[throw(4)];
    if (c->tap.server && !c->answered) /* that may be said to be refused */
        play->ids[c->number].refused = true;
    tap_cancel(&c->tap, why);
}

static void act_credit(void)
{
    struct call *c = some_call(chance(50));
    if (!c)
        return;
    c->tap.hold = chance(20);
    tap_credit_all(&c->tap);
}

static void act_dial(void)
{
    static const enum why whys[] = {WHY_DIAL, WHY_DEADLINE, WHY_OVERLOAD, WHY_DNS};
    struct dial *d = fake_dial_first(play->rig.w);
    if (!d)
        return;
    enum version version = str_eq(fake_dial_host(d), STR("two")) ? H2 : H1;
    if (play->meddles)
        version = fake_dial_offers(d, "h2") && chance(50) ? H2 : H1;
    struct peer *p = chance(85) ? new_peer() : NULL;
    if (!p) {
        fake_dial_fail(d, whys[throw(4)], 111);
        return;
    } else if (chance(5))
        version = H1;
    peer_origin(p, &play->rig, version, chance(50) ? 1 + throw(4) : 100);
    p->user = &listener;
    p->hold = chance(20);
}

static void act_break(void)
{
    struct peer *p = some_peer(chance(60));
    if (p)
        peer_break(p);
}

static void act_leave(void)
{
    struct peer *p = some_peer(true);
    if (!p)
        return;
    for (unsigned i = 0; i < p->ncalls; i++) /* a GOAWAY may refuse what was on its way */
        play->ids[p->calls[i].number].refused = true;
    p->s->ops->drain(p->s);
}

static void act_purge(void)
{
    static const char *const names[] = {"a", "b", "a2", "b2"};
    unsigned which = throw(4);
    if (chance(50))
        proxy_move(play->rig.p, str_of(names[which]), str_of(names[which ^ 1]));
    else
        proxy_purge(play->rig.p, str_of(names[which]));
}

static void act_time(void)
{
    fake_time(play->rig.w, chance(90) ? 10 + throw(1000) : 3000 + throw(20000));
}

/* ---- a gate that meddles: bodies stay what they are, in other pieces */

struct tail {
    struct filter f;
    struct buf kept;
    size_t keeps;
    unsigned fails_in; /* pushes */
};

static void give(struct buf *to, struct buf *from, size_t keeps, size_t room)
{
    size_t n = from->len > keeps ? from->len - keeps : 0;
    buf_move(to, from, n < room ? n : room);
}

static enum why push(struct filter *f, struct buf *in, bool end, size_t room, struct buf *out,
                     bool *ret_done)
{
    struct tail *t = container_of(f, struct tail, f);
    if (t->fails_in > 0 && --t->fails_in == 0)
        return WHY_ORIGIN_PROTOCOL;
    if (t->kept.len <= t->keeps)
        buf_move_all(&t->kept, in);
    give(out, &t->kept, end && in->len == 0 ? 0 : t->keeps, room);
    *ret_done = end && in->len + t->kept.len == 0;
    return WHY_OK;
}

static void free_tail(struct filter *f)
{
    struct tail *t = container_of(f, struct tail, f);
    buf_clear(&t->kept);
    filters--;
    mem_free(t);
}

static const struct filter_ops tail_ops = {push, free_tail};

static struct filter *some_filter(struct rig *r, const struct http_head *head)
{
    (void)head;
    if (chance(20))
        return NULL;
    struct tail *t = mem_new(sizeof *t);
    buf_init(&t->kept, worker_pool(r->w));
    t->f.ops = &tail_ops;
    t->keeps = throw(3) * 20;
    t->fails_in = chance(10) ? 1 + throw(4) : 0;
    filters++;
    return &t->f;
}

static void held(struct rig *r, struct verdict *v, struct buf *body, bool whole, struct arena *a)
{
    (void)r;
    assert_true(whole ? body->len <= v->hold : body->len > v->hold);
    held_bodies++;
    if (!whole || chance(50))
        return;
    struct http_head *head = head_copy(v->head, 0, a);
    head->length = (int64_t)body->len;
    v->head = head;
}

static void act_meddle(void)
{
    if (!play->meddles)
        return;
    play->rig.peer = chance(20) ? WHY_IDENTITY : WHY_OK;
    play->rig.unwanted = chance(80) ? 0 : chance(50) ? 103 : 200;
    play->rig.hold = chance(50) ? 6000 : 50000;
    play->rig.banned = chance(10) ? "two" : NULL;
    if (play->rig.banned || chance(20))
        proxy_recheck(play->rig.p);
}

static void begin_meddling(void)
{
    play->rig.tls = tls;
    play->rig.hold = 6000;
    play->rig.held = held;
    play->rig.filter = some_filter;
    play->rig.marks = true;
}

static void step(void)
{
    static const struct {
        void (*act)(void);
        unsigned weight;
    } acts[] = {{act_new_client, 6}, {act_ask, 24},  {act_speak, 14},  {act_end, 14},
                {act_answer, 24},    {act_dial, 20}, {act_credit, 16}, {act_cancel, 4},
                {act_break, 1},      {act_leave, 1}, {act_purge, 1},   {act_time, 4},
                {act_meddle, 6}};
    unsigned all = 0, at;
    for (size_t i = 0; i < sizeof acts / sizeof *acts; i++)
        all += acts[i].weight;
    at = throw(all);
    size_t i = 0;
    for (; at >= acts[i].weight; i++)
        at -= acts[i].weight;
    acts[i].act();
    if (chance(70))
        peer_pump(play->all, play->npeers);
    rig_check(&play->rig);
}

static void on_drained(void *user)
{
    (void)user;
}

static void one_play(uint32_t seed, bool meddles)
{
    struct proxy_rules rules = rig_rules;
    struct http_limits *both[] = {&rules.client, &rules.origin};
    for (int i = 0; i < 2; i++) {
        both[i]->window_max = 262144;
        both[i]->max_streams = 50;
        both[i]->max_resets = 1000;
        both[i]->max_control = 10000;
    }
    play = mem_new(sizeof *play);
    play->dice = seed;
    rig_init(&play->rig, &rules);
    play->rig.quiet = true;
    play->meddles = meddles;
    if (meddles)
        begin_meddling();
    for (int i = 0; i < STEPS; i++)
        step();
    if (chance(50))
        proxy_drain(play->rig.p, on_drained, NULL);
    peer_pump(play->all, play->npeers);
    for (unsigned i = 0; i < play->npeers; i++)
        peer_done(&play->peers[i]);
    if (play->rig.p->draining) {
        proxy_cut(play->rig.p);
        fake_settle(play->rig.w);
    }
    rig_done(&play->rig);
    mem_free(play);
}

static void whoever_speaks_what_the_laws_hold_and_everything_ends(void **state)
{
    (void)state;
    for (uint32_t seed = 1; seed <= PLAYS; seed++)
        one_play(seed * 7919, false);
    printf("%u whole answers, %u of ours, %u second tries, %u tunnels\n", whole_answers,
           own_answers, retries, tunnels);
    /* it was no standstill */
    assert_true(whole_answers > 4 * PLAYS && own_answers > PLAYS && retries > 0 && tunnels > 0);
}

static void whatever_the_gate_does_the_laws_hold_and_everything_ends(void **state)
{
    (void)state;
    struct arena a;
    struct str error;
    arena_init(&a, NULL, 0);
    tls = tls_client_new(&(struct tls_client_rules){.insecure = true}, &a, &error);
    arena_done(&a);
    assert_non_null(tls);
    whole_answers = own_answers = retries = tunnels = 0;
    for (uint32_t seed = 1; seed <= PLAYS; seed++) {
        one_play(seed * 7919, true);
        assert_int_equal(filters, 0);
    }
    printf("%u whole answers, %u of ours, %u second tries, %u tunnels, %u held\n", whole_answers,
           own_answers, retries, tunnels, held_bodies);
    assert_true(whole_answers > 2 * PLAYS && own_answers > PLAYS && retries > 0 && tunnels > 0);
    assert_true(held_bodies > PLAYS);
    tls_ctx_unref(tls);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whoever_speaks_what_the_laws_hold_and_everything_ends),
        cmocka_unit_test(whatever_the_gate_does_the_laws_hold_and_everything_ends)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
