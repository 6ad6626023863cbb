/* h2head_fuzz.c — any header list as a request, a response and trailers: what is taken could be
 * written as HTTP/1 without a second meaning (DESIGN 19.1), and reads the same once written as
 * HTTP/2 again.  Input: a byte of flags, then name, value, name, value…, each ended by LF. */
#include <stdint.h>
#include <stdlib.h>

#include "base/text.h"
#include "http/h2head.h"

#define CHECK(what)  \
    do {             \
        if (!(what)) \
            abort(); \
    } while (0)

enum { MAX_FIELDS = 40 };

static void read_list(struct arena *a, struct str in, struct h2_list *list)
{
    struct str name, value;
    list->fields = arena_get(a, MAX_FIELDS * sizeof *list->fields);
    list->nfields = 0;
    while (list->nfields < MAX_FIELDS && str_next(&in, '\n', &name) && str_next(&in, '\n', &value))
        list->fields[list->nfields++] = (struct field){arena_str(a, name), arena_str(a, value)};
}

static bool has_blank_end(struct str s)
{
    return str_trim(s).n != s.n;
}

static void check_fields(const struct http_head *h, bool request)
{
    static const char *const never[] = {
        "connection", "keep-alive",     "proxy-connection",   "te",
        "upgrade",    "content-length", "transfer-encoding",  "host",
        "trailer",    "http2-settings", "proxy-authenticate", "proxy-authorization",
    };
    for (unsigned i = 0; i < h->nfields; i++) {
        struct str name = h->fields[i].name, value = h->fields[i].value;
        CHECK(text_is_token(name) && !has_blank_end(value));
        for (size_t j = 0; j < sizeof never / sizeof *never; j++)
            CHECK(!str_eq(name, str_of(never[j])));
        for (size_t j = 0; j < name.n; j++)
            CHECK(name.p[j] < 'A' || name.p[j] > 'Z');
        for (size_t j = 0; j < value.n; j++)
            CHECK(value.p[j] != '\r' && value.p[j] != '\n' && value.p[j] != 0 &&
                  (!request || value.p[j] == '\t' || (unsigned char)value.p[j] >= ' '));
    }
}

static void check_request(const struct http_head *h, bool end)
{
    unsigned cookies = 0;
    CHECK(text_is_token(h->method) && h->path.p && h->authority.p && h->length >= -1);
    CHECK(h->authority.n == 0 || rules_authority(h->authority));
    CHECK(!end || h->length <= 0);
    CHECK(h->protocol.n == 0 ||
          (str_eq(h->protocol, STR("websocket")) && str_eq(h->method, STR("GET"))));
    for (size_t i = 0; i < h->path.n; i++)
        CHECK((unsigned char)h->path.p[i] > ' ' && h->path.p[i] != 0x7f);
    CHECK(str_eq(h->method, STR("CONNECT")) ? h->path.n == 0
                                            : h->path.p[0] == '/' || str_eq(h->path, STR("*")));
    for (const struct field *f = NULL; (f = head_next(h, STR("cookie"), f));)
        cookies++;
    CHECK(cookies <= 1);
    check_fields(h, true);
}

static void same(const struct http_head *x, const struct http_head *y)
{
    CHECK(str_eq(x->method, y->method) && str_eq(x->path, y->path) && x->status == y->status);
    CHECK(str_eq(x->protocol, y->protocol) && x->te_trailers == y->te_trailers);
    CHECK(x->length == y->length && x->nfields == y->nfields);
    CHECK(x->idempotent == y->idempotent && x->expect_continue == y->expect_continue);
    for (unsigned i = 0; i < x->nfields; i++)
        CHECK(str_eq(x->fields[i].name, y->fields[i].name) &&
              str_eq(x->fields[i].value, y->fields[i].value));
}

static void run_request(struct arena *a, struct str in, bool end, struct http_head *head)
{
    struct h2_list list, out;
    struct http_fault fault = {0, NULL};
    struct http_head again;
    read_list(a, in, &list);
    if (h2head_request(&list, end, STR("http"), a, head, &fault) != WHY_OK) {
        CHECK((fault.status == 400 || fault.status == 501) && fault.text);
        return;
    }
    check_request(head, end);
    if (head->authority.n == 0)
        return; /* an empty Host is not sent on */
    h2head_write_request(head, end, a, &out);
    CHECK(h2head_request(&out, end, STR("http"), a, &again, &fault) == WHY_OK);
    same(head, &again);
}

static void run_response(struct arena *a, struct str in, const struct http_head *request)
{
    struct h2_list list, out;
    struct http_head head, again;
    read_list(a, in, &list);
    if (h2head_response(&list, request, &head) != WHY_OK)
        return;
    check_fields(&head, false);
    CHECK(head.status >= 100 && head.status <= 999 && head.length >= -1);
    CHECK((head.status == 101) == (head.protocol.n > 0 && !str_eq(head.protocol, STR("connect"))));
    h2head_write_response(&head, request, false, a, &out);
    CHECK(h2head_response(&out, request, &again) == WHY_OK);
    if (request->protocol.n == 0) /* a refusal loses what only HTTP/1 has of the handshake */
        same(&head, &again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct http_head requests[] = {
        {.method = {"GET", 3}},
        {.method = {"GET", 3}, .protocol = {"websocket", 9}},
        {.method = {"CONNECT", 7}},
    };
    struct arena a;
    struct http_head head;
    struct h2_list list;
    if (size < 1)
        return 0;
    arena_init(&a, NULL, 0);
    struct str in = {(const char *)data + 1, size - 1};
    run_request(&a, in, data[0] & 1, &head);
    for (size_t i = 0; i < sizeof requests / sizeof *requests; i++)
        run_response(&a, in, &requests[i]);
    read_list(&a, in, &list);
    if (h2head_trailers(&list, data[0] & 1, &head) == WHY_OK)
        check_fields(&head, data[0] & 1);
    arena_done(&a);
    return 0;
}
