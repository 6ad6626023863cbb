/* reply.c — answers of our own.  A program must be able to tell them from the application's and a
 * person to read them, so each says the same thing in the form that was asked for; never is a body
 * empty, since some clients take that for success. */
#include "proxy/reply.h"

#include "base/text.h"

/* ---- what the client prefers ---- */

enum match { MATCH_NONE, MATCH_ANY, MATCH_TYPE, MATCH_EXACT };

#define NAME(text)             \
    {                          \
        text, sizeof(text) - 1 \
    }

static const struct form {
    struct str range, type_range, content_type;
} forms[] = {
    [REPLY_TEXT] = {NAME("text/plain"), NAME("text/*"), NAME("text/plain; charset=utf-8")},
    [REPLY_JSON] = {NAME("application/json"), NAME("application/*"), NAME("application/json")},
    [REPLY_HTML] = {NAME("text/html"), NAME("text/*"), NAME("text/html; charset=utf-8")},
};

enum { FORMS = sizeof forms / sizeof *forms };

struct wish {
    enum match match;
    unsigned weight; /* thousandths */
    unsigned place;  /* of the range in the list */
};

/* The text up to the next `sep` that is not inside a quoted string; false: *rest is used up. */
static bool next_unquoted(struct str *rest, char sep, struct str *ret)
{
    bool quoted = false;
    if (!rest->p)
        return false;
    for (size_t i = 0; i < rest->n; i++) {
        char c = rest->p[i];
        if (c == '"')
            quoted = !quoted;
        else if (c == '\\' && quoted)
            i++;
        else if (c == sep && !quoted) {
            *ret = str_head(*rest, i);
            *rest = str_skip(*rest, i + 1);
            return true;
        }
    }
    *ret = *rest;
    *rest = STR_NONE;
    return true;
}

/* qvalue of RFC 9110 section 12.4.2 in thousandths; what is none is 0. */
static unsigned read_weight(struct str s)
{
    unsigned weight = 0, digit = 1000;
    if (s.n == 0 || s.n > 5 || (s.p[0] != '0' && s.p[0] != '1') || (s.n > 1 && s.p[1] != '.'))
        return 0;
    for (size_t i = 0; i < s.n; i++) {
        if (i == 1)
            continue;
        if (s.p[i] < '0' || s.p[i] > '9')
            return 0;
        weight += digit * (unsigned)(s.p[i] - '0');
        digit /= 10;
    }
    return weight <= 1000 ? weight : 0;
}

/* Parameters other than q say nothing to us. */
static unsigned weight_of(struct str parameters)
{
    struct str one;
    while (next_unquoted(&parameters, ';', &one)) {
        one = str_trim(one);
        if (str_istarts(one, STR("q=")))
            return read_weight(str_skip(one, 2));
    }
    return 1000;
}

static enum match match_of(struct str range, const struct form *form)
{
    if (str_ieq(range, form->range))
        return MATCH_EXACT;
    if (str_ieq(range, form->type_range))
        return MATCH_TYPE;
    return str_eq(range, STR("*/*")) ? MATCH_ANY : MATCH_NONE;
}

/* One media range; the most specific one that matches says a form's weight, of equal ones the
 * kindest. */
static void take_range(struct str range, unsigned place, struct wish wishes[FORMS])
{
    struct str parameters = range, type;
    next_unquoted(&parameters, ';', &type);
    unsigned weight = weight_of(parameters);
    for (unsigned i = 0; i < FORMS; i++) {
        enum match match = match_of(str_trim(type), &forms[i]);
        if (match == MATCH_NONE)
            continue;
        if (match > wishes[i].match || (match == wishes[i].match && weight > wishes[i].weight))
            wishes[i] = (struct wish){match, weight, place};
    }
}

static bool is_better(const struct wish *a, const struct wish *b)
{
    if (a->weight != b->weight || a->weight == 0)
        return a->weight > b->weight;
    if (a->match != b->match)
        return a->match > b->match;
    return a->match == MATCH_EXACT && a->place < b->place;
}

enum reply_form reply_form(const struct http_head *request)
{
    struct wish wishes[FORMS] = {{MATCH_NONE, 0, 0}};
    unsigned best = REPLY_TEXT, place = 0;
    if (!request)
        return REPLY_TEXT;
    for (const struct field *f = NULL; (f = head_next(request, STR("Accept"), f));) {
        struct str rest = f->value, range;
        while (next_unquoted(&rest, ',', &range))
            take_range(range, place++, wishes);
    }
    for (unsigned i = 0; i < FORMS; i++)
        if (is_better(&wishes[i], &wishes[best]))
            best = i;
    return (enum reply_form)best;
}

/* ---- bodies ---- */

/* s with the five characters that mean something in HTML as references. */
static struct str html_escape(struct str s, struct arena *a)
{
    enum { LONGEST = sizeof "&quot;" - 1 };
    char *out = arena_get(a, s.n * LONGEST), *at = out;
    for (size_t i = 0; i < s.n; i++) {
        struct str reference = {&s.p[i], 1};
        switch (s.p[i]) {
        case '&':
            reference = STR("&amp;");
            break;
        case '<':
            reference = STR("&lt;");
            break;
        case '>':
            reference = STR("&gt;");
            break;
        case '"':
            reference = STR("&quot;");
            break;
        case '\'':
            reference = STR("&#39;");
            break;
        default:
            break;
        }
        memcpy(at, reference.p, reference.n);
        at += reference.n;
    }
    return (struct str){out, (size_t)(at - out)};
}

static struct str json_escape(struct str s, struct arena *a)
{
    size_t room = s.n * 6; /* "\u0000" */
    char *out = arena_get(a, room);
    return (struct str){out, text_put_json(out, room, s)};
}

static struct str text_body(const struct reply *r, struct arena *a)
{
    return arena_printf(a, "%.*s: %.*s\n", STR_ARG(r->brand), STR_ARG(r->message));
}

static struct str json_body(const struct reply *r, struct arena *a)
{
    struct str code = json_escape(r->code, a), message = json_escape(r->message, a),
               id = json_escape(r->request_id, a);
    return arena_printf(
        a, "{\"error\":{\"code\":\"%.*s\",\"message\":\"%.*s\",\"request_id\":\"%.*s\"}}\n",
        STR_ARG(code), STR_ARG(message), STR_ARG(id));
}

static struct str html_body(const struct reply *r, bool reload, struct arena *a)
{
    struct str brand = html_escape(r->brand, a), message = html_escape(r->message, a),
               id = html_escape(r->request_id, a);
    struct str reason = head_reason(r->status);
    return arena_printf(
        a,
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">%s<title>%d "
        "%.*s</title></head>\n"
        "<body><h1>%d %.*s</h1>\n<p>%.*s: %.*s</p>\n<p>Request id: %.*s</p></body></html>\n",
        reload ? "<meta http-equiv=\"refresh\" content=\"1\">" : "", r->status, STR_ARG(reason),
        r->status, STR_ARG(reason), STR_ARG(brand), STR_ARG(message), STR_ARG(id));
}

static struct str body_of(const struct reply *r, enum reply_form form,
                          const struct http_head *request, struct arena *a)
{
    bool get = request && str_eq(request->method, STR("GET"));
    if (form == REPLY_JSON)
        return json_body(r, a);
    return form == REPLY_HTML ? html_body(r, r->status == 503 && r->retry && get, a)
                              : text_body(r, a);
}

void reply_make(const struct reply *r, const struct http_head *request, struct str http_date,
                struct arena *a, struct http_head *ret_head, struct str *ret_body)
{
    enum { MAX_FIELDS = 7 };
    enum reply_form form = reply_form(request);
    *ret_body = body_of(r, form, request, a);
    *ret_head = (struct http_head){
        .status = r->status,
        .length = (int64_t)ret_body->n,
        .protocol = STR(""),
        .fields = arena_get(a, MAX_FIELDS * sizeof(struct field)),
    };
    head_add(ret_head, STR("Content-Type"), forms[form].content_type);
    head_add(ret_head, STR("X-Content-Type-Options"), STR("nosniff"));
    head_add(ret_head, STR("Cache-Control"), STR("no-store"));
    if (r->retry)
        head_add(ret_head, STR("Retry-After"), STR("1"));
    if (r->request_id.n)
        head_add(ret_head, STR("X-Request-Id"), r->request_id);
    if (http_date.n)
        head_add(ret_head, STR("Date"), http_date);
    if (r->extra)
        head_add(ret_head, r->extra->name, r->extra->value);
}
