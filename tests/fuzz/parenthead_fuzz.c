/* parenthead_fuzz.c — any bytes as a parent's answer: cut anywhere it reads the same, what is done
 * ends in a blank line, and a lenient reader sees the same status. */
#include <assert.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "net/parenthead.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static enum parenthead_result read_part(struct parenthead *h, const uint8_t *data, size_t n,
                                        size_t *used)
{
    char *copy = malloc(n ? n : 1); /* a look behind the part is found */
    memcpy(copy, data, n);
    enum parenthead_result r = parenthead_read(h, copy, n, used);
    free(copy);
    return r;
}

/* The status of the last status line of the head. */
static int last_status(const uint8_t *data, size_t n)
{
    const uint8_t *at = data, *end = data + n;
    int status = 0;
    unsigned minor;
    for (;;) {
        const uint8_t *blank = memmem(at, (size_t)(end - at), "\r\n\r\n", 4);
        assert(blank);
        if (blank + 4 == end)
            break;
        at = blank + 4;
    }
    char line[16] = "";
    memcpy(line, at, 12);
    assert(sscanf(line, "HTTP/1.%1u %3d", &minor, &status) == 2);
    return status;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct parenthead whole = {0};
    size_t used, part_used;
    enum parenthead_result r = read_part(&whole, data, size, &used);
    assert(used <= size && used <= PARENTHEAD_MAX + 1);
    assert(r != PARENTHEAD_MORE || (used == size && size <= PARENTHEAD_MAX));
    if (r == PARENTHEAD_DONE) {
        assert(memcmp(data + used - 4, "\r\n\r\n", 4) == 0);
        assert(whole.status >= 200 && whole.status == last_status(data, used));
    }
    for (size_t cut = 0; cut < size && cut < 300; cut++) {
        struct parenthead h = {0};
        enum parenthead_result first = read_part(&h, data, cut, &part_used);
        assert(first == PARENTHEAD_MORE || first == r);
        if (first != PARENTHEAD_MORE)
            continue;
        assert(read_part(&h, data + cut, size - cut, &part_used) == r && part_used + cut == used);
        assert(r != PARENTHEAD_DONE || h.status == whole.status);
    }
    return 0;
}
