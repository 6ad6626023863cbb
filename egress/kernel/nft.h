/* nft.h — hands a text of rules to the kernel, by libnftables.
 *
 * Only for sallyport-egress-rules: the library's parser costs megabytes that a long-lived process
 * would keep. */
#ifndef KERNEL_NFT_H
#define KERNEL_NFT_H

#include "base/mem.h"
#include "base/why.h"

/* Applies the text in one transaction, all of it or nothing; the text ends with a line feed.
 * Once it is taken the library's socket stays open until the process ends: closing it waits for the
 * kernel to tidy up, some 10 ms.
 * False: *error is one line of the library's, in `a`, without a word of the text itself, which
 * holds our marks. */
must_check bool nft_apply(struct str text, struct arena *a, struct str *error);

#endif
