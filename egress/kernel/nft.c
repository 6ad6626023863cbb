/* nft.c — the only place that knows libnftables.  Its messages are a line of what went wrong and
 * then the rule that is to blame; only the first goes on. */
#include "egress/kernel/nft.h"

#include <nftables/libnftables.h>

static struct str first_line(const char *message)
{
    struct str rest = str_of(message), line;
    while (str_next(&rest, '\n', &line)) {
        line = str_trim(line);
        if (line.n > 0)
            return line;
    }
    return STR("refused without a reason");
}

bool nft_apply(struct str text, struct arena *a, struct str *error)
{
    struct nft_ctx *nft = nft_ctx_new(NFT_CTX_DEFAULT);
    if (!nft || nft_ctx_buffer_error(nft) != 0) {
        *error = STR("libnftables does not start");
        return false;
    }
    nft_ctx_buffer_output(nft);
    struct str z = arena_printf(a, "%.*s", STR_ARG(text));
    if (nft_run_cmd_from_buffer(nft, z.p) == 0)
        return true;
    *error = arena_str(a, first_line(nft_ctx_get_error_buffer(nft)));
    nft_ctx_free(nft);
    return false;
}
