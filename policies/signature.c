/* signature.c — signed routes and the keys that check them.  The scheme is O's, kept to the byte: a
 * plain hash over length-prefixed parts, of which 32 bits are used; what is ours is that keys never
 * leave locked memory and that comparing takes the same time whatever is wrong. */
#include "policies/signature.h"

#include <assert.h>
#include <stdio.h>

#include "base/digest.h"
#include "base/text.h"

enum { KEYS = 36, HEX_CHARS = 8, SIGNATURE_CHARS = 9 };

struct keyring {
    struct secret *keys[KEYS];
};

/* ---- white space ---- */

/* Length of the white space that s begins with, or 0 (Unicode's White_Space, in UTF-8). */
static size_t space_at(struct str s)
{
    static const struct str wide[] = {
        {"\xc2\x85", 2},     {"\xc2\xa0", 2},     {"\xe1\x9a\x80", 3}, {"\xe2\x80\xa8", 3},
        {"\xe2\x80\xa9", 3}, {"\xe2\x80\xaf", 3}, {"\xe2\x81\x9f", 3}, {"\xe3\x80\x80", 3},
    };
    if (s.n && (s.p[0] == ' ' || (s.p[0] >= '\t' && s.p[0] <= '\r')))
        return 1;
    if (s.n == 0 || (uint8_t)s.p[0] < 0x80)
        return 0;
    for (size_t i = 0; i < sizeof wide / sizeof *wide; i++)
        if (str_starts(s, wide[i]))
            return wide[i].n;
    return str_starts(s, STR("\xe2\x80")) && s.n > 2 && (uint8_t)s.p[2] >= 0x80 &&
                   (uint8_t)s.p[2] <= 0x8a
               ? 3
               : 0;
}

/* The same for its end. */
static size_t space_before(struct str s)
{
    for (size_t n = 1; n <= 3 && n <= s.n; n++)
        if (space_at(str_skip(s, s.n - n)) == n)
            return n;
    return 0;
}

struct str signature_trim(struct str s)
{
    for (size_t n; (n = space_at(s));)
        s = str_skip(s, n);
    for (size_t n; (n = space_before(s));)
        s = str_head(s, s.n - n);
    return s;
}

/* ---- key ring ---- */

static int key_index(char id)
{
    if (id >= '0' && id <= '9')
        return id - '0';
    return id >= 'a' && id <= 'z' ? id - 'a' + 10 : -1;
}

static struct secret *read_key(struct str value)
{
    struct secret *key = NULL;
    size_t n = 0;
    uint8_t *bytes = mem_new(value.n);
    if (text_base64(value, bytes, &n) && n > 0)
        key = secret_new(bytes, n);
    digest_wipe(bytes, value.n);
    mem_free(bytes);
    return key;
}

static void warn_twice(char *warn, char id)
{
    size_t n = warn ? strlen(warn) : 0;
    if (!warn || memchr(warn, id, n))
        return;
    warn[n] = id;
    warn[n + 1] = 0;
}

/* One ID=KEY; NULL, or what is wrong with it. */
static const char *take_segment(struct keyring *k, struct str segment, char *warn)
{
    ptrdiff_t equals = str_chr(segment, '=');
    if (equals < 0)
        return "has no '='";
    struct str id = signature_trim(str_head(segment, (size_t)equals));
    struct str value = signature_trim(str_skip(segment, (size_t)equals + 1));
    if (id.n == 0)
        return "has no key id";
    if (value.n == 0)
        return "has no key";
    int index = id.n == 1 ? key_index(id.p[0]) : -1;
    if (index < 0)
        return "has a key id that is not one of 0-9a-z";
    struct secret *key = read_key(value);
    if (!key)
        return "is not standard base64 with padding";
    if (k->keys[index])
        warn_twice(warn, id.p[0]);
    secret_unref(k->keys[index]);
    k->keys[index] = key;
    return NULL;
}

/* False: *ret_wrong says what is wrong with which entry (from 1; 0: with the whole). */
static bool take_segments(struct keyring *k, struct str text, char *warn, unsigned *ret_entry,
                          const char **ret_wrong)
{
    struct str segment;
    unsigned entry = 0, keys = 0;
    while (str_next(&text, ',', &segment)) {
        entry++;
        segment = signature_trim(segment);
        if (segment.n == 0)
            continue;
        *ret_entry = entry;
        *ret_wrong = take_segment(k, segment, warn);
        if (*ret_wrong)
            return false;
        keys++;
    }
    *ret_entry = 0;
    *ret_wrong = "holds no key";
    return keys > 0;
}

bool keyring_parse(struct str text, struct keyring **ret, char ret_warn[40], char *error,
                   size_t error_bytes)
{
    static const char allowed[] =
        "must be ID=KEY,… with ID one of 0-9a-z and KEY in standard base64 with padding";
    if (ret_warn)
        ret_warn[0] = 0;
    if (signature_trim(text).n == 0) {
        *ret = NULL;
        return true;
    }
    struct keyring *k = mem_new(sizeof *k);
    const char *wrong;
    unsigned entry;
    if (take_segments(k, text, ret_warn, &entry, &wrong)) {
        *ret = k;
        return true;
    }
    if (entry)
        snprintf(error, error_bytes, "%s: entry %u %s", allowed, entry, wrong);
    else
        snprintf(error, error_bytes, "%s: it %s", allowed, wrong);
    keyring_free(k);
    return false;
}

void keyring_free(struct keyring *k)
{
    for (unsigned i = 0; k && i < KEYS; i++)
        secret_unref(k->keys[i]);
    mem_free(k);
}

bool keyring_has(const struct keyring *k, char id)
{
    int index = key_index(id);
    return k && index >= 0 && k->keys[index];
}

struct str keyring_key(const struct keyring *k, char id)
{
    return keyring_has(k, id) ? secret_bytes(k->keys[key_index(id)]) : STR_NONE;
}

/* ---- forms ---- */

bool signature_is_exp36(struct str s)
{
    uint64_t exp;
    return text_base36(s, &exp);
}

bool signature_is_signature(struct str s)
{
    if (s.n != SIGNATURE_CHARS || key_index(s.p[HEX_CHARS]) < 0)
        return false;
    for (unsigned i = 0; i < HEX_CHARS; i++)
        if (!((s.p[i] >= '0' && s.p[i] <= '9') || (s.p[i] >= 'a' && s.p[i] <= 'f')))
            return false;
    return true;
}

bool signature_port(struct str s, bool lenient_plus, uint16_t *ret)
{
    uint64_t port;
    if (lenient_plus && s.n && s.p[0] == '+')
        s = str_skip(s, 1);
    if (s.n == 0 || s.n > 5 || s.p[0] == '0' || !text_u64(s, UINT16_MAX, &port))
        return false;
    *ret = (uint16_t)port;
    return true;
}

/* ---- scheme v1 ---- */

enum { CANONICAL_PIECES = 7 };

/* The canonical text in pieces, so that checking a request copies none of them; returns its length.
 */
static size_t canonical_pieces(struct str out[CANONICAL_PIECES], struct str id, struct str port,
                               struct str exp36)
{
    const struct str pieces[CANONICAL_PIECES] = {STR("v1\nshort\n"), id,    STR("\n"), port,
                                                 STR("\n"),          exp36, STR("\n")};
    size_t n = 0;
    for (unsigned i = 0; i < CANONICAL_PIECES; i++) {
        out[i] = pieces[i];
        n += pieces[i].n;
    }
    return n;
}

struct str signature_canonical(struct str id, uint16_t port, struct str exp36, struct arena *a)
{
    char digits[20];
    struct str pieces[CANONICAL_PIECES];
    size_t n =
        canonical_pieces(pieces, id, (struct str){digits, text_put_u64(digits, port)}, exp36);
    char *out = arena_get(a, n), *at = out;
    for (unsigned i = 0; i < CANONICAL_PIECES; i++) {
        if (pieces[i].n)
            memcpy(at, pieces[i].p, pieces[i].n);
        at += pieces[i].n;
    }
    return (struct str){out, n};
}

static struct str put_be32(char out[4], size_t n)
{
    assert(n <= UINT32_MAX);
    for (unsigned i = 0; i < 4; i++)
        out[i] = (char)(n >> (24 - 8 * i));
    return (struct str){out, 4};
}

void signature_inner(struct str key, struct str canonical, uint8_t out[32])
{
    char key_n[4], canonical_n[4];
    const struct str pieces[] = {put_be32(key_n, key.n), key, put_be32(canonical_n, canonical.n),
                                 canonical};
    digest_sha256(out, pieces, sizeof pieces / sizeof *pieces);
}

void signature_make(struct str key, char key_id, struct str id, uint16_t port, struct str exp36,
                    char out[9])
{
    char key_n[4], canonical_n[4], digits[20];
    struct str pieces[3 + CANONICAL_PIECES];
    uint8_t sum[SHA256_BYTES];
    size_t n =
        canonical_pieces(pieces + 3, id, (struct str){digits, text_put_u64(digits, port)}, exp36);
    pieces[0] = put_be32(key_n, key.n);
    pieces[1] = key;
    pieces[2] = put_be32(canonical_n, n);
    digest_sha256(sum, pieces, 3 + CANONICAL_PIECES);
    text_put_hex(out, sum, HEX_CHARS / 2);
    out[HEX_CHARS] = key_id;
}

enum signature_verdict signature_verify(const struct keyring *k, const struct signed_route *r,
                                        int64_t now_unix_s)
{
    uint64_t exp;
    if (!text_base36(r->exp36, &exp) || !signature_is_signature(r->signature))
        return SIGNATURE_FORMAT;
    if (now_unix_s < 0 || (uint64_t)now_unix_s > exp)
        return SIGNATURE_EXPIRED;
    char key_id = r->signature.p[HEX_CHARS], right[SIGNATURE_CHARS];
    if (!keyring_has(k, key_id))
        return SIGNATURE_KEY_UNKNOWN;
    signature_make(keyring_key(k, key_id), key_id, r->id, r->port, r->exp36, right);
    return digest_equal((struct str){right, sizeof right}, r->signature) ? SIGNATURE_OK
                                                                         : SIGNATURE_MISMATCH;
}
