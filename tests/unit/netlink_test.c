/* netlink_test.c — answers of a kernel in trouble: interrupted calls, lost messages, dumps that
 * changed under our hands, answers to older questions.  The socket is real, its calls are scripted.
 */
#include "egress/kernel/netlink_impl.h"

#include <errno.h>
#include <linux/netfilter/nfnetlink.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/socket.h>
#include <cmocka.h>

/* One call of recvfrom(): an errno, or one message. */
struct step {
    int error;
    uint16_t type, flags;
    uint32_t seq;
    int result;    /* NLMSG_ERROR: what it says */
    uint32_t from; /* who sent it; 0: the kernel */
};

/* The script; after its end there is nothing to read. */
static struct {
    const struct step *at;
    size_t n, done;
    int send_errors[4];
    size_t sent;
} script;

ssize_t __wrap_sendto(int fd, const void *p, size_t n, int flags, const struct sockaddr *to,
                      socklen_t len);
ssize_t __wrap_recvfrom(int fd, void *p, size_t n, int flags, struct sockaddr *from,
                        socklen_t *len);

ssize_t __wrap_sendto(int fd, const void *p, size_t n, int flags, const struct sockaddr *to,
                      socklen_t len)
{
    (void)fd, (void)p, (void)flags, (void)to, (void)len;
    errno = script.send_errors[script.sent++];
    return errno ? -1 : (ssize_t)n;
}

ssize_t __wrap_recvfrom(int fd, void *p, size_t n, int flags, struct sockaddr *from, socklen_t *len)
{
    (void)fd, (void)n, (void)flags;
    /* What is left over is asked for before anything is sent. */
    if (script.sent == 0 || script.done == script.n) {
        errno = EAGAIN;
        return -1;
    }
    const struct step *s = &script.at[script.done++];
    if (s->error) {
        errno = s->error;
        return -1;
    }
    struct sockaddr_nl sender = {.nl_family = AF_NETLINK, .nl_pid = s->from};
    struct nlmsghdr *m = mnl_nlmsg_put_header(p);
    struct nlmsgerr *e = mnl_nlmsg_put_extra_header(m, sizeof *e);
    m->nlmsg_type = s->type;
    m->nlmsg_flags = s->flags;
    m->nlmsg_seq = s->seq;
    e->error = s->result;
    memcpy(from, &sender, sizeof sender);
    *len = sizeof sender;
    return (ssize_t)m->nlmsg_len;
}

static struct netlink nl;

static void play(const struct step *steps, size_t n)
{
    memset(&script, 0, sizeof script);
    script.at = steps;
    script.n = n;
}

static int setup(void **state)
{
    (void)state;
    return netlink_open(&nl, NETLINK_NETFILTER);
}

static int teardown(void **state)
{
    (void)state;
    netlink_close(&nl);
    return 0;
}

#define ERROR(s, r)                                    \
    {                                                  \
        .type = NLMSG_ERROR, .seq = (s), .result = (r) \
    }
#define STEPS(...)                      \
    (const struct step[]){__VA_ARGS__}, \
        sizeof((const struct step[]){__VA_ARGS__}) / sizeof(struct step)

static void a_batch_is_in_force_when_its_last_message_is_acknowledged(void **state)
{
    char batch[64] = {0};
    (void)state;
    play(STEPS(ERROR(7, 0)));
    assert_int_equal(netlink_send_batch(&nl, batch, sizeof batch, 7), 0);
    play(STEPS({.error = EINTR}, ERROR(7, 0)));
    script.send_errors[0] = EINTR;
    assert_int_equal(netlink_send_batch(&nl, batch, sizeof batch, 7), 0);
}

static void the_first_error_of_a_batch_is_its_result(void **state)
{
    char batch[64] = {0};
    (void)state;
    play(STEPS(ERROR(5, -EEXIST), ERROR(6, -ENOENT), ERROR(7, 0)));
    assert_int_equal(netlink_send_batch(&nl, batch, sizeof batch, 7), -EEXIST);
    /* A commit that fails is told with the number of the batch's first message. */
    play(STEPS(ERROR(1, -ENOMEM), ERROR(7, 0)));
    assert_int_equal(netlink_send_batch(&nl, batch, sizeof batch, 7), -ENOMEM);
    play(STEPS(ERROR(5, -EEXIST), {.error = ENOBUFS}));
    assert_int_equal(netlink_send_batch(&nl, batch, sizeof batch, 7), -EEXIST);
}

static void what_cannot_be_told_is_no_success(void **state)
{
    char batch[64] = {0};
    (void)state;
    play(STEPS({.error = ENOBUFS}));
    assert_int_equal(netlink_send_batch(&nl, batch, sizeof batch, 7), -ENOBUFS);
    play(NULL, 0);
    assert_int_equal(netlink_send_batch(&nl, batch, sizeof batch, 7), -ENOBUFS);
    /* Somebody else says it. */
    play(STEPS({.type = NLMSG_ERROR, .seq = 7, .from = 4711}));
    assert_int_equal(netlink_send_batch(&nl, batch, sizeof batch, 7), -ENOBUFS);
    play(NULL, 0);
    script.send_errors[0] = EMSGSIZE;
    assert_int_equal(netlink_send_batch(&nl, batch, sizeof batch, 7), -EMSGSIZE);
}

static int count(const struct nlmsghdr *m, void *user)
{
    unsigned *n = user;
    (void)m;
    ++*n;
    return 0;
}

static int refuse(const struct nlmsghdr *m, void *user)
{
    (void)m, (void)user;
    return -EBADMSG;
}

static struct nlmsghdr *question(char q[512], uint16_t flags)
{
    return netlink_begin(&nl, q, 99, flags);
}

static void a_dump_ends_with_its_last_message(void **state)
{
    char q[512] __attribute__((aligned(8)));
    unsigned n = 0;
    (void)state;
    struct nlmsghdr *m = question(q, NLM_F_DUMP);
    uint32_t s = m->nlmsg_seq;
    play(STEPS({.type = 99, .seq = s - 1, .flags = NLM_F_MULTI},
               {.type = 99, .seq = s, .flags = NLM_F_MULTI}, {.error = EINTR},
               {.type = 99, .seq = s, .flags = NLM_F_MULTI},
               {.type = NLMSG_DONE, .seq = s, .flags = NLM_F_MULTI},
               {.type = 99, .seq = s, .flags = NLM_F_MULTI}));
    assert_int_equal(netlink_dump(&nl, m, count, &n), 0);
    assert_int_equal(n, 2);
    assert_int_equal(script.done, 5);
}

static void a_dump_that_changed_says_so_and_is_read_to_its_end(void **state)
{
    char q[512] __attribute__((aligned(8)));
    unsigned n = 0;
    (void)state;
    struct nlmsghdr *m = question(q, NLM_F_DUMP);
    uint32_t s = m->nlmsg_seq;
    play(STEPS({.type = 99, .seq = s, .flags = NLM_F_MULTI},
               {.type = 99, .seq = s, .flags = NLM_F_MULTI | NLM_F_DUMP_INTR},
               {.type = NLMSG_DONE, .seq = s, .flags = NLM_F_MULTI | NLM_F_DUMP_INTR}));
    assert_int_equal(netlink_dump(&nl, m, count, &n), -EINTR);
    assert_int_equal(script.done, 3);
}

static void errors_of_a_dump_come_back(void **state)
{
    char q[512] __attribute__((aligned(8)));
    unsigned n = 0;
    (void)state;
    struct nlmsghdr *m = question(q, NLM_F_DUMP);
    uint32_t s = m->nlmsg_seq;
    play(STEPS(ERROR(s, -ENOENT)));
    assert_int_equal(netlink_dump(&nl, m, count, &n), -ENOENT);
    play(STEPS({.type = 99, .seq = s, .flags = NLM_F_MULTI}, {.error = ENOBUFS}));
    assert_int_equal(netlink_dump(&nl, m, count, &n), -ENOBUFS);
    play(STEPS({.type = 99, .seq = s, .flags = NLM_F_MULTI},
               {.type = NLMSG_DONE, .seq = s, .flags = NLM_F_MULTI}));
    assert_int_equal(netlink_dump(&nl, m, refuse, NULL), -EBADMSG);
    play(STEPS({.error = EAGAIN}));
    assert_int_equal(netlink_dump(&nl, m, count, &n), -EAGAIN);
}

static void a_question_about_one_thing_has_one_answer(void **state)
{
    char q[512] __attribute__((aligned(8)));
    unsigned n = 0;
    (void)state;
    struct nlmsghdr *m = question(q, 0);
    play(STEPS({.type = 99, .seq = m->nlmsg_seq, .flags = NLM_F_MULTI},
               {.type = 99, .seq = m->nlmsg_seq, .flags = NLM_F_MULTI}));
    assert_int_equal(netlink_dump(&nl, m, count, &n), 0);
    assert_int_equal(n, 1);
}

static void an_answer_to_an_older_question_is_passed_over(void **state)
{
    char q[512] __attribute__((aligned(8)));
    (void)state;
    struct nlmsghdr *m = question(q, 0);
    play(STEPS(ERROR(m->nlmsg_seq - 1, -EPERM), ERROR(m->nlmsg_seq, 0)));
    assert_int_equal(netlink_ask(&nl, m), 0);
    play(STEPS(ERROR(m->nlmsg_seq, -EPERM)));
    assert_int_equal(netlink_ask(&nl, m), -EPERM);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_batch_is_in_force_when_its_last_message_is_acknowledged),
        cmocka_unit_test(the_first_error_of_a_batch_is_its_result),
        cmocka_unit_test(what_cannot_be_told_is_no_success),
        cmocka_unit_test(a_dump_ends_with_its_last_message),
        cmocka_unit_test(a_dump_that_changed_says_so_and_is_read_to_its_end),
        cmocka_unit_test(errors_of_a_dump_come_back),
        cmocka_unit_test(a_question_about_one_thing_has_one_answer),
        cmocka_unit_test(an_answer_to_an_older_question_is_passed_over),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
