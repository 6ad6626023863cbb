/* why.c — the words of the endings.  They come from the same list as the enum, so that neither
 * can have one the other lacks. */
#include "base/why.h"

#include <assert.h>

const char *why_text(enum why why)
{
    static const char *const texts[WHYS] = {
#define X(id, text) [WHY_##id] = text,
        WHY_MAP(X)
#undef X
    };
    assert((unsigned)why < WHYS);
    return texts[why];
}
