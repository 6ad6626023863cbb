/* scope.c — route scope tokens: who may ask Fast Sandbox for what.  The order of the checks is the
 * contract's, so that a client is told the first thing that is wrong; the MAC comes last and is
 * compared whole, and names are decoded only as far as encoding them again gives the same text,
 * since one scope must have one token. */
#include "policies/scope.h"

#include "base/digest.h"
#include "base/text.h"

enum { PARTS = 6, MAC_BYTES = 16, BLOCK_BYTES = 64 };

static const char alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/* ---- base64url without padding (RFC 4648 section 5) */

static int digit_of(char c)
{
    if (c >= 'A' && c <= 'Z')
        return c - 'A';
    if (c >= 'a' && c <= 'z')
        return c - 'a' + 26;
    if (c >= '0' && c <= '9')
        return c - '0' + 52;
    return c == '-' ? 62 : c == '_' ? 63 : -1;
}

/* Into out, which holds 3/4 of s.n; false also for stray last bits. */
static bool decode(struct str s, char *out, size_t *ret_n)
{
    uint32_t bits = 0;
    unsigned n = 0;
    size_t at = 0;
    for (size_t i = 0; i < s.n; i++) {
        int digit = digit_of(s.p[i]);
        if (digit < 0)
            return false;
        bits = (bits << 6 | (uint32_t)digit) & 0xffff;
        n += 6;
        if (n < 8)
            continue;
        n -= 8;
        out[at++] = (char)(bits >> n & 0xff);
    }
    if (n == 6 || (bits & ((1u << n) - 1)) != 0)
        return false;
    *ret_n = at;
    return true;
}

static struct str encode(struct str s, struct arena *a)
{
    char *out = arena_get(a, s.n * 4 / 3 + 2);
    uint32_t bits = 0;
    unsigned n = 0;
    size_t at = 0;
    for (size_t i = 0; i < s.n; i++) {
        bits = (bits << 8 | (uint8_t)s.p[i]) & 0xffff;
        for (n += 8; n >= 6; n -= 6)
            out[at++] = alphabet[bits >> (n - 6) & 63];
    }
    if (n > 0)
        out[at++] = alphabet[bits << (6 - n) & 63];
    return (struct str){out, at};
}

/* ---- parts */

/* Cc of Unicode, in UTF-8. */
static bool has_control(struct str s)
{
    for (size_t i = 0; i < s.n; i++) {
        uint8_t c = (uint8_t)s.p[i];
        if (c < 0x20 || c == 0x7f)
            return true;
        if (c == 0xc2 && i + 1 < s.n && (uint8_t)s.p[i + 1] < 0xa0)
            return true;
    }
    return false;
}

static bool is_name(struct str s)
{
    return s.n > 0 && text_utf8(s) && !has_control(s);
}

static bool read_name(struct str part, struct arena *a, struct str *ret)
{
    char *out = arena_get(a, part.n + 1);
    size_t n;
    if (!decode(part, out, &n))
        return false;
    *ret = (struct str){out, n};
    return is_name(*ret);
}

static bool is_key_id(struct str s)
{
    return s.n == 1 && ((s.p[0] >= '0' && s.p[0] <= '9') || (s.p[0] >= 'a' && s.p[0] <= 'z'));
}

static bool read_mac(struct str part, char ret[MAC_BYTES])
{
    char out[MAC_BYTES + 2];
    size_t n;
    if (part.n != (MAC_BYTES * 4 + 2) / 3 || !decode(part, out, &n) || n != MAC_BYTES)
        return false;
    memcpy(ret, out, MAC_BYTES);
    return true;
}

static bool split(struct str token, struct str parts[PARTS])
{
    struct str part;
    unsigned n = 0;
    while (str_next(&token, '.', &part)) {
        if (n == PARTS)
            return false;
        parts[n++] = part;
    }
    return n == PARTS && str_eq(parts[0], STR("f1"));
}

/* ---- HMAC-SHA256 (RFC 2104) */

static void pad_key(struct str key, uint8_t block[BLOCK_BYTES])
{
    memset(block, 0, BLOCK_BYTES);
    if (key.n > BLOCK_BYTES)
        digest_sha256(block, &key, 1);
    else
        memcpy(block, key.p, key.n);
}

static void xor_block(uint8_t block[BLOCK_BYTES], uint8_t with)
{
    for (unsigned i = 0; i < BLOCK_BYTES; i++)
        block[i] ^= with;
}

static void mac_of(struct str key, const struct scope *s, uint8_t out[SHA256_BYTES])
{
    enum { IPAD = 0x36, OPAD = 0x5c };
    uint8_t block[BLOCK_BYTES], inner[SHA256_BYTES];
    char digits[20];
    const struct str outer[] = {{(const char *)block, sizeof block},
                                {(const char *)inner, sizeof inner}};
    const struct str pieces[] = {
        outer[0],  STR("opensandbox-fsb-route-v1\n"),       s->ns,    STR("\n"), s->id,
        STR("\n"), {digits, text_put_u64(digits, s->port)}, STR("\n")};
    pad_key(key, block);
    xor_block(block, IPAD);
    digest_sha256(inner, pieces, sizeof pieces / sizeof *pieces);
    xor_block(block, IPAD ^ OPAD);
    digest_sha256(out, outer, sizeof outer / sizeof *outer);
    digest_wipe(block, sizeof block);
}

/* ---- tokens */

enum scope_verdict scope_verify(struct str token, const struct keyring *keys, struct arena *a,
                                struct scope *ret)
{
    struct str parts[PARTS];
    struct scope s;
    char mac[MAC_BYTES];
    uint8_t right[SHA256_BYTES];
    if (!keys)
        return SCOPE_NO_VERIFIER;
    if (!split(token, parts))
        return SCOPE_MALFORMED;
    if (!read_name(parts[1], a, &s.ns))
        return SCOPE_BAD_NAMESPACE;
    if (!read_name(parts[2], a, &s.id))
        return SCOPE_BAD_ID;
    if (!signature_port(parts[3], false, &s.port))
        return SCOPE_BAD_PORT;
    if (!is_key_id(parts[4]))
        return SCOPE_BAD_KEY_ID;
    if (!read_mac(parts[5], mac))
        return SCOPE_BAD_MAC_FORM;
    if (!keyring_has(keys, parts[4].p[0]))
        return SCOPE_KEY_UNKNOWN;
    mac_of(keyring_key(keys, parts[4].p[0]), &s, right);
    if (!digest_equal((struct str){(const char *)right, MAC_BYTES}, (struct str){mac, MAC_BYTES}))
        return SCOPE_MAC_MISMATCH;
    *ret = s;
    return SCOPE_OK;
}

bool scope_mint(const struct scope *s, char key_id, const struct keyring *keys, struct arena *a,
                struct str *ret)
{
    uint8_t mac[SHA256_BYTES];
    if (!keyring_has(keys, key_id) || !is_name(s->ns) || !is_name(s->id) || s->port == 0)
        return false;
    mac_of(keyring_key(keys, key_id), s, mac);
    struct str ns = encode(s->ns, a), id = encode(s->id, a);
    struct str text = encode((struct str){(const char *)mac, MAC_BYTES}, a);
    *ret = arena_printf(a, "f1.%.*s.%.*s.%u.%c.%.*s", STR_ARG(ns), STR_ARG(id), s->port, key_id,
                        STR_ARG(text));
    return true;
}
