/* short_policy.c — see short_policy.h; a word that is no target fails the test. */
#include "harness/short_policy.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

struct document short_policy(const char *text)
{
    struct document d = {.rules = NULL, .allow = text[0] == '*'};
    struct rules *rules = rules_new();
    struct str rest = str_of(text + d.allow), word;
    while (rest.n && str_next(&rest, ' ', &word))
        if (word.n && rules_add(rules, word.p[0] == '+', str_skip(word, 1)) != TARGET_OK)
            fail_msg("no rule: %.*s", STR_ARG(word));
    d.rules = rules;
    return d;
}
