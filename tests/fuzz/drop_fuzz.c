/* drop_fuzz.c — copies of refused packets, cut off anywhere. */
#include <assert.h>
#include <stdint.h>

#include "egress/kernel/drops.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct drop whole, cut;
    if (!drop_parse(data, size, &whole))
        return 0;
    assert(ip_is_v4(&whole.dst) == ip_is_v4(&whole.src) || data[0] >> 4 == 6);
    /* A shorter copy never says anything else, only less. */
    if (drop_parse(data, size - 1, &cut)) {
        assert(ip_eq(&cut.dst, &whole.dst) && cut.protocol == whole.protocol);
        assert(cut.dst_port == whole.dst_port || cut.dst_port == 0);
    }
    return 0;
}
