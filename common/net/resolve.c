/* resolve.c — from a host's name to addresses.  What is known at once (literal, hosts file, cache)
 * is handed out in the next turn; for the rest there is one lookup per name, which goes through the
 * candidates of the search list and asks for both families together.  Who waits is in a list and
 * can leave it at any time; the lookup goes on and fills the cache. */
#include "net/resolve.h"

#include <assert.h>

#include "base/map.h"
#include "base/text.h"
#include "dns/answer.h"
#include "dns/cache.h"
#include "net/hostconf.h"
#include "net/worker_impl.h"

enum {
    LOOKUPS = 1024,
    CACHED = 4096,
    HOST_BYTES = 254,  /* the longest name as text, with a final dot */
    POSITIVE_S = 3600, /* longest that an answer counts as fresh ... */
    NEGATIVE_S = 60,   /* ... and one that there is nothing */
    FAILURE_S = 1,     /* no server could say (RFC 9520), or one that says nothing about how long */
    STALE_MS = 600000, /* so long after its end an answer may stand in */
    STALE_AGAIN_MS = 5000, /* so long it then serves at once */
    STALE_WAIT_MS = 1000,  /* so long the servers are waited for while there is a stale answer */
    OTHER_FAMILY_MS = 150  /* so long one family waits for the other (RFC 8305 section 3) */
};

static_assert((int)RESOLVE_ADDRESSES <= (int)DNS_ADDRESSES_MAX &&
                  (int)RESOLVE_ADDRESSES <= (int)HOSTS_ADDRESSES,
              "one limit");

struct found {
    enum why why;
    unsigned n;
    struct ip ip[RESOLVE_ADDRESSES];
};

struct resolve {
    struct list link; /* in its lookup's waiters, in soon, or in asking */
    struct names *names;
    struct lookup *lookup; /* NULL: in soon, or asking */
    bool is_asking;        /* the other source, which knows it as `asked` */
    void *asked;
    struct timer timer; /* its own deadline */
    struct found found; /* to be told soon */
    void (*done)(void *user, const struct ip *ips, unsigned count, enum why why);
    void *user;
};

/* One address family of the name being asked for. */
struct half {
    struct lookup *lookup;
    uint16_t type;
    bool known;
    struct dns_answer answer;
    struct ns_ask *ask;
};

struct lookup {
    struct list link; /* in the names' lookups */
    struct names *names;
    struct hostconf *conf;
    struct list waiters;
    unsigned at; /* candidate */
    struct dns_name name;
    struct half half[2];
    struct timer patience; /* then what is there must do */
    bool impatient;        /* it was over */
    bool silent;           /* no server answered */
    struct str host;       /* key in by_host */
    char host_text[HOST_BYTES];
};

struct names {
    struct worker *w;
    struct hostsource *source;
    struct dns_cache *cache;
    struct map *by_host; /* lookups that can be joined */
    struct list lookups; /* all */
    unsigned nlookups;
    struct list soon;            /* answers for the next turn ... */
    uv_idle_t idle;              /* ... which this handle makes come */
    struct names_source through; /* start is NULL: files and servers; else none of those exist */
    struct list asking;
};

/* ---- answers ---- */

/* Takes r out of whatever it waits in and tells its user. */
static void tell(struct resolve *r, const struct found *f)
{
    list_del(&r->link);
    timer_clear(r->names->w, &r->timer);
    worker_bury(r->names->w, mem_free, r);
    r->done(r->user, f->n ? f->ip : NULL, f->n, f->why);
}

static void on_idle(uv_idle_t *idle)
{
    struct names *n = container_of(idle, struct names, idle);
    struct list now, *l;
    list_init(&now);
    while ((l = list_pop(&n->soon)))
        list_push(&now, l);
    while ((l = list_first(&now))) {
        struct resolve *r = container_of(l, struct resolve, link);
        tell(r, &r->found);
    }
    if (list_empty(&n->soon))
        uv_idle_stop(&n->idle);
}

static void tell_soon(struct resolve *r)
{
    list_push(&r->names->soon, &r->link);
    if (!uv_is_active((uv_handle_t *)&r->names->idle))
        uv_idle_start(&r->names->idle, on_idle);
}

static void add(struct found *f, const struct ip *ip, unsigned n)
{
    for (unsigned i = 0; i < n && f->n < RESOLVE_ADDRESSES; i++)
        f->ip[f->n++] = ip[i];
}

/* ---- cache: an answer's finding and addresses, as bytes ---- */

struct kept {
    uint8_t finding;
    struct ip ip[DNS_ADDRESSES_MAX];
};

/* What servers of an older resolv.conf say counts only for those who asked them. */
static void keep(struct names *n, const struct half *h)
{
    const struct dns_answer *a = &h->answer;
    if (h->lookup->conf != hostsource_conf(n->source))
        return;
    struct kept k = {.finding = (uint8_t)a->finding};
    uint32_t most = a->finding == DNS_FOUND     ? POSITIVE_S
                    : a->finding == DNS_USELESS ? FAILURE_S
                                                : NEGATIVE_S;
    uint32_t ttl = a->finding != DNS_FOUND && a->ttl == 0 ? FAILURE_S : a->ttl;
    memcpy(k.ip, a->ip, a->n * sizeof *a->ip);
    dns_cache_put(n->cache, &h->lookup->name, h->type,
                  (struct str){(char *)&k, 1 + a->n * sizeof *a->ip},
                  (uint64_t)(ttl < most ? ttl : most) * 1000, worker_now(n->w));
}

/* What the cache has; stale failures are nothing. */
static bool recall(struct names *n, const struct dns_name *name, uint16_t type,
                   struct dns_answer *ret, bool *ret_fresh)
{
    struct str bytes;
    if (!dns_cache_get(n->cache, name, type, worker_now(n->w), &bytes, ret_fresh))
        return false;
    *ret = (struct dns_answer){.finding = (enum dns_finding)(uint8_t)bytes.p[0]};
    ret->n = (unsigned)((bytes.n - 1) / sizeof *ret->ip);
    memcpy(ret->ip, bytes.p + 1, ret->n * sizeof *ret->ip);
    return *ret_fresh || ret->finding != DNS_USELESS;
}

static void recall_half(struct half *h)
{
    struct dns_answer a;
    bool fresh;
    h->known = recall(h->lookup->names, &h->lookup->name, h->type, &a, &fresh) && fresh;
    if (h->known)
        h->answer = a;
}

/* A reply, or none: keeps it, or lets a stale answer stand in for it. */
static void settle_half(struct half *h, bool silent)
{
    struct names *n = h->lookup->names;
    const struct dns_name *name = &h->lookup->name;
    struct dns_answer a;
    bool fresh;
    h->known = true;
    if (h->answer.finding != DNS_USELESS) {
        keep(n, h);
        return;
    }
    if (recall(n, name, h->type, &a, &fresh)) {
        h->answer = a;
        dns_cache_extend(n->cache, name, h->type, STALE_AGAIN_MS, worker_now(n->w));
        return;
    }
    if (!silent) /* which has cost its time, and must not be a server's word to the next search */
        keep(n, h);
}

/* ---- lookups ---- */

static bool both_known(const struct lookup *l)
{
    return l->half[0].known && l->half[1].known;
}

/* Adds what is known of the candidate being asked for. */
static bool known_addresses(const struct lookup *l, struct found *ret)
{
    *ret = (struct found){.why = WHY_OK};
    for (int i = 0; i < 2; i++)
        if (l->half[i].known)
            add(ret, l->half[i].answer.ip, l->half[i].answer.n);
    return ret->n > 0;
}

/* Adds what the cache has of a candidate, be it stale.  True: it has both families. */
static bool add_recalled(const struct lookup *l, const struct dns_name *name, struct found *f)
{
    struct dns_answer a;
    bool fresh, whole = true;
    for (int i = 0; i < 2; i++)
        if (recall(l->names, name, l->half[i].type, &a, &fresh))
            add(f, a.ip, a.n);
        else
            whole = false;
    return whole;
}

/* The best answer that can be given now: what is known of this candidate, or else what the cache
 * remembers of it and, where that is that there is nothing, of the ones after it.  `extend`: stale
 * answers used for it serve at once for a while. */
static bool best(struct lookup *l, struct found *ret, bool extend)
{
    struct dns_name name;
    enum candidate c;
    if (known_addresses(l, ret))
        return true;
    for (unsigned at = l->at;
         (c = resolv_candidate(&l->conf->resolv, l->host, at, &name)) != CANDIDATE_END; at++) {
        if (c == CANDIDATE_SKIP)
            continue;
        bool whole = add_recalled(l, &name, ret);
        for (int i = 0; extend && i < 2; i++)
            dns_cache_extend(l->names->cache, &name, l->half[i].type, STALE_AGAIN_MS,
                             worker_now(l->names->w));
        if (ret->n > 0 || !whole)
            break;
    }
    return ret->n > 0;
}

/* Goes on from candidate l->at as far as the cache knows.  True: *ret is the answer; false: l->name
 * must be asked for. */
static bool settle(struct lookup *l, struct found *ret)
{
    for (;; l->at++) {
        enum candidate c = resolv_candidate(&l->conf->resolv, l->host, l->at, &l->name);
        if (c == CANDIDATE_END)
            break;
        if (c == CANDIDATE_SKIP)
            continue;
        recall_half(&l->half[0]);
        recall_half(&l->half[1]);
        if (!both_known(l))
            return false;
        if (known_addresses(l, ret))
            return true;
    }
    *ret = (struct found){.why = WHY_DNS};
    return true;
}

/* Nobody can join it any more. */
static void unlist(struct lookup *l)
{
    if (map_get(l->names->by_host, l->host) == l)
        map_del(l->names->by_host, l->host);
}

static void lookup_end(struct lookup *l)
{
    unlist(l);
    for (int i = 0; i < 2; i++)
        if (l->half[i].ask)
            nameserver_cancel(l->half[i].ask);
    timer_clear(l->names->w, &l->patience);
    list_del(&l->link);
    l->names->nlookups--;
    hostconf_unref(l->conf);
    worker_bury(l->names->w, mem_free, l);
}

static void tell_waiters(struct lookup *l, const struct found *f)
{
    struct list *first;
    while ((first = list_first(&l->waiters)))
        tell(container_of(first, struct resolve, link), f);
}

static void finish(struct lookup *l, const struct found *f)
{
    unlist(l); /* so that nobody who is told joins it again */
    tell_waiters(l, f);
    lookup_end(l);
}

static void wait_at_most(struct lookup *l, uint64_t ms)
{
    if (!l->impatient)
        timer_set(l->names->w, &l->patience, ms);
}

/* What is there has to do for those who wait; the lookup goes on. */
static void on_patience(struct timer *t)
{
    struct lookup *l = container_of(t, struct lookup, patience);
    struct found f;
    if (!best(l, &f, true))
        return;
    l->impatient = true;
    tell_waiters(l, &f);
}

static void on_reply(void *user, struct str reply, enum why why);

static void ask(struct lookup *l)
{
    struct found f;
    timer_clear(l->names->w, &l->patience);
    l->impatient = false;
    for (int i = 0; i < 2; i++) {
        struct half *h = &l->half[i];
        if (!h->known)
            h->ask = nameserver_ask(l->conf->servers, &l->name, h->type, l->conf->budget_ms,
                                    on_reply, h);
    }
    if (best(l, &f, false))
        wait_at_most(l, STALE_WAIT_MS);
}

/* Both families of this candidate are known: an answer, or on to the next one.  A server's failure
 * does not end the search, a search domain may be broken; silence does, the next name would only
 * wait as long. */
static void conclude(struct lookup *l)
{
    struct found f;
    if (!known_addresses(l, &f)) {
        f.why = WHY_DNS;
        l->at++;
        if (!l->silent && !settle(l, &f)) {
            ask(l);
            return;
        }
    }
    finish(l, &f);
}

static void on_reply(void *user, struct str reply, enum why why)
{
    struct half *h = user;
    struct lookup *l = h->lookup;
    h->ask = NULL;
    h->answer = (struct dns_answer){.finding = DNS_USELESS};
    if (why == WHY_OK)
        dns_answer(reply.p, reply.n, &l->name, h->type, &h->answer);
    if (why == WHY_DEADLINE)
        l->silent = true;
    settle_half(h, why == WHY_DEADLINE);
    if (both_known(l))
        conclude(l);
    else if (h->answer.n > 0)
        wait_at_most(l, OTHER_FAMILY_MS);
}

static void lookup_init(struct lookup *l, struct names *n, struct str host)
{
    static const uint16_t types[2] = {DNS_A, DNS_AAAA};
    l->names = n;
    l->conf = hostsource_conf(n->source);
    memcpy(l->host_text, host.p, host.n);
    l->host = (struct str){l->host_text, host.n};
    for (int i = 0; i < 2; i++) {
        l->half[i].lookup = l;
        l->half[i].type = types[i];
    }
}

static void lookup_start(struct lookup *l)
{
    struct names *n = l->names;
    hostconf_ref(l->conf);
    list_init(&l->waiters);
    timer_init(&l->patience, on_patience);
    list_push(&n->lookups, &l->link);
    n->nlookups++;
    map_put(n->by_host, l->host, l);
    ask(l);
}

/* ---- names ---- */

/* Letters, digits, hyphens, underscores and dots; lower case.  A name that ends in a number is a
 * misspelt address. */
static bool clean_host(struct str host, char out[HOST_BYTES], struct str *ret)
{
    struct dns_name name;
    if (host.n > HOST_BYTES || !dns_name_parse(host, &name) || name.n == 1)
        return false;
    for (size_t i = 0; i < host.n; i++) {
        char c = ascii_lower(host.p[i]);
        if (!(c >= 'a' && c <= 'z') && !(c >= '0' && c <= '9') && c != '-' && c != '_' && c != '.')
            return false;
        out[i] = c;
    }
    *ret = (struct str){out, host.n};
    return true;
}

static struct str without_dot(struct str host)
{
    return host.p[host.n - 1] == '.' ? str_head(host, host.n - 1) : host;
}

/* "10.0.0.256", "127.1", "0x7f.1": what other resolvers take for an address, or for one that is
 * misspelt. */
static bool ends_in_number(struct str host)
{
    host = without_dot(host);
    struct str last = str_skip(host, (size_t)(str_rchr(host, '.') + 1));
    bool hex = str_starts(last, STR("0x"));
    for (size_t i = hex ? 2 : 0; i < last.n; i++)
        if (text_hex(last.p[i]) < 0 || (!hex && text_hex(last.p[i]) > 9))
            return false;
    return true;
}

bool resolve_can_ask(struct str host)
{
    char text[HOST_BYTES];
    return clean_host(host, text, &host) && !ends_in_number(host);
}

bool resolve_is_host(struct str host)
{
    struct ip ip;
    return ip_parse(host, &ip) || resolve_can_ask(host);
}

static bool literal(struct str host, struct found *ret)
{
    ret->why = WHY_OK;
    ret->n = 1;
    if (host.n > 2 && host.p[0] == '[' && host.p[host.n - 1] == ']') {
        host = str_skip(str_head(host, host.n - 1), 1);
        return str_chr(host, ':') >= 0 && ip_parse(host, &ret->ip[0]);
    }
    return ip_parse(host, &ret->ip[0]);
}

/* RFC 6761 section 6.3: never asked of anybody. */
static bool is_localhost(struct str host)
{
    return str_eq(host, STR("localhost")) || str_iends(host, STR(".localhost"));
}

static bool from_hosts(const struct names *n, struct str host, struct found *ret)
{
    host = without_dot(host);
    ret->why = WHY_OK;
    ret->n = hosts_find(hostsource_hosts(n->source), host, ret->ip);
    if (ret->n == 0 && is_localhost(host)) {
        ip_parse(STR("127.0.0.1"), &ret->ip[0]);
        ip_parse(STR("::1"), &ret->ip[1]);
        ret->n = 2;
    }
    return ret->n > 0;
}

/* Other servers may know other things: nothing of the old ones is handed out or joined any more. */
static void forget(struct names *n)
{
    dns_cache_clear(n->cache);
    list_each(l, &n->lookups) unlist(container_of(l, struct lookup, link));
}

/* True: *ret is the answer already; else *ret_lookup is what to wait for. */
static bool look_up(struct names *n, struct str host, struct found *ret, struct lookup **ret_lookup)
{
    struct lookup *l = map_get(n->by_host, host);
    if (l) {
        if (l->impatient && best(l, ret, false))
            return true;
        *ret_lookup = l;
        return false;
    }
    l = mem_new(sizeof *l);
    lookup_init(l, n, host);
    bool known = settle(l, ret);
    if (!known && n->nlookups >= LOOKUPS) {
        *ret = (struct found){.why = WHY_OVERLOAD};
        known = true;
    }
    if (known) {
        mem_free(l);
        return true;
    }
    lookup_start(l);
    *ret_lookup = l;
    return false;
}

/* As look_up(), whatever host is. */
static bool find(struct names *n, struct str host, struct found *ret, struct lookup **ret_lookup)
{
    char text[HOST_BYTES];
    if (literal(host, ret))
        return true;
    *ret = (struct found){.why = WHY_DNS};
    if (!clean_host(host, text, &host) || ends_in_number(host))
        return true;
    if (hostsource_look(n->source))
        forget(n);
    return from_hosts(n, host, ret) || look_up(n, host, ret, ret_lookup);
}

static void on_deadline(struct timer *t)
{
    struct resolve *r = container_of(t, struct resolve, timer);
    struct found f;
    if (!best(r->lookup, &f, false))
        f = (struct found){.why = WHY_DEADLINE};
    tell(r, &f);
}

/* ---- another source */

static void on_source(void *arg, const struct ip *ips, unsigned count, enum why why)
{
    struct resolve *r = arg;
    struct found f = {.why = why};
    r->is_asking = false;
    if (why == WHY_OK)
        add(&f, ips, count);
    if (why == WHY_OK && f.n == 0)
        f.why = WHY_DNS;
    tell(r, &f);
}

static void ask_source(struct resolve *r, struct str host, uint64_t timeout_ms)
{
    struct names *n = r->names;
    char text[HOST_BYTES];
    if (literal(host, &r->found)) {
        tell_soon(r);
        return;
    }
    r->found = (struct found){.why = WHY_DNS};
    if (!clean_host(host, text, &host) || ends_in_number(host)) {
        tell_soon(r);
        return;
    }
    list_push(&n->asking, &r->link);
    r->is_asking = true;
    r->asked = n->through.start(n->through.user, host, timeout_ms, on_source, r);
}

struct resolve *resolve_start(struct names *n, struct str host, uint64_t timeout_ms,
                              void (*done)(void *user, const struct ip *ips, unsigned count,
                                           enum why why),
                              void *user)
{
    struct resolve *r = mem_new(sizeof *r);
    r->names = n;
    r->done = done;
    r->user = user;
    list_init(&r->link);
    timer_init(&r->timer, on_deadline);
    if (n->through.start) {
        ask_source(r, host, timeout_ms);
        return r;
    }
    if (find(n, host, &r->found, &r->lookup)) {
        tell_soon(r);
        return r;
    }
    list_push(&r->lookup->waiters, &r->link);
    timer_set(n->w, &r->timer, timeout_ms);
    return r;
}

void resolve_cancel(struct resolve *r)
{
    const struct names_source *s = &r->names->through;
    if (r->is_asking)
        s->cancel(s->user, r->asked);
    list_del(&r->link);
    timer_clear(r->names->w, &r->timer);
    worker_bury(r->names->w, mem_free, r);
}

static struct names *names_bare(struct worker *w)
{
    struct names *n = mem_new(sizeof *n);
    n->w = w;
    list_init(&n->lookups);
    list_init(&n->soon);
    list_init(&n->asking);
    uv_idle_init(worker_loop(w), &n->idle);
    uv_unref((uv_handle_t *)&n->idle);
    return n;
}

struct names *names_new(struct worker *w, const struct names_files *files)
{
    static const struct names_files defaults;
    struct names *n = names_bare(w);
    n->source = hostsource_new(w, files ? files : &defaults);
    n->cache = dns_cache_new(CACHED, STALE_MS);
    n->by_host = map_new();
    return n;
}

struct names *names_through(struct worker *w, const struct names_source *source)
{
    struct names *n = names_bare(w);
    n->through = *source;
    return n;
}

static void drop_all(struct list *resolves)
{
    struct list *l;
    while ((l = list_first(resolves)))
        resolve_cancel(container_of(l, struct resolve, link));
}

static void on_closed(uv_handle_t *h)
{
    mem_free(container_of(h, struct names, idle));
}

void names_free(struct names *n)
{
    struct list *first;
    if (!n)
        return;
    drop_all(&n->soon);
    drop_all(&n->asking);
    while ((first = list_first(&n->lookups))) {
        struct lookup *l = container_of(first, struct lookup, link);
        drop_all(&l->waiters);
        lookup_end(l);
    }
    if (n->source)
        hostsource_free(n->source);
    dns_cache_free(n->cache);
    map_free(n->by_host);
    uv_close((uv_handle_t *)&n->idle, on_closed);
}
