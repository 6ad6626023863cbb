/* batchsandbox.c — a BatchSandbox (contract ingress 7.2).  Whether pods are ready comes from its
 * status, where they are from an annotation: a JSON text within the JSON text. */
#include "base/ip.h"
#include "base/json.h"
#include "ingress/kube/objects_impl.h"

static int64_t number_of(struct str value)
{
    int64_t n;
    return !kube_absent(value) && json_cut_int(value, &n) ? n : 0;
}

static void read_ready(struct str status, int64_t *ret_ready, int64_t *ret_replicas)
{
    struct json_pick rows[] = {{.name = STR("ready")}, {.name = STR("replicas")}};
    bool good = status.p && json_pick(status, rows, 2) == NULL;
    *ret_ready = good ? number_of(rows[0].value) : 0;
    *ret_replicas = good ? number_of(rows[1].value) : 0;
}

/* Of a text that is one JSON value. */
static bool is_null(struct str text)
{
    while (strchr(" \t\r\n", text.p[0]))
        text = str_skip(text, 1);
    return text.p[0] == 'n';
}

/* Of a list of texts and nulls the first that is an address, or an empty text; false: it is no such
 * list. */
static bool first_address(struct str list, struct arena *a, struct str *ret)
{
    struct json_fault fault;
    struct json_cut c;
    struct ip ip;
    *ret = STR("");
    if (!json_check(list, 0, 1, &fault))
        return false;
    if (!json_cut_begin(&c, list, JSON_ARRAY))
        return is_null(list);
    while (json_cut_next(&c)) {
        struct str entry;
        if (kube_absent(c.value))
            continue;
        if (!json_cut_text(c.value, a, &entry))
            return false;
        if (ret->n == 0 && ip_parse(entry, &ip))
            *ret = entry;
    }
    return true;
}

void kube_read_batchsandbox(const struct kube_parts *p, struct arena *a, struct kube_object *ret)
{
    int64_t ready, replicas;
    struct str list, address;
    read_ready(p->status, &ready, &replicas);
    if (ready < 1)
        kube_set_not_ready(ret, a, "ready: %lld/%lld", (long long)ready, (long long)replicas);
    else if (!p->annotated)
        kube_set_not_ready(ret, a, "BatchSandbox has no annotations");
    else if (kube_absent(p->endpoints) || str_eq(p->endpoints, STR("\"\"")))
        kube_set_not_ready(ret, a, "missing sandbox.opensandbox.io/endpoints annotation");
    else if (!json_cut_text(p->endpoints, a, &list) || !first_address(list, a, &address))
        kube_set_not_ready(ret, a, "failed to parse endpoints annotation");
    else if (address.n == 0)
        kube_set_not_ready(ret, a, "endpoints annotation contains no IPs");
    else
        kube_set_running(ret, address);
}
