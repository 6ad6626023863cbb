/* sign.c — makes a signed route on the command line.  It shares the key ring, the number rules and
 * the signature with the gateway, so what it prints is what the gateway takes; an id that not all
 * four forms can carry is refused rather than printed wrong. */
#include "ingress/sign.h"

#include <math.h>
#include <time.h>

#include "base/digest.h"
#include "base/text.h"
#include "conf/sources.h"
#include "ingress/settings.h"
#include "policies/signature.h"

struct sign {
    struct str key_id, secret_file, id, expires, base_domain;
    int64_t port, ttl;
    bool ttl_given;
};

#define AT(field) offsetof(struct sign, field)

static const struct setting rows[] = {
    {"key-id", NULL, SET_TEXT, AT(key_id), "", 0, 0, NULL, 0, "Route",
     "id of the key, one of 0-9 a-z", 0},
    {"secret-file", NULL, SET_TEXT, AT(secret_file), "", 0, 0, NULL, 0, "Route",
     "file with the key in base64, or with a key ring that has it", 0},
    {"id", NULL, SET_TEXT, AT(id), "", 0, 0, NULL, 0, "Route", "sandbox id", 0},
    {"port", NULL, SET_INT, AT(port), "0", 0, 65535, NULL, 0, "Route",
     "port of the sandbox, 1 to 65535", 0},
    {"expires", NULL, SET_TEXT, AT(expires), "", 0, 0, NULL, 0, "Route",
     "Unix seconds or an RFC 3339 time", 0},
    {"ttl", NULL, SET_DURATION, AT(ttl), "0", 0, INFINITY, NULL, 0, "Route", "or how long from now",
     AT(ttl_given)},
    {"base-domain", NULL, SET_TEXT, AT(base_domain), "", 0, 0, NULL, 0, "Route",
     "domain of the Host form", 0},
};

static const struct schema schema = {
    .program = "sallyport-ingress sign",
    .usage = "sallyport-ingress sign --key-id=C --secret-file=FILE --id=ID --port=N "
             "--expires=T|--ttl=D [--base-domain=D]",
    .rows = rows,
    .nrows = sizeof rows / sizeof rows[0],
    .settings_bytes = sizeof(struct sign),
    .help_only = true,
};

enum { SECRET_FILE_BYTES = 1 << 16 };

#define FAULT(ret_error, text) (*(ret_error) = STR(text), false)

static const char *no_variables(const char *name)
{
    (void)name;
    return NULL;
}

/* What a label, a Host and both paths can carry. */
static bool id_good(struct str id)
{
    for (size_t i = 0; i < id.n; i++) {
        char c = ascii_lower(id.p[i]);
        if (!((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_' || c == '~'))
            return false;
    }
    return id.n > 0;
}

static bool judge(const struct sign *s, struct str *ret_error)
{
    if (s->key_id.n != 1 || !((s->key_id.p[0] >= 'a' && s->key_id.p[0] <= 'z') ||
                              (s->key_id.p[0] >= '0' && s->key_id.p[0] <= '9')))
        return FAULT(ret_error, "key-id: one character of 0-9 a-z is needed");
    if (!s->secret_file.n)
        return FAULT(ret_error, "secret-file: a file is needed");
    if (!id_good(s->id))
        return FAULT(ret_error, "id: a sandbox id of A-Z a-z 0-9 - _ ~ is needed");
    if (s->port == 0)
        return FAULT(ret_error, "port: a port from 1 to 65535 is needed");
    if ((s->expires.n != 0) == s->ttl_given)
        return FAULT(ret_error, "expires: either this or ttl is needed");
    if (s->ttl_given && s->ttl == 0)
        return FAULT(ret_error, "ttl: a duration above 0s is needed");
    return true;
}

static bool expiry(const struct sign *s, struct str *ret_error, uint64_t *ret)
{
    int64_t unix_s;
    uint32_t ns;
    if (s->ttl_given) {
        *ret = (uint64_t)time(NULL) + (uint64_t)s->ttl / 1000000000 +
               ((uint64_t)s->ttl % 1000000000 != 0);
        return true;
    }
    if (text_u64(s->expires, UINT64_MAX, ret))
        return true;
    if (!text_rfc3339(s->expires, &unix_s, &ns) || unix_s < 0)
        return FAULT(
            ret_error,
            "expires: Unix seconds or an RFC 3339 time such as 2030-01-01T00:00:00Z is needed");
    *ret = (uint64_t)unix_s;
    return true;
}

/* Base64 alone is tried first: no key ring is valid base64, since '=' stands at its second place.
 */
static bool make_signature(const struct sign *s, struct str file, struct str exp36, struct arena *a,
                           char out[9], struct str *ret_error)
{
    struct str bare = signature_trim(file);
    uint8_t *bytes = arena_get(a, bare.n + 1);
    size_t n;
    if (text_base64(bare, bytes, &n) && n > 0) {
        signature_make((struct str){(const char *)bytes, n}, s->key_id.p[0], s->id,
                       (uint16_t)s->port, exp36, out);
        digest_wipe(bytes, n);
        return true;
    }
    digest_wipe(bytes, bare.n);
    struct keyring *keys = NULL;
    char warn[40], error[200];
    if (!keyring_parse(file, &keys, warn, error, sizeof error) || !keys)
        return FAULT(ret_error, "secret-file: neither base64 nor a key ring");
    bool have = keyring_has(keys, s->key_id.p[0]);
    if (have)
        signature_make(keyring_key(keys, s->key_id.p[0]), s->key_id.p[0], s->id, (uint16_t)s->port,
                       exp36, out);
    else
        *ret_error = arena_printf(a, "secret-file: no key of the id \"%c\"", s->key_id.p[0]);
    keyring_free(keys);
    return have;
}

static void print_forms(const struct sign *s, struct str exp36, struct str signature, FILE *out)
{
    unsigned port = (unsigned)s->port;
    bool domain = s->base_domain.n > 0;
    fprintf(out, "OpenSandbox-Ingress-To: %.*s-%u-%.*s-%.*s\n", STR_ARG(s->id), port,
            STR_ARG(exp36), STR_ARG(signature));
    fprintf(out, "Host: %.*s-%u-%.*s-%.*s%s%.*s\n", STR_ARG(s->id), port, STR_ARG(exp36),
            STR_ARG(signature), domain ? "." : "", STR_ARG(s->base_domain));
    fprintf(out, "/sandboxes/%.*s/port/%u/%.*s/%.*s/\n", STR_ARG(s->id), port, STR_ARG(exp36),
            STR_ARG(signature));
    fprintf(out, "/%.*s/%u/%.*s/%.*s/\n", STR_ARG(s->id), port, STR_ARG(exp36), STR_ARG(signature));
}

static bool sign(const struct sign *s, struct arena *a, FILE *out, struct str *ret_error)
{
    uint64_t exp;
    struct str file, error;
    char digits[13], signature[9];
    if (!judge(s, ret_error) || !expiry(s, ret_error, &exp))
        return false;
    if (!conf_read_file(s->secret_file, SECRET_FILE_BYTES, a, &file, &error)) {
        *ret_error = arena_cat(a, STR("secret-file: "), error);
        return false;
    }
    struct str exp36 = {digits, text_put_base36(digits, exp)};
    bool good = make_signature(s, file, exp36, a, signature, ret_error);
    digest_wipe((void *)(uintptr_t)file.p, file.n);
    if (good)
        print_forms(s, exp36, (struct str){signature, sizeof signature}, out);
    return good;
}

int ingress_sign(int argc, char **argv, FILE *out, FILE *err)
{
    struct arena a;
    struct sign s = {0};
    struct conf_input in = {.argc = argc, .argv = argv, .getenv = no_variables};
    enum conf_action action;
    struct str error = STR_NONE;
    arena_init(&a, NULL, 0);
    bool good = conf_load(&schema, &in, &a, &s, &action, &error);
    if (good && action == CONF_HELP) {
        struct str help = schema_help(&schema, &a);
        fprintf(out, "%.*s", STR_ARG(help));
    } else if (good) {
        good = sign(&s, &a, out, &error);
    }
    if (!good)
        fprintf(err, "%s: %.*s\n", schema.program, STR_ARG(error));
    arena_done(&a);
    return good ? 0 : 2;
}
