/* h2play.c — which frame comes next is one byte of the tape, what is in it a few more. */
#include "harness/h2play.h"

unsigned tape_next(struct tape *t)
{
    if (t->n == 0)
        return 0;
    t->n--;
    return *t->p++;
}

struct str tape_cut(struct tape *t, size_t n)
{
    if (n > t->n)
        n = t->n;
    struct str s = {(const char *)t->p, n};
    t->p += n;
    t->n -= n;
    return s;
}

struct line {
    const char *name, *value;
};

static const struct line request_lines[] = {
    {":method", "GET"},
    {":method", "POST"},
    {":method", "HEAD"},
    {":method", "CONNECT"},
    {":scheme", "http"},
    {":scheme", "https"},
    {":authority", "a"},
    {":authority", "b"},
    {":path", "/"},
    {":path", "/x?y"},
    {":path", "*"},
    {":protocol", "websocket"},
    {":protocol", "chat"},
    {"host", "a"},
    {"content-length", "3"},
    {"content-length", "0"},
    {"te", "trailers"},
    {"expect", "100-continue"},
    {"cookie", "a=b"},
    {"cookie", "c=d"},
    {"connection", "close"},
    {"upgrade", "h2c"},
    {"transfer-encoding", "x"},
    {"X", "y"},
    {"x", " y"},
    {"x", "y"},
    {"x-long", ""},
    {":foo", "x"},
    {"sec-websocket-key", "k"},
    {"priority", "u=1"},
};
static const struct line response_lines[] = {
    {":status", "200"},      {":status", "204"},
    {":status", "304"},      {":status", "100"},
    {":status", "103"},      {":status", "101"},
    {":status", "404"},      {":status", "99"},
    {"content-length", "3"}, {"content-length", "0"},
    {"set-cookie", "a=b"},   {"grpc-status", "0"},
    {"connection", "close"}, {"x", "y"},
    {"x-long", ""},          {"X", "y"},
    {"trailer", "x"},        {":path", "/"},
    {"server", "o"},         {"upgrade", "websocket"},
};

static size_t put_field(char *to, const struct line *l)
{
    static const char filler[300] = {[0 ... 299] = 'v'};
    struct str value = str_of(l->value);
    if (strcmp(l->name, "x-long") == 0)
        value = (struct str){filler, sizeof filler};
    return frames_field(to, str_of(l->name), value);
}

/* A head: what it must have, unless a bit says no, and further fields. */
static size_t put_head(const struct h2play *p, struct tape *t, char *to)
{
    static const struct line usual[] = {
        {":method", "GET"}, {":scheme", "http"}, {":authority", "a"}, {":path", "/"}};
    static const struct line upgrade[] = {{":method", "CONNECT"},
                                          {":protocol", "websocket"},
                                          {":scheme", "http"},
                                          {":authority", "a"},
                                          {":path", "/"}};
    unsigned how = tape_next(t), more = tape_next(t) & 7;
    size_t n = 0;
    if (!p->client)
        n += put_field(to, &response_lines[how < 128 ? 0 : how & 7]);
    else if (how < 160)
        for (size_t i = 0; i < 4; i++)
            n += put_field(to + n, &usual[i]);
    else if (how < 224)
        for (size_t i = 0; i < 5; i++)
            n += put_field(to + n, &upgrade[i]);
    for (; more > 0; more--) {
        unsigned pick = tape_next(t);
        enum { REQUEST = sizeof request_lines / sizeof *request_lines };
        enum { RESPONSE = sizeof response_lines / sizeof *response_lines };
        n += put_field(to + n, p->client ? &request_lines[pick % REQUEST]
                                         : &response_lines[pick % RESPONSE]);
    }
    return n;
}

static uint32_t some_id(const struct h2play *p, unsigned pick)
{
    uint32_t back = 2 * (pick % 6 + 1);
    return p->next_id > back ? p->next_id - back : 1;
}

static void put_headers(struct h2play *p, struct tape *t, struct frames *f, bool fresh)
{
    char head[4096];
    unsigned how = tape_next(t);
    size_t n = put_head(p, t, head);
    uint32_t id = some_id(p, how >> 2);
    if (fresh && p->client) {
        id = p->next_id;
        p->next_id += how >= 250 ? 6 : 2; /* ids may be left out */
    }
    unsigned flags = (how & 1) | ((how & 0xf0) == 0xf0 ? 0 : 4);
    frames_raw(f, FRAME_HEADERS, flags, id, head, n);
}

static void put_trailers(struct h2play *p, struct tape *t, struct frames *f, unsigned type)
{
    char head[64];
    unsigned how = tape_next(t);
    size_t n = frames_field(head, STR("x-t"), STR("1"));
    unsigned flags = type == FRAME_HEADERS ? (how & 0x80 ? 4 : 5) : how & 4;
    frames_raw(f, type, flags, some_id(p, how), head, n);
}

static void put_data(struct h2play *p, struct tape *t, struct frames *f)
{
    static const char bytes[256 * 64 + 1] = {[0 ... 256 * 64] = 'd'};
    unsigned how = tape_next(t), size = tape_next(t);
    size_t n = how & 2 ? (size_t)size * 64 : size & 15;
    uint32_t id = some_id(p, how >> 3);
    if (!(how & 4) || n < 2) {
        frames_raw(f, FRAME_DATA, how & 1, id, bytes, n);
        return;
    }
    char padded[256 * 64];
    memcpy(padded, bytes, n);
    padded[0] = (char)(size & 7); /* now and then more than there is */
    frames_raw(f, FRAME_DATA, (how & 1) | 8, id, padded, n);
}

static void put_settings(const struct h2play *p, struct tape *t, struct frames *f)
{
    static const char *const texts[] = {
        "settings ack",          "settings",        "settings 1=0",
        "settings 3=1",          "settings 3=100",  "settings 8=1",
        "settings 1=4096",       "settings 4=0",    "settings 4=100",
        "settings 4=2147483647", "settings 5=20000"};
    frames_add(f, texts[tape_next(t) % (p->calm ? 7 : 11)]);
}

static void put_update(const struct h2play *p, struct tape *t, struct frames *f)
{
    unsigned how = tape_next(t);
    uint32_t n = how & 1 ? tape_next(t) * 1000 : tape_next(t);
    uint8_t bytes[4] = {0, (uint8_t)(n >> 16), (uint8_t)(n >> 8), (uint8_t)n};
    frames_raw(f, FRAME_WINDOW_UPDATE, 0, how & 2 ? 0 : some_id(p, how >> 2), bytes, 4);
}

static void put_goaway(const struct h2play *p, struct tape *t, struct frames *f)
{
    uint32_t id = some_id(p, tape_next(t));
    uint8_t bytes[8] = {0, 0, (uint8_t)(id >> 8), (uint8_t)id};
    frames_raw(f, FRAME_GOAWAY, 0, 0, bytes, 8);
}

static void put_any(const struct h2play *p, struct tape *t, struct frames *f)
{
    unsigned type = tape_next(t), flags = tape_next(t), how = tape_next(t);
    struct str s = tape_cut(t, how & 31);
    type %= 12;
    if (type == FRAME_GOAWAY && p->stays)
        return;
    frames_raw(f, type, flags, how & 32 ? 0 : some_id(p, how >> 6), s.p, s.n);
}

void h2play_frame(struct h2play *p, struct tape *t, struct frames *f)
{
    unsigned what = tape_next(t), id = some_id(p, what >> 4);
    uint8_t code[4] = {0, 0, 0, (uint8_t)(what >> 4)};
    switch (what & 15) {
    case 0:
    case 1:
    case 2:
    case 3:
        put_headers(p, t, f, true);
        return;
    case 4:
    case 5:
    case 6:
        put_data(p, t, f);
        return;
    case 7:
        put_trailers(p, t, f, FRAME_HEADERS);
        return;
    case 8:
        frames_raw(f, FRAME_RST_STREAM, 0, id, code, 4);
        return;
    case 9:
        put_update(p, t, f);
        return;
    case 10:
        put_settings(p, t, f);
        return;
    case 11:
        frames_add(f, what & 16 ? "ping 12345678" : "ping ack 12345678");
        return;
    case 12:
        put_trailers(p, t, f, FRAME_CONTINUATION);
        return;
    case 13:
        if (what >= 0xc0 && !p->stays)
            put_goaway(p, t, f);
        else
            frames_raw(f, FRAME_PRIORITY, 0, id, "\0\0\0\0\17", 5);
        return;
    case 14:
        put_headers(p, t, f, false);
        return;
    default:
        if (what >= 0x80 && !p->calm) /* it may be SETTINGS */
            put_any(p, t, f);
        return;
    }
}
