/* h1head_fuzz.c — heads: any cut of the bytes gives the same scan; what is read is a slice of the
 * block without a byte that could end a line, and reading it again from what it says gives the
 * same. */
#include <assert.h>
#include <stdlib.h>

#include "base/text.h"
#include "http/h1head.h"

enum { LIMIT = 700 };

struct scanned {
    enum h1_scan_result result;
    size_t used;
    unsigned lines;
};

static struct scanned scan(const char *p, size_t n, uint32_t seed)
{
    struct h1_scan s = {0};
    struct scanned r = {H1_SCAN_MORE, 0, 0};
    for (size_t at = 0; at < n && r.result == H1_SCAN_MORE;) {
        size_t piece = n - at, used = SIZE_MAX;
        seed = seed * 1664525u + 1013904223u;
        if (seed && piece > 1)
            piece = 1 + (seed >> 8) % (seed & 1 && piece > 3 ? 3 : piece);
        r.result = h1_scan(&s, p + at, piece, LIMIT, &used);
        if (r.result == H1_SCAN_MORE)
            assert(used == piece);
        if (r.result == H1_SCAN_DONE)
            assert(used <= piece);
        at += r.result == H1_SCAN_DONE ? used : piece;
        r.used = at;
    }
    assert(s.bytes <= LIMIT || r.result == H1_SCAN_TOO_LARGE || r.result == H1_SCAN_BAD);
    r.lines = s.lines;
    return r;
}

static bool inside(struct str s, struct str block)
{
    return s.n == 0 || (s.p >= block.p && s.p + s.n <= block.p + block.n);
}

static void check_fields(const struct field *fields, unsigned n, struct str block, unsigned lines)
{
    assert(n <= lines);
    for (unsigned i = 0; i < n; i++) {
        struct str name = fields[i].name, value = fields[i].value;
        assert(inside(name, block) && inside(value, block) && value.p);
        assert(text_is_token(name));
        assert(str_chr(value, '\r') < 0 && str_chr(value, '\n') < 0 && str_chr(value, '\0') < 0);
        assert(str_eq(str_trim(value), value));
    }
}

/* Invariant 1 of DESIGN 19. */
static void check_end_to_end(const struct http_head *h)
{
    static const char *const hop[] = {
        "connection", "keep-alive", "proxy-connection", "te",   "transfer-encoding",
        "upgrade",    "trailer",    "content-length",   "host", "proxy-authorization"};
    for (size_t i = 0; i < sizeof hop / sizeof *hop; i++)
        assert(!head_get(h, str_of(hop[i])));
}

static struct str block_of(struct arena *a, const char *p, size_t n)
{
    char *copy = arena_get(a, n);
    memcpy(copy, p, n);
    return (struct str){copy, n};
}

/* Framing is never copied, and llhttp has opinions on it that depend on the blanks around. */
static bool has_framing(const struct http_raw *raw)
{
    for (unsigned i = 0; i < raw->nfields; i++)
        if (str_ieq(raw->fields[i].name, STR("transfer-encoding")) ||
            str_ieq(raw->fields[i].name, STR("content-length")))
            return true;
    return false;
}

/* What we would send on, read once more, has the same fields. */
static void read_again(const struct http_raw *raw, struct arena *a)
{
    if (has_framing(raw))
        return;
    struct str text = arena_printf(a, "X / HTTP/1.1\r\n");
    for (unsigned i = 0; i < raw->nfields; i++)
        text = arena_printf(a, "%.*s%.*s: %.*s\r\n", STR_ARG(text), STR_ARG(raw->fields[i].name),
                            STR_ARG(raw->fields[i].value));
    text = arena_printf(a, "%.*s\r\n", STR_ARG(text));
    struct http_raw again;
    struct http_fault fault;
    enum why why = h1head_request(block_of(a, text.p, text.n), raw->nfields, a, &again, &fault);
    assert(why == WHY_OK && again.nfields == raw->nfields);
    for (unsigned i = 0; i < raw->nfields; i++) {
        assert(str_eq(again.fields[i].name, raw->fields[i].name));
        assert(str_eq(again.fields[i].value, raw->fields[i].value));
    }
}

static void read_request(const char *p, size_t n, unsigned lines)
{
    struct arena a;
    struct http_raw raw;
    struct http_fault fault = {0, NULL};
    struct http_head head;
    struct framing framing;
    arena_init(&a, NULL, 0);
    struct str block = block_of(&a, p, n);
    enum why why = h1head_request(block, lines, &a, &raw, &fault);
    if (why == WHY_OK) {
        check_fields(raw.fields, raw.nfields, block, lines);
        assert(text_is_token(raw.method) && raw.target.n > 0 && raw.minor <= 1);
        for (size_t i = 0; i < raw.target.n; i++)
            assert((unsigned char)raw.target.p[i] > ' ' && raw.target.p[i] != 127);
        read_again(&raw, &a);
        why = rules_request(&raw, STR("http"), &head, &framing, &fault);
        if (why == WHY_OK)
            check_end_to_end(&head);
    }
    assert((why == WHY_OK) == (fault.status == 0));
    assert(fault.status == 0 || fault.status == 400 || fault.status == 501 || fault.status == 505);
    arena_done(&a);
}

static void read_response(const char *p, size_t n, unsigned lines, uint8_t which)
{
    static const struct http_head requests[] = {
        {.method = {"GET", 3}},
        {.method = {"HEAD", 4}},
        {.method = {"GET", 3}, .protocol = {"websocket", 9}},
        {.method = {"CONNECT", 7}}};
    struct arena a;
    struct http_raw raw;
    struct http_head head;
    struct framing framing;
    arena_init(&a, NULL, 0);
    struct str block = block_of(&a, p, n);
    if (h1head_response(block, lines, &a, &raw) == WHY_OK) {
        check_fields(raw.fields, raw.nfields, block, lines);
        assert(raw.status >= 100 && raw.status <= 999 && raw.minor <= 1);
        if (rules_response(&raw, &requests[which % 4], &head, &framing) == WHY_OK) {
            check_end_to_end(&head);
            assert(head.status == raw.status);
            assert(framing.body != BODY_LENGTH || framing.length > 0);
            assert(framing.body != BODY_EOF || !framing.keep_alive);
        }
    }
    arena_done(&a);
}

static void read_trailers(const char *p, size_t n, unsigned lines)
{
    struct arena a;
    struct http_head head;
    arena_init(&a, NULL, 0);
    struct str block = block_of(&a, p, n);
    if (h1head_trailers(block, lines, &a, &head) == WHY_OK) {
        check_fields(head.fields, head.nfields, block, lines);
        check_end_to_end(&head);
    }
    arena_done(&a);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1)
        return 0;
    const char *p = (const char *)data + 1;
    struct scanned whole = scan(p, size - 1, 0), cut = scan(p, size - 1, data[0] + 1u);
    assert(whole.result == cut.result && whole.lines == cut.lines);
    if (whole.result != H1_SCAN_DONE)
        return 0;
    assert(whole.used == cut.used);
    unsigned lines = whole.lines ? whole.lines - 1 : 0;
    read_request(p, whole.used, lines);
    read_response(p, whole.used, lines, data[0]);
    read_trailers(p, whole.used, whole.lines);
    return 0;
}
