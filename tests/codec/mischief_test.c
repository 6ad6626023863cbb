/* mischief_test.c — random clients and random origins on both sides of the proxy, seeded, so that a
 * failure comes again.  A seed that once failed is listed for good. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

#include "base/text.h"
#include "harness/mischief.h"

enum { STEPS = 40000, TAPE_BYTES = 700 };

static uint64_t random_next(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

static void play(uint64_t seed, struct mischief_sum *sum)
{
    static uint8_t tape[TAPE_BYTES];
    uint64_t state = seed * 0x9e3779b97f4a7c15u + 1;
    for (size_t i = 0; i < sizeof tape; i++)
        tape[i] = (uint8_t)(random_next(&state) >> 24);
    mischief(tape, sizeof tape, sum);
}

/* SEED=n plays that one only, STEPS=n plays longer. */
static uint64_t from_environment(const char *name, uint64_t otherwise)
{
    uint64_t n;
    const char *text = getenv(name);
    return text && text_u64(str_of(text), UINT64_MAX, &n) ? n : otherwise;
}

static void whatever_the_peers_do_the_laws_hold_and_everything_ends(void **state)
{
    (void)state;
    struct mischief_sum sum = {0};
    uint64_t only = from_environment("SEED", 0), steps = from_environment("STEPS", STEPS);
    for (uint64_t seed = only ? only : 1; sum.steps < steps; seed++) {
        if (getenv("VERBOSE"))
            fprintf(stderr, "seed %llu\n", (unsigned long long)seed);
        play(seed, &sum);
        if (only)
            break;
    }
    print_message("%u steps, %u requests, %u answers, %u of ours, %u retries, %u again, %u "
                  "tunnels, %u lines\n",
                  sum.steps, sum.requests, sum.answers, sum.own_answers, sum.retries, sum.again,
                  sum.tunnels, sum.lines);
    if (only || steps < STEPS)
        return;
    /* it was a play, not a standstill */
    assert_true(sum.answers > sum.steps / 100 && sum.own_answers > sum.steps / 200);
    assert_true(sum.retries > 0 && sum.tunnels > 0 && sum.again > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whatever_the_peers_do_the_laws_hold_and_everything_ends)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
