/* proxy_fuzz.c — the proxy between clients and origins whose doings the input chooses
 * (tests/harness/mischief.h). */
#include "harness/mischief.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    mischief(data, size, NULL);
    return 0;
}
