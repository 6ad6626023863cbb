/* text_fuzz.c — every reader of text.h on the same bytes; what one takes must come back the same
 * when written and read again. */
#include <assert.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>

#include "base/text.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_numbers(struct str s)
{
    uint64_t u, again;
    int64_t i;
    double d;
    char out[20];
    if (text_u64(s, UINT64_MAX, &u))
        assert(text_u64((struct str){out, text_put_u64(out, u)}, u, &again) && again == u);
    if (text_base36(s, &u))
        assert(text_put_base36(out, u) == s.n && memcmp(out, s.p, s.n) == 0);
    if (text_bytes(s, &u))
        assert(s.n > 0);
    if (text_go_int(s, &i))
        assert(s.n > 0);
    if (text_double(s, &d))
        assert(isfinite(d));
}

static void check_times(struct str s)
{
    int64_t ns, unix_s, again;
    uint32_t part, part_again;
    char duration[32], iso[24];
    if (text_duration(s, &ns))
        assert(text_duration((struct str){duration, text_put_duration(duration, ns)}, &again) &&
               again == ns);
    if (!text_rfc3339(s, &unix_s, &part) || unix_s < 0)
        return;
    text_put_iso8601(iso, (uint64_t)unix_s * 1000 + part / 1000000);
    assert(text_rfc3339((struct str){iso, sizeof iso}, &again, &part_again));
    assert(again == unix_s || unix_s > INT64_C(253402300799));
    assert(part_again / 1000000 == part / 1000000);
}

static void check_base64(struct str s)
{
    size_t n = 0;
    uint8_t *bytes = malloc(s.n * 3 / 4 + 1);
    if (text_base64(s, bytes, &n)) {
        char *out = malloc((n + 2) / 3 * 4 + 1);
        size_t len = text_put_base64(out, bytes, n), at = 0;
        for (size_t i = 0; i < s.n; i++)
            if (s.p[i] != '\r' && s.p[i] != '\n')
                assert(at < len && s.p[i] == out[at++]);
        assert(at == len);
        free(out);
    }
    free(bytes);
}

static void check_percent(struct str s)
{
    size_t n;
    char *out = malloc(s.n + 1);
    if (text_percent(s, out, &n))
        assert(n <= s.n && (str_chr(s, '%') >= 0 || n == s.n));
    free(out);
}

static void check_json(struct str s)
{
    char *whole = malloc(s.n * 6 + 1), *cut = malloc(s.n + 1);
    size_t n = text_put_json(whole, s.n * 6, s), cut_n = text_put_json(cut, s.n, s);
    assert(text_utf8((struct str){whole, n}));
    assert(cut_n <= s.n && memcmp(whole, cut, cut_n) == 0);
    assert(text_utf8((struct str){cut, cut_n}));
    for (size_t i = 0; i < n; i++)
        assert((unsigned char)whole[i] >= 0x20);
    free(whole);
    free(cut);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct str s = {(const char *)data, size};
    check_numbers(s);
    check_times(s);
    check_base64(s);
    check_percent(s);
    check_json(s);
    text_is_token(s);
    return 0;
}
