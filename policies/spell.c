/* spell.c — the spellings one after the other; each is what the usual encoders make. */
#include "policies/spell.h"

#include "base/text.h"

static char *put(char *out, const char *p, size_t n)
{
    memcpy(out, p, n);
    return out + n;
}

/* ---- URLs and forms */

static bool is_plain(char c)
{
    return (c >= '0' && c <= '9') || (ascii_lower(c) >= 'a' && ascii_lower(c) <= 'z') || c == '-' ||
           c == '.' || c == '_' || c == '~';
}

static size_t spell_url(struct str value, bool form, bool lower, char *out)
{
    const char *digits = lower ? "0123456789abcdef" : "0123456789ABCDEF";
    char *at = out;
    for (size_t i = 0; i < value.n; i++) {
        uint8_t c = (uint8_t)value.p[i];
        if (is_plain(value.p[i])) {
            *at++ = value.p[i];
        } else if (form && c == ' ') {
            *at++ = '+';
        } else {
            *at++ = '%';
            *at++ = digits[c >> 4];
            *at++ = digits[c & 15];
        }
    }
    return (size_t)(at - out);
}

/* ---- JSON */

static char *put_unit(char *out, unsigned unit)
{
    uint8_t bytes[2] = {(uint8_t)(unit >> 8), (uint8_t)unit};
    out = put(out, "\\u", 2);
    text_put_hex(out, bytes, sizeof bytes);
    return out + 4;
}

static char *put_code(char *out, uint32_t code)
{
    if (code < 0x10000)
        return put_unit(out, code);
    code -= 0x10000;
    return put_unit(put_unit(out, 0xd800 + (code >> 10)), 0xdc00 + (code & 0x3ff));
}

/* Bytes of the character at the front of s, which is UTF-8 there, and what it stands for; 1 and
 * U+FFFD where it is none. */
static size_t character(struct str s, uint32_t *ret_code)
{
    uint8_t c = (uint8_t)s.p[0];
    size_t n = c >= 0xf0 ? 4 : c >= 0xe0 ? 3 : c >= 0xc0 ? 2 : 1;
    *ret_code = c < 0x80 ? c : 0xfffd;
    if (n == 1 || n > s.n || !text_utf8(str_head(s, n)))
        return 1;
    uint32_t code = c & (0x7fu >> n);
    for (size_t i = 1; i < n; i++)
        code = code << 6 | ((uint8_t)s.p[i] & 0x3f);
    *ret_code = code;
    return n;
}

static char *put_ascii(char *out, char c)
{
    static const char special[] = "\"\\\n\r\t\b\f", letters[] = "\"\\nrtbf";
    const char *found = c ? strchr(special, c) : NULL;
    if (found) {
        *out++ = '\\';
        *out++ = letters[found - special];
        return out;
    }
    if ((uint8_t)c < ' ')
        return put_unit(out, (uint8_t)c);
    *out++ = c;
    return out;
}

static bool is_escaped(enum spelling how, uint32_t code)
{
    if (how == SPELL_JSON_ASCII)
        return code >= 0x80;
    return how == SPELL_JSON_HTML &&
           (code == '<' || code == '>' || code == '&' || code == 0x2028 || code == 0x2029);
}

static size_t spell_json(enum spelling how, struct str value, char *out)
{
    char *at = out;
    while (value.n) {
        uint32_t code;
        size_t n = character(value, &code);
        if (is_escaped(how, code))
            at = put_code(at, code);
        else if (n == 1)
            at = put_ascii(at, value.p[0]);
        else
            at = put(at, value.p, n);
        value = str_skip(value, n);
    }
    return (size_t)(at - out);
}

size_t spell(enum spelling how, struct str value, char *out)
{
    bool form = how == SPELL_FORM || how == SPELL_FORM_LOWER;
    if (how >= SPELL_JSON)
        return spell_json(how, value, out);
    return spell_url(value, form, how == SPELL_PERCENT_LOWER || how == SPELL_FORM_LOWER, out);
}
