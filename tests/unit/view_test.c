/* view_test.c — settings compiled: modes, lists, own listeners, local addresses, the key ring,
 * certificates and ticket keys, and their reload. */
#include "ingress/view.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "conf/sources.h"
#include "harness/pems.h"

struct fixture {
    struct arena a;
    struct ingress_settings s;
    struct snapshot *snap;
    struct str error;
    char keys[64], dir[64], crt[80], key[80], tickets[80];
};

static const char *no_variables(const char *name)
{
    (void)name;
    return NULL;
}

static void write_file(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static int setup(void **state)
{
    static struct fixture f;
    f = (struct fixture){0};
    arena_init(&f.a, NULL, 0);
    snprintf(f.keys, sizeof f.keys, "/tmp/view_test.%d.keys", (int)getpid());
    snprintf(f.dir, sizeof f.dir, "/tmp/view_test.%d.pairs", (int)getpid());
    snprintf(f.crt, sizeof f.crt, "%s/a.crt", f.dir);
    snprintf(f.key, sizeof f.key, "%s/a.key", f.dir);
    snprintf(f.tickets, sizeof f.tickets, "%s/tickets", f.dir);
    mkdir(f.dir, 0700);
    write_file(f.crt, PEM_ONE_CRT);
    write_file(f.key, PEM_ONE_KEY);
    *state = &f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    snapshot_unref(f->snap);
    unlink(f->keys);
    unlink(f->crt);
    unlink(f->key);
    unlink(f->tickets);
    rmdir(f->dir);
    arena_done(&f->a);
    return 0;
}

/* Up to three flags, NULL: none; "--k" and "--d" stand for the fixture's key file and its folder of
 * pairs, "--t" for its ticket keys. */
static const struct ingress_view *view(struct fixture *f, const char *one, const char *two,
                                       const char *three)
{
    char words[3][128];
    char *argv[3];
    int argc = 0;
    const char *const given[] = {one, two, three};
    for (int i = 0; i < 3; i++) {
        if (!given[i])
            continue;
        bool keys = strcmp(given[i], "--k") == 0, dir = strcmp(given[i], "--d") == 0,
             tickets = strcmp(given[i], "--t") == 0;
        snprintf(words[argc], sizeof words[argc], "%s%s",
                 keys      ? "--secure-access-keys-file="
                 : dir     ? "--tls-cert-dir="
                 : tickets ? "--tls-ticket-keys-file="
                           : given[i],
                 keys      ? f->keys
                 : dir     ? f->dir
                 : tickets ? f->tickets
                           : "");
        argv[argc] = words[argc];
        argc++;
    }
    struct conf_input in = {argc, argv, no_variables, false};
    enum conf_action action;
    snapshot_unref(f->snap);
    f->snap = NULL;
    f->s = (struct ingress_settings){0};
    if (!conf_load(&ingress_schema, &in, &f->a, &f->s, &action, &f->error) ||
        !ingress_settings_check(&f->s, &f->a, &f->error))
        fail_msg("%.*s", STR_ARG(f->error));
    f->snap = snapshot_build(&f->s.core, &ingress_view_maker, &f->a, &f->error);
    return f->snap ? f->snap->view : NULL;
}

static struct ip ip(const char *text)
{
    struct ip ret;
    assert_true(ip_parse(str_of(text), &ret));
    return ret;
}

static bool may_dial(const struct ingress_view *v, const char *address, uint16_t port)
{
    struct ip at = ip(address);
    return target_allowed(&v->target, &at, port);
}

static void modes_and_names_are_carried_over(void **state)
{
    struct fixture *f = *state;
    const struct ingress_view *v = view(f, NULL, NULL, NULL);
    assert_ptr_equal(v->set, &f->s);
    assert_int_equal(v->route.mode, ROUTE_AUTO);
    assert_int_equal(v->route.base_domain.n, 0);
    assert_false(v->route.lenient_ports || v->forward.preserve_host || v->forward.forward_api_key ||
                 v->keys || v->keys_twice);
    v = view(f, "--mode=wildcard", "--lenient-ports", "--base-domain=GW.test.");
    assert_int_equal(v->route.mode, ROUTE_BY_HEADER);
    assert_true(v->route.lenient_ports);
    assert_true(str_eq(v->route.base_domain, STR("GW.test")));
    v = view(f, "--mode=header", "--backend-host=preserve", "--forward-api-key");
    assert_int_equal(v->route.mode, ROUTE_BY_HEADER);
    assert_true(v->forward.preserve_host && v->forward.forward_api_key);
    assert_int_equal(view(f, "--mode=uri", NULL, NULL)->route.mode, ROUTE_BY_URI);
}

static void lists_are_compiled(void **state)
{
    struct fixture *f = *state;
    const struct ingress_view *v =
        view(f, "--trusted-proxies=10.0.0.0/8, fd00::/8", "--deny-ports=22,8000-8010",
             "--allow-target-cidr=169.254.1.0/24");
    struct ip in = ip("10.1.2.3"), out = ip("11.1.2.3");
    assert_true(cidr_set_has(&v->forward.trusted, &in));
    assert_false(cidr_set_has(&v->forward.trusted, &out));
    assert_true(port_set_has(&v->deny_ports, 8005) && !port_set_has(&v->deny_ports, 8011));
    assert_true(may_dial(v, "169.254.1.9", 80));
    assert_false(may_dial(v, "169.254.2.9", 80));
}

static void loopback_is_for_the_static_provider(void **state)
{
    struct fixture *f = *state;
    assert_false(may_dial(view(f, NULL, NULL, NULL), "127.0.0.1", 80));
    const struct ingress_view *v = view(f, "--routes=r", NULL, NULL);
    assert_true(may_dial(v, "127.0.0.1", 80) && may_dial(v, "::1", 80));
    assert_false(may_dial(v, "169.254.169.254", 80));
}

static void our_own_listeners_are_never_dialled(void **state)
{
    struct fixture *f = *state;
    const struct ingress_view *v =
        view(f, "--routes=r", "--allow-target-cidr=0.0.0.0/0,::/0", "--admin-addr=127.0.0.2:7000");
    assert_false(may_dial(v, "127.0.0.1", 28888));
    assert_false(may_dial(v, "127.9.9.9", 28888));
    assert_false(may_dial(v, "::1", 28888));
    assert_false(may_dial(v, "127.0.0.2", 7000));
    assert_true(may_dial(v, "127.0.0.1", 7000));
    assert_true(may_dial(v, "127.0.0.1", 28887));
    assert_true(may_dial(v, "192.0.2.1", 28888)); /* not an address of this machine */
    assert_int_equal(v->target.nown, 2);
    v = view(f, "--tls-port=8443", "--d", "--admin-addr=:7000");
    assert_int_equal(v->target.nown, 3);
    assert_false(may_dial(v, "127.0.0.1", 8443) || may_dial(v, "127.0.0.1", 7000));
}

static void a_port_left_to_the_system_is_not_guessed(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(view(f, "--port=0", "--admin-addr=127.0.0.1:0", NULL)->target.nown, 0);
    f->s.port = 4711; /* what a caller does once it is bound */
    snapshot_unref(f->snap);
    f->snap = snapshot_build(&f->s.core, &ingress_view_maker, &f->a, &f->error);
    const struct ingress_view *v = f->snap->view;
    assert_int_equal(v->target.nown, 1);
    assert_int_equal(v->target.own[0].port, 4711);
}

static void the_addresses_of_the_machine_are_known(void **state)
{
    struct fixture *f = *state;
    const struct ingress_view *v = view(f, NULL, NULL, NULL);
    struct ip loopback = ip("127.0.0.1");
    bool found = false;
    for (unsigned i = 0; i < v->target.nlocal; i++)
        found = found || ip_eq(&v->target.local[i], &loopback);
    assert_true(found);
}

static void a_reload_reads_the_key_file_again(void **state)
{
    struct fixture *f = *state;
    write_file(f->keys, "a=AAEC");
    const struct ingress_view *v = view(f, "--k", NULL, NULL);
    assert_true(keyring_has(v->keys, 'a') && !keyring_has(v->keys, 'b'));
    write_file(f->keys, "b=AAEC,b=/w==");
    struct snapshot *next = snapshot_rebuild(f->snap, &f->a, &f->error);
    assert_non_null(next);
    const struct ingress_view *w = next->view;
    assert_true(keyring_has(w->keys, 'b') && !keyring_has(w->keys, 'a'));
    assert_true(w->keys_twice);
    assert_string_equal(w->warn_ids, "b");
    assert_true(keyring_has(v->keys, 'a')); /* the old one is what it was */
    snapshot_unref(next);
}

static void a_bad_key_file_changes_nothing_and_is_named(void **state)
{
    struct fixture *f = *state;
    write_file(f->keys, "a=AAEC");
    const struct ingress_view *v = view(f, "--k", NULL, NULL);
    write_file(f->keys, "a=hush!");
    assert_null(snapshot_rebuild(f->snap, &f->a, &f->error));
    assert_true(str_starts(f->error, STR("secure-access-keys-file: ")));
    assert_null(memmem(f->error.p, f->error.n, "hush", 4));
    unlink(f->keys);
    assert_null(snapshot_rebuild(f->snap, &f->a, &f->error));
    assert_true(str_starts(f->error, STR("secure-access-keys-file: /tmp/")));
    assert_true(keyring_has(v->keys, 'a'));
}

/* ---- TLS */

static struct snapshot *again(struct fixture *f)
{
    return snapshot_rebuild(f->snap, &f->a, &f->error);
}

static void tls_is_there_when_it_has_a_port(void **state)
{
    struct fixture *f = *state;
    const struct ingress_view *v = view(f, "--d", NULL, NULL);
    assert_true(!v->tls && !v->certs && !v->tickets);
    v = view(f, "--d", "--tls-port=8443", NULL);
    assert_true(v->tls && v->tickets);
    assert_int_equal(certs_count(v->certs), 1);
}

static void random_ticket_keys_outlive_a_reload(void **state)
{
    struct fixture *f = *state;
    const struct ingress_view *v = view(f, "--d", "--tls-port=8443", NULL);
    struct snapshot *next = again(f);
    const struct ingress_view *w = next->view;
    assert_ptr_equal(v->tickets, w->tickets);
    assert_ptr_not_equal(v->tls, w->tls);
    assert_ptr_not_equal(v->certs, w->certs);
    snapshot_unref(f->snap);
    f->snap = next; /* what both counted is still there */
    next = again(f);
    assert_ptr_equal(((const struct ingress_view *)next->view)->tickets, w->tickets);
    snapshot_unref(next);
}

static void ticket_keys_of_a_file_are_read_again(void **state)
{
    struct fixture *f = *state;
    char text[65] = "";
    memset(text, 'A', 64); /* base64 of 48 bytes */
    write_file(f->tickets, text);
    const struct ingress_view *v = view(f, "--d", "--tls-port=8443", "--t");
    assert_non_null(v);
    struct snapshot *next = again(f);
    assert_ptr_not_equal(v->tickets, ((const struct ingress_view *)next->view)->tickets);
    snapshot_unref(next);
    static const char *const bad[] = {"", "hush", "# nothing\n"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        write_file(f->tickets, bad[i]);
        assert_null(again(f));
        assert_true(str_starts(f->error, STR("tls-ticket-keys-file: /tmp/")));
        assert_null(memmem(f->error.p, f->error.n, "hush", 4));
    }
}

static void a_bad_certificate_changes_nothing_and_is_named(void **state)
{
    struct fixture *f = *state;
    const struct ingress_view *v = view(f, "--d", "--tls-port=8443", NULL);
    write_file(f->crt, PEM_TWO_CRT);
    assert_null(again(f));
    assert_true(str_starts(f->error, STR("tls-cert-dir: /tmp/")));
    assert_true(str_eq(certs_name(v->certs, 0), STR("one.test")));
    write_file(f->key, PEM_TWO_KEY);
    struct snapshot *next = again(f);
    assert_non_null(next);
    assert_true(
        str_eq(certs_name(((const struct ingress_view *)next->view)->certs, 0), STR("two.test")));
    snapshot_unref(next);
}

static void authorities_that_are_none_serve_nobody(void **state)
{
    struct fixture *f = *state;
    static const char *const bad[] = {
        "", " \n", "nonsense", "-----BEGIN CERTIFICATE-----\nhush\n-----END CERTIFICATE-----\n"};
    char flag[100];
    snprintf(flag, sizeof flag, "--tls-client-ca=%s", f->keys);
    write_file(f->keys, PEM_CN_CRT);
    assert_non_null(view(f, "--d", "--tls-port=8443", flag));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        write_file(f->keys, bad[i]);
        assert_null(again(f));
        assert_true(str_starts(f->error, STR("tls-client-ca: ")));
        assert_null(memmem(f->error.p, f->error.n, "hush", 4));
    }
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(modes_and_names_are_carried_over),
        T(lists_are_compiled),
        T(loopback_is_for_the_static_provider),
        T(our_own_listeners_are_never_dialled),
        T(a_port_left_to_the_system_is_not_guessed),
        T(the_addresses_of_the_machine_are_known),
        T(a_reload_reads_the_key_file_again),
        T(a_bad_key_file_changes_nothing_and_is_named),
        T(tls_is_there_when_it_has_a_port),
        T(random_ticket_keys_outlive_a_reload),
        T(ticket_keys_of_a_file_are_read_again),
        T(a_bad_certificate_changes_nothing_and_is_named),
        T(authorities_that_are_none_serve_nobody),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
