/* hostfiles.c — two small line formats.  Both are written by many tools and by hand, so a line that
 * cannot be read costs only itself. */
#include "net/hostfiles.h"

#include "base/map.h"
#include "base/text.h"

static bool is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\f' || c == '\v';
}

/* Cuts the next word off the front of *line. */
static bool next_word(struct str *line, struct str *ret)
{
    size_t at = 0, end;
    while (at < line->n && is_space(line->p[at]))
        at++;
    for (end = at; end < line->n && !is_space(line->p[end]); end++)
        continue;
    *ret = str_head(str_skip(*line, at), end - at);
    *line = str_skip(*line, end);
    return end > at;
}

static struct str without_comment(struct str line, const char *marks)
{
    for (size_t i = 0; i < line.n; i++)
        if (strchr(marks, line.p[i]) && line.p[i])
            return str_head(line, i);
    return line;
}

/* ---- resolv.conf ---- */

static void take_server(struct resolv_conf *c, struct str line)
{
    struct str word;
    struct ip ip;
    if (c->nservers == RESOLV_SERVERS || !next_word(&line, &word) || !ip_parse(word, &ip))
        return;
    for (unsigned i = 0; i < c->nservers; i++)
        if (ip_eq(&c->server[i], &ip))
            return;
    c->server[c->nservers++] = ip;
}

/* The last line wins, be it "search" or "domain". */
static void take_search(struct resolv_conf *c, struct str line, struct arena *a, unsigned max)
{
    struct str word;
    c->nsearch = 0;
    while (c->nsearch < max && next_word(&line, &word)) {
        if (word.p[word.n - 1] == '.')
            word.n--;
        if (word.n)
            c->search[c->nsearch++] = arena_str(a, word);
    }
}

/* "name:number", cut to the range. */
static bool take_option(struct str word, struct str name, unsigned least, unsigned most,
                        unsigned *ret)
{
    uint64_t v;
    if (!str_starts(word, name) || !text_u64(str_skip(word, name.n), UINT32_MAX, &v))
        return false;
    *ret = v < least ? least : v > most ? most : (unsigned)v;
    return true;
}

static void take_options(struct resolv_conf *c, struct str line)
{
    struct str word;
    while (next_word(&line, &word))
        if (!take_option(word, STR("ndots:"), 0, 15, &c->ndots) &&
            !take_option(word, STR("timeout:"), 1, 30, &c->timeout_s))
            take_option(word, STR("attempts:"), 1, 5, &c->attempts);
}

void resolv_conf_parse(struct str text, struct arena *a, struct resolv_conf *ret)
{
    struct str line, word;
    *ret = (struct resolv_conf){.ndots = 1, .timeout_s = 5, .attempts = 2};
    while (str_next(&text, '\n', &line)) {
        line = without_comment(line, "#;");
        if (!next_word(&line, &word))
            continue;
        if (str_eq(word, STR("nameserver")))
            take_server(ret, line);
        else if (str_eq(word, STR("search")))
            take_search(ret, line, a, RESOLV_SEARCH);
        else if (str_eq(word, STR("domain")))
            take_search(ret, line, a, 1);
        else if (str_eq(word, STR("options")))
            take_options(ret, line);
    }
}

static unsigned count_dots(struct str s)
{
    unsigned n = 0;
    for (size_t i = 0; i < s.n; i++)
        n += s.p[i] == '.';
    return n;
}

enum candidate resolv_candidate(const struct resolv_conf *c, struct str host, unsigned i,
                                struct dns_name *ret)
{
    bool absolute = host.n && host.p[host.n - 1] == '.';
    unsigned nsearch = absolute ? 0 : c->nsearch;
    unsigned itself = count_dots(host) >= c->ndots ? 0 : nsearch; /* when the host's own turn is */
    if (i > nsearch)
        return CANDIDATE_END;
    if (i == itself)
        return dns_name_parse(host, ret) ? CANDIDATE_OK : CANDIDATE_SKIP;
    struct str domain = c->search[i < itself ? i : i - 1];
    char text[DNS_NAME_MAX + 1];
    if (host.n + 1 + domain.n > sizeof text)
        return CANDIDATE_SKIP;
    memcpy(text, host.p, host.n);
    text[host.n] = '.';
    memcpy(text + host.n + 1, domain.p, domain.n);
    struct str name = {text, host.n + 1 + domain.n};
    return dns_name_parse(name, ret) ? CANDIDATE_OK : CANDIDATE_SKIP;
}

/* ---- hosts ---- */

struct host {
    struct host *next;
    struct str name;
    struct ip *ip;
    unsigned n;
};

struct hosts {
    struct map *map;
    struct host *all;
};

static struct str lower_copy(struct str s)
{
    char *p = mem_new(s.n + 1);
    for (size_t i = 0; i < s.n; i++)
        p[i] = ascii_lower(s.p[i]);
    return (struct str){p, s.n};
}

static struct host *host_get(struct hosts *h, struct str name)
{
    struct str lower = lower_copy(name);
    struct host *host = map_get(h->map, lower);
    if (host) {
        mem_free((char *)lower.p);
        return host;
    }
    host = mem_new(sizeof *host);
    host->name = lower;
    host->next = h->all;
    h->all = host;
    map_put(h->map, host->name, host);
    return host;
}

static void host_add(struct host *host, const struct ip *ip)
{
    if (host->n == HOSTS_ADDRESSES)
        return;
    for (unsigned i = 0; i < host->n; i++)
        if (ip_eq(&host->ip[i], ip))
            return;
    host->ip = mem_renew(host->ip, (host->n + 1) * sizeof *host->ip);
    host->ip[host->n++] = *ip;
}

static void take_host_line(struct hosts *h, struct str line)
{
    struct str word;
    struct ip ip;
    if (!next_word(&line, &word) || !ip_parse(word, &ip))
        return;
    while (next_word(&line, &word))
        host_add(host_get(h, word), &ip);
}

struct hosts *hosts_parse(struct str text)
{
    struct hosts *h = mem_new(sizeof *h);
    struct str line;
    h->map = map_new();
    while (str_next(&text, '\n', &line))
        take_host_line(h, without_comment(line, "#"));
    return h;
}

void hosts_free(struct hosts *h)
{
    if (!h)
        return;
    for (struct host *host = h->all, *next; host; host = next) {
        next = host->next;
        mem_free((char *)host->name.p);
        mem_free(host->ip);
        mem_free(host);
    }
    map_free(h->map);
    mem_free(h);
}

unsigned hosts_find(const struct hosts *h, struct str name, struct ip ret[HOSTS_ADDRESSES])
{
    const struct host *host = map_get(h->map, name);
    unsigned n = 0;
    for (int six = 0; host && six <= 1; six++)
        for (unsigned i = 0; i < host->n; i++)
            if (ip_is_v4(&host->ip[i]) != six)
                ret[n++] = host->ip[i];
    return n;
}
