/* spell.h — how a value looks once somebody has put it into a URL, a form or a JSON text (contract
 * egress-vault 11, 14.1).  Pure. */
#ifndef POLICIES_SPELL_H
#define POLICIES_SPELL_H

#include "base/mem.h"

enum spelling {
    SPELL_PERCENT, /* all but letters, digits, -._~ as %XX */
    SPELL_PERCENT_LOWER,
    SPELL_FORM, /* the same with + for a blank */
    SPELL_FORM_LOWER,
    SPELL_JSON,       /* the content of a JSON string */
    SPELL_JSON_HTML,  /* with < > & U+2028 U+2029 as \uXXXX too */
    SPELL_JSON_ASCII, /* with all that is not ASCII as \uXXXX, surrogate pairs above U+FFFF */
    SPELLINGS
};

enum { SPELL_GROWS = 6 }; /* a byte becomes at most so many */

/* Writes value so; out holds SPELL_GROWS bytes for each of its bytes.  Returns how many were
 * written.  Bytes that are no UTF-8 stay as they are in JSON, and are U+FFFD each in its ASCII. */
size_t spell(enum spelling how, struct str value, char *out);

#endif
