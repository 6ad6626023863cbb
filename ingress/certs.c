/* certs.c — which certificate answers to which name.  The set is made whole from lists and folder
 * and never changed; one broken pair refuses all of it, since half a set would show clients the
 * wrong certificate without a word. */
#include "ingress/certs.h"

#include <dirent.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "base/digest.h"
#include "base/map.h"
#include "conf/sources.h"

enum { PEM_BYTES = 1 << 20, FOLDER_PAIRS = 4096 };

struct certs {
    atomic_uint refs;
    struct tls_leaf **leaves;
    unsigned n, room;
    struct map *exact;
    struct map *wild; /* "*.example.test" under "example.test" */
};

static void destroy(struct certs *c)
{
    for (unsigned i = 0; i < c->n; i++)
        tls_leaf_unref(c->leaves[i]);
    mem_free(c->leaves);
    map_free(c->exact);
    map_free(c->wild);
    mem_free(c);
}

/* ---- one pair */

static bool fault(struct arena *a, struct str *ret_error, const char *name, struct str path,
                  struct str why)
{
    *ret_error = arena_printf(a, "%s: %.*s: %.*s", name, STR_ARG(path), STR_ARG(why));
    return false;
}

/* Who comes first keeps the name. */
static void put(struct map *m, struct str name, struct tls_leaf *leaf)
{
    if (name.n > 0 && str_chr(name, '*') < 0 && !map_get(m, name))
        map_put(m, name, leaf);
}

static void add_leaf(struct certs *c, struct tls_leaf *leaf)
{
    if (c->n == c->room) {
        c->room = c->room ? 2 * c->room : 8;
        c->leaves = mem_renew(c->leaves, c->room * sizeof(struct tls_leaf *));
    }
    c->leaves[c->n++] = leaf;
    struct str name;
    for (unsigned i = 0; (name = tls_leaf_name(leaf, i)).n > 0; i++)
        if (str_starts(name, STR("*.")))
            put(c->wild, str_skip(name, 2), leaf);
        else
            put(c->exact, name, leaf);
}

struct pair {
    const char *cert_setting, *key_setting;
    struct str cert, key; /* paths */
};

/* own: what is read lies there. */
static struct tls_leaf *read_pair(const struct pair *p, struct arena *own, struct arena *a,
                                  struct str *ret_error)
{
    struct str chain, key, error;
    if (!conf_read_file(p->cert, PEM_BYTES, own, &chain, &error)) {
        *ret_error = arena_printf(a, "%s: %.*s", p->cert_setting, STR_ARG(error));
        return NULL;
    }
    if (!conf_read_file(p->key, PEM_BYTES, own, &key, &error)) {
        *ret_error = arena_printf(a, "%s: %.*s", p->key_setting, STR_ARG(error));
        return NULL;
    }
    struct tls_leaf *leaf = tls_leaf_new(chain, key, own, &error);
    digest_wipe((void *)(uintptr_t)key.p, key.n);
    if (!leaf)
        fault(a, ret_error, p->cert_setting, p->cert, error);
    return leaf;
}

static bool add_pair(struct certs *c, const struct pair *p, struct arena *a, struct str *ret_error)
{
    struct arena own;
    arena_init(&own, NULL, 0);
    struct tls_leaf *leaf = read_pair(p, &own, a, ret_error);
    arena_done(&own);
    if (leaf)
        add_leaf(c, leaf);
    return leaf != NULL;
}

/* ---- lists of files; how many there are on each side was judged with the settings */

static bool add_lists(struct certs *c, const struct ingress_settings *s, struct arena *a,
                      struct str *ret_error)
{
    struct str certs = s->tls_cert, keys = s->tls_key;
    struct pair p = {.cert_setting = "tls-cert", .key_setting = "tls-key"};
    while (str_next(&certs, ',', &p.cert)) {
        if (!str_next(&keys, ',', &p.key))
            return fault(a, ret_error, "tls-key", p.cert, STR("has no key"));
        p.cert = str_trim(p.cert);
        p.key = str_trim(p.key);
        if (!add_pair(c, &p, a, ret_error))
            return false;
    }
    return true;
}

/* ---- the folder: NAME.crt with NAME.key, NAME/tls.crt with NAME/tls.key */

/* Pairs by the path of their certificate. */
struct folder {
    struct arena *a;
    struct str *certs, *keys;
    unsigned n;
    struct str path;
    void (*folder)(void *user, struct str path); /* NULL: nobody asks which there are */
    void *user;
};

static struct str joined(struct arena *a, struct str folder, const char *name, const char *end)
{
    return arena_printf(a, "%.*s/%s%s", STR_ARG(folder), name, end);
}

static bool is_there(struct str z)
{
    struct stat st;
    return stat(z.p, &st) == 0;
}

static bool is_folder(struct str z)
{
    struct stat st;
    return stat(z.p, &st) == 0 && S_ISDIR(st.st_mode);
}

static void list_pair(struct folder *f, struct str cert, struct str key)
{
    if (f->n >= FOLDER_PAIRS)
        return;
    f->certs[f->n] = cert;
    f->keys[f->n++] = key;
}

/* A half of a pair is listed too: reading it then tells which file is missing.  "ca.crt" alone is
 * what cert-manager lays beside tls.crt. */
static void list_entry(struct folder *f, const char *name)
{
    struct str z = str_of(name), at = joined(f->a, f->path, name, "");
    if (z.n == 0 || z.p[0] == '.') /* also "..data" of a Kubernetes mount */
        return;
    if (is_folder(at)) {
        if (f->folder)
            f->folder(f->user, at);
        struct str cert = joined(f->a, at, "tls", ".crt"), key = joined(f->a, at, "tls", ".key");
        if (is_there(cert) || is_there(key))
            list_pair(f, cert, key);
        return;
    }
    bool crt = str_iends(z, STR(".crt")), key = str_iends(z, STR(".key"));
    if (!crt && !key)
        return;
    struct str other = arena_cat(f->a, str_head(at, at.n - 4), crt ? STR(".key") : STR(".crt"));
    other = arena_cat(f->a, other, (struct str){"", 1}); /* terminated */
    other.n--;
    if (crt && (!str_eq(z, STR("ca.crt")) || is_there(other)))
        list_pair(f, at, other);
    if (key && !is_there(other))
        list_pair(f, other, at);
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

/* In the order of the names, so that two gateways with one folder give a name to the same pair.
 * False: it cannot be read; errno. */
static bool list_folder(struct folder *f, struct str path, struct arena *a)
{
    struct dirent **names;
    f->a = a;
    f->path = path;
    int n = scandir(arena_printf(a, "%.*s", STR_ARG(path)).p, &names, NULL, by_name);
    if (n < 0)
        return false;
    f->certs = arena_get(a, FOLDER_PAIRS * sizeof *f->certs);
    f->keys = arena_get(a, FOLDER_PAIRS * sizeof *f->keys);
    for (int i = 0; i < n; i++) {
        list_entry(f, names[i]->d_name);
        free(names[i]);
    }
    free(names);
    return true;
}

static bool add_folder(struct certs *c, const struct ingress_settings *s, struct arena *a,
                       struct str *ret_error)
{
    static const char name[] = "tls-cert-dir";
    struct folder f = {0};
    struct arena own;
    if (s->tls_cert_dir.n == 0)
        return true;
    arena_init(&own, NULL, 0);
    bool good = list_folder(&f, s->tls_cert_dir, &own);
    if (!good)
        fault(a, ret_error, name, s->tls_cert_dir, str_of(strerror(errno)));
    for (unsigned i = 0; good && i < f.n; i++)
        good = add_pair(c, &(struct pair){name, name, f.certs[i], f.keys[i]}, a, ret_error);
    if (good && f.n == FOLDER_PAIRS)
        good = fault(a, ret_error, name, s->tls_cert_dir, STR("too many pairs"));
    if (good && c->n == 0)
        good = fault(a, ret_error, name, s->tls_cert_dir, STR("there is no pair in it"));
    arena_done(&own);
    return good;
}

/* ---- the set */

struct certs *certs_load(const struct ingress_settings *s, struct arena *a, struct str *ret_error)
{
    struct certs *c = mem_new(sizeof *c);
    atomic_init(&c->refs, 1);
    c->exact = map_new();
    c->wild = map_new();
    if (add_lists(c, s, a, ret_error) && add_folder(c, s, a, ret_error))
        return c;
    destroy(c);
    return NULL;
}

struct certs *certs_ref(struct certs *c)
{
    atomic_fetch_add_explicit(&c->refs, 1, memory_order_relaxed);
    return c;
}

void certs_unref(struct certs *c)
{
    if (c && atomic_fetch_sub_explicit(&c->refs, 1, memory_order_acq_rel) == 1)
        destroy(c);
}

struct tls_leaf *certs_find(const struct certs *c, struct str sni)
{
    struct tls_leaf *leaf = map_get(c->exact, sni);
    ptrdiff_t dot = str_chr(sni, '.');
    if (!leaf && dot > 0)
        leaf = map_get(c->wild, str_skip(sni, (size_t)dot + 1));
    return leaf ? leaf : c->n > 0 ? c->leaves[0] : NULL;
}

unsigned certs_count(const struct certs *c)
{
    return c->n;
}

struct str certs_name(const struct certs *c, unsigned i)
{
    return tls_leaf_name(c->leaves[i], 0);
}

int64_t certs_not_after(const struct certs *c, unsigned i)
{
    return tls_leaf_not_after(c->leaves[i]);
}

/* ---- what to watch */

static void each_of_list(struct str list, void (*each)(void *user, struct str path), void *user)
{
    for (struct str path; str_next(&list, ',', &path);)
        each(user, str_trim(path));
}

static void each_of_folder(struct str path, void (*each)(void *user, struct str path), void *user)
{
    struct folder f = {.folder = each, .user = user};
    struct arena a;
    arena_init(&a, NULL, 0);
    each(user, path);
    bool good = list_folder(&f, path, &a);
    for (unsigned i = 0; good && i < f.n; i++) {
        each(user, f.certs[i]);
        each(user, f.keys[i]);
    }
    arena_done(&a);
}

void certs_paths(const struct ingress_settings *s, void (*each)(void *user, struct str path),
                 void *user)
{
    each_of_list(s->tls_cert, each, user);
    each_of_list(s->tls_key, each, user);
    if (s->tls_cert_dir.n > 0)
        each_of_folder(s->tls_cert_dir, each, user);
}
