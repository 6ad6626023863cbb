/* grpc.c — one message out, one message back, and a status behind it.  The first thing that is
 * known to be wrong ends the call; what the status says counts for more than what HTTP says. */
#include "ingress/fastpath/grpc.h"

#include "app/command.h"
#include "base/text.h"
#include "net/worker.h"

enum { PREFIX_BYTES = 5, DETAIL_BYTES = 256 };

struct grpc {
    struct worker *w;
    struct call *call; /* NULL: it is over */
    const struct http_head *head;
    struct buf got;
    struct arena mem;
    void (*done)(void *user, enum grpc_code code, struct str message, struct str detail);
    void *user;
};

const char *grpc_code_text(enum grpc_code c)
{
    static const char *const texts[GRPC_CODES] = {
        [GRPC_OK] = "OK",
        [GRPC_CANCELED] = "Canceled",
        [GRPC_UNKNOWN] = "Unknown",
        [GRPC_INVALID_ARGUMENT] = "InvalidArgument",
        [GRPC_DEADLINE_EXCEEDED] = "DeadlineExceeded",
        [GRPC_NOT_FOUND] = "NotFound",
        [GRPC_ALREADY_EXISTS] = "AlreadyExists",
        [GRPC_PERMISSION_DENIED] = "PermissionDenied",
        [GRPC_RESOURCE_EXHAUSTED] = "ResourceExhausted",
        [GRPC_FAILED_PRECONDITION] = "FailedPrecondition",
        [GRPC_ABORTED] = "Aborted",
        [GRPC_OUT_OF_RANGE] = "OutOfRange",
        [GRPC_UNIMPLEMENTED] = "Unimplemented",
        [GRPC_INTERNAL] = "Internal",
        [GRPC_UNAVAILABLE] = "Unavailable",
        [GRPC_DATA_LOSS] = "DataLoss",
        [GRPC_UNAUTHENTICATED] = "Unauthenticated",
    };
    return (unsigned)c < GRPC_CODES ? texts[c] : texts[GRPC_UNKNOWN];
}

/* ---- the end */

static void free_grpc(void *p)
{
    struct grpc *g = p;
    arena_done(&g->mem);
    mem_free(g);
}

static void bury(struct grpc *g)
{
    g->call = NULL;
    buf_clear(&g->got);
    worker_bury(g->w, free_grpc, g);
}

/* The call is over, or was cancelled.  What it has lent is good until the turn ends. */
static void tell(struct grpc *g, enum grpc_code code, struct str message, struct str detail)
{
    bury(g);
    g->done(g->user, code, message, detail);
}

static void break_off(struct grpc *g, enum grpc_code code, struct str detail)
{
    call_cancel(g->call);
    tell(g, code, STR(""), detail);
}

/* ---- the answer */

static enum grpc_code code_of_http(int status)
{
    switch (status) {
    case 400:
        return GRPC_INTERNAL;
    case 401:
        return GRPC_UNAUTHENTICATED;
    case 403:
        return GRPC_PERMISSION_DENIED;
    case 404:
        return GRPC_UNIMPLEMENTED;
    case 429:
    case 502:
    case 503:
    case 504:
        return GRPC_UNAVAILABLE;
    default:
        return GRPC_UNKNOWN;
    }
}

static bool is_grpc(const struct http_head *h)
{
    const struct str *type = head_get(h, STR("content-type"));
    const struct str plain = STR("application/grpc");
    if (!type || !str_istarts(*type, plain))
        return false;
    return type->n == plain.n || strchr("+;", type->p[plain.n]);
}

static void on_head(void *user, const struct http_head *head)
{
    struct grpc *g = user;
    g->head = head;
    if ((head->status == 200 && is_grpc(head)) || head_get(head, STR("grpc-status")))
        return;
    break_off(g, code_of_http(head->status),
              arena_printf(&g->mem, "HTTP %d, not gRPC", head->status));
}

static size_t message_bytes(const uint8_t *prefix)
{
    return (size_t)prefix[1] << 24 | (size_t)prefix[2] << 16 | (size_t)prefix[3] << 8 | prefix[4];
}

static void on_data(void *user, struct buf *b)
{
    struct grpc *g = user;
    uint8_t prefix[PREFIX_BYTES];
    buf_queue(&g->got, b);
    if (g->got.len < PREFIX_BYTES)
        return;
    buf_peek(&g->got, prefix, PREFIX_BYTES);
    size_t n = message_bytes(prefix);
    if (prefix[0] != 0)
        break_off(g, GRPC_INTERNAL, STR("the answer is compressed"));
    else if (n > GRPC_MESSAGE_MAX)
        break_off(g, GRPC_RESOURCE_EXHAUSTED, STR("the answer is too long"));
    else if (g->got.len > PREFIX_BYTES + n)
        break_off(g, GRPC_INTERNAL, STR("more than one answer"));
}

static enum grpc_code code_of_why(enum why why)
{
    if (why == WHY_DEADLINE)
        return GRPC_DEADLINE_EXCEEDED;
    return why == WHY_LIMIT ? GRPC_RESOURCE_EXHAUSTED : GRPC_UNAVAILABLE;
}

static enum grpc_code code_of_status(struct str text)
{
    uint64_t n;
    return text_u64(text, GRPC_CODES - 1, &n) ? (enum grpc_code)n : GRPC_UNKNOWN;
}

/* Cut first, so that a third of it is left at worst. */
static struct str detail_of(struct grpc *g, const struct http_head *h)
{
    const struct str *text = head_get(h, STR("grpc-message"));
    if (!text)
        return STR("");
    struct str cut = str_head(*text, text->n < DETAIL_BYTES ? text->n : DETAIL_BYTES);
    char *plain = arena_get(&g->mem, cut.n + 1);
    size_t n;
    return text_percent(cut, plain, &n) ? (struct str){plain, n} : cut;
}

static void on_message(struct grpc *g)
{
    uint8_t prefix[PREFIX_BYTES] = {0};
    size_t n = g->got.len;
    if (n >= PREFIX_BYTES)
        buf_peek(&g->got, prefix, PREFIX_BYTES);
    if (n < PREFIX_BYTES || n != PREFIX_BYTES + message_bytes(prefix)) {
        tell(g, GRPC_INTERNAL, STR(""), STR("no whole answer"));
        return;
    }
    buf_drop(&g->got, PREFIX_BYTES);
    n -= PREFIX_BYTES;
    char *message = arena_get(&g->mem, n + 1);
    buf_peek(&g->got, message, n);
    tell(g, GRPC_OK, (struct str){message, n}, STR(""));
}

/* An answer that is nothing but its head has the status there. */
static void on_done(void *user, enum why why, const struct http_head *trailers, struct str fault)
{
    struct grpc *g = user;
    if (why != WHY_OK) {
        tell(g, code_of_why(why), STR(""), fault.n > 0 ? fault : str_of(why_text(why)));
        return;
    }
    const struct http_head *last = trailers ? trailers : g->head;
    const struct str *status = head_get(last, STR("grpc-status"));
    if (!status)
        tell(g, trailers ? GRPC_UNKNOWN : GRPC_INTERNAL, STR(""), STR("no status"));
    else if (code_of_status(*status) != GRPC_OK)
        tell(g, code_of_status(*status), STR(""), detail_of(g, last));
    else
        on_message(g);
}

static const struct call_events call_events = {on_head, on_data, on_done};

/* ---- the request */

static struct str framed(struct grpc *g, struct str message)
{
    char *p = arena_get(&g->mem, PREFIX_BYTES + message.n);
    const uint8_t prefix[PREFIX_BYTES] = {0, (uint8_t)(message.n >> 24), (uint8_t)(message.n >> 16),
                                          (uint8_t)(message.n >> 8), (uint8_t)message.n};
    memcpy(p, prefix, PREFIX_BYTES);
    if (message.n > 0)
        memcpy(p + PREFIX_BYTES, message.p, message.n);
    return (struct str){p, PREFIX_BYTES + message.n};
}

struct grpc *grpc_call(struct caller *c, struct str service, struct str method, struct str message,
                       uint64_t deadline_ms,
                       void (*done)(void *user, enum grpc_code code, struct str message,
                                    struct str detail),
                       void *user)
{
    struct grpc *g = mem_new(sizeof *g);
    uint64_t ms = deadline_ms > 0 ? deadline_ms : 1;
    g->w = caller_worker(c);
    g->done = done;
    g->user = user;
    buf_init(&g->got, worker_pool(g->w));
    arena_init_private(&g->mem, NULL, 0);
    const struct field fields[] = {
        {STR("content-type"), STR("application/grpc")},
        {STR("grpc-timeout"), arena_printf(&g->mem, "%llum", (unsigned long long)ms)},
        {STR("user-agent"), arena_printf(&g->mem, "opensandbox-ingress/%s", command_build.commit)}};
    g->call =
        call_start(c,
                   &(struct call_request){.method = STR("POST"),
                                          .target = arena_printf(&g->mem, "/%.*s/%.*s",
                                                                 STR_ARG(service), STR_ARG(method)),
                                          .fields = fields,
                                          .nfields = sizeof fields / sizeof *fields,
                                          .body = framed(g, message),
                                          .te_trailers = true,
                                          .head_ms = ms,
                                          .whole_ms = ms},
                   &call_events, g);
    return g;
}

void grpc_cancel(struct grpc *g)
{
    call_cancel(g->call);
    bury(g);
}
