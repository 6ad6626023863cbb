/* meter.h — the laws of stream.h, checked between a codec and its user without either knowing.
 *
 * Programs that link this file are linked with --wrap=h1_start, h2_start and raw_start: each
 * session comes back wrapped, and so do its streams.  Asserted at every event and operation: no
 * event while an operation runs; head before data before end, in both directions; received −
 * credited never over the window; sent never over what was given, nothing over the length that was
 * promised; closed once, last, not after cancel; no operation on a dead stream; no field of framing
 * or of one hop in a head (DESIGN 19). */
#ifndef HARNESS_METER_H
#define HARNESS_METER_H

#include "http/session.h"

/* Since meter_reset(); [0]: the client's side of the proxy (server role), [1]: the origin's. */
struct meter {
    unsigned sessions[2], streams[2];           /* begun */
    unsigned sessions_over[2], streams_over[2]; /* closed, or cancelled */
    uint64_t received[2], credited[2], given[2], sent[2];
    size_t most_held[2]; /* received − credited of one stream, at its highest */
};
void meter_reset(void);
const struct meter *meter(void);

#endif
