/* mischief.h — clients and origins that do legal and illegal things to the proxy in an order that a
 * row of bytes chooses: two bytes a step.
 *
 * What must hold whatever they do: the laws of meter.h and rig.h; every answer belongs to the
 * request it follows, and is no longer and no shorter than the origin made it where it looks whole;
 * no connection serves two pools; what may not be sent twice is not; one access line a request; and
 * when the peers only let time pass, everything ends and nothing is left. */
#ifndef HARNESS_MISCHIEF_H
#define HARNESS_MISCHIEF_H

#include <stddef.h>
#include <stdint.h>

struct mischief_sum {
    unsigned steps, requests, answers, own_answers, retries, tunnels, lines, again;
};
/* Adds to *sum, which may be NULL. */
void mischief(const uint8_t *tape, size_t n, struct mischief_sum *sum);

#endif
