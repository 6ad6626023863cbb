/* access_test.c — the matrix of contract ingress 4.6, cell by cell. */
#include "policies/access.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <cmocka.h>

static const struct signed_route valid = {
    {"my-sandbox", 10}, {"x2qxvk", 6}, {"5528a7c9a", 9}, 8080};
static const struct signed_route forged = {
    {"my-sandbox", 10}, {"x2qxvk", 6}, {"00000000a", 9}, 8080};
static const struct signed_route unknown = {
    {"my-sandbox", 10}, {"x2qxvk", 6}, {"5528a7c9q", 9}, 8080};
static const struct signed_route expired = {{"my-sandbox", 10}, {"0", 1}, {"00000000a", 9}, 8080};

static void every_cell_of_the_matrix_holds(void **state)
{
    static const struct {
        const char *token, *given;
        const struct signed_route *route;
        bool keys, blocked;
        enum access result;
    } rows[] = {
        {"", NULL, NULL, true, false, ACCESS_OPEN},
        {"", "noise", &forged, false, true, ACCESS_OPEN},
        {"tok", "tok", NULL, false, false, ACCESS_TOKEN},
        {"tok", "tok", &forged, true, false, ACCESS_TOKEN},
        {"tok", "tok", &expired, true, true, ACCESS_TOKEN},
        {"tok", " tok\t", NULL, true, false, ACCESS_TOKEN},
        {"tok", "", &valid, true, false, ACCESS_TOKEN_MISMATCH},
        {"tok", "tok2", &valid, true, false, ACCESS_TOKEN_MISMATCH},
        {"tok", "to", NULL, true, false, ACCESS_TOKEN_MISMATCH},
        {"tok", "Tok", NULL, false, true, ACCESS_TOKEN_MISMATCH},
        {"tok", NULL, NULL, true, false, ACCESS_REQUIRED},
        {"tok", NULL, NULL, false, true, ACCESS_REQUIRED},
        {"tok", NULL, &valid, false, false, ACCESS_NO_VERIFIER},
        {"tok", NULL, &valid, false, true, ACCESS_NO_VERIFIER},
        {"tok", NULL, &valid, true, true, ACCESS_TOO_MANY},
        {"tok", NULL, &expired, true, true, ACCESS_TOO_MANY},
        {"tok", NULL, &expired, true, false, ACCESS_EXPIRED},
        {"tok", NULL, &unknown, true, false, ACCESS_KEY_UNKNOWN},
        {"tok", NULL, &forged, true, false, ACCESS_MISMATCH},
        {"tok", NULL, &valid, true, false, ACCESS_SIGNATURE},
    };
    (void)state;
    struct keyring *keys = NULL;
    char error[200];
    assert_true(keyring_parse(STR("a=Y29uZm9ybWFuY2Uta2V5LTE="), &keys, NULL, error, sizeof error));
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct str given = str_of(rows[i].given);
        enum access result =
            access_check(str_of(rows[i].token), rows[i].given ? &given : NULL, rows[i].route,
                         rows[i].keys ? keys : NULL, rows[i].blocked, 1999999999);
        if (result != rows[i].result)
            fail_msg("row %zu: %d", i, result);
    }
    keyring_free(keys);
}

static void only_three_results_allow_and_only_two_count(void **state)
{
    (void)state;
    for (int a = ACCESS_OPEN; a <= ACCESS_TOO_MANY; a++) {
        assert_int_equal(access_allows((enum access)a),
                         a == ACCESS_OPEN || a == ACCESS_TOKEN || a == ACCESS_SIGNATURE);
        assert_int_equal(access_counts((enum access)a),
                         a == ACCESS_KEY_UNKNOWN || a == ACCESS_MISMATCH);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_cell_of_the_matrix_holds),
        cmocka_unit_test(only_three_results_allow_and_only_two_count),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
