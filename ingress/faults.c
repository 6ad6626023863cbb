/* faults.c — the table of refusals made into answers.  A message is one text with at most one hole,
 * so it is put together by hand: what fills the hole comes from a client and must never meet a
 * format. */
#include "ingress/faults.h"

#include <assert.h>

#include "base/text.h"
#include "policies/signature.h"

enum { SHOWN_BYTES = 256 };

static const struct row {
    struct str name, code, message;
    int status;
    enum why why;
} rows[FAULTS] = {
#define ROW(id, name, status, code, why, message)   \
    [FAULT_##id] = {{name, sizeof(name) - 1},       \
                    {code, sizeof(code) - 1},       \
                    {message, sizeof(message) - 1}, \
                    status,                         \
                    WHY_##why},
    FAULT_MAP(ROW)
#undef ROW
};

static const struct row *row_of(enum fault_id id)
{
    assert((unsigned)id < FAULTS);
    return &rows[id];
}

int fault_status(enum fault_id id)
{
    return row_of(id)->status;
}

struct str fault_code(enum fault_id id)
{
    return row_of(id)->code;
}

enum why fault_why(enum fault_id id)
{
    return row_of(id)->why;
}

bool fault_retry(enum fault_id id)
{
    return fault_status(id) == 503 || str_eq(fault_code(id), STR("rate_limited"));
}

enum fault_id fault_by_name(struct str name)
{
    for (unsigned id = 0; id < FAULTS; id++)
        if (str_eq(rows[id].name, name))
            return (enum fault_id)id;
    return FAULTS;
}

/* What a client sent, cut at a length and not inside a UTF-8 character. */
static struct str shown(struct str value)
{
    if (value.n <= SHOWN_BYTES)
        return value;
    size_t n = SHOWN_BYTES;
    while (n > SHOWN_BYTES - 3 && ((uint8_t)value.p[n] & 0xc0) == 0x80)
        n--;
    return str_head(value, n);
}

static bool is_word(char c)
{
    return (c >= '0' && c <= '9') || (ascii_lower(c) >= 'a' && ascii_lower(c) <= 'z');
}

/* A signed route that does not parse is shown without what looks like its signature (B5).  Of 1024
 * bytes, each "abcdef01a-" made "***-", more is left than will be shown. */
static struct str masked(struct str value, struct arena *a)
{
    if (value.n > 4 * SHOWN_BYTES)
        value.n = 4 * SHOWN_BYTES;
    char *out = arena_get(a, value.n);
    size_t len = 0;
    for (size_t n; value.n > 0; value = str_skip(value, n)) {
        for (n = 0; n < value.n && is_word(value.p[n]); n++)
            ;
        bool hide = signature_is_signature(str_head(value, n));
        struct str as = hide ? STR("***") : str_head(value, n);
        memcpy(out + len, as.p, as.n);
        len += as.n;
        if (n < value.n)
            out[len++] = value.p[n++];
    }
    return (struct str){out, len};
}

struct str fault_message(const struct fault *f, struct arena *a)
{
    struct str message = row_of(f->id)->message;
    ptrdiff_t hole = str_chr(message, '%');
    if (hole < 0)
        return message;
    char digits[20];
    bool of_route = str_eq(row_of(f->id)->code, STR("route_invalid"));
    struct str value = shown(of_route ? masked(f->value, a) : f->value);
    if (message.p[hole + 1] == 'u')
        value = (struct str){digits, text_put_u64(digits, f->port)};
    struct str front = arena_cat(a, str_head(message, (size_t)hole), value);
    return arena_cat(a, front, str_skip(message, (size_t)hole + 2));
}
