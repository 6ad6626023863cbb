/* decisions.c — the decision log: a list in the order of their ids and an index by what makes a
 * decision different from others.  The workload decides what comes in, so nothing here grows
 * without a bound: the oldest entry makes room for a new one. */
#include "egress/events/decisions.h"

#include <stdio.h>

#include "base/list.h"
#include "base/map.h"
#include "base/text.h"

enum { ADDRESS_BYTES = 46, PROTO_BYTES = 4, KEY_BYTES = 400 };

struct entry {
    struct list link; /* ascending ids */
    uint64_t id, unix_ms, count;
    struct decision d; /* its texts lie in key */
    size_t n;
    char key[]; /* everything that tells it from others */
};

struct decisions {
    struct list list;
    struct map *by_key;
    uint64_t last;
};

struct decisions *decisions_new(void)
{
    struct decisions *d = mem_new(sizeof *d);
    list_init(&d->list);
    d->by_key = map_new();
    return d;
}

static void drop(struct decisions *d, struct entry *e)
{
    list_del(&e->link);
    map_del(d->by_key, (struct str){e->key, e->n});
    mem_free(e);
}

void decisions_free(struct decisions *d)
{
    if (!d)
        return;
    list_each(l, &d->list) drop(d, container_of(l, struct entry, link));
    map_free(d->by_key);
    mem_free(d);
}

uint64_t decisions_last(const struct decisions *d)
{
    return d->last;
}

static struct str cut(struct str s, size_t max)
{
    return s.n > max ? str_head(s, max) : s;
}

/* Texts follow each other, each ended by a zero byte; which lie where is said by *ret. */
static size_t make_key(const struct decision *one, char out[KEY_BYTES], struct decision *ret)
{
    struct str texts[] = {cut(one->name, DECISION_NAME_BYTES), cut(one->address, ADDRESS_BYTES),
                          cut(one->proto, PROTO_BYTES), cut(one->rule, DECISION_RULE_BYTES)};
    struct str *places[] = {&ret->name, &ret->address, &ret->proto, &ret->rule};
    size_t n = (size_t)snprintf(out, KEY_BYTES, "%d %d %u ", (int)one->kind, one->allow, one->port);
    *ret = *one;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        *places[i] = (struct str){out + n, texts[i].n};
        if (texts[i].n)
            memcpy(out + n, texts[i].p, texts[i].n);
        n += texts[i].n;
        out[n++] = '\0';
    }
    return n;
}

static struct entry *entry_new(const char *key, size_t n, const struct decision *d)
{
    struct entry *e = mem_new(sizeof *e + n);
    memcpy(e->key, key, n);
    e->n = n;
    e->d = *d;
    e->d.name.p = e->key + (d->name.p - key);
    e->d.address.p = e->key + (d->address.p - key);
    e->d.proto.p = e->key + (d->proto.p - key);
    e->d.rule.p = e->key + (d->rule.p - key);
    return e;
}

void decisions_note(struct decisions *d, const struct decision *one, uint64_t unix_ms)
{
    char key[KEY_BYTES];
    struct decision kept;
    size_t n = make_key(one, key, &kept);
    struct entry *e = map_get(d->by_key, (struct str){key, n});
    if (!e) {
        if (map_size(d->by_key) == DECISIONS_MAX)
            drop(d, container_of(list_first(&d->list), struct entry, link));
        e = entry_new(key, n, &kept);
        map_put(d->by_key, (struct str){e->key, e->n}, e);
        list_init(&e->link);
    }
    list_del(&e->link);
    list_push(&d->list, &e->link);
    e->id = ++d->last;
    e->unix_ms = unix_ms;
    e->count++;
}

/* ---- showing */

static void put_text(struct json_out *o, const char *name, struct str text)
{
    if (text.n == 0)
        return;
    json_key(o, name);
    json_put_str(o, text);
}

static void put_entry(struct json_out *o, const struct entry *e)
{
    static const char *const kinds[] = {[DECISION_DNS] = "dns",
                                        [DECISION_CONNECTION] = "connection",
                                        [DECISION_REQUEST] = "request",
                                        [DECISION_PACKET] = "packet"};
    char time[24];
    text_put_iso8601(time, e->unix_ms);
    json_open(o, '{');
    json_key(o, "id");
    json_put_int(o, (int64_t)e->id);
    put_text(o, "time", (struct str){time, sizeof time});
    put_text(o, "kind", str_of(kinds[e->d.kind]));
    put_text(o, "name", e->d.name);
    put_text(o, "address", e->d.address);
    if (e->d.port) {
        json_key(o, "port");
        json_put_int(o, e->d.port);
    }
    put_text(o, "proto", e->d.proto);
    put_text(o, "verdict", e->d.allow ? STR("allow") : STR("deny"));
    put_text(o, "rule", e->d.rule);
    json_key(o, "count");
    json_put_int(o, (int64_t)e->count);
    json_close(o, '}');
}

void decisions_put(const struct decisions *d, uint64_t since, struct json_out *o)
{
    if (since > d->last)
        since = 0;
    json_open(o, '{');
    json_key(o, "entries");
    json_open(o, '[');
    for (const struct list *l = d->list.next; l != &d->list; l = l->next) {
        const struct entry *e = container_of((struct list *)(uintptr_t)l, struct entry, link);
        if (e->id > since)
            put_entry(o, e);
    }
    json_close(o, ']');
    json_key(o, "next");
    json_put_int(o, (int64_t)d->last);
    json_close(o, '}');
}
