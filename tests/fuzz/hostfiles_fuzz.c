/* hostfiles_fuzz.c — any bytes as resolv.conf and as hosts file: bounded, and what comes out can be
 * asked for. */
#include <assert.h>

#include "net/hostfiles.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void walk_candidates(const struct resolv_conf *c, struct str host)
{
    struct dns_name name;
    enum candidate kind;
    unsigned i = 0;
    while ((kind = resolv_candidate(c, host, i, &name)) != CANDIDATE_END) {
        assert(kind == CANDIDATE_SKIP || (name.n > 0 && name.b[name.n - 1] == 0));
        i++;
    }
    assert(i >= 1 && i <= RESOLV_SEARCH + 1);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct str text = {(const char *)data, size};
    struct resolv_conf c;
    struct arena a;
    struct ip ips[HOSTS_ADDRESSES];
    arena_init(&a, NULL, 0);
    resolv_conf_parse(text, &a, &c);
    assert(c.nservers <= RESOLV_SERVERS && c.nsearch <= RESOLV_SEARCH && c.ndots <= 15);
    assert(c.timeout_s >= 1 && c.timeout_s <= 30 && c.attempts >= 1 && c.attempts <= 5);
    walk_candidates(&c, STR("db"));
    walk_candidates(&c, STR("a.b.c."));
    walk_candidates(&c, text);
    arena_done(&a);
    struct hosts *h = hosts_parse(text);
    assert(hosts_find(h, STR("localhost"), ips) <= HOSTS_ADDRESSES);
    hosts_free(h);
    return 0;
}
