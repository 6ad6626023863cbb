/* kubeconfig_test.c — which API server a kubeconfig names and as whom; what it asks for and we do
 * not do is a fault that names it, and no fault shows a secret. */
#include "ingress/kube/kubeconfig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "harness/copies.h"

/* What nobody else in this process says: the bytes with 0x55 over them. */
#define MASKED "\x3e\x30\x2c\x78\x3a\x33\x78\x38\x2c\x78\x33\x27\x3c\x30\x3b\x31"

#define COUNT(table) (sizeof(table) / sizeof *(table))

/* A kubeconfig whose only cluster and user have these members. */
#define CONFIG(cluster, user)                                     \
    "apiVersion: v1\nkind: Config\ncurrent-context: here\n"       \
    "contexts:\n- name: here\n  context: {cluster: c, user: u}\n" \
    "clusters:\n- name: c\n  cluster:\n" cluster "users:\n- name: u\n  user:\n" user
#define SERVER "    server: https://api.test:6443\n"
#define TOKEN "    token: t-0\n"

struct read {
    struct arena a;
    struct kube_access access;
    struct str error;
};

static bool parse(struct read *r, const char *text, const char *dir)
{
    size_t n = strlen(text);
    char *copy = malloc(n ? n : 1);
    memcpy(copy, text, n);
    arena_init_private(&r->a, NULL, 0);
    r->error = STR("");
    bool good = kubeconfig_parse((struct str){copy, n}, str_of(dir), &r->a, &r->access, &r->error);
    memset(copy, 'x', n); /* nothing may point into it */
    free(copy);
    return good;
}

static void parse_good(struct read *r, const char *text)
{
    if (!parse(r, text, "/nowhere"))
        fail_msg("%s: %.*s", text, STR_ARG(r->error));
}

static void assert_text(struct str s, const char *z)
{
    if (!str_eq(s, str_of(z)))
        fail_msg("\"%.*s\" is not \"%s\"", STR_ARG(s), z);
}

static void the_current_context_counts(void **state)
{
    (void)state;
    struct read r;
    parse_good(&r, "apiVersion: v1\n"
                   "kind: Config\n"
                   "preferences: {}\n"
                   "current-context: two # chosen\n"
                   "clusters:\n"
                   "- cluster:\n"
                   "    server: https://one.test\n"
                   "  name: c1\n"
                   "- cluster:\n"
                   "    certificate-authority-data: UEVN\n"
                   "    server: 'https://two.test:6443/k8s/clusters/x'\n"
                   "    tls-server-name: inner.test\n"
                   "  name: c2\n"
                   "contexts:\n"
                   "- context: {cluster: c1, user: u1}\n"
                   "  name: one\n"
                   "- context:\n"
                   "    cluster: c2\n"
                   "    namespace: default\n"
                   "    user: u2\n"
                   "  name: two\n"
                   "users:\n"
                   "- name: u1\n"
                   "  user: {exec: {command: x}}\n"
                   "- name: u2\n"
                   "  user:\n"
                   "    client-certificate-data: Q0VSVA==\n"
                   "    client-key-data: |\n"
                   "      S0\n"
                   "      VZ\n"
                   "    token: \"abc.def\"\n");
    assert_true(r.access.server.tls);
    assert_text(r.access.server.host, "two.test");
    assert_text(r.access.server.authority, "two.test:6443");
    assert_text(r.access.server.rest, "/k8s/clusters/x");
    assert_text(r.access.tls_name, "inner.test");
    assert_text(r.access.ca_pem, "PEM");
    assert_text(r.access.cert_pem, "CERT");
    assert_text(r.access.key_pem, "KEY");
    assert_text(r.access.token, "abc.def");
    assert_text(r.access.username, "");
    assert_text(r.access.source, "kubeconfig");
    assert_false(r.access.insecure);
    arena_done(&r.a);
}

static void json_is_yaml_too(void **state)
{
    (void)state;
    struct read r;
    parse_good(
        &r, "{\n\t\"apiVersion\":\"v1\",\"kind\":\"Config\",\"current-context\":\"x\",\n"
            "\t\"contexts\":[{\"name\":\"x\",\"context\":{\"cluster\":\"c\",\"user\":\"\"}}],\n"
            "\t\"clusters\":[{\"name\":\"c\",\"cluster\":{\"server\":\"http:\\/\\/127.0.0.1:8001\","
            "\"insecure-skip-tls-verify\":true}}],\"users\":null}\n");
    assert_false(r.access.server.tls);
    assert_int_equal(r.access.server.port, 8001);
    assert_true(r.access.insecure);
    assert_text(r.access.token, "");
    arena_done(&r.a);
}

static void a_user_has_one_way_to_be_known(void **state)
{
    (void)state;
    struct read r;
    parse_good(&r, CONFIG(SERVER, "    username: bob\n    password: 'p: #w'\n"));
    assert_text(r.access.username, "bob");
    assert_text(r.access.password, "p: #w");
    arena_done(&r.a);
    parse_good(&r, CONFIG(SERVER, "    token: t\n    tokenFile: f\n    exec: null\n    as: ''\n"));
    assert_text(r.access.token, "t");
    assert_text(r.access.token_file, "/nowhere/f");
    arena_done(&r.a);
    parse_good(&r, CONFIG(SERVER, "    token: 12345\n"));
    assert_text(r.access.token, "12345");
    arena_done(&r.a);
}

static void faults_name_what_is_wrong(void **state)
{
    (void)state;
    static const struct {
        const char *text, *part;
    } rows[] = {
        {"", "no current-context"},
        {"{}", "no current-context"},
        {"[]", "no current-context"},
        {"[1]", "is no kubeconfig"},
        {"text", "is no kubeconfig"},
        {"kind: Pod\n", "is no kubeconfig"},
        {"current-context: x\n", "no context \"x\""},
        {"current-context: [x]\n", "current-context must be a text"},
        {"current-context: x\ncontexts: [{name: x, context: {cluster: c}}]\n", "no cluster \"c\""},
        {"current-context: x\ncontexts: [{name: x, context: 1}]\n", "context \"x\" must be"},
        {"current-context: x\ncontexts: [{name: x},{name: x}]\n", "contexts has \"x\" twice"},
        {"current-context: x\ncontexts: [{name: x, context: {cluster: c, user: u}}]\n"
         "clusters: [{name: c, cluster: {server: 'http://h'}}]\n",
         "no user \"u\""},
        {CONFIG("    {}\n", TOKEN), "cluster.server is missing"},
        {CONFIG("    server: api.test:6443\n", TOKEN), "cluster.server must be"},
        {CONFIG("    server: ftp://api.test\n", TOKEN), "cluster.server must be"},
        {CONFIG("    server: https://a:b@api.test\n", TOKEN), "cluster.server must be"},
        {CONFIG("    server: https://api.test/?x=1\n", TOKEN), "cluster.server must have no query"},
        {CONFIG("    server: [https://api.test]\n", TOKEN), "cluster.server must be a text"},
        {CONFIG(SERVER "    certificate-authority-data: '%%'\n", TOKEN),
         "cluster.certificate-authority-data must be base64"},
        {CONFIG(SERVER "    certificate-authority: no-such-file\n", TOKEN), "no-such-file"},
        {CONFIG(SERVER "    insecure-skip-tls-verify: maybe\n", TOKEN), "insecure-skip-tls-verify"},
        {CONFIG(SERVER "    insecure-skip-tls-verify: true\n"
                       "    certificate-authority-data: UEVN\n",
                TOKEN),
         "both an authority and insecure"},
        {CONFIG(SERVER "    proxy-url: http://proxy.test\n", TOKEN), "cluster.proxy-url"},
        {CONFIG(SERVER "    tls-server-name: 'a b'\n", TOKEN), "cluster.tls-server-name"},
        {CONFIG(SERVER, "    exec: {command: aws}\n"), "user.exec is not supported"},
        {CONFIG(SERVER, "    auth-provider: {name: gcp}\n"), "user.auth-provider is not supported"},
        {CONFIG(SERVER, "    as: root\n"), "user.as is not supported"},
        {CONFIG(SERVER, "    as-groups: [a]\n"), "user.as-groups is not supported"},
        {CONFIG(SERVER, "    client-certificate-data: Q0VSVA==\n"), "without client-key"},
        {CONFIG(SERVER, "    client-key-data: Q0VSVA==\n"), "client-certificate"},
        {CONFIG(SERVER, "    token: 'a b'\n"), "user.token has a character"},
        {CONFIG(SERVER, "    token: \"a\\nX: y\"\n"), "user.token has a character"},
        {CONFIG(SERVER, "    token: {a: b}\n"), "user.token must be a text"},
        {CONFIG(SERVER, "    tokenFile: no-such-file\n"), "no-such-file"},
        {CONFIG(SERVER, "    token: t\n    username: u\n"), "both a token and a username"},
        {CONFIG(SERVER, "    password: p\n"), "user.password without"},
        {CONFIG(SERVER, "    username: 'a:b'\n"), "user.username"},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct read r;
        if (parse(&r, rows[i].text, "/nowhere"))
            fail_msg("taken: %s", rows[i].text);
        if (!memmem(r.error.p, r.error.n, rows[i].part, strlen(rows[i].part)))
            fail_msg("%s: %.*s", rows[i].text, STR_ARG(r.error));
        arena_done(&r.a);
    }
}

static void what_means_more_than_it_says_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *text, *part;
    } rows[] = {
        {"a: &x 1\n", "anchors"},
        {"a: &x [1]\n", "anchors"},
        {"a: &x {b: 1}\n", "anchors"},
        {"a: *x\n", "aliases"},
        {"a: !!binary aGk=\n", "tags"},
        {"a: ! x\n", "tags"},
        {"a: !!map {}\n", "tags"},
        {"a: 1\na: 2\n", "line 2: a doubled member"},
        {"a: {b: 1, 'b': 2}\n", "a doubled member"},
        {"{[1]: 2}\n", "name is no text"},
        {"? {a: 1}\n: 2\n", "name is no text"},
        {"--- 1\n--- 2\n", "more than one document"},
        {"a: \"x\\0y\"\n", "zero byte"},
        {"a: [1\n", "line "},
        {"a: \xff\n", "line "},
        {"a: b: c\n", "line "},
        {"\ta: 1\n", "line "},
        {"[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]", "nested too deeply"},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct read r;
        if (parse(&r, rows[i].text, "/nowhere"))
            fail_msg("taken: %s", rows[i].text);
        if (!memmem(r.error.p, r.error.n, rows[i].part, strlen(rows[i].part)))
            fail_msg("%s: %.*s", rows[i].text, STR_ARG(r.error));
        arena_done(&r.a);
    }
}

static void size_and_number_of_values_are_bounded(void **state)
{
    (void)state;
    enum { N = 1 << 20 };
    static const struct {
        const char *unit, *part;
        size_t n;
    } rows[] = {
        {"- a\n", "too many values", 1001},
        {"- [1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]\n", "too many values",
         1000},
        {"#", "larger than 1 MiB", N + 1},
        {"#", "no current-context", N},
        {"[", "nested too deeply", N},
        {"{", "line 1: ", N},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        size_t unit = strlen(rows[i].unit), n = 0;
        char *text = malloc(unit * rows[i].n + 1);
        for (size_t k = 0; k < rows[i].n; k++, n += unit)
            memcpy(text + n, rows[i].unit, unit);
        text[n] = '\0';
        struct read r;
        assert_false(parse(&r, text, "/nowhere"));
        if (!memmem(r.error.p, r.error.n, rows[i].part, strlen(rows[i].part)))
            fail_msg("%s…: %.*s", rows[i].unit, STR_ARG(r.error));
        arena_done(&r.a);
        free(text);
    }
}

/* Each secret in a config that is then broken behind it, or is itself what is wrong. */
static void no_fault_shows_a_secret(void **state)
{
    (void)state;
    static const char *const texts[] = {
        CONFIG(SERVER, "    token: hunter2\n    token: hunter2\n"),
        CONFIG(SERVER, "    token: hunter2\n   x\n"),
        CONFIG(SERVER, "    token: hunter2 hunter2\n"),
        CONFIG(SERVER, "    token: [hunter2]\n"),
        CONFIG(SERVER, "    token: 'hunter2\n"),
        CONFIG(SERVER, "    token: *hunter2\n"),
        CONFIG(SERVER, "    token: !hunter2 x\n"),
        CONFIG(SERVER, "    token: \"hunter2\\q\"\n"),
        CONFIG(SERVER, "    username: a\n    password: \"hunter2\\n\"\n"),
        CONFIG(SERVER, "    password: hunter2\n"),
        CONFIG(SERVER, "    username: a\n    password: hunter2\n    token: hunter2\n"),
        CONFIG(SERVER, "    client-key-data: hunter2\n"),
        CONFIG(SERVER, "    client-key-data: 'hunter2 %'\n"),
        CONFIG(SERVER, "    exec: hunter2\n"),
        CONFIG("    server: https://me:hunter2@api.test\n", TOKEN),
        CONFIG(SERVER "    proxy-url: http://me:hunter2@proxy.test\n", TOKEN),
    };
    for (size_t i = 0; i < COUNT(texts); i++) {
        struct read r;
        if (parse(&r, texts[i], "/nowhere"))
            fail_msg("taken: %s", texts[i]);
        if (memmem(r.error.p, r.error.n, "hunter", 6))
            fail_msg("%.*s", STR_ARG(r.error));
        assert_null(memchr(r.error.p, '\n', r.error.n));
        arena_done(&r.a);
    }
}

/* The text itself is the caller's: here it lies in the memory of secrets. */
static struct secret *config_with(const struct secret *token)
{
    static const char before[] = CONFIG(SERVER, "    token: ");
    struct str text = secret_bytes(token);
    char *bytes;
    struct secret *s = secret_make(sizeof before - 1 + text.n + 1, &bytes);
    memcpy(bytes, before, sizeof before - 1);
    memcpy(bytes + sizeof before - 1, text.p, text.n);
    bytes[sizeof before - 1 + text.n] = '\n';
    return s;
}

static void a_token_is_nowhere_but_in_the_callers_arena(void **state)
{
    (void)state;
    struct read r;
    struct secret *token = copies_unmask(STR(MASKED)), *text = config_with(token);
    arena_init_private(&r.a, NULL, 0);
    assert_true(kubeconfig_parse(secret_bytes(text), STR("/"), &r.a, &r.access, &r.error));
    assert_int_equal(copies_count(token), 1);
    arena_done(&r.a);
    assert_int_equal(copies_count(token), 0);
    secret_unref(text);
    secret_unref(token);
}

/* ---- files ---- */

struct folder {
    char dir[64];
};

static const char *path_in(const struct folder *f, const char *name)
{
    static char paths[8][160];
    static unsigned next;
    char *path = paths[next++ % 8];
    snprintf(path, sizeof paths[0], "%s/%s", f->dir, name);
    return path;
}

static void write_file(const struct folder *f, const char *name, const char *text)
{
    FILE *out = fopen(path_in(f, name), "w");
    assert_non_null(out);
    fputs(text, out);
    fclose(out);
}

static int make_folder(void **state)
{
    struct folder *f = calloc(1, sizeof *f);
    snprintf(f->dir, sizeof f->dir, "/tmp/kubeconfig_test.XXXXXX");
    *state = f;
    return mkdtemp(f->dir) ? 0 : -1;
}

static int remove_folder(void **state)
{
    struct folder *f = *state;
    char command[128];
    snprintf(command, sizeof command, "rm -r '%s'", f->dir);
    int result = system(command);
    free(f);
    return result;
}

static bool search(struct read *r, const struct kube_places *places)
{
    arena_init_private(&r->a, NULL, 0);
    r->error = STR("");
    return kube_access_search(places, &r->a, &r->access, &r->error);
}

static void search_good(struct read *r, const struct kube_places *places)
{
    if (!search(r, places))
        fail_msg("%.*s", STR_ARG(r->error));
}

static void search_fails(const struct kube_places *places, const char *part)
{
    struct read r;
    assert_false(search(&r, places));
    if (!memmem(r.error.p, r.error.n, part, strlen(part)))
        fail_msg("%.*s", STR_ARG(r.error));
    arena_done(&r.a);
}

static void named_files_are_read_from_the_folder_of_their_config(void **state)
{
    const struct folder *f = *state;
    struct read r;
    mkdir(path_in(f, "sub"), 0700);
    write_file(f, "sub/config",
               CONFIG(SERVER "    certificate-authority: ca.pem\n",
                      "    client-certificate: ../cert.pem\n    client-key: ./key.pem\n"
                      "    tokenFile: token\n"));
    write_file(f, "sub/ca.pem", "CA");
    write_file(f, "cert.pem", "CERT");
    write_file(f, "sub/key.pem", "KEY");
    struct kube_places places = {.kubeconfig = str_of(path_in(f, "sub/config"))};
    search_fails(&places, "sub/token");
    write_file(f, "sub/token", " \n");
    search_fails(&places, "holds no token");
    write_file(f, "sub/token", "a b");
    search_fails(&places, "holds no token");
    write_file(f, "sub/token", "ab\n");
    search_good(&r, &places);
    assert_text(r.access.ca_pem, "CA");
    assert_text(r.access.cert_pem, "CERT");
    assert_text(r.access.key_pem, "KEY");
    assert_text(r.access.token_file, path_in(f, "sub/token"));
    assert_text(r.access.source, path_in(f, "sub/config"));
    arena_done(&r.a);
}

static void of_several_files_the_first_that_has_an_entry_counts(void **state)
{
    const struct folder *f = *state;
    struct read r;
    char list[512];
    write_file(f, "a", "current-context: ''\nusers: [{name: u, user: {token: first}}]\n");
    write_file(f, "b", CONFIG(SERVER, "    token: second\n    username: x\n"));
    write_file(f, "c",
               "current-context: other\nclusters: [{name: c, cluster: {server: 'http://c'}}]\n");
    snprintf(list, sizeof list, ":%s:%s:%s::%s", path_in(f, "none"), path_in(f, "a"),
             path_in(f, "b"), path_in(f, "c"));
    search_good(&r, &(struct kube_places){.kubeconfig = str_of(list)});
    assert_text(r.access.token, "first");
    assert_text(r.access.username, "");
    assert_text(r.access.server.host, "api.test");
    arena_done(&r.a);
    write_file(f, "a", "x: [\n");
    search_fails(&(struct kube_places){.kubeconfig = str_of(list)}, "/a: line ");
}

static void what_is_searched_and_in_which_order(void **state)
{
    const struct folder *f = *state;
    struct read r;
    struct kube_places places = {.home = str_of(f->dir), .account_dir = str_of(f->dir)};
    search_fails(&places, "no API server");
    places.service_host = STR("fd00::1");
    places.service_port = STR("443");
    search_fails(&places, "ca.crt");
    write_file(f, "ca.crt", "CA");
    search_fails(&places, "token");
    write_file(f, "token", "pod-token\n");
    search_good(&r, &places);
    assert_true(r.access.server.tls);
    assert_text(r.access.server.host, "fd00::1");
    assert_text(r.access.server.authority, "[fd00::1]:443");
    assert_text(r.access.ca_pem, "CA");
    assert_text(r.access.token, "");
    assert_text(r.access.token_file, path_in(f, "token"));
    assert_text(r.access.source, "in-cluster account");
    arena_done(&r.a);

    mkdir(path_in(f, ".kube"), 0700);
    write_file(f, ".kube/config", CONFIG("    server: https://home.test\n", TOKEN));
    search_good(&r, &places);
    assert_text(r.access.server.host, "home.test");
    arena_done(&r.a);

    const char *config = path_in(f, "config");
    write_file(f, "config", CONFIG(SERVER, TOKEN));
    places.kubeconfig = str_of(config);
    search_good(&r, &places);
    assert_text(r.access.server.host, "api.test");
    arena_done(&r.a);

    places.kubeconfig = STR(" ");
    search_good(&r, &places);
    assert_text(r.access.server.host, "home.test");
    arena_done(&r.a);

    places.kubeconfig = str_of(path_in(f, "none"));
    search_fails(&places, "no such file");
}

static void the_pods_server_is_an_address_or_name_and_a_port(void **state)
{
    (void)state;
    static const char *const rows[][2] = {
        {"a b", "443"},      {"10.0.0.1", ""},      {"10.0.0.1", "0"}, {"10.0.0.1", "65536"},
        {"10.0.0.1", "tcp"}, {"10.0.0.1/x", "443"}, {"[::1]", "443"},
    };
    for (size_t i = 0; i < COUNT(rows); i++)
        search_fails(&(struct kube_places){.service_host = str_of(rows[i][0]),
                                           .service_port = str_of(rows[i][1])},
                     "KUBERNETES_SERVICE_HOST");
}

static void a_token_is_made_of_visible_characters(void **state)
{
    (void)state;
    assert_true(kube_token_of(STR("eyJhbGciOi.J~_+/=-")).n > 0);
    assert_false(kube_token_of(STR("")).n > 0);
    assert_false(kube_token_of(STR("a b")).n > 0);
    assert_false(kube_token_of(STR("a\r\nb")).n > 0);
    assert_false(kube_token_of(STR("a\x7f")).n > 0);
    assert_false(kube_token_of(STR("\xc3\xa4")).n > 0);
}

static void blanks_around_a_token_do_not_count(void **state)
{
    (void)state;
    assert_true(str_eq(kube_token_of(STR(" \t\r\nabc \r\n")), STR("abc")));
    assert_int_equal(kube_token_of(STR(" \n ")).n, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_current_context_counts),
        cmocka_unit_test(json_is_yaml_too),
        cmocka_unit_test(a_user_has_one_way_to_be_known),
        cmocka_unit_test(faults_name_what_is_wrong),
        cmocka_unit_test(what_means_more_than_it_says_is_refused),
        cmocka_unit_test(size_and_number_of_values_are_bounded),
        cmocka_unit_test(no_fault_shows_a_secret),
        cmocka_unit_test(a_token_is_nowhere_but_in_the_callers_arena),
        cmocka_unit_test_setup_teardown(named_files_are_read_from_the_folder_of_their_config,
                                        make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(of_several_files_the_first_that_has_an_entry_counts,
                                        make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(what_is_searched_and_in_which_order, make_folder,
                                        remove_folder),
        cmocka_unit_test(the_pods_server_is_an_address_or_name_and_a_port),
        cmocka_unit_test(a_token_is_made_of_visible_characters),
        cmocka_unit_test(blanks_around_a_token_do_not_count),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
