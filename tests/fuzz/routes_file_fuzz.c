/* routes_file_fuzz.c — any bytes as a file of routes: a sorted list of whole records, each of which
 * can be written and read again, or a fault of one printable line with a place. */
#include <assert.h>

#include "ingress/routes_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_record(const struct sandbox *s)
{
    static const uint16_t ports[] = {1, 80, 443, 8080, 65535};
    assert(s->id.n > 0 && s->id.n <= 256 && s->refs == 1 && s->generation > 0);
    assert(str_starts(s->pool, s->id) && s->pool.n > s->id.n + 1);
    for (size_t i = 0; i < sizeof ports / sizeof ports[0]; i++) {
        const struct endpoint *e = sandbox_endpoint(s, ports[i]);
        assert(e && (e->port == ports[i] || e->port == 0) && e->host.n > 0 && e->host.n <= 254);
        assert(str_chr(e->host, '[') < 0 && str_chr(e->host, '\0') < 0);
    }
    for (unsigned i = 0; i < s->nends; i++)
        assert(sandbox_endpoint(s, s->ends[i].port ? s->ends[i].port : 0) == &s->ends[i]);
}

static void check_fault(const struct json_fault *f)
{
    assert(f->line > 0 && f->column > 0 && f->text[0] != '\0');
    for (const char *p = f->text; *p; p++)
        assert((uint8_t)*p >= 0x20 && *p != 0x7f);
}

/* In full it is the same again; without its token it is so only if it has none. */
static void check_written(const struct sandbox *s, bool secrets)
{
    struct json_fault fault;
    struct json_out o;
    json_out_init(&o);
    routes_put_entry(&o, s, secrets);
    assert(o.n <= routes_member_room(s));
    struct sandbox *again = routes_parse_entry(s->id, (struct str){o.p, o.n}, &fault);
    assert(secrets || s->token.n == 0 ? again && sandbox_same(s, again) : !again);
    sandbox_unref(again);
    json_out_done(&o);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct str text = {(const char *)data, size};
    struct routes_list l, again;
    struct json_fault fault = {0};
    if (!routes_parse(text, &l, &fault)) {
        check_fault(&fault);
        return 0;
    }
    for (size_t i = 0; i < l.n; i++) {
        check_record(l.items[i]);
        check_written(l.items[i], true);
        check_written(l.items[i], false);
        assert(i == 0 || str_cmp(l.items[i - 1]->id, l.items[i]->id) < 0);
    }
    bool same = routes_parse(text, &again, &fault) && again.n == l.n;
    assert(same);
    for (size_t i = 0; i < l.n; i++)
        assert(sandbox_same(l.items[i], again.items[i]) &&
               l.items[i]->generation != again.items[i]->generation);
    routes_list_free(&l);
    routes_list_free(&again);
    return 0;
}
