/* sign.h — the subcommand `sign` (contract ingress 1.8): prints a signed route in all its forms. */
#ifndef INGRESS_SIGN_H
#define INGRESS_SIGN_H

#include <stdio.h>

/* Arguments behind the word "sign".  Writes the four forms to out, one a line, or one line to err;
 * returns the exit status, 0 or 2. */
int ingress_sign(int argc, char **argv, FILE *out, FILE *err);

#endif
