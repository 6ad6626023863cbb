/* inject_arm.c — a binding with its secrets rendered: each value once in every form that one of its
 * surfaces needs, so that a request copies nothing it does not change. */
#include "policies/inject.h"

static struct str lend(const struct values *v, struct str credential)
{
    return v->value(v->user, credential);
}

/* Blanks at its ends are no part of a field value, and HTTP/2 forbids them. */
static struct str render(enum auth_type type, struct str value, struct secret_bag *bag)
{
    struct str scheme = type == AUTH_BEARER  ? STR("Bearer ")
                        : type == AUTH_BASIC ? STR("Basic ")
                                             : STR("");
    char *out = secret_bag_get(bag, scheme.n + value.n);
    memcpy(out, scheme.p, scheme.n);
    memcpy(out + scheme.n, value.p, value.n);
    return str_trim((struct str){out, scheme.n + value.n});
}

static const struct field *arm_headers(const struct binding *b, const struct values *v,
                                       struct arena *a, struct secret_bag *bag)
{
    struct field *fields = arena_get(a, b->nheaders * sizeof *fields);
    for (unsigned i = 0; i < b->nheaders; i++) {
        struct str value = lend(v, b->headers[i].credential);
        fields[i] = (struct field){arena_str(a, b->headers[i].name), render(b->type, value, bag)};
    }
    return fields;
}

/* The pairs of one surface, in the order of the binding; values[i] is that of substitution i. */
static struct replacements collect(const struct binding *b, enum surface on,
                                   const struct str *values, struct arena *a)
{
    struct replacement *at = arena_get(a, b->nsubstitutions * sizeof *at);
    unsigned n = 0;
    for (unsigned i = 0; i < b->nsubstitutions; i++)
        if (b->substitutions[i].in & on)
            at[n++] =
                (struct replacement){arena_str(a, b->substitutions[i].placeholder), values[i]};
    return (struct replacements){at, n};
}

/* The values of those substitutions that are on one of these surfaces. */
static struct str *encode_all(const struct binding *b, enum encoding e, unsigned on,
                              const struct values *v, struct arena *a, struct secret_bag *bag)
{
    struct str *all = arena_zero(a, b->nsubstitutions * sizeof *all);
    for (unsigned i = 0; i < b->nsubstitutions; i++)
        if (b->substitutions[i].in & on)
            all[i] = encode_value(e, lend(v, b->substitutions[i].credential), bag);
    return all;
}

void arm(const struct binding *b, const struct values *v, struct arena *a, struct secret_bag *bag,
         struct armed *ret)
{
    *ret = (struct armed){.binding = b, .nheaders = b->nheaders};
    ret->headers = arm_headers(b, v, a, bag);
    if (b->nsubstitutions == 0)
        return;
    const struct str *raw = encode_all(b, ENCODE_RAW, SURFACE_HEADER | SURFACE_BODY, v, a, bag);
    const struct str *percent =
        encode_all(b, ENCODE_PERCENT, SURFACE_PATH | SURFACE_QUERY, v, a, bag);
    const struct str *form = encode_all(b, ENCODE_FORM, SURFACE_BODY, v, a, bag);
    const struct str *json = encode_all(b, ENCODE_JSON, SURFACE_BODY, v, a, bag);
    ret->path = collect(b, SURFACE_PATH, percent, a);
    ret->query = collect(b, SURFACE_QUERY, percent, a);
    ret->header = collect(b, SURFACE_HEADER, raw, a);
    ret->body[ENCODE_RAW] = collect(b, SURFACE_BODY, raw, a);
    ret->body[ENCODE_FORM] = collect(b, SURFACE_BODY, form, a);
    ret->body[ENCODE_JSON] = collect(b, SURFACE_BODY, json, a);
    ret->buffers = ret->body[ENCODE_RAW].n > 0;
}
