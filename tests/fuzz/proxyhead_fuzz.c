/* proxyhead_fuzz.c — any bytes as a PROXY header: what is settled stays settled with more bytes,
 * and a second reader by sscanf agrees with what version 1 names. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

#include "net/proxyhead.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* How a lenient reader would understand a line that we took. */
static void check_line(const uint8_t *p, size_t used, bool has, const union addr *source)
{
    char line[108], family[16], from[64], to[64], text[ADDR_TEXT_BYTES + 1], want[80];
    unsigned from_port, to_port;
    assert(used <= 107 && p[used - 2] == '\r' && p[used - 1] == '\n');
    memcpy(line, p, used);
    line[used] = '\0';
    if (!has) {
        assert(strncmp(line, "PROXY UNKNOWN", 13) == 0);
        return;
    }
    assert(sscanf(line, "PROXY %15s %63s %63s %u %u", family, from, to, &from_port, &to_port) == 5);
    assert(from_port <= 65535 && to_port <= 65535);
    assert(addr_port(&source->sa) == from_port);
    text[addr_text(&source->sa, text)] = '\0';
    snprintf(want, sizeof want, "%s:%u", from, from_port);
    assert(source->sa.sa_family == AF_INET6 || strstr(want, text));
}

static enum proxyhead_result read_part(const uint8_t *data, size_t n, size_t *used, bool *has,
                                       union addr *source)
{
    uint8_t *copy = malloc(n ? n : 1); /* a look behind the part is found */
    memcpy(copy, data, n);
    enum proxyhead_result r = proxyhead_read(copy, n, used, has, source);
    free(copy);
    return r;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    size_t n = size < 2 * PROXYHEAD_MAX ? size : 2 * PROXYHEAD_MAX, used = 0, whole_used = 0;
    bool has = false, whole_has = false;
    union addr source, whole_source;
    enum proxyhead_result whole = read_part(data, n, &whole_used, &whole_has, &whole_source);
    assert(whole != PROXYHEAD_MORE || n < PROXYHEAD_MAX);
    if (whole == PROXYHEAD_DONE) {
        assert(whole_used > 0 && whole_used <= n && whole_used <= PROXYHEAD_MAX);
        if (data[0] == 'P')
            check_line(data, whole_used, whole_has, &whole_source);
    }
    for (size_t part = 0; part < n && part < 300; part++) {
        enum proxyhead_result r = read_part(data, part, &used, &has, &source);
        assert(r == PROXYHEAD_MORE || r == whole);
        if (r != PROXYHEAD_DONE)
            continue;
        assert(used == whole_used && has == whole_has);
        assert(!has || addr_eq(&source.sa, &whole_source.sa));
    }
    return 0;
}
