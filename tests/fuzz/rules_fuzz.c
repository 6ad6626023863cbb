/* rules_fuzz.c — any request and answer through rules.c: what is taken holds the invariants of
 * DESIGN 19.1, what is not is a clean refusal.  Input: request line parts and field lines, one per
 * LF; the last line that begins with '<' starts the answer. */
#include <stdint.h>
#include <stdlib.h>

#include "base/text.h"
#include "http/rules.h"

#define CHECK(what)  \
    do {             \
        if (!(what)) \
            abort(); \
    } while (0)

enum { MAX_FIELDS = 64, MAX_OPTIONS = 256 };

/* The option names of all Connection lines, before rules.c has moved anything. */
struct options {
    struct str names[MAX_OPTIONS];
    unsigned n;
};

static void collect_options(struct options *o, struct str value)
{
    struct str name;
    while (str_next(&value, ',', &name))
        if (o->n < MAX_OPTIONS)
            o->names[o->n++] = str_trim(name);
}

static void read_lines(struct str *rest, struct http_raw *raw, struct options *o)
{
    struct str line;
    while (raw->nfields < MAX_FIELDS && rest->n && rest->p[0] != '<' &&
           str_next(rest, '\n', &line)) {
        ptrdiff_t colon = str_chr(line, ':');
        struct str name = colon < 0 ? line : str_head(line, (size_t)colon);
        struct str value = colon < 0 ? STR("") : str_trim(str_skip(line, (size_t)colon + 1));
        raw->fields[raw->nfields++] = (struct field){name, value};
        if (str_ieq(name, STR("connection")))
            collect_options(o, value);
    }
}

static void check_fields(const struct http_head *h, const struct options *o, bool request)
{
    static const char *const never[] = {
        "connection",
        "keep-alive",
        "proxy-connection",
        "te",
        "transfer-encoding",
        "upgrade",
        "content-length",
        "host",
        "trailer",
        "proxy-authenticate",
        "proxy-authorization",
        "http2-settings",
    };
    for (unsigned i = 0; i < h->nfields; i++) {
        const struct field *f = &h->fields[i];
        CHECK(text_is_token(f->name));
        for (size_t j = 0; j < sizeof never / sizeof *never; j++)
            CHECK(!str_ieq(f->name, str_of(never[j])));
        for (unsigned j = 0; j < o->n; j++)
            CHECK(!str_ieq(f->name, o->names[j]) ||
                  (request && str_ieq(f->name, STR("x-request-id"))));
        for (size_t j = 0; j < f->value.n; j++)
            CHECK(f->value.p[j] != '\r' && f->value.p[j] != '\n' && f->value.p[j] != 0);
    }
}

static void check_framing(const struct http_head *h, const struct framing *f)
{
    CHECK(f->body != BODY_LENGTH || (f->length > 0 && f->length == h->length));
    CHECK(f->body != BODY_CHUNKED || h->length == -1);
    CHECK(f->body != BODY_EOF || (h->length == -1 && !f->keep_alive));
    CHECK(h->length >= -1);
    CHECK(h->protocol.p != NULL);
}

static void check_request(const struct http_head *h, const struct framing *f, unsigned minor)
{
    check_framing(h, f);
    CHECK(f->body != BODY_EOF);
    CHECK(h->authority.p ? h->authority.n == 0 || rules_authority(h->authority) : minor == 0);
    CHECK(h->path.p != NULL);
    if (!str_eq(h->method, STR("CONNECT")))
        CHECK(h->path.n > 0 && (h->path.p[0] == '/' ||
                                (str_eq(h->path, STR("*")) && str_eq(h->method, STR("OPTIONS")))));
    CHECK(!str_ieq(h->protocol, STR("h2c")));
    CHECK(minor > 0 || (h->protocol.n == 0 && !h->expect_continue && f->body != BODY_CHUNKED));
    for (size_t i = 0; i < h->path.n; i++)
        CHECK((unsigned char)h->path.p[i] > ' ' && h->path.p[i] != 0x7f);
}

static void run_response(struct str rest, const struct http_head *request)
{
    struct field fields[MAX_FIELDS];
    struct options options = {.n = 0};
    struct http_raw raw = {.minor = 1, .fields = fields};
    struct http_head head;
    struct framing framing;
    struct str line;
    uint64_t status = 0;
    if (!str_next(&rest, '\n', &line))
        return;
    text_u64(str_skip(line, 1), 9999, &status);
    raw.status = (int)status;
    rest.n = rest.p ? rest.n : 0;
    read_lines(&rest, &raw, &options);
    if (rules_response(&raw, request, &head, &framing) != WHY_OK)
        return;
    check_fields(&head, &options, false);
    check_framing(&head, &framing);
    CHECK(head.status >= 100 && head.status <= 999);
    CHECK(head.status != 101 || (head.protocol.n > 0 && str_eq(head.protocol, request->protocol)));
    CHECK(head.protocol.n == 0 || (framing.body == BODY_NONE && !framing.keep_alive));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct field fields[MAX_FIELDS];
    struct options options = {.n = 0};
    struct http_raw raw = {.fields = fields};
    struct http_head head;
    struct framing framing;
    struct http_fault fault = {0, NULL};
    struct arena a;
    arena_init(&a, NULL, 0);
    /* an absolute target is edited in place */
    struct str rest = arena_str(&a, (struct str){(const char *)data, size}), line;
    if (str_next(&rest, '\n', &raw.method) && str_next(&rest, '\n', &raw.target) && rest.p) {
        raw.minor = rest.n && rest.p[0] == '0' ? 0 : 1;
        if (str_next(&rest, '\n', &line) && rest.p) {
            read_lines(&rest, &raw, &options);
            if (rules_request(&raw, STR("http"), &head, &framing, &fault) == WHY_OK) {
                check_fields(&head, &options, true);
                check_request(&head, &framing, raw.minor);
                if (rest.p && rest.n)
                    run_response(rest, &head);
            } else {
                CHECK((fault.status == 400 || fault.status == 501) && fault.text);
            }
            unsigned n = raw.nfields;
            rules_trailers(raw.fields, &n);
            check_fields(&(struct http_head){.fields = raw.fields, .nfields = n},
                         &(struct options){.n = 0}, false);
        }
    }
    arena_done(&a);
    return 0;
}
