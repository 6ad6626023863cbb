/* coding.h — content codings as streams: gzip, br and zstd decoded with bounded memory, and coded
 * again in stored blocks (contract egress-vault 14.2; RFC 1952, RFC 7932, RFC 8878).  The door of
 * zlib, brotli and zstd; only their decoders are used. */
#ifndef VAULT_CODING_H
#define VAULT_CODING_H

#include "base/buf.h"
#include "base/why.h"

enum coding { CODING_NONE, CODING_GZIP, CODING_BR, CODING_ZSTD, CODING_UNKNOWN };

/* The value of all Content-Encoding lines of a head: empty and identity are NONE, more than one
 * coding or one that we cannot read is UNKNOWN. */
enum coding coding_read(const struct field *fields, unsigned nfields);

/* Most memory that all decoders of the process may hold, 32 MiB at least: one window of any coding
 * fits. */
void coding_limit(size_t bytes);

struct decoder;
/* c: one that is known.  NULL: the windows of all decoders have as much memory as they may
 * (OVERLOAD). */
struct decoder *decoder_new(enum coding c);
void decoder_free(struct decoder *d);
/* Decodes from `in`, at most `room` bytes into `out`; several members or frames are one body.  end
 * and `in` used up: is it whole?  No byte at all is an empty body.  After what was decoded has gone
 * out: ORIGIN_PROTOCOL: corrupt, truncated, or a window over 8 MiB (br: over 16 MiB); OVERLOAD: its
 * window would be more than all may have.  *ret_more: it stopped for lack of room. */
enum why decoder_push(struct decoder *d, struct buf *in, bool end, size_t room, struct buf *out,
                      bool *ret_more) must_check;

/* Stored blocks.  Each piece can be read as soon as it is out. */
struct encoder {
    enum coding coding;
    uint32_t crc; /* gzip */
    uint64_t total;
    bool begun;
};
void encoder_init(struct encoder *e, enum coding c);
/* Moves all of `in` to `out`; end: and finishes. */
void encoder_push(struct encoder *e, struct buf *in, bool end, struct buf *out);

#endif
