/* inject_body.c — placeholders in a request body that was held as a whole: what its head says
 * decides whether it is text, and how a value is written in it. */
#include "base/text.h"
#include "policies/inject.h"

/* A list of codings that means none. */
static bool is_plain(struct str codings)
{
    struct str coding;
    while (str_next(&codings, ',', &coding)) {
        coding = str_trim(coding);
        if (coding.n && !str_ieq(coding, STR("identity")))
            return false;
    }
    return true;
}

static struct str media_type(struct str value)
{
    struct str type = value;
    str_next(&value, ';', &type);
    return str_trim(type);
}

static enum encoding encoding_of(struct str type)
{
    if (str_ieq(type, STR("application/json")) || str_iends(type, STR("+json")))
        return ENCODE_JSON;
    if (str_ieq(type, STR("application/x-www-form-urlencoded")))
        return ENCODE_FORM;
    return ENCODE_RAW;
}

/* Two media types are a text that two readers understand differently. */
static bool read_head(const struct field *fields, unsigned nfields, enum encoding *ret)
{
    unsigned types = 0;
    *ret = ENCODE_RAW;
    for (unsigned i = 0; i < nfields; i++) {
        struct field f = fields[i];
        if (str_ieq(f.name, STR("content-encoding")) && !is_plain(f.value))
            return false;
        if (!str_ieq(f.name, STR("content-type")))
            continue;
        struct str type = media_type(f.value);
        if (types++ > 0 || str_istarts(type, STR("multipart/")))
            return false;
        *ret = encoding_of(type);
    }
    return true;
}

bool inject_reads_body(const struct field *fields, unsigned nfields)
{
    enum encoding e;
    return read_head(fields, nfields, &e);
}

enum body_look inject_body(const struct armed *x, const struct field *fields, unsigned nfields,
                           struct str body, struct secret_bag *bag, struct str *ret)
{
    enum encoding e;
    if (!read_head(fields, nfields, &e) || !text_utf8(body))
        return BODY_PASSED;
    enum substituted done = substitute(&x->body[e], body, INJECT_BODY_MOST, bag, ret);
    if (done == SUBSTITUTE_LONG)
        return BODY_PASSED;
    return done == SUBSTITUTE_DONE ? BODY_CHANGED : BODY_TAKEN;
}
