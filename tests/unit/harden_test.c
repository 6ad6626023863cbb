/* harden_test.c — what the environment held in secret is gone from where it stood, and nothing else
 * is (contract egress-vault 17). */
#include "egress/harden.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <cmocka.h>

#include "egress/settings.h"

static void secret_variables_are_overwritten_in_place(void **state)
{
    char token[] = EGRESS_VARIABLE "TOKEN=tok-test-0001",
         proxy[] = EGRESS_VARIABLE "UPSTREAM_PROXY_AUTH=Basic dTpw";
    (void)state;
    assert_int_equal(putenv(token), 0);
    assert_int_equal(putenv(proxy), 0);
    setenv(EGRESS_VARIABLE "MODE", "dns", 1);
    harden_environment(&egress_schema);
    assert_null(getenv(EGRESS_VARIABLE "TOKEN"));
    assert_null(getenv(EGRESS_VARIABLE "UPSTREAM_PROXY_AUTH"));
    assert_string_equal(getenv(EGRESS_VARIABLE "MODE"), "dns");
    for (size_t i = sizeof EGRESS_VARIABLE "TOKEN"; i < sizeof token; i++)
        assert_int_equal(token[i], 0);
    for (size_t i = sizeof EGRESS_VARIABLE "UPSTREAM_PROXY_AUTH"; i < sizeof proxy; i++)
        assert_int_equal(proxy[i], 0);
}

static void variables_that_are_not_there_do_no_harm(void **state)
{
    (void)state;
    unsetenv(EGRESS_VARIABLE "TOKEN");
    harden_environment(&egress_schema);
    assert_null(getenv(EGRESS_VARIABLE "TOKEN"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(secret_variables_are_overwritten_in_place),
        cmocka_unit_test(variables_that_are_not_there_do_no_harm),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
