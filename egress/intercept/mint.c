/* mint.c — leaves by name.  All that leaves have in common is made once; a new one costs its name,
 * its serial number and one signature.  One key serves all of them and is never the authority's:
 * what shakes hands with a workload cannot sign for it. */
#include <assert.h>
#include <openssl/ec.h>
#include <openssl/err.h>

#include "base/ip.h"
#include "base/list.h"
#include "base/map.h"
#include "egress/intercept/ca_impl.h"

enum {
    NAME_BYTES = 253,
    LABEL_BYTES = 63,
    CN_BYTES = 64,
    GOOD_DAYS = 397, /* with the day before; Apple's bound is 398 */
    KEPT_DAYS = 30
};

struct entry {
    struct list lru;
    struct tls_leaf *leaf;
    int64_t made_s;
    char *name;
};

struct mint {
    const struct ca *ca;
    EVP_PKEY *key;
    EVP_MD *sha256;
    X509_EXTENSION *usage, *server, *own_id, *authority_id;
    struct map *names;
    struct list lru; /* used last stands last */
    unsigned max_names;
    struct mint_counts counts;
};

/* ---- what all have in common */

static X509_EXTENSION *server_auth(void)
{
    EXTENDED_KEY_USAGE *list = EXTENDED_KEY_USAGE_new();
    int n = list ? sk_ASN1_OBJECT_push(list, OBJ_nid2obj(NID_server_auth)) : 0;
    assert(n > 0);
    X509_EXTENSION *e = ca_extension(NID_ext_key_usage, false, list);
    sk_ASN1_OBJECT_pop_free(list, ASN1_OBJECT_free);
    return e;
}

static X509_EXTENSION *own_id(EVP_PKEY *key)
{
    ASN1_OCTET_STRING *id = ca_key_id(key);
    X509_EXTENSION *e = ca_extension(NID_subject_key_identifier, false, id);
    ASN1_OCTET_STRING_free(id);
    return e;
}

/* As the authority's certificate states it, since strict verifiers compare. */
static X509_EXTENSION *authority_id(const struct ca *ca)
{
    AUTHORITY_KEYID *id = AUTHORITY_KEYID_new();
    const ASN1_OCTET_STRING *stated = X509_get0_subject_key_id(ca->cert);
    assert(id);
    id->keyid = stated ? ASN1_OCTET_STRING_dup(stated) : ca_key_id(ca->key);
    assert(id->keyid);
    X509_EXTENSION *e = ca_extension(NID_authority_key_identifier, false, id);
    AUTHORITY_KEYID_free(id);
    return e;
}

struct mint *mint_new(const struct ca *ca, unsigned max_names)
{
    struct mint *m = mem_new(sizeof *m);
    m->ca = ca;
    m->max_names = max_names ? max_names : 1;
    m->key = EVP_EC_gen("P-256");
    m->sha256 = EVP_MD_fetch(NULL, "SHA256", NULL); /* once: each fetch costs half a digest */
    assert(m->key && m->sha256);
    m->usage = ca_key_usage(KU_DIGITAL_SIGNATURE);
    m->server = server_auth();
    m->own_id = own_id(m->key);
    m->authority_id = authority_id(ca);
    m->names = map_new();
    list_init(&m->lru);
    return m;
}

static void forget(struct mint *m, struct entry *e)
{
    map_del(m->names, str_of(e->name));
    list_del(&e->lru);
    tls_leaf_unref(e->leaf);
    mem_free(e->name);
    mem_free(e);
}

void mint_free(struct mint *m)
{
    if (!m)
        return;
    list_each(it, &m->lru) forget(m, container_of(it, struct entry, lru));
    map_free(m->names);
    X509_EXTENSION_free(m->usage);
    X509_EXTENSION_free(m->server);
    X509_EXTENSION_free(m->own_id);
    X509_EXTENSION_free(m->authority_id);
    EVP_MD_free(m->sha256);
    EVP_PKEY_free(m->key);
    mem_free(m);
}

/* ---- names */

static bool is_name_char(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
}

/* Labels as an SNI may have them; a star would be good for names nobody asked for. */
static bool is_name(struct str s)
{
    size_t label = 0;
    if (s.n == 0 || s.n > NAME_BYTES)
        return false;
    for (size_t i = 0; i < s.n; i++) {
        bool dot = s.p[i] == '.';
        if (dot ? label == 0 : !is_name_char(s.p[i]))
            return false;
        label = dot ? 0 : label + 1;
        if (label > LABEL_BYTES)
            return false;
    }
    return label > 0;
}

static GENERAL_NAME *general_name(int type, const void *p, size_t n)
{
    ASN1_STRING *s = ASN1_STRING_type_new(type == GEN_DNS ? V_ASN1_IA5STRING : V_ASN1_OCTET_STRING);
    GENERAL_NAME *g = GENERAL_NAME_new();
    bool good = s && g && ASN1_STRING_set(s, p, (int)n);
    assert(good);
    GENERAL_NAME_set0_value(g, type, s);
    return g;
}

/* NULL: it is neither name nor address. */
static GENERAL_NAME *read_name(struct str name)
{
    enum { V4_AT = 12, V4_BYTES = 4 };
    struct ip ip;
    if (!ip_parse(name, &ip))
        return is_name(name) ? general_name(GEN_DNS, name.p, name.n) : NULL;
    bool v4 = ip_is_v4(&ip);
    return general_name(GEN_IPADD, v4 ? ip.b + V4_AT : ip.b, v4 ? V4_BYTES : sizeof ip.b);
}

/* ---- one leaf */

/* Critical where the subject is empty (RFC 5280 section 4.2.1.6). */
static X509_EXTENSION *subject_names(GENERAL_NAME *g, bool critical)
{
    GENERAL_NAMES *list = GENERAL_NAMES_new();
    int n = list ? sk_GENERAL_NAME_push(list, g) : 0;
    assert(n > 0);
    X509_EXTENSION *e = ca_extension(NID_subject_alt_name, critical, list);
    GENERAL_NAMES_free(list);
    return e;
}

static void put_times(const struct mint *m, X509 *x, int64_t now_s)
{
    int64_t from = now_s - CA_DAY_S, to = from + GOOD_DAYS * (int64_t)CA_DAY_S;
    ca_set_times(x, from, to < m->ca->not_after ? to : m->ca->not_after);
}

/* Built afresh: a copy of a certificate costs more than a new one.  Takes g. */
static X509 *build(const struct mint *m, struct str name, GENERAL_NAME *g, int64_t now_s)
{
    bool has_cn = name.n <= CN_BYTES;
    X509 *x = X509_new();
    bool good = x && X509_set_version(x, X509_VERSION_3) &&
                X509_set_issuer_name(x, X509_get_subject_name(m->ca->cert)) &&
                X509_set_pubkey(x, m->key);
    assert(good);
    ca_set_serial(x);
    put_times(m, x, now_s);
    if (has_cn)
        ca_put_name(X509_get_subject_name(x), "CN", name);
    ca_put(x, subject_names(g, !has_cn));
    good = X509_add_ext(x, m->usage, -1) && X509_add_ext(x, m->server, -1) &&
           X509_add_ext(x, m->own_id, -1) && X509_add_ext(x, m->authority_id, -1);
    assert(good);
    return x;
}

static struct tls_leaf *make_leaf(const struct mint *m, struct str name, int64_t now_s)
{
    struct tls_leaf *l = NULL;
    GENERAL_NAME *g = read_name(name);
    if (!g)
        return NULL;
    X509 *x = build(m, name, g, now_s);
    ERR_clear_error();
    if (X509_sign(x, m->ca->key, m->sha256) > 0)
        l = tls_leaf_made(x, m->key);
    ERR_clear_error();
    X509_free(x);
    return l;
}

/* ---- the cache */

/* A clock that was set back makes a leaf that is not valid yet. */
static bool is_fresh(const struct entry *e, int64_t now_s)
{
    return now_s > e->made_s - CA_DAY_S && now_s - e->made_s < KEPT_DAYS * (int64_t)CA_DAY_S;
}

static void keep(struct mint *m, struct str name, struct tls_leaf *leaf, int64_t now_s)
{
    while (map_size(m->names) >= m->max_names)
        forget(m, container_of(list_first(&m->lru), struct entry, lru));
    struct entry *e = mem_new(sizeof *e);
    *e = (struct entry){.leaf = leaf, .made_s = now_s, .name = mem_strdup(name)};
    list_init(&e->lru);
    list_push(&m->lru, &e->lru);
    map_put(m->names, str_of(e->name), e);
}

struct tls_leaf *mint_leaf(struct mint *m, struct str name, int64_t now_s)
{
    struct entry *e = map_get(m->names, name);
    if (e && is_fresh(e, now_s)) {
        list_del(&e->lru);
        list_push(&m->lru, &e->lru);
        m->counts.hits++;
        return e->leaf;
    }
    struct tls_leaf *leaf = make_leaf(m, name, now_s);
    if (!leaf)
        return NULL;
    if (e)
        forget(m, e);
    keep(m, name, leaf, now_s);
    m->counts.made++;
    return leaf;
}

struct mint_counts mint_counts(const struct mint *m)
{
    struct mint_counts c = m->counts;
    c.names = (unsigned)map_size(m->names);
    return c;
}
