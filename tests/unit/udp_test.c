/* udp_test.c — datagrams over loopback, in bursts longer than a batch. */
#include "net/udp.h"

#include <arpa/inet.h>
#include <setjmp.h>
#include <stdarg.h>
#include <unistd.h>
#include <cmocka.h>

#include "net/worker.h"

enum { BURST = 300 };

struct rig {
    struct worker *w;
    struct udp *u;
    union addr at;
    int fd; /* a peer's */
    unsigned heard;
    bool close_at_once, echo;
};

static void on_datagram(void *user, struct udp *u, struct str datagram, const struct sockaddr *from)
{
    struct rig *rig = user;
    rig->heard++;
    if (rig->echo)
        udp_send(u, from, datagram.p, datagram.n);
    if (rig->close_at_once) {
        udp_close(u);
        rig->u = NULL;
    }
}

static void rig_open(struct rig *rig, const char *address)
{
    struct ip ip;
    union addr any;
    struct arena a;
    struct str error;
    int room = 1 << 20;
    arena_init(&a, NULL, 0);
    assert_true(ip_parse(str_of(address), &ip));
    addr_make(&any, &ip, 0);
    rig->w = worker_new(0);
    rig->u = udp_start(rig->w, udp_bind(&any.sa, &rig->at, &a, &error), on_datagram, rig);
    rig->fd = socket(any.sa.sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    setsockopt(rig->fd, SOL_SOCKET, SO_RCVBUF, &room, sizeof room);
    assert_int_equal(connect(rig->fd, &rig->at.sa, addr_len(&rig->at.sa)), 0);
    rig->echo = true;
    arena_done(&a);
}

static void rig_close(struct rig *rig)
{
    udp_close(rig->u);
    worker_turn(rig->w);
    worker_free(rig->w);
    close(rig->fd);
}

static void turn(struct rig *rig)
{
    for (int i = 0; i < 10; i++)
        worker_turn(rig->w);
}

static void each_of_a_burst_is_answered(void **state)
{
    (void)state;
    static const char *const addresses[] = {"127.0.0.1", "::1"};
    for (int i = 0; i < 2; i++) {
        struct rig rig = {.heard = 0};
        uint16_t got;
        unsigned n = 0;
        rig_open(&rig, addresses[i]);
        for (uint16_t k = 0; k < BURST; k++)
            send(rig.fd, &k, sizeof k, 0);
        turn(&rig);
        unsigned lost = BURST - rig.heard; /* the kernel's queue may be shorter than the burst */
        for (uint16_t k = 0; recv(rig.fd, &got, sizeof got, MSG_DONTWAIT) == sizeof got; k++, n++)
            assert_int_equal(got, k);
        assert_int_equal(n, BURST - lost);
        assert_true(n > 100);
        rig_close(&rig);
    }
}

static void a_datagram_that_is_too_long_is_not_heard(void **state)
{
    (void)state;
    struct rig rig = {.heard = 0};
    static char p[UDP_BYTES + 1];
    rig_open(&rig, "127.0.0.1");
    send(rig.fd, p, UDP_BYTES + 1, 0);
    send(rig.fd, p, UDP_BYTES, 0);
    turn(&rig);
    assert_int_equal(rig.heard, 1);
    rig_close(&rig);
}

static void it_may_close_itself_in_the_middle_of_a_batch(void **state)
{
    (void)state;
    struct rig rig = {.close_at_once = true};
    char c;
    rig_open(&rig, "127.0.0.1");
    for (int i = 0; i < 10; i++)
        send(rig.fd, "x", 1, 0);
    turn(&rig);
    assert_int_equal(rig.heard, 1);
    assert_int_equal(recv(rig.fd, &c, 1, MSG_DONTWAIT), 1);
    rig_close(&rig);
}

static void a_taken_port_is_told(void **state)
{
    (void)state;
    struct rig rig = {.heard = 0};
    struct arena a;
    struct str error;
    union addr bound;
    rig_open(&rig, "127.0.0.1");
    arena_init(&a, NULL, 0);
    assert_int_equal(udp_bind(&rig.at.sa, &bound, &a, &error), -1);
    assert_true(str_starts(error, STR("cannot listen on udp 127.0.0.1:")));
    arena_done(&a);
    rig_close(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_of_a_burst_is_answered),
        cmocka_unit_test(a_datagram_that_is_too_long_is_not_heard),
        cmocka_unit_test(it_may_close_itself_in_the_middle_of_a_batch),
        cmocka_unit_test(a_taken_port_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
