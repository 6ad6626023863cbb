/* dial_parent.c — a connection to a parent proxy becomes one to the target.  Whatever does not look
 * exactly like a yes is a no: the bytes that follow are taken for the target's. */
#include "base/text.h"
#include "net/conn_impl.h"
#include "net/dial_impl.h"
#include "net/parenthead.h"
#include "net/resolve.h"
#include "net/tls.h"

struct parent_ask {
    struct worker *w;
    struct conn *conn;
    struct buf request; /* not filled yet */
    struct parenthead head;
    int status; /* of the whole answer; 0: there is none yet */
    bool shaking;
    void (*done)(void *user, struct conn *c, const struct parent_answer *answer);
    void *user;
};

/* ---- what is asked */

/* An address in its own spelling, without brackets. */
static bool is_address(struct str host, char text[IP_TEXT_BYTES], struct str *ret, bool *ret_v6)
{
    struct ip ip;
    if (host.n > 2 && host.p[0] == '[' && host.p[host.n - 1] == ']')
        host = str_skip(str_head(host, host.n - 1), 1);
    if (!ip_parse(host, &ip))
        return false;
    *ret = (struct str){text, ip_text(&ip, text)};
    *ret_v6 = str_chr(*ret, ':') >= 0;
    return true;
}

bool parent_can_ask(const struct dial_to *to)
{
    char text[IP_TEXT_BYTES];
    struct str host, secret = to->parent->authorization;
    bool v6, good = is_address(to->host, text, &host, &v6) || resolve_can_ask(to->host);
    for (size_t i = 0; i < secret.n; i++)
        good &= (unsigned char)secret.p[i] >= ' ' && secret.p[i] != 127;
    return good && to->port > 0;
}

static void put_target(struct buf *b, const struct dial_to *to)
{
    char text[IP_TEXT_BYTES], port[20];
    struct str host = to->host;
    bool v6 = false;
    is_address(to->host, text, &host, &v6);
    buf_str(b, v6 ? STR("[") : STR(""));
    buf_str(b, host);
    buf_str(b, v6 ? STR("]:") : STR(":"));
    buf_write(b, port, text_put_u64(port, to->port));
}

static void put_request(struct buf *b, const struct dial_to *to)
{
    struct str secret = to->parent->authorization;
    buf_str(b, STR("CONNECT "));
    put_target(b, to);
    buf_str(b, STR(" HTTP/1.1\r\nHost: "));
    put_target(b, to);
    if (secret.n > 0) {
        buf_str(b, STR("\r\nProxy-Authorization: "));
        buf_str(b, secret);
    }
    buf_str(b, STR("\r\n\r\n"));
}

/* ---- how it goes */

static void destroy(struct parent_ask *a)
{
    buf_clear(&a->request);
    worker_bury(a->w, mem_free, a);
}

static void on_ready(void *user)
{
    struct parent_ask *a = user;
    a->shaking = false;
    conn_wake(a->conn);
}

static void on_bytes(void *user, struct buf *in)
{
    struct parent_ask *a = user;
    enum parenthead_result r = PARENTHEAD_MORE;
    while (r == PARENTHEAD_MORE && in->len > 0) {
        size_t used;
        r = parenthead_read(&a->head, (const char *)in->head->p, in->head->n, &used);
        buf_drop(in, used);
    }
    if (r == PARENTHEAD_MORE)
        return;
    a->status = r == PARENTHEAD_DONE ? a->head.status : 0;
    if (a->status < 200 || a->status >= 300) {
        conn_close(a->conn, WHY_DIAL);
        return;
    }
    a->done(a->user, a->conn, &(struct parent_answer){.why = WHY_OK, .status = a->status});
    destroy(a);
}

static void on_eof(void *user)
{
    struct parent_ask *a = user;
    conn_close(a->conn, WHY_DIAL);
}

static void on_fill(void *user, struct buf *out, size_t max)
{
    struct parent_ask *a = user;
    (void)max;
    if (!a->shaking)
        buf_move_all(out, &a->request);
}

static void on_closed(void *user, enum why why)
{
    struct parent_ask *a = user;
    struct parent_answer answer = {.why = a->shaking ? WHY_TLS : why, .status = a->status};
    if (answer.why == WHY_TLS) {
        answer.fault = conn_info(a->conn)->fault;
    } else {
        answer.why = WHY_DIAL;
        answer.fault = a->status ? STR("upstream proxy: refuses to connect")
                                 : STR("upstream proxy: did not answer as one");
    }
    a->done(a->user, NULL, &answer);
    destroy(a);
}

static void on_orphan_closed(void *user, enum why why)
{
    (void)why;
    destroy(user);
}

static const struct conn_events events = {on_ready, on_bytes, on_eof, on_fill, on_closed};
static const struct conn_events orphan_events = {.closed = on_orphan_closed};

struct parent_ask *
parent_ask(struct worker *w, struct conn *c, const struct dial_to *to,
           void (*done)(void *user, struct conn *c, const struct parent_answer *answer), void *user)
{
    const struct dial_parent *p = to->parent;
    struct parent_ask *a = mem_new(sizeof *a);
    a->w = w;
    a->conn = c;
    a->done = done;
    a->user = user;
    a->shaking = p->tls != NULL;
    buf_init(&a->request, worker_pool(w));
    put_request(&a->request, to);
    conn_attach(c, &events, a);
    if (p->tls)
        conn_secure(c, p->tls,
                    &(struct tls_to){.name = p->host, .alpn = {"http/1.1"}, .proxy = true});
    else
        conn_wake(c);
    return a;
}

void parent_cancel(struct parent_ask *a)
{
    conn_close(a->conn, WHY_DIAL);
    a->conn->ev = &orphan_events;
}
