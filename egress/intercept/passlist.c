/* passlist.c — hosts that are never opened.  The patterns are the operator's, the texts they are
 * searched in the workload's: so a search has a bound, and one that reaches it has found nothing.
 */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "egress/intercept/passlist.h"

#include <assert.h>
#include <pcre2.h>

#include "base/text.h"

enum { MATCH_STEPS = 100000, MATCH_DEPTH = 1000, MATCH_KIB = 256, NAME_MAX_BYTES = 255 };

struct passlist {
    pcre2_code **at;
    unsigned n;
    pcre2_match_context *bounds;
};

struct subject {
    char bytes[NAME_MAX_BYTES + 16];
    size_t n;
};

/* ---- life */

static pcre2_code *compile(struct str pattern, int *ret_error)
{
    PCRE2_SIZE at;
    return pcre2_compile((PCRE2_SPTR)(pattern.n ? pattern.p : ""), pattern.n,
                         PCRE2_NEVER_BACKSLASH_C | PCRE2_NEVER_UTF, ret_error, &at, NULL);
}

struct passlist *passlist_new(const struct str *patterns, unsigned n,
                              void (*warn)(void *user, struct str pattern, struct str why),
                              void *user)
{
    struct passlist *p = mem_new(sizeof *p);
    p->at = n ? mem_new(n * sizeof(pcre2_code *)) : NULL;
    p->bounds = n ? pcre2_match_context_create(NULL) : NULL;
    assert(n == 0 || p->bounds);
    if (p->bounds) {
        pcre2_set_match_limit(p->bounds, MATCH_STEPS);
        pcre2_set_depth_limit(p->bounds, MATCH_DEPTH);
        pcre2_set_heap_limit(p->bounds, MATCH_KIB);
    }
    for (unsigned i = 0; i < n; i++) {
        int error;
        PCRE2_UCHAR why[128] = "";
        pcre2_code *code = compile(patterns[i], &error);
        if (code) {
            p->at[p->n++] = code;
            continue;
        }
        pcre2_get_error_message(error, why, sizeof why);
        if (warn)
            warn(user, patterns[i], str_of((const char *)why));
    }
    return p;
}

void passlist_free(struct passlist *p)
{
    if (!p)
        return;
    for (unsigned i = 0; i < p->n; i++)
        pcre2_code_free(p->at[i]);
    pcre2_match_context_free(p->bounds);
    mem_free(p->at);
    mem_free(p);
}

bool passlist_is_empty(const struct passlist *p)
{
    return p->n == 0;
}

/* ---- searching */

static bool found(const struct passlist *p, const char *text, size_t n)
{
    pcre2_match_data *d = p->n ? pcre2_match_data_create(1, NULL) : NULL;
    bool yes = false;
    assert(p->n == 0 || d);
    for (unsigned i = 0; i < p->n && !yes; i++) /* 0: found, more groups than there is room for */
        yes = pcre2_match(p->at[i], (PCRE2_SPTR)text, n, 0, 0, d, p->bounds) >= 0;
    pcre2_match_data_free(d);
    return yes;
}

static void add(struct subject *s, struct str part)
{
    assert(s->n + part.n <= sizeof s->bytes);
    if (part.n)
        memcpy(s->bytes + s->n, part.p, part.n);
    s->n += part.n;
}

static void add_port(struct subject *s, uint16_t port)
{
    char text[20];
    add(s, STR(":"));
    add(s, (struct str){text, text_put_u64(text, port)});
}

static bool found_with_port(const struct passlist *p, struct str host, uint16_t port)
{
    struct subject s = {.n = 0};
    add(&s, host);
    add_port(&s, port);
    return found(p, s.bytes, s.n);
}

static bool found_in_address(const struct passlist *p, const struct ip *to, uint16_t port)
{
    char text[IP_TEXT_BYTES];
    struct str bare = {text, ip_text(to, text)};
    if (found_with_port(p, bare, port))
        return true;
    if (ip_is_v4(to))
        return false;
    struct subject s = {.n = 0};
    add(&s, STR("["));
    add(&s, bare);
    add(&s, STR("]"));
    add_port(&s, port);
    return found(p, s.bytes, s.n);
}

bool passlist_passes(const struct passlist *p, struct str sni, const struct ip *to, uint16_t port)
{
    if (p->n == 0)
        return false;
    if (sni.p && sni.n <= NAME_MAX_BYTES &&
        (found(p, sni.p, sni.n) || found_with_port(p, sni, port)))
        return true;
    return to && found_in_address(p, to, port);
}

bool passlist_covers(const struct passlist *p, struct str host)
{
    if (p->n == 0)
        return false;
    if (found(p, host.n ? host.p : "", host.n))
        return true;
    if (!str_starts(host, STR("*.")) || host.n > NAME_MAX_BYTES)
        return false;
    struct subject s = {.n = 0};
    add(&s, STR("probe"));
    add(&s, str_skip(host, 1));
    return found(p, s.bytes, s.n);
}
