/* original_test.c — what the kernel remembers of connections that it redirected to us: on listeners
 * of either family and of both, and of one that came straight to us (DESIGN 18.6 K7). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <poll.h>
#include <stdio.h>
#include <unistd.h>

#include "kernel/fixture.h"
#include "net/listen.h"
#include "net/worker.h"

enum { OURS = 18081 };

static const char redirect[] = "table inet redirected {\n"
                               "  chain out {\n"
                               "    type nat hook output priority -100;\n"
                               "    tcp dport 443 redirect to :18081\n"
                               "  }\n"
                               "}\n";

struct rig {
    struct netns ns;
    struct worker *w;
    struct conn *conn;
    bool accepted, closed;
};

static void on_bytes(void *user, struct buf *in)
{
    (void)user;
    buf_clear(in);
}

static void on_closed(void *user, enum why why)
{
    struct rig *r = user;
    (void)why;
    r->closed = true;
}

static const struct conn_events events = {.bytes = on_bytes, .closed = on_closed};

static void on_accept(void *user, struct conn *c)
{
    struct rig *r = user;
    r->accepted = true;
    r->conn = c;
    conn_attach(c, &events, r);
}

static void turns(struct rig *r, const bool *what)
{
    for (int i = 0; i < 20000 && !*what; i++) {
        worker_turn(r->w);
        poll(NULL, 0, 1);
    }
    assert_true(*what);
}

/* A client inside calls `to`; the listener on `here` gets it, and is told `original`. */
static void expect(struct rig *r, const char *here, const char *to, uint16_t port,
                   const char *original, uint16_t original_port)
{
    struct arena a;
    struct str error = STR_NONE;
    union addr at = netns_addr(here, OURS), bound, was, want = netns_addr(original, original_port);
    char text[ADDR_TEXT_BYTES];
    arena_init(&a, NULL, 0);
    r->accepted = r->closed = false;
    netns_enter(r->ns.inside);
    int fd = listen_bind_alone(&at.sa, &bound, &a, &error);
    netns_enter(r->ns.home);
    if (fd < 0)
        fail_msg("%.*s", STR_ARG(error));
    struct listener *l = listener_start(r->w, fd, NULL, on_accept, r);
    int client = fixture_connect(&r->ns, SOCK_STREAM, to, port);
    assert_true(client >= 0);
    turns(r, &r->accepted);
    assert_int_equal(conn_original(r->conn, &was), 0);
    size_t n = addr_text(&was.sa, text);
    if (!addr_eq(&was.sa, &want.sa))
        fail_msg("%s:%u on %s: %.*s", to, port, here, (int)n, text);
    close(client);
    listener_stop(l);
    conn_close(r->conn, WHY_DRAIN);
    turns(r, &r->closed);
    arena_done(&a);
}

static void a_redirected_connection_is_known_by_its_destination(void **state)
{
    struct rig *r = *state;
    expect(r, "127.0.0.1", "198.51.100.2", 443, "198.51.100.2", 443);
    expect(r, "0.0.0.0", "198.51.100.2", 443, "198.51.100.2", 443);
    expect(r, "::1", "2001:db8::2", 443, "2001:db8::2", 443);
    expect(r, "::", "198.51.100.2", 443, "198.51.100.2", 443);
    expect(r, "::", "2001:db8::2", 443, "2001:db8::2", 443);
}

static void one_that_came_straight_to_us_is_known_as_such(void **state)
{
    struct rig *r = *state;
    expect(r, "127.0.0.1", "127.0.0.1", OURS, "127.0.0.1", OURS);
    expect(r, "::1", "::1", OURS, "::1", OURS);
    expect(r, "::", "127.0.0.1", OURS, "127.0.0.1", OURS);
}

int main(void)
{
    struct rig r = {0};
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(a_redirected_connection_is_known_by_its_destination, &r),
        cmocka_unit_test_prestate(one_that_came_straight_to_us_is_known_as_such, &r),
    };
    if (!netns_start(&r.ns))
        return 0;
    if (!netns_feed(&r.ns, "nft -f -", str_of(redirect))) {
        puts("skip: needs nft and the kernel's redirects");
        return 0;
    }
    r.w = worker_new(0);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    worker_free(r.w);
    netns_stop(&r.ns);
    return failed;
}
