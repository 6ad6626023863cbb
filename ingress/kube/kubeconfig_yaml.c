/* kubeconfig_yaml.c — YAML as a small tree, the only door to libyaml.  A kubeconfig needs maps,
 * lists and texts; everything by which YAML can mean more than it says, or grow when it is read, is
 * refused.  The library works event by event, so no depth of its input is a depth of our stack. */
#include <yaml.h>

#include "ingress/kube/kubeconfig_impl.h"

enum { DEPTH = 16, NODES = 20000, MEMBERS = 1000 };

struct open {
    struct kube_node *node, *last;
    bool named; /* the name of the next member is there */
    struct str name;
    unsigned n;
};

struct reader {
    struct arena *a;
    struct open open[DEPTH];
    unsigned depth, nodes, documents;
    struct kube_node *root;
};

/* ---- the tree ---- */

/* NULL, or why this may not be a name of the map. */
static const char *take_name(struct open *map, struct str name)
{
    for (const struct kube_node *m = map->node->first; m; m = m->next)
        if (str_eq(m->name, name))
            return "a doubled member";
    map->name = name;
    map->named = true;
    return NULL;
}

static const char *put_node(struct reader *r, struct kube_node *node)
{
    struct open *in = r->depth ? &r->open[r->depth - 1] : NULL;
    if (++r->nodes > NODES || (in && ++in->n > MEMBERS))
        return "too many values";
    if (!in) {
        r->root = node;
        return NULL;
    }
    node->name = in->name;
    if (in->last)
        in->last->next = node;
    else
        in->node->first = node;
    in->last = node;
    in->named = false;
    return NULL;
}

static bool wants_name(const struct reader *r)
{
    return r->depth > 0 && r->open[r->depth - 1].node->type == KUBE_NODE_MAP &&
           !r->open[r->depth - 1].named;
}

static struct kube_node *node_new(struct reader *r, enum kube_node_type type)
{
    struct kube_node *node = arena_zero(r->a, sizeof *node);
    node->type = type;
    return node;
}

static const char *open_node(struct reader *r, enum kube_node_type type)
{
    if (wants_name(r))
        return "a member whose name is no text";
    if (r->depth == DEPTH)
        return "nested too deeply";
    struct kube_node *node = node_new(r, type);
    const char *error = put_node(r, node);
    if (!error)
        r->open[r->depth++] = (struct open){.node = node};
    return error;
}

static bool is_null(struct str s, bool plain)
{
    return plain && (str_eq(s, STR("~")) || str_eq(s, STR("null")) || str_eq(s, STR("Null")) ||
                     str_eq(s, STR("NULL")));
}

static const char *take_text(struct reader *r, struct str text, bool plain)
{
    text = is_null(text, plain) ? STR("") : arena_str(r->a, text);
    if (wants_name(r))
        return take_name(&r->open[r->depth - 1], text);
    struct kube_node *node = node_new(r, KUBE_NODE_TEXT);
    node->text = text;
    return put_node(r, node);
}

/* ---- events ---- */

static const char *take_scalar(struct reader *r, const yaml_event_t *e)
{
    struct str text = {(const char *)e->data.scalar.value, e->data.scalar.length};
    if (e->data.scalar.anchor || e->data.scalar.tag)
        return "anchors and tags are not allowed";
    if (text.n && memchr(text.p, '\0', text.n))
        return "a zero byte";
    return take_text(r, text, e->data.scalar.style == YAML_PLAIN_SCALAR_STYLE);
}

static const char *take(struct reader *r, const yaml_event_t *e)
{
    switch (e->type) {
    case YAML_DOCUMENT_START_EVENT:
        return ++r->documents > 1 ? "more than one document" : NULL;
    case YAML_ALIAS_EVENT:
        return "aliases are not allowed";
    case YAML_SCALAR_EVENT:
        return take_scalar(r, e);
    case YAML_SEQUENCE_START_EVENT:
        if (e->data.sequence_start.anchor || e->data.sequence_start.tag)
            return "anchors and tags are not allowed";
        return open_node(r, KUBE_NODE_LIST);
    case YAML_MAPPING_START_EVENT:
        if (e->data.mapping_start.anchor || e->data.mapping_start.tag)
            return "anchors and tags are not allowed";
        return open_node(r, KUBE_NODE_MAP);
    case YAML_SEQUENCE_END_EVENT:
    case YAML_MAPPING_END_EVENT:
        r->depth--;
        return NULL;
    default:
        return NULL;
    }
}

/* The library frees what it read without wiping it; what can be reached is wiped here. */
static void wipe_event(yaml_event_t *e)
{
    if (e->type == YAML_SCALAR_EVENT)
        mem_wipe(e->data.scalar.value, e->data.scalar.length);
    yaml_event_delete(e);
}

static void wipe_parser(yaml_parser_t *p)
{
    mem_wipe(p->buffer.start, (size_t)(p->buffer.end - p->buffer.start));
    mem_wipe(p->raw_buffer.start, (size_t)(p->raw_buffer.end - p->raw_buffer.start));
    for (yaml_token_t *t = p->tokens.head; t != p->tokens.tail; t++)
        if (t->type == YAML_SCALAR_TOKEN)
            mem_wipe(t->data.scalar.value, t->data.scalar.length);
    yaml_parser_delete(p);
}

static bool fault_at(size_t line, const char *text, struct arena *a, struct str *ret_error)
{
    *ret_error = arena_printf(a, "line %zu: %s", line + 1, text);
    return false;
}

static bool read_events(struct reader *r, yaml_parser_t *p, struct str *ret_error)
{
    for (bool end = false; !end;) {
        yaml_event_t e;
        if (!yaml_parser_parse(p, &e))
            return fault_at(p->problem_mark.line, p->problem ? p->problem : "no YAML", r->a,
                            ret_error);
        const char *error = take(r, &e);
        size_t line = e.start_mark.line;
        end = e.type == YAML_STREAM_END_EVENT;
        wipe_event(&e);
        if (error)
            return fault_at(line, error, r->a, ret_error);
    }
    return true;
}

bool kube_yaml_read(struct str text, struct arena *a, const struct kube_node **ret,
                    struct str *ret_error)
{
    yaml_parser_t p;
    struct reader r = {.a = a};
    if (!yaml_parser_initialize(&p)) {
        *ret_error = STR("out of memory");
        return false;
    }
    yaml_parser_set_encoding(&p, YAML_UTF8_ENCODING);
    yaml_parser_set_input_string(&p, (const unsigned char *)(text.n ? text.p : ""), text.n);
    bool good = read_events(&r, &p, ret_error);
    wipe_parser(&p);
    if (good)
        *ret = r.root;
    return good;
}
