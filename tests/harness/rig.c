/* rig.c — the test's gate, its log and its book of connections. */
#include "harness/rig.h"

#include <assert.h>
#include <stdio.h>

#include "base/log.h"

enum { WINDOW = 65536 };

static const struct gate rig_gate;
static struct rig *the_rig; /* of this program: there is one at a time */

#define LIMITS                                                                               \
    {                                                                                        \
        .max_head_bytes = 8192, .window = WINDOW, .keep_alive_ms = 60000, .linger_ms = 3000, \
        .drain_idle_ms = 2000                                                                \
    }

const struct proxy_rules rig_rules = {
    .gate = &rig_gate,
    .client = LIMITS,
    .origin = LIMITS,
    .pools = {.idle_ms = 50000, .idle_max = 4, .idle_cap = 8},
    .timeout_ms = {[X_HEAD] = 10000,
                   [X_DECIDE] = 8000,
                   [X_DIAL] = 5000,
                   [X_WAIT] = 20000,
                   [X_BODY] = 30000,
                   [X_TUNNEL] = 40000,
                   [X_CLOSING] = 3000},
    .half_close_ms = 15000,
    .moved_ms = 1000,
    .move_ms = 7000,
    .look_ms = 2000,
};

/* ---- the gate */

/* What stands between the first two slashes. */
static struct str first_segment(struct str path)
{
    struct str rest = path.n > 0 ? str_skip(path, 1) : path, segment;
    if (!str_next(&rest, '/', &segment))
        return STR("");
    return segment;
}

static struct rig *rig_of(struct worker *w)
{
    return worker_get(w, SLOT_PRODUCT);
}

static struct begin begin(const struct snapshot *snap, const struct conn_info *client)
{
    assert(snap && client->peer);
    return the_rig->begin;
}

static void refuse(struct verdict *v)
{
    *v = (struct verdict){.act = ACT_REPLY,
                          .why = WHY_DENIED,
                          .status = 403,
                          .code = STR("no"),
                          .message = STR("refused")};
}

static void decide_tunnel(const struct facts *f, struct verdict *v)
{
    ptrdiff_t colon = str_rchr(f->head->authority, ':');
    struct str host = str_head(f->head->authority, (size_t)colon);
    assert(colon > 0 && f->head->path.n == 0);
    if (str_eq(host, STR("refuse"))) {
        refuse(v);
        return;
    }
    *v = (struct verdict){.act = ACT_FORWARD,
                          .head = f->head,
                          .to = {.host = host, .port = 443},
                          .pool = host,
                          .raw = true,
                          .look = str_starts(host, STR("look")) || str_starts(host, STR("late")),
                          .late = str_starts(host, STR("late"))};
}

static void decide_on(const struct facts *f, struct arena *a, struct verdict *v)
{
    if (str_eq(f->head->method, STR("CONNECT"))) {
        decide_tunnel(f, v);
        return;
    }
    struct str pool = first_segment(f->head->path), host = STR("h");
    *v = (struct verdict){.act = ACT_FORWARD, .head = f->head};
    if (str_eq(pool, STR("local"))) {
        *v = (struct verdict){.act = ACT_LOCAL,
                              .status = 200,
                              .content_type = STR("text/plain"),
                              .body = STR("here")};
        return;
    }
    if (str_eq(pool, STR("refuse"))) {
        refuse(v);
        return;
    }
    ptrdiff_t at = str_chr(pool, '@');
    if (at >= 0) {
        host = str_skip(pool, (size_t)at + 1);
        pool = str_head(pool, (size_t)at);
    }
    struct http_head *head = head_copy(f->head, 1, a);
    head->authority = arena_cat(a, host, STR(":80"));
    head_add(head, STR("x-rid"), f->request_id);
    if (the_rig->plain)
        head->protocol = STR("");
    v->head = head;
    v->to = (struct dial_to){.host = host, .port = 80};
    v->pool = pool;
    v->h2 = pool.n > 1 && pool.p[pool.n - 1] == '2';
    v->to.tls = the_rig->tls;
    v->any = the_rig->tls && !the_rig->h1_only;
    v->hold = the_rig->hold;
    v->keep = the_rig->keep;
}

static void decide(const struct facts *f, struct arena *a, struct verdict *v)
{
    assert(f->client && !f->origin && !f->origin_info && f->now_ms == worker_now(the_rig->w));
    assert(f->turn > 0 || (!v->note && !v->place));
    mem_free((void *)(uintptr_t)v->note); /* it goes again */
    if (!the_rig->decide || !the_rig->decide(the_rig, f, a, v))
        decide_on(f, a, v);
    v->note = v->act == ACT_WAIT ? NULL : mem_new(1);
}

static bool wait(struct worker *w, const struct facts *f, bool first, struct arena *a,
                 struct verdict *v)
{
    struct rig *r = rig_of(w);
    assert(f->client && f->asked_ms == worker_now(w) && !f->told && v->act == ACT_WAIT && a);
    trace_line(&r->judged, "wait %.*s%s", STR_ARG(v->key), first ? " first" : "");
    if (!r->wait || r->wait(r, f, first, v))
        return true;
    v->note = mem_new(1);
    return false;
}

static void waited(struct worker *w, const struct facts *f, const struct verdict *v, enum why why)
{
    struct rig *r = rig_of(w);
    assert(f->now_ms == worker_now(w) && v->act == ACT_WAIT && !v->note);
    trace_line(&r->judged, "waited %.*s %s", STR_ARG(v->key), why_text(why));
}

static void admit(struct worker *w, const struct facts *f, struct arena *a, struct verdict *v)
{
    struct rig *r = rig_of(w);
    const void *note = v->note;
    assert(f->client && a && v->act == ACT_FORWARD && !v->place);
    if (r->full) {
        refuse(v);
        v->note = note;
        return;
    }
    v->place = r;
    r->places++;
}

static const char *const stages[] = {"request", "decide", "dial", "wait", "answer"};

static bool again(struct worker *w, const struct facts *f, const struct verdict *v, enum why why,
                  enum stage stage)
{
    struct rig *r = rig_of(w);
    assert(f->client && v->act == ACT_FORWARD && v->note && v->place == r);
    if (!r->again)
        return false;
    trace_line(&r->judged, "again %s in %s", why_text(why), stages[stage]);
    return r->again(r, f, why, stage);
}

static void moved(struct worker *w, const struct facts *f, const struct verdict *v)
{
    struct rig *r = rig_of(w);
    assert(f->now_ms == worker_now(w) && v->act == ACT_FORWARD && v->note && v->place == r);
    r->nmoved++;
}

static enum why peer(const struct facts *f, const struct verdict *v, const struct conn_info *origin)
{
    assert(f->snap && f->origin == origin->peer && f->origin_info == origin);
    assert(v->act == ACT_FORWARD && v->note);
    the_rig->npeers++;
    return the_rig->peer;
}

static void held(const struct facts *f, struct verdict *v, struct buf *body, bool whole,
                 struct arena *a)
{
    assert(f->client && !f->origin && v->hold > 0);
    if (the_rig->held)
        the_rig->held(the_rig, v, body, whole, a);
}

static const struct http_head *marked(const struct http_head *h, struct arena *a)
{
    struct http_head *out = head_copy(h, 1, a);
    head_add(out, STR("x-gate"), STR("1"));
    return out;
}

static const struct http_head *trailers(const struct facts *f, const struct verdict *v,
                                        const struct http_head *h, bool request, struct arena *a)
{
    assert(f->snap && v->note && (request || f->client));
    return the_rig->marks ? marked(h, a) : h;
}

static enum why allow_addr(const struct facts *f, const struct verdict *v,
                           const struct sockaddr *addr)
{
    (void)f;
    assert(addr->sa_family != 0);
    return str_eq(v->to.host, STR("denied")) ? WHY_DENIED : WHY_OK;
}

static enum why answer(const struct facts *f, const struct verdict *v, const struct http_head *head,
                       bool end, struct arena *a, struct answer *ret)
{
    assert(v->note && f->http_date.n > 0 && f->origin && f->origin_info);
    if (head->status == the_rig->unwanted)
        return the_rig->again ? WHY_STALE : WHY_IDENTITY;
    bool interim = head->status < 200 && head->protocol.n == 0;
    ret->head = interim && !the_rig->marks ? head : marked(head, a);
    if (interim || end || head->protocol.n > 0 || !the_rig->filter)
        return WHY_OK;
    ret->filter = the_rig->filter(the_rig, head);
    if (ret->filter) {
        struct http_head *out = head_copy(ret->head, 0, a);
        out->length = -1;
        ret->head = out;
    }
    return WHY_OK;
}

static int status_of(enum why why)
{
    switch (why) {
    case WHY_DEADLINE:
        return 504;
    case WHY_OVERLOAD:
    case WHY_STALE:
    case WHY_DRAIN:
        return 503;
    default:
        return 502;
    }
}

static void failed(const struct facts *f, enum why why, enum stage stage,
                   const struct http_fault *fault, struct arena *a, struct verdict *ret)
{
    ret->status = fault ? fault->status : status_of(why);
    ret->code = str_of(why_text(why));
    ret->message = fault ? str_of(fault->text)
                         : arena_printf(a, "%s in %s%s%.*s", why_text(why), stages[stage],
                                        f->fault.n ? ": " : "", STR_ARG(f->fault));
}

static void describe(const struct facts *f, const struct verdict *v, struct log_line *l)
{
    (void)v;
    assert(!f->client); /* its connection may be gone */
    log_str(l, "path", f->head->path.n > 0 ? f->head->path : f->head->authority);
}

static enum glance look(const struct facts *f, const struct verdict *v, const struct buf *bytes,
                        bool late, struct arena *a)
{
    char word[5];
    assert(f->client && v->look && (v->late ? !f->origin : f->origin != NULL));
    the_rig->nlooks++;
    arena_get(a, 100000); /* each look may cost this much */
    if (late && bytes->len == 0)
        return GLANCE_PASS;
    if (bytes->len < sizeof word)
        return late ? GLANCE_REFUSE : GLANCE_MORE;
    buf_peek(bytes, word, sizeof word);
    if (memcmp(word, "more ", sizeof word) == 0)
        return GLANCE_MORE;
    if (memcmp(word, "slow ", sizeof word) == 0)
        return late ? GLANCE_PASS : GLANCE_MORE;
    if (memcmp(word, "take ", sizeof word) == 0)
        return GLANCE_TAKE;
    return memcmp(word, "pass ", sizeof word) == 0 ? GLANCE_PASS : GLANCE_REFUSE;
}

static void take(struct worker *w, const struct facts *f, const struct verdict *v,
                 struct conn *conn)
{
    struct rig *r = rig_of(w);
    assert(f->client == conn_info(conn) && v->raw);
    trace_line(&r->judged, "taken %.*s", STR_ARG(v->to.host));
    if (r->take_as == PROXY_RAW)
        proxy_take(r->p, conn, PROXY_RAW, STR("again:1"));
    else
        proxy_take(r->p, conn, PROXY_HTTP, STR(""));
}

static enum why recheck(const struct facts *f, const struct verdict *v)
{
    assert(f->snap && v->act == ACT_FORWARD);
    the_rig->nrechecks++;
    return the_rig->banned && str_eq(v->to.host, str_of(the_rig->banned)) ? WHY_REVOKED : WHY_OK;
}

static void judged(struct worker *w, const struct facts *f, const struct verdict *v,
                   uint64_t took_us)
{
    static const char *const acts[] = {"forward", "reply", "wait", "local"};
    struct rig *r = rig_of(w);
    (void)f;
    assert(took_us < UINT64_MAX / 2 && v->act != ACT_WAIT);
    trace_line(&r->judged, "judged %s", acts[v->act]);
}

static void dialled(struct worker *w, const struct verdict *v, enum why why, int error, bool tunnel,
                    uint64_t took_us)
{
    struct rig *r = rig_of(w);
    assert(v->act == ACT_FORWARD && took_us < UINT64_MAX / 2);
    trace_line(&r->judged, "dialled %s%s%s", why_text(why), error ? " errno" : "",
               tunnel ? " tunnel" : "");
}

static void over(struct worker *w, const struct facts *f, const struct verdict *v, enum why why,
                 int status)
{
    struct rig *r = rig_of(w);
    assert(r == the_rig && !f->client && !f->origin);
    assert(v->note || (v->act == ACT_WAIT && v->place));
    assert(status < 600 && why < WHYS);
    assert(!v->place || (v->place == r && r->places > 0));
    r->places -= v->place != NULL;
    mem_free((void *)(uintptr_t)v->note);
}

static const struct gate rig_gate = {
    .begin = begin,
    .decide = decide,
    .allow_addr = allow_addr,
    .answer = answer,
    .peer = peer,
    .held = held,
    .trailers = trailers,
    .over = over,
    .failed = failed,
    .describe = describe,
    .look = look,
    .take = take,
    .recheck = recheck,
    .judged = judged,
    .wait = wait,
    .waited = waited,
    .admit = admit,
    .again = again,
    .moved = moved,
    .dialled = dialled,
    .brand = {"rig", 3},
    .access_msg = "asked",
};

/* ---- the log: what the proxy says ends here (--wrap=log_end, --wrap=log_on) */

bool __wrap_log_on(enum log_level level);
bool __wrap_log_on(enum log_level level)
{
    (void)level;
    return the_rig != NULL;
}

void __wrap_log_end(struct log_line *l);
void __wrap_log_end(struct log_line *l)
{
    struct rig *r = the_rig;
    assert(r && l->n > 0);
    r->nlines++;
    if (!r->quiet)
        trace_line(&r->lines, "%.*s", (int)(l->n < 1000 ? l->n : 1000), l->text);
    if (r->on_line)
        r->on_line(r, (struct str){l->text, l->n});
}

/* ---- life */

static void *make_nothing(const struct settings *set, const void *old, struct arena *a,
                          struct str *ret_error)
{
    (void)set;
    (void)old;
    (void)a;
    (void)ret_error;
    static const char view[] = "view";
    return (void *)(uintptr_t)view;
}

static void drop_nothing(void *made)
{
    (void)made;
}

void rig_init(struct rig *r, const struct proxy_rules *rules)
{
    static const struct maker maker = {make_nothing, drop_nothing};
    static const struct settings set;
    struct proxy_rules own = rules ? *rules : rig_rules;
    *r = (struct rig){.w = worker_new(0)};
    own.gate = &rig_gate;
    meter_reset();
    trace_init(&r->judged);
    trace_init(&r->lines);
    worker_set(r->w, SLOT_PRODUCT, r);
    r->snap = snapshot_build(&set, &maker, NULL, NULL);
    worker_adopt(r->w, r->snap);
    r->p = proxy_new(r->w, &own);
    the_rig = r;
    log_set_level(LOG_INFO);
}

void rig_keep(struct rig *r, struct conn *c)
{
    if (r->nconns == r->room) {
        r->room = r->room ? 2 * r->room : 16;
        r->conns = mem_renew(r->conns, r->room * sizeof *r->conns);
    }
    r->conns[r->nconns++] = c;
}

struct conn *rig_conn(struct rig *r)
{
    struct conn *c = fake_new(r->w, true);
    rig_keep(r, c);
    return c;
}

struct conn *rig_client(struct rig *r)
{
    struct conn *c = rig_conn(r);
    proxy_accept(r->p, c);
    fake_settle(r->w);
    return c;
}

struct conn *rig_surplus(struct rig *r)
{
    struct conn *c = rig_conn(r);
    fake_surplus(c);
    proxy_accept(r->p, c);
    fake_settle(r->w);
    return c;
}

struct conn *rig_origin(struct rig *r)
{
    return rig_origin_as(r, NULL);
}

struct conn *rig_origin_as(struct rig *r, const char *alpn)
{
    struct dial *d = fake_dial_first(r->w);
    bool tls = d && fake_dial_offers(d, "http/1.1");
    struct conn *c = d ? fake_dial_up_as(d, tls ? alpn : NULL) : NULL;
    if (c)
        rig_keep(r, c);
    fake_settle(r->w);
    return c;
}

unsigned rig_running(const struct rig *r)
{
    unsigned n = 0;
    for (int i = 0; i < XSTATES; i++)
        n += proxy_count(r->p, (enum xstate)i);
    return n;
}

void rig_check(const struct rig *r)
{
    for (int i = 0; i < XSTATES; i++) {
        unsigned n = 0;
        for (const struct list *l = r->p->state[i].next; l != &r->p->state[i]; l = l->next, n++) {
            const struct exchange *x =
                container_of((struct list *)(uintptr_t)l, struct exchange, link);
            assert(x->state == (enum xstate)i && !x->dead && (x->down || x->up || x->dial));
            assert((x->state == X_DIAL) == (x->dial != NULL));
            assert((x->state == X_DECIDE) == (x->waiter.line != NULL));
            /* it ends some day, whatever the peers do or leave undone */
            assert(timer_is_set(&x->timer) || x->state == X_DIAL);
        }
        assert(n == r->p->count[i]);
    }
}

static void on_drained(void *user)
{
    bool *drained = user;
    assert(!*drained);
    *drained = true;
}

void rig_done(struct rig *r)
{
    bool drained = r->p->draining;
    if (!drained)
        proxy_drain(r->p, on_drained, &drained);
    proxy_cut(r->p);
    fake_settle(r->w);
    assert(drained && rig_running(r) == 0 && proxy_clients(r->p) == 0);
    assert(origin_open(proxy_origins(r->p)) == 0 && fake_dials(r->w) == 0);
    for (int i = 0; i < 2; i++) {
        assert(meter()->sessions_over[i] == meter()->sessions[i]);
        assert(meter()->streams_over[i] == meter()->streams[i]);
    }
    assert(worker_held(r->w) == 0 && r->places == 0);
    for (unsigned i = 0; i < r->nconns; i++)
        fake_free(r->conns[i]);
    mem_free(r->conns);
    proxy_free(r->p);
    worker_free(r->w);
    snapshot_unref(r->snap);
    trace_done(&r->judged);
    trace_done(&r->lines);
    the_rig = NULL;
}
