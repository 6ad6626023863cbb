/* resp.c — hiredis, held short.  It formats commands, and parses replies into one record of ours by
 * way of its object functions: so a reply allocates nothing, and a list, of whatever length it says
 * it is, ends the conversation.  Its own sockets are never used. */
#include "ingress/redis/resp.h"

#include <assert.h>
#include <hiredis/hiredis.h>

#include "base/text.h"

struct resp_reader {
    redisReader *hiredis;
    struct resp_reply reply; /* the one being made */
};

/* ---- out */

char *resp_encode(const struct resp_command *c, size_t *ret_n)
{
    const char *argv[RESP_ARGS];
    size_t lengths[RESP_ARGS];
    char *text = NULL;
    assert(c->n > 0 && c->n <= RESP_ARGS);
    for (unsigned i = 0; i < c->n; i++) {
        argv[i] = c->args[i].n ? c->args[i].p : "";
        lengths[i] = c->args[i].n;
    }
    int n = redisFormatCommandArgv(&text, (int)c->n, argv, lengths);
    assert(n > 0);
    char *out = mem_new((size_t)n);
    memcpy(out, text, (size_t)n);
    mem_wipe(text, (size_t)n);
    redisFreeCommand(text);
    *ret_n = (size_t)n;
    return out;
}

/* ---- in */

static bool is_code(char c)
{
    return (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

static size_t kept(int type, const char *p, size_t n)
{
    size_t at = 0;
    if (type != REDIS_REPLY_ERROR)
        return n < RESP_TEXT_BYTES ? n : (size_t)RESP_TEXT_BYTES;
    while (at < n && at < RESP_TEXT_BYTES && is_code(p[at]))
        at++;
    return at == n || p[at] == ' ' ? at : 0;
}

static void *on_text(const redisReadTask *task, char *p, size_t n)
{
    struct resp_reader *r = task->privdata;
    r->reply.type = task->type == REDIS_REPLY_ERROR ? RESP_ERROR : RESP_TEXT;
    r->reply.n = (unsigned)kept(task->type, p, n);
    memcpy(r->reply.text, p, r->reply.n);
    return &r->reply;
}

#if HIREDIS_MAJOR < 1
typedef int list_length;
#else
typedef size_t list_length;
#endif

static void *on_list(const redisReadTask *task, list_length n)
{
    (void)task;
    (void)n;
    return NULL;
}

static void *on_number(const redisReadTask *task, long long number)
{
    struct resp_reader *r = task->privdata;
    r->reply.type = RESP_NUMBER;
    r->reply.number = number;
    return &r->reply;
}

static void *on_nil(const redisReadTask *task)
{
    struct resp_reader *r = task->privdata;
    r->reply.type = RESP_NIL;
    return &r->reply;
}

static void on_free(void *reply)
{
    (void)reply;
}

#if HIREDIS_MAJOR >= 1
/* Doubles and booleans are nil to us. */
static void *on_double(const redisReadTask *task, double number, char *text, size_t n)
{
    (void)number;
    (void)text;
    (void)n;
    return on_nil(task);
}

static void *on_bool(const redisReadTask *task, int yes)
{
    (void)yes;
    return on_nil(task);
}
#endif

static const redisReplyObjectFunctions makers = {.createString = on_text,
                                                 .createArray = on_list,
                                                 .createInteger = on_number,
                                                 .createNil = on_nil,
#if HIREDIS_MAJOR >= 1
                                                 .createDouble = on_double,
                                                 .createBool = on_bool,
#endif
                                                 .freeObject = on_free};

struct resp_reader *resp_reader_new(void)
{
    struct resp_reader *r = mem_new(sizeof *r);
    r->hiredis = redisReaderCreateWithFunctions((redisReplyObjectFunctions *)(uintptr_t)&makers);
    assert(r->hiredis);
    r->hiredis->privdata = r;
    return r;
}

void resp_reader_free(struct resp_reader *r)
{
    if (!r)
        return;
    redisReaderFree(r->hiredis);
    mem_free(r);
}

size_t resp_lying(const struct resp_reader *r)
{
    return r->hiredis->len - r->hiredis->pos;
}

bool resp_feed(struct resp_reader *r, const void *p, size_t n)
{
    return n <= RESP_LYING_BYTES - resp_lying(r) && redisReaderFeed(r->hiredis, p, n) == REDIS_OK;
}

int resp_next(struct resp_reader *r, struct resp_reply *ret)
{
    void *made = NULL;
    if (r->hiredis->ridx < 0) /* a new one begins */
        r->reply = (struct resp_reply){.type = RESP_NIL};
    if (redisReaderGetReply(r->hiredis, &made) != REDIS_OK)
        return -1;
    if (!made)
        return 0;
    *ret = r->reply;
    return 1;
}

struct str resp_text(const struct resp_reply *r)
{
    return (struct str){r->text, r->n};
}

bool resp_is_error(const struct resp_reply *r, const char *code)
{
    return r->type == RESP_ERROR && str_eq(resp_text(r), str_of(code));
}

/* ---- RESP3: its types, each a line; some have bytes or values behind it */

enum shape { NOT, LINE, BYTES, VALUES, PAIRS };

static enum shape shape_of(char type)
{
    static const enum shape shapes[128] = {
        ['+'] = LINE,   ['-'] = LINE,   [':'] = LINE,   ['_'] = LINE,  [','] = LINE,
        ['#'] = LINE,   ['('] = LINE,   ['$'] = BYTES,  ['!'] = BYTES, ['='] = BYTES,
        ['*'] = VALUES, ['~'] = VALUES, ['>'] = VALUES, ['%'] = PAIRS, ['|'] = PAIRS,
    };
    return (unsigned char)type < 128 ? shapes[(unsigned char)type] : NOT;
}

enum { COUNT_MAX = 1 << 20 };

/* The line at the front of s; 0: not whole; -1: no value begins so. */
static ptrdiff_t span_line(struct str s, uint64_t *ret_bytes, uint64_t *ret_values)
{
    ptrdiff_t cr = str_chr(s, '\r');
    enum shape shape = s.n ? shape_of(s.p[0]) : LINE;
    uint64_t count = 0;
    *ret_bytes = *ret_values = 0;
    if (shape == NOT)
        return -1;
    if (cr < 0 || (size_t)cr + 1 >= s.n)
        return 0;
    if (s.p[cr + 1] != '\n')
        return -1;
    struct str number = str_skip(str_head(s, (size_t)cr), 1);
    bool nil = (shape == BYTES || shape == VALUES) && str_eq(number, STR("-1"));
    if (shape != LINE && !nil && !text_u64(number, COUNT_MAX, &count))
        return -1;
    if (shape == BYTES && !nil)
        *ret_bytes = count + 2;
    if (shape == VALUES || shape == PAIRS)
        *ret_values = shape == PAIRS ? 2 * count + (s.p[0] == '|') : count;
    return cr + 2;
}

ptrdiff_t resp3_span(struct str s)
{
    size_t at = 0;
    for (uint64_t owed = 1; owed > 0; owed--) {
        uint64_t bytes, values;
        ptrdiff_t n = span_line(str_skip(s, at), &bytes, &values);
        if (n <= 0)
            return n;
        at += (size_t)n;
        if (bytes > s.n - at)
            return 0;
        if (bytes && memcmp(s.p + at + bytes - 2, "\r\n", 2) != 0)
            return -1;
        at += bytes;
        owed += values;
        if (owed > COUNT_MAX)
            return -1;
    }
    return (ptrdiff_t)at;
}
