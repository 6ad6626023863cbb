/* ruleset.c — writes the rules.  They read from top to bottom like the table in DESIGN: who comes
 * in over lo, who opened a flow, what is redirected, what may leave, what is on the wire.
 *
 * Two thoughts recur.  A verdict is worth nothing if a packet can go round it, so what passed
 * carries a random mark to the device, where frames without it are dropped, and the mark is off
 * before anybody in the namespace can see the packet.  And a packet that a process wrote has a
 * socket with an owner (`meta skuid` matches it); one that the kernel made by itself has none, and
 * that is how neighbour discovery and resets are told from forgeries. */
#include "egress/kernel/ruleset.h"

#include <assert.h>

/* A table that is empty afterwards, whether there was one or not. */
#define ANEW(family)                           \
    "add table " family " " RULESET_TABLE "\n" \
    "delete table " family " " RULESET_TABLE "\n"
#define FROM_A_PROCESS "meta skuid 0-4294967295"
#define PORTS "meta l4proto { tcp, udp } th dport"

static const struct {
    const char *ip, *digit, *type, *loopback;
} families[] = {{"ip", "4", "ipv4_addr", "127.0.0.1"}, {"ip6", "6", "ipv6_addr", "::1"}};

enum { FAMILIES = 2 };

/* Text that grows in the arena. */
struct text {
    struct arena *a;
    char *p;
    size_t n, room;
};

static void put(struct text *t, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void put(struct text *t, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    struct str piece = arena_vprintf(t->a, format, args);
    va_end(args);
    if (t->n + piece.n > t->room) {
        size_t room = 2 * (t->n + piece.n);
        char *p = arena_get(t->a, room);
        if (t->n > 0)
            memcpy(p, t->p, t->n);
        t->p = p;
        t->room = room;
    }
    memcpy(t->p + t->n, piece.p, piece.n);
    t->n += piece.n;
}

static bool has_wire(const struct ruleset *r)
{
    return r->shape != RULESET_DNS && !(r->lacks & RULESET_NO_WIRE) && r->ndevices > 0;
}

static void put_count(struct text *t, const struct ruleset *r, const char *name)
{
    if (!(r->lacks & RULESET_NO_COUNTER))
        put(t, "counter name \"%s\" ", name);
}

/* ---- what may be named in a rule */

static bool is_plain(struct str s, const char *others)
{
    for (size_t i = 0; i < s.n; i++) {
        char c = ascii_lower(s.p[i]);
        if (!(c >= 'a' && c <= 'z') && !(c >= '0' && c <= '9') && (!c || !strchr(others, c)))
            return false;
    }
    return s.n > 0;
}

static bool check(const struct ruleset *r, struct arena *a, struct str *error)
{
    for (unsigned i = 0; i < r->ndevices; i++) {
        if (!is_plain(r->devices[i], "._-@+:") || r->devices[i].n > 15) {
            *error = arena_printf(a, "device name \"%.*s\" cannot stand in a rule",
                                  STR_ARG(r->devices[i]));
            return false;
        }
    }
    if (r->cgroup.n > 0 && !is_plain(r->cgroup, "._-@+:/")) {
        *error = arena_printf(a, "cgroup \"%.*s\" cannot stand in a rule", STR_ARG(r->cgroup));
        return false;
    }
    return true;
}

/* ---- lists */

static void put_ip(struct text *t, const struct ip *ip)
{
    char out[IP_TEXT_BYTES];
    size_t n = ip_text(ip, out);
    put(t, "%.*s", (int)n, out);
}

/* A rule for the exempt nameservers of each family, if there are any. */
static void put_exempt(struct text *t, const struct ruleset *r, const char *verdict)
{
    for (unsigned f = 0; f < FAMILIES; f++) {
        unsigned n = 0;
        for (unsigned i = 0; i < r->nexempt; i++) {
            if (ip_is_v4(&r->exempt[i]) != (f == 0))
                continue;
            if (n++ == 0)
                put(t, "%s daddr { ", families[f].ip);
            else
                put(t, ", ");
            put_ip(t, &r->exempt[i]);
        }
        if (n > 0)
            put(t, " } " PORTS " 53 %s\n", verdict);
    }
}

static void put_ports(struct text *t, const struct ruleset *r)
{
    put(t, "{ 80, 443");
    for (unsigned i = 0; i < r->nextra; i++)
        put(t, ", %u", r->extra_ports[i]);
    put(t, " }");
}

/* Our listeners, where redirects lead. */
static void put_listeners(struct text *t, const struct ruleset *r)
{
    put(t, "{ %u", r->dns_port);
    if (r->relay_port)
        put(t, ", %u", r->relay_port);
    put(t, " }");
}

/* "" or the second half of a mark. */
static void put_priority(struct text *t, const char *verb, uint32_t priority)
{
    if (priority)
        put(t, "meta priority %s%x:%x ", verb, priority >> 16, priority & 0xffff);
}

/* Whoever tries marks until one is ours makes them worthless while they try: DNS, which is
 * redirected or not, would tell them by itself. */
static void put_guesses(struct text *t, const struct ruleset *r)
{
    put(t,
        "meta mark & 0x%08x != 0 meta mark != 0x%08x update @guessed { meta nfproto timeout 2s }\n",
        RULESET_OURS_BIT, r->own_mark);
}

/* What is ours: the mark, and whatever else there is to know us by. */
static void put_own(struct text *t, const struct ruleset *r)
{
    put(t, "meta mark 0x%08x meta nfproto != @guessed ", r->own_mark);
    if (r->has_uid)
        put(t, "meta skuid %u ", r->uid);
    if (r->cgroup.n > 0)
        put(t, "socket cgroupv2 level %u \"%.*s\" ", r->cgroup_level, STR_ARG(r->cgroup));
}

/* ---- maps and sets */

static void put_counters(struct text *t, const struct ruleset *r)
{
    if (r->lacks & RULESET_NO_COUNTER)
        return;
    put(t, "counter forged { }\n");
    if (r->shape != RULESET_DNS)
        put(t, "counter refused { }\ncounter wrong_mark { }\n");
}

static void put_verdicts(struct text *t, const char *layer)
{
    for (unsigned f = 0; f < FAMILIES; f++)
        put(t,
            "map %s%s { type %s : verdict; }\n"
            "map %s%s_ranges { type %s : verdict; flags interval; }\n",
            layer, families[f].digit, families[f].type, layer, families[f].digit, families[f].type);
}

static void put_learned(struct text *t, const struct ruleset *r, const char *name)
{
    for (unsigned f = 0; f < FAMILIES; f++)
        put(t, "set %s%s { type %s; size %u; flags timeout; }\n", name, families[f].digit,
            families[f].type, r->learned_max);
}

static void put_doh_sets(struct text *t, const struct ruleset *r)
{
    for (unsigned f = 0; f < FAMILIES; f++) {
        unsigned n = 0;
        for (unsigned i = 0; i < r->doh.n; i++) {
            char out[CIDR_TEXT_BYTES];
            if (cidr_is_v4(&r->doh.nets[i]) != (f == 0))
                continue;
            if (n++ == 0)
                put(t, "set doh%s { type %s; flags interval; auto-merge; elements = { ",
                    families[f].digit, families[f].type);
            else
                put(t, ", ");
            put(t, "%.*s", (int)cidr_text(&r->doh.nets[i], out), out);
        }
        if (n > 0)
            put(t, " }; }\n");
    }
}

static void put_sets(struct text *t, const struct ruleset *r)
{
    put_verdicts(t, "always");
    put_verdicts(t, "user");
    put(t, "map fallback { type nf_proto : verdict; }\n");
    put_learned(t, r, "learned_always");
    put_learned(t, r, "learned");
    put_learned(t, r, "bound");
    if (r->parent_port)
        put_learned(t, r, "parent");
    if (r->block_doh)
        put_doh_sets(t, r);
}

/* ---- what comes in */

/* Over lo a raw socket can be anybody.  Foreign addresses are right there in two cases: answers of
 * a listener to which a flow was redirected, and the resets with which we refuse. */
static void put_guard(struct text *t, const struct ruleset *r)
{
    put(t, "chain guard {\n"
           "type filter hook prerouting priority -310; policy accept;\n"
           "iifname \"lo\" fib saddr type != local goto forged\n"
           "}\n"
           "chain forged {\n"
           "ct state established ct direction reply ct status dnat accept\n"
           "ct state related tcp flags & rst == rst accept\n");
    put_count(t, r, "forged");
    put(t, "drop\n}\n");
}

/* A TCP flow counts as opened from outside by its first SYN only: were a server's next packet
 * enough, a flow that lost its permission would come back as one whose replies pass. */
static void put_inbound(struct text *t)
{
    put(t,
        "chain inbound {\n"
        "type filter hook input priority 0; policy accept;\n"
        "iifname \"lo\" accept\n"
        "ct mark & %u == %u goto ended\n"
        "ct state != new accept\n"
        "fib daddr type != local accept\n"
        "meta l4proto tcp tcp flags & (fin | syn | rst | ack) != syn accept\n"
        "ct mark set ct mark | %u\n"
        "}\n"
        "chain ended {\n"
        "meta l4proto tcp reject with tcp reset\n"
        "drop\n"
        "}\n",
        RULESET_CT_CUT, RULESET_CT_CUT, RULESET_CT_INBOUND);
}

/* An answer of a name server to a question that conntrack has forgotten, for it came late or the
 * sandbox has filled the table: as a flow from outside it would be a way back to the server. */
static void put_late(struct text *t, const struct ruleset *r)
{
    put(t, "chain late {\n"
           "type filter hook input priority -10; policy accept;\n"
           "iifname \"lo\" accept\n"
           "ct state != new accept\n"
           "meta l4proto { tcp, udp } th sport 53 drop\n");
    for (unsigned i = 0; i < r->nupstreams; i++) {
        put(t, "%s saddr ", families[ip_is_v4(&r->upstreams[i].ip) ? 0 : 1].ip);
        put_ip(t, &r->upstreams[i].ip);
        put(t, " meta l4proto { tcp, udp } th sport %u drop\n", r->upstreams[i].port);
    }
    put(t, "}\n");
}

static void put_through(struct text *t)
{
    put(t, "chain through {\n"
           "type filter hook forward priority 0; policy drop;\n"
           "goto refuse\n"
           "}\n");
}

/* ---- what is redirected */

static void put_dns(struct text *t, const struct ruleset *r)
{
    put(t, "chain dns {\ntype nat hook output priority -110; policy accept;\n");
    put_guesses(t, r);
    put_own(t, r);
    put(t, "accept\n");
    put_exempt(t, r, "accept");
    put(t,
        PORTS " 53 redirect to :%u\n"
              "ip daddr 127.0.0.11 meta l4proto { tcp, udp } redirect to :%u\n"
              "}\n",
        r->dns_port, r->dns_port);
}

/* A flow that is open meets no redirect: in mode dns as well, nobody else may send on ours, whose
 * ports he can have as soon as we have done with them. */
static void put_own_flows(struct text *t, const struct ruleset *r)
{
    put(t, "chain own_flows {\ntype filter hook output priority 0; policy accept;\n");
    put_own(t, r);
    put(t, "ct mark set ct mark | %u accept\nct mark & %u == %u " FROM_A_PROCESS " ",
        RULESET_CT_OWN, RULESET_CT_OWN, RULESET_CT_OWN);
    put_count(t, r, "forged");
    put(t, "drop\n}\n");
}

/* Over lo nothing but this host is reached; yet a socket bound to lo can begin a flow to anywhere,
 * and a flow is redirected at its beginning or never. */
static void put_relay(struct text *t, const struct ruleset *r)
{
    if (!r->relay_port)
        return;
    put(t, "chain relay {\ntype nat hook output priority -105; policy accept;\n");
    put_guesses(t, r);
    put_own(t, r);
    put(t, "accept\noifname \"lo\" fib daddr type local accept\ntcp dport ");
    put_ports(t, r);
    put(t, " redirect to :%u\n}\n", r->relay_port);
}

/* ---- what may leave */

static void put_loopback_rules(struct text *t, const struct ruleset *r)
{
    put(t, "oifname \"lo\" goto loopback\n");
    for (unsigned f = 0; f < FAMILIES && r->shape == RULESET_FULL; f++) {
        put(t, "%s daddr %s " PORTS " ", families[f].ip, families[f].loopback);
        put_listeners(t, r);
        put(t, " goto sign\n");
    }
    put(t, "ip daddr 127.0.0.0/8 goto refuse\nip6 daddr ::1 goto refuse\n");
}

/* Established alone says nothing: a forgery can answer a flow that was never judged.
 *
 * A flow of ours is open to our sockets alone: with its ports, which stand in /proc/net, a raw
 * socket could else talk to our upstream.  Such a packet is not answered, since the answer would
 * reach our socket. */
static void put_flow_rules(struct text *t, const struct ruleset *r)
{
    put(t, "ct mark & %u == %u goto cut\n", RULESET_CT_CUT, RULESET_CT_CUT);
    put(t, "ct mark & %u == %u ct direction reply goto sign\n", RULESET_CT_INBOUND,
        RULESET_CT_INBOUND);
    if (r->own_mark) {
        put_guesses(t, r);
        put_own(t, r);
        put(t, "goto own\nct mark & %u == %u goto own_flow\n", RULESET_CT_OWN, RULESET_CT_OWN);
    }
    if (r->shape == RULESET_FULL)
        put(t, "ct mark & %u == %u ct state established ct direction original goto sign\n",
            RULESET_CT_OPEN, RULESET_CT_OPEN);
    if (!(r->lacks & RULESET_NO_COUNTER))
        put(t, "meta mark != 0 counter name \"wrong_mark\"\n");
}

static void put_doh(struct text *t, const struct ruleset *r)
{
    bool any[FAMILIES] = {false, false};
    if (!r->block_doh)
        return;
    if (r->doh.n == 0) {
        put(t, "tcp dport 443 goto refuse\n");
        return;
    }
    for (unsigned i = 0; i < r->doh.n; i++)
        any[cidr_is_v4(&r->doh.nets[i]) ? 0 : 1] = true;
    for (unsigned f = 0; f < FAMILIES; f++) {
        if (any[f])
            put(t, "%s daddr @doh%s tcp dport 443 goto refuse\n", families[f].ip,
                families[f].digit);
    }
}

/* The five look-ups of contract 3.4, and the default behind them, which is a map as well so that a
 * policy can change it. */
static void put_verdict(struct text *t, const struct ruleset *r)
{
    static const char *const layers[] = {"always", "user"};
    static const char *const learned[] = {"learned_always", "learned"};
    for (unsigned l = 0; l < 2; l++) {
        for (unsigned f = 0; f < FAMILIES; f++)
            put(t, "%s daddr vmap @%s%s\n%s daddr vmap @%s%s_ranges\n", families[f].ip, layers[l],
                families[f].digit, families[f].ip, layers[l], families[f].digit);
        for (unsigned f = 0; f < FAMILIES; f++)
            put(t, "%s daddr @%s%s goto pass\n", families[f].ip, learned[l], families[f].digit);
    }
    put_exempt(t, r, "goto pass");
    put(t, "meta nfproto vmap @fallback\n");
}

static void put_judgement(struct text *t, const struct ruleset *r)
{
    for (unsigned f = 0; f < FAMILIES && r->parent_port; f++)
        put(t, "%s daddr @parent%s tcp dport %u goto refuse\n", families[f].ip, families[f].digit,
            r->parent_port);
    put(t, PORTS " 853 goto refuse\n");
    put_doh(t, r);
    for (unsigned f = 0; f < FAMILIES; f++)
        put(t, "%s daddr @bound%s udp dport 443 goto refuse\n", families[f].ip, families[f].digit);
    put_verdict(t, r);
}

/* Conntrack passes by what it cannot place, and so do the redirects: without the rule on `invalid`
 * a fragment, or a segment without a flow, would go to port 53 of a permitted address. */
static void put_egress(struct text *t, const struct ruleset *r)
{
    put(t, "chain egress {\n"
           "type filter hook output priority 0; policy drop;\n"
           "ip hdrlength > 5 goto refuse\n"
           "exthdr rt exists goto refuse\n");
    put_loopback_rules(t, r);
    put_flow_rules(t, r);
    put(t, "icmpv6 type { nd-router-solicit, nd-neighbor-solicit, nd-neighbor-advert } "
           "jump neighbour\n");
    if (r->shape == RULESET_FULL) {
        put(t, "ct state invalid drop\n");
        put_judgement(t, r);
    }
    put(t, "goto refuse\n}\n");
}

/* Between chains: where egress leads. */
static void put_loopback_and_neighbour(struct text *t)
{
    put(t, "chain loopback {\n"
           "fib daddr type != { local, broadcast, multicast } goto refuse\n"
           "fib saddr type local accept\n" FROM_A_PROCESS " goto refuse\n"
           "accept\n"
           "}\n"
           "chain neighbour {\n" FROM_A_PROCESS " return\n"
           "goto sign\n"
           "}\n");
}

/* What a cut flow may still say is the reset that tells the other end. */
static void put_cut(struct text *t)
{
    put(t, "chain cut {\n" FROM_A_PROCESS " goto refuse\n"
           "tcp flags & rst == rst goto sign\n"
           "goto refuse\n"
           "}\n");
}

static void put_own_chains(struct text *t, const struct ruleset *r)
{
    if (!r->own_mark)
        return;
    put(t, "chain own {\nct mark set ct mark | %u\nmeta l4proto tcp goto sign\n", RULESET_CT_OWN);
    for (unsigned i = 0; i < r->nupstreams; i++) {
        put(t, "%s daddr ", families[ip_is_v4(&r->upstreams[i].ip) ? 0 : 1].ip);
        put_ip(t, &r->upstreams[i].ip);
        put(t, " udp dport %u goto sign\n", r->upstreams[i].port);
    }
    put(t, "goto refuse\n}\nchain own_flow {\n" FROM_A_PROCESS " ");
    put_count(t, r, "forged");
    put(t, "drop\ngoto sign\n}\n");
}

/* Where a verdict leads: the flow is open from now on. */
static void put_pass(struct text *t, const struct ruleset *r)
{
    if (r->shape == RULESET_FULL)
        put(t, "chain pass {\nct mark set ct mark | %u\ngoto sign\n}\n", RULESET_CT_OPEN);
}

/* A copy of each multicast and broadcast packet comes back to us with its mark still on, so these
 * get a mark of their own, which opens the wire to group addresses only. */
static void put_sign(struct text *t, const struct ruleset *r)
{
    put(t, "chain sign {\n");
    if (has_wire(r)) {
        put(t,
            "fib daddr type { broadcast, multicast } meta mark set 0x%08x accept\n"
            "meta mark set 0x%08x ",
            r->group_mark, r->pass_mark);
        put_priority(t, "set ", r->pass_priority);
    }
    put(t, "accept\n}\n");
}

/* What the kernel sends by itself, membership reports for one, is nobody's attempt: not told. */
static void put_refuse(struct text *t, const struct ruleset *r)
{
    put(t, "chain refuse {\n");
    if (!(r->lacks & RULESET_NO_LOG))
        put(t, FROM_A_PROCESS " limit rate 20/second burst 100 packets log group %u snaplen 128\n",
            RULESET_LOG_GROUP);
    if (!(r->lacks & RULESET_NO_COUNTER))
        put(t, "counter name \"refused\"\n");
    put(t, "meta l4proto tcp reject with tcp reset\n"
           "reject with icmpx admin-prohibited\n"
           "}\n");
}

/* ---- what is on the wire */

/* Marks come off on lo here, since there is no `wire`; where no device has one, they come off here
 * for all. */
static void put_leave(struct text *t, const struct ruleset *r)
{
    put(t, "chain leave {\ntype filter hook postrouting priority 300; policy accept;\n");
    if (has_wire(r))
        put(t,
            "oifname \"lo\" meta mark { 0x%08x, 0x%08x } meta mark set 0 "
            "meta priority set 0:0\n"
            "oifname \"lo\" ",
            r->pass_mark, r->group_mark);
    if (r->own_mark || has_wire(r))
        put(t, "meta mark 0x%08x meta mark set 0\n", r->own_mark);
    put(t, "oifname \"lo\" accept\n"
           "ip daddr 127.0.0.0/8 drop\n"
           "ip saddr 127.0.0.0/8 drop\n"
           "ip6 daddr ::1 drop\n"
           "ip6 saddr ::1 drop\n"
           "}\n");
}

static void put_wire(struct text *t, const struct ruleset *r)
{
    if (!has_wire(r))
        return;
    put(t, "table netdev " RULESET_TABLE " {\n");
    if (!(r->lacks & RULESET_NO_COUNTER))
        put(t, "counter frames { }\n");
    put(t, "chain wire {\ntype filter hook egress devices = { ");
    for (unsigned i = 0; i < r->ndevices; i++)
        put(t, "%s\"%.*s\"", i ? ", " : "", STR_ARG(r->devices[i]));
    put(t, " } priority 0; policy drop;\nmeta mark 0x%08x ", r->pass_mark);
    put_priority(t, "", r->pass_priority);
    put(t,
        "meta mark set 0 meta priority set 0:0 accept\n"
        "meta mark 0x%08x ether daddr & 01:00:00:00:00:00 == 01:00:00:00:00:00 "
        "meta mark set 0 accept\n"
        "meta protocol arp jump arp_of_the_kernel\n",
        r->group_mark);
    put_count(t, r, "frames");
    put(t, "drop\n"
           "}\n"
           "chain arp_of_the_kernel {\n" FROM_A_PROCESS " return\n"
           "accept\n"
           "}\n"
           "}\n");
}

/* ---- together */

static void put_filter(struct text *t, const struct ruleset *r)
{
    put_inbound(t);
    put_through(t);
    put_egress(t, r);
    put_loopback_and_neighbour(t);
    put_cut(t);
    put_own_chains(t, r);
    put_pass(t, r);
    put_sign(t, r);
    put_refuse(t, r);
}

static void put_inside(struct text *t, const struct ruleset *r)
{
    put_counters(t, r);
    if (r->own_mark)
        put(t, "set guessed { type nf_proto; size 2; flags dynamic, timeout; }\n");
    if (r->shape == RULESET_FULL)
        put_sets(t, r);
    put_guard(t, r);
    put_late(t, r);
    if (r->shape != RULESET_CLOSED) {
        put_dns(t, r);
        put_relay(t, r);
    }
    if (r->shape == RULESET_DNS)
        put_own_flows(t, r);
    else
        put_filter(t, r);
    put_leave(t, r);
    put(t, "}\n");
    if (!(r->lacks & RULESET_NO_WIRE))
        put(t, ANEW("netdev"));
    put_wire(t, r);
}

#define HEAD ANEW("inet") "table inet " RULESET_TABLE " {\ncomment \"sallyport "

struct str ruleset_removal(bool wire)
{
    return wire ? STR(ANEW("inet") ANEW("netdev")) : STR(ANEW("inet"));
}

/* FNV-1a: it tells our own texts apart, nobody can write the comment but who may write the rules.
 */
static uint64_t hash_of(struct str s)
{
    uint64_t h = 14695981039346656037u;
    for (size_t i = 0; i < s.n; i++)
        h = (h ^ (uint8_t)s.p[i]) * 1099511628211u;
    return h;
}

bool ruleset_text(const struct ruleset *r, struct arena *a, struct str *ret, struct str *error)
{
    assert(r->own_mark || r->shape == RULESET_CLOSED);
    assert(!has_wire(r) || (r->pass_mark && r->group_mark));
    assert(r->learned_max > 0 || r->shape != RULESET_FULL);
    struct text inside = {.a = a};
    if (!check(r, a, error))
        return false;
    put_inside(&inside, r);
    uint64_t hash = hash_of((struct str){inside.p, inside.n});
    *ret =
        arena_printf(a, HEAD "%016llx\"\n%.*s", (unsigned long long)hash, (int)inside.n, inside.p);
    return true;
}

static struct str with(struct str text, struct str what, struct str instead, struct arena *a)
{
    const char *at = memmem(text.p, text.n, what.p, what.n);
    if (!at)
        return text;
    struct str before = {text.p, (size_t)(at - text.p)};
    return arena_printf(a, "%.*s%.*s%.*s", STR_ARG(before), STR_ARG(instead),
                        STR_ARG(str_skip(text, before.n + what.n)));
}

struct str ruleset_first(struct str text, struct arena *a)
{
    text = with(text, STR(ANEW("inet")), STR("create table inet " RULESET_TABLE "\n"), a);
    return with(text, STR(ANEW("netdev")), STR("create table netdev " RULESET_TABLE "\n"), a);
}

struct str ruleset_hash(struct str text)
{
    return str_head(str_skip(text, sizeof HEAD - 1), RULESET_HASH_TEXT);
}
