/* keyring_fuzz.c — key rings from any text: taken whole or refused with one clean line, and every
 * key that is there can sign. */
#include <stdint.h>
#include <stdlib.h>

#include "policies/signature.h"

#define CHECK(what)  \
    do {             \
        if (!(what)) \
            abort(); \
    } while (0)

static void check_keys(const struct keyring *k, const char *warn)
{
    unsigned keys = 0;
    for (int id = 0; id < 256; id++) {
        char made[9];
        if (!keyring_has(k, (char)id))
            continue;
        keys++;
        CHECK((id >= '0' && id <= '9') || (id >= 'a' && id <= 'z'));
        CHECK(keyring_key(k, (char)id).n > 0);
        signature_make(keyring_key(k, (char)id), (char)id, STR("sb"), 80, STR("x2qxvk"), made);
        struct signed_route route = {STR("sb"), STR("x2qxvk"), {made, sizeof made}, 80};
        CHECK(signature_verify(k, &route, 2000000000) == SIGNATURE_OK);
        route.port = 81;
        CHECK(signature_verify(k, &route, 2000000000) == SIGNATURE_MISMATCH);
    }
    CHECK(keys > 0);
    for (; *warn; warn++)
        CHECK(keyring_has(k, *warn));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct str text = {(const char *)data, size}, trimmed = signature_trim(text);
    struct keyring *untouched = (struct keyring *)(void *)&text, *k = untouched;
    char warn[40], error[160] = "";
    CHECK(trimmed.n <= text.n && signature_trim(trimmed).n == trimmed.n);
    if (!keyring_parse(text, &k, warn, error, sizeof error)) {
        CHECK(k == untouched && error[0] && !strchr(error, '\n'));
        return 0;
    }
    CHECK((k == NULL) == (trimmed.n == 0));
    if (k)
        check_keys(k, warn);
    keyring_free(k);
    return 0;
}
