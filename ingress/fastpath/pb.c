/* pb.c — protobuf by hand, for the few messages that are spoken here: each field is cut off whole,
 * and every length is held against what is left before it is believed. */
#include "ingress/fastpath/pb.h"

#include "base/text.h"

enum { VARINT_BYTES = 10, HEADERS_MAX = 64 };
enum wire_type { WIRE_VARINT = 0, WIRE_I64 = 1, WIRE_LEN = 2, WIRE_I32 = 5 };

const char *pb_runtime_text(enum pb_runtime r)
{
    static const char *const texts[] = {
#define X(id) #id,
        PB_RUNTIME_MAP(X)
#undef X
    };
    return (unsigned)r < PB_RUNTIMES ? texts[r] : "UNKNOWN";
}

/* ---- writing: the length of what is inside is known before it, so messages are made inside out */

struct out {
    char *p;
    size_t n;
};

static struct out out_new(struct arena *a, size_t room)
{
    return (struct out){arena_get(a, room), 0};
}

static void put_varint(struct out *o, uint64_t v)
{
    for (; v >= 0x80; v >>= 7)
        o->p[o->n++] = (char)(v | 0x80);
    o->p[o->n++] = (char)v;
}

static void put_number(struct out *o, unsigned field, uint64_t v)
{
    if (v == 0)
        return;
    put_varint(o, field << 3 | WIRE_VARINT);
    put_varint(o, v);
}

static void put_message(struct out *o, unsigned field, struct str s)
{
    put_varint(o, field << 3 | WIRE_LEN);
    put_varint(o, s.n);
    if (s.n > 0)
        memcpy(o->p + o->n, s.p, s.n);
    o->n += s.n;
}

static void put_text(struct out *o, unsigned field, struct str s)
{
    if (s.n > 0)
        put_message(o, field, s);
}

static size_t room_of(struct str s)
{
    return s.n + 2 * VARINT_BYTES;
}

static struct str whole(const struct out *o)
{
    return (struct str){o->p, o->n};
}

/* SandboxReference { 2: NamespacedName { 1: namespace, 2: name } } */
static struct str reference(struct str ns, struct str id, struct arena *a)
{
    struct out name = out_new(a, room_of(ns) + room_of(id));
    put_text(&name, 1, ns);
    put_text(&name, 2, id);
    struct out ref = out_new(a, room_of(whole(&name)));
    put_message(&ref, 2, whole(&name));
    return whole(&ref);
}

struct str pb_resolve(struct str ns, struct str id, uint16_t port, enum pb_access access,
                      struct arena *a)
{
    struct str ref = reference(ns, id, a);
    struct out target = out_new(a, 2 * VARINT_BYTES);
    put_varint(&target, 2 << 3 | WIRE_VARINT); /* of a oneof, so it is said even if it is 0 */
    put_varint(&target, port);
    struct out o = out_new(a, room_of(ref) + room_of(whole(&target)) + 2 * VARINT_BYTES);
    put_message(&o, 1, ref);
    put_message(&o, 2, whole(&target));
    put_number(&o, 3, access);
    return whole(&o);
}

struct str pb_get(struct str ns, struct str id, struct arena *a)
{
    struct str ref = reference(ns, id, a);
    struct out o = out_new(a, room_of(ref));
    put_message(&o, 1, ref);
    return whole(&o);
}

struct str pb_resume(struct str request_id, struct str ns, struct str id, struct str checkpoint,
                     struct arena *a)
{
    struct str ref = reference(ns, id, a);
    struct out o = out_new(a, room_of(request_id) + room_of(ref) + room_of(checkpoint));
    put_text(&o, 1, request_id);
    put_message(&o, 2, ref);
    put_text(&o, 4, checkpoint);
    return whole(&o);
}

/* ---- reading */

struct in {
    struct str rest;
    bool broken;
    /* the field that was cut off last */
    unsigned field;
    enum wire_type type;
    uint64_t number; /* VARINT */
    struct str text; /* LEN */
};

static bool fail(struct in *in)
{
    in->broken = true;
    return false;
}

static bool take_varint(struct in *in, uint64_t *ret)
{
    uint64_t v = 0;
    for (size_t i = 0; i < in->rest.n && i < VARINT_BYTES; i++) {
        uint8_t byte = (uint8_t)in->rest.p[i];
        if (i == VARINT_BYTES - 1 && byte > 1)
            break;
        v |= (uint64_t)(byte & 0x7f) << (7 * i);
        if (byte & 0x80)
            continue;
        in->rest = str_skip(in->rest, i + 1);
        *ret = v;
        return true;
    }
    return fail(in);
}

/* A number of so many bytes; none of the fields that are read has that type. */
static bool skip_fixed(struct in *in, size_t n)
{
    if (in->rest.n < n)
        return fail(in);
    in->rest = str_skip(in->rest, n);
    return true;
}

static bool take_text(struct in *in)
{
    uint64_t n;
    if (!take_varint(in, &n) || n > in->rest.n)
        return fail(in);
    in->text = str_head(in->rest, (size_t)n);
    in->rest = str_skip(in->rest, (size_t)n);
    return true;
}

/* Cuts the next field off; false: there is none, or the message is broken. */
static bool next(struct in *in)
{
    uint64_t tag;
    if (in->broken || in->rest.n == 0 || !take_varint(in, &tag))
        return false;
    if (tag > UINT32_MAX || tag >> 3 == 0)
        return fail(in);
    in->field = (unsigned)(tag >> 3);
    in->type = (enum wire_type)(tag & 7);
    switch (in->type) {
    case WIRE_VARINT:
        return take_varint(in, &in->number);
    case WIRE_LEN:
        return take_text(in);
    case WIRE_I64:
        return skip_fixed(in, 8);
    case WIRE_I32:
        return skip_fixed(in, 4);
    }
    return fail(in); /* groups, too: nobody has written them for many years */
}

static bool is_type(struct in *in, enum wire_type type)
{
    return in->type == type || fail(in);
}

static void get_text(struct in *in, struct str *ret)
{
    if (!is_type(in, WIRE_LEN))
        return;
    if (text_utf8(in->text))
        *ret = in->text;
    else
        fail(in);
}

static void get_message(struct in *in, struct str *ret)
{
    if (is_type(in, WIRE_LEN))
        *ret = in->text;
}

static void get_number(struct in *in, int64_t *ret)
{
    if (is_type(in, WIRE_VARINT))
        *ret = (int64_t)in->number;
}

static struct in open_message(struct str message)
{
    return (struct in){.rest = message};
}

static void read_header(struct in *outer, struct pb_header *ret)
{
    if (!is_type(outer, WIRE_LEN))
        return;
    struct in in = open_message(outer->text);
    *ret = (struct pb_header){STR(""), STR("")};
    while (next(&in))
        if (in.field == 1)
            get_text(&in, &ret->name);
        else if (in.field == 2)
            get_text(&in, &ret->value);
    outer->broken |= in.broken;
}

bool pb_read_resolved(struct str message, struct arena *a, struct pb_resolved *ret)
{
    struct in in = open_message(message);
    struct pb_resolved r = {.uid = STR(""), .proxy_endpoint = STR("")};
    struct pb_header *headers = NULL;
    while (next(&in)) {
        switch (in.field) {
        case 1:
            get_text(&in, &r.uid);
            break;
        case 3:
            get_text(&in, &r.proxy_endpoint);
            break;
        case 4:
            if (!headers)
                headers = arena_get(a, HEADERS_MAX * sizeof *headers);
            if (r.nheaders == HEADERS_MAX)
                return false;
            read_header(&in, &headers[r.nheaders++]);
            break;
        case 5:
            get_number(&in, &r.generation);
            break;
        case 6:
            get_number(&in, &r.expires_unix_s);
            break;
        }
    }
    if (in.broken)
        return false;
    r.headers = headers;
    *ret = r;
    return true;
}

/* A message of one number, field 1. */
static void read_state(struct in *outer, int64_t *ret)
{
    if (!is_type(outer, WIRE_LEN))
        return;
    struct in in = open_message(outer->text);
    *ret = 0;
    while (next(&in))
        if (in.field == 1)
            get_number(&in, ret);
    outer->broken |= in.broken;
}

static void read_checkpoint(struct in *outer, struct str *ret)
{
    if (!is_type(outer, WIRE_LEN))
        return;
    struct in in = open_message(outer->text);
    *ret = STR("");
    while (next(&in))
        if (in.field == 1)
            get_text(&in, ret);
    outer->broken |= in.broken;
}

static bool read_info(struct str message, struct pb_sandbox *ret)
{
    struct in in = open_message(message);
    int64_t runtime = 0, plane = 0, ready = 0;
    while (next(&in)) {
        switch (in.field) {
        case 3:
            read_state(&in, &runtime);
            break;
        case 4:
            read_state(&in, &plane);
            break;
        case 7:
            get_number(&in, &ready);
            break;
        case 9:
            read_checkpoint(&in, &ret->checkpoint);
            break;
        }
    }
    ret->runtime =
        runtime >= 0 && runtime < PB_RUNTIMES ? (enum pb_runtime)runtime : PB_RUNTIME_UNKNOWN;
    ret->plane =
        plane >= 0 && plane <= PB_PLANE_UNAVAILABLE ? (enum pb_data_plane)plane : PB_PLANE_UNKNOWN;
    ret->ready = ready != 0;
    return !in.broken;
}

bool pb_read_sandbox(struct str message, struct pb_sandbox *ret)
{
    struct in in = open_message(message);
    struct pb_sandbox s = {.checkpoint = STR("")};
    struct str info = STR("");
    while (next(&in))
        if (in.field == 1)
            get_message(&in, &info);
    if (in.broken || !read_info(info, &s))
        return false;
    *ret = s;
    return true;
}
