/* keep_test.c — what a worker leaves its successor finds, and nothing a worker sends harms the
 * supervisor: both sides over a real socket pair, the store's on a thread. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "egress/supervisor/store.h"

struct fixture {
    struct store store;
    int server;
    struct keep *keep;
    int client;
    pthread_t thread;
    struct arena a;
};

static void *serve(void *user)
{
    struct fixture *f = user;
    struct pollfd p = {.fd = f->server, .events = POLLIN};
    do
        poll(&p, 1, -1);
    while (store_serve(&f->store, f->server));
    close(f->server);
    return NULL;
}

static void start_worker(struct fixture *f)
{
    int pair[2];
    char number[16];
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
    f->server = pair[0];
    f->client = pair[1];
    snprintf(number, sizeof number, "%d", pair[1]);
    f->keep = keep_open(number);
    assert_non_null(f->keep);
    assert_int_equal(pthread_create(&f->thread, NULL, serve, f), 0);
}

static void end_worker(struct fixture *f)
{
    keep_close(f->keep);
    pthread_join(f->thread, NULL);
}

static void begin(struct fixture *f)
{
    store_init(&f->store);
    arena_init(&f->a, NULL, 0);
    start_worker(f);
}

static void end(struct fixture *f)
{
    end_worker(f);
    store_done(&f->store);
    arena_done(&f->a);
}

static int open_descriptors(void)
{
    int n = 0;
    for (int fd = 0; fd < 1024; fd++)
        n += fcntl(fd, F_GETFD) >= 0;
    return n;
}

static void a_successor_finds_descriptors_blobs_and_texts(void **state)
{
    struct fixture f;
    struct kept_list list;
    struct str text;
    int ends[2];
    char c = 0, *much = mem_new(2 << 20);
    (void)state;
    memset(much, 'p', 2 << 20);
    begin(&f);
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(keep_put(f.keep, STR("pipe"), STR("of a kind"), ends[0]), WHY_OK);
    assert_int_equal(keep_put(f.keep, STR("mark"), STR("0x1234"), -1), WHY_OK);
    assert_int_equal(keep_put_text(f.keep, STR("policy"), (struct str){much, 2 << 20}), WHY_OK);
    close(ends[0]);
    end_worker(&f);
    start_worker(&f);
    assert_int_equal(keep_load(f.keep, &f.a, &list), WHY_OK);
    assert_int_equal(list.n, 3);
    struct kept *one = keep_find(&list, STR("pipe"));
    assert_true(one && one->fd >= 0 && str_eq(one->blob, STR("of a kind")));
    assert_int_equal(fcntl(one->fd, F_GETFD), FD_CLOEXEC);
    assert_int_equal(write(ends[1], "x", 1), 1);
    assert_int_equal(read(one->fd, &c, 1), 1);
    assert_int_equal(c, 'x');
    assert_true(str_eq(keep_find(&list, STR("mark"))->blob, STR("0x1234")));
    assert_true(keep_text(keep_find(&list, STR("policy")), 2 << 20, &f.a, &text));
    assert_int_equal(text.n, 2 << 20);
    assert_memory_equal(text.p, much, text.n);
    assert_false(keep_text(keep_find(&list, STR("policy")), (2 << 20) - 1, &f.a, &text));
    assert_false(keep_text(keep_find(&list, STR("mark")), 100, &f.a, &text));
    assert_false(keep_text(one, 100, &f.a, &text));
    assert_null(keep_find(&list, STR("none")));
    keep_done(&list);
    close(ends[1]);
    mem_free(much);
    end(&f);
}

static void an_entry_replaces_the_one_of_its_name_and_can_go(void **state)
{
    struct fixture f;
    struct kept_list list;
    (void)state;
    int before = open_descriptors();
    begin(&f);
    assert_int_equal(keep_put(f.keep, STR("a"), STR("1"), STDIN_FILENO), WHY_OK);
    assert_int_equal(keep_put(f.keep, STR("b"), STR(""), STDIN_FILENO), WHY_OK);
    assert_int_equal(keep_put(f.keep, STR("c"), STR("3"), -1), WHY_OK);
    assert_int_equal(keep_put(f.keep, STR("a"), STR("one"), -1), WHY_OK);
    assert_int_equal(keep_drop(f.keep, STR("b")), WHY_OK);
    assert_int_equal(keep_drop(f.keep, STR("b")), WHY_OK);
    assert_int_equal(keep_load(f.keep, &f.a, &list), WHY_OK);
    assert_int_equal(list.n, 2);
    assert_true(str_eq(list.at[0].name, STR("a")) && str_eq(list.at[0].blob, STR("one")));
    assert_int_equal(list.at[0].fd, -1);
    assert_true(str_eq(list.at[1].name, STR("c")));
    end(&f);
    assert_int_equal(open_descriptors(), before);
}

static void there_is_a_bound_to_everything(void **state)
{
    struct fixture f;
    struct kept_list list;
    static char much[KEEP_BLOB_MAX + 1];
    char name[KEEP_NAME_MAX + 2];
    (void)state;
    int before = open_descriptors();
    begin(&f);
    for (int i = 0; i < KEEP_ENTRIES_MAX; i++) {
        snprintf(name, sizeof name, "%064d", i);
        assert_int_equal(
            keep_put(f.keep, str_of(name), (struct str){much, KEEP_BLOB_MAX}, STDIN_FILENO),
            WHY_OK);
    }
    assert_int_equal(keep_put(f.keep, STR("more"), STR(""), STDIN_FILENO), WHY_LIMIT);
    assert_int_equal(keep_put(f.keep, str_of(name), STR("again"), -1), WHY_OK);
    assert_int_equal(keep_put(f.keep, str_of(name), (struct str){much, sizeof much}, -1),
                     WHY_LIMIT);
    snprintf(name, sizeof name, "%065d", 0);
    assert_int_equal(keep_put(f.keep, str_of(name), STR(""), -1), WHY_LIMIT);
    assert_int_equal(keep_put(f.keep, STR(""), STR(""), -1), WHY_LIMIT);
    assert_int_equal(keep_load(f.keep, &f.a, &list), WHY_OK);
    assert_int_equal(list.n, KEEP_ENTRIES_MAX);
    keep_done(&list);
    end(&f);
    assert_int_equal(open_descriptors(), before);
}

static void without_a_supervisor_there_is_nothing_to_open(void **state)
{
    int stream[2];
    char number[16];
    (void)state;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, stream), 0);
    snprintf(number, sizeof number, "%d", stream[0]);
    assert_null(keep_open(NULL));
    assert_null(keep_open(""));
    assert_null(keep_open("-1"));
    assert_null(keep_open("1023"));
    assert_null(keep_open("99999999999"));
    assert_null(keep_open(number));
    close(stream[0]);
    close(stream[1]);
}

static void a_supervisor_that_is_gone_is_said_so_at_once(void **state)
{
    struct fixture f;
    struct kept_list list;
    (void)state;
    begin(&f);
    shutdown(f.server, SHUT_RDWR);
    pthread_join(f.thread, NULL);
    assert_int_equal(keep_put(f.keep, STR("a"), STR(""), -1), WHY_REFUSED);
    assert_int_equal(keep_load(f.keep, &f.a, &list), WHY_REFUSED);
    keep_close(f.keep);
    store_done(&f.store);
    arena_done(&f.a);
}

static void a_silent_supervisor_costs_a_second_and_its_late_answer_misleads_nobody(void **state)
{
    struct fixture f;
    struct kept_list list;
    int pair[2];
    char number[16];
    (void)state;
    store_init(&f.store);
    arena_init(&f.a, NULL, 0);
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
    snprintf(number, sizeof number, "%d", pair[1]);
    f.server = pair[0];
    f.keep = keep_open(number);
    assert_int_equal(keep_put(f.keep, STR("a"), STR("1"), -1), WHY_DEADLINE);
    assert_int_equal(pthread_create(&f.thread, NULL, serve, &f), 0);
    assert_int_equal(keep_load(f.keep, &f.a, &list), WHY_OK);
    assert_int_equal(list.n, 1);
    end(&f);
}

/* ---- what no client of ours sends */

static void send_raw(int socket, const void *p, size_t n, int fds)
{
    union {
        struct cmsghdr align;
        char room[CMSG_SPACE(8 * sizeof(int))];
    } control;
    int all[8] = {0, 0, 0, 0, 0, 0, 0, 0};
    struct iovec part = {(void *)p, n};
    struct msghdr m = {.msg_iov = &part, .msg_iovlen = 1};
    if (fds > 0) {
        m.msg_control = control.room;
        m.msg_controllen = CMSG_SPACE((size_t)fds * sizeof(int));
        struct cmsghdr *c = CMSG_FIRSTHDR(&m);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN((size_t)fds * sizeof(int));
        memcpy(CMSG_DATA(c), all, (size_t)fds * sizeof(int));
    }
    assert_true(sendmsg(socket, &m, MSG_NOSIGNAL) >= 0);
}

static void what_is_no_question_is_refused_and_leaves_nothing_open(void **state)
{
    struct fixture f;
    static char packet[KEEP_PACKET_MAX + 100];
    static const struct {
        uint8_t version, op, name_n;
        size_t n;
        int fds;
    } rows[] = {
        {KEEP_VERSION, KEEP_PUT, 1, 5, 0},                    /* no whole head */
        {KEEP_VERSION + 1, KEEP_PUT, 1, 40, 1},               /* another version */
        {KEEP_VERSION, 0, 1, 40, 1},                          /* no such question */
        {KEEP_VERSION, KEEP_ENTRY, 1, 40, 1},                 /* an answer */
        {KEEP_VERSION, KEEP_PUT, 0, 40, 1},                   /* no name */
        {KEEP_VERSION, KEEP_PUT, 65, 200, 1},                 /* too long a name */
        {KEEP_VERSION, KEEP_PUT, 60, 40, 1},                  /* longer than what there is */
        {KEEP_VERSION, KEEP_PUT, 1, KEEP_PACKET_MAX, 1},      /* too long a blob */
        {KEEP_VERSION, KEEP_PUT, 1, KEEP_PACKET_MAX + 50, 1}, /* too long a packet */
        {KEEP_VERSION, KEEP_PUT, 1, 40, 2},                   /* two descriptors */
        {KEEP_VERSION, KEEP_PUT, 1, 40, 8},                   /* more than there is room for */
        {KEEP_VERSION, KEEP_DROP, 1, 13, 1},                  /* a descriptor to drop */
        {KEEP_VERSION, KEEP_GET, 0, 12, 1},                   /* or to get */
    };
    (void)state;
    int before = open_descriptors();
    begin(&f);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct keep_head head = {.version = rows[i].version, .op = rows[i].op, rows[i].name_n};
        struct keep_packet answer;
        char got[KEEP_PACKET_MAX];
        int fd;
        memcpy(packet, &head, sizeof head);
        send_raw(f.client, packet, rows[i].n, rows[i].fds);
        ssize_t n = keep_recv(f.client, got, 0, &fd);
        assert_true(n > 0 && keep_unpack((struct str){got, (size_t)n}, &answer));
        assert_int_equal(answer.head.op, KEEP_BAD);
    }
    end_worker(&f);
    assert_int_equal(f.store.n, 0);
    store_done(&f.store);
    arena_done(&f.a);
    assert_int_equal(open_descriptors(), before);
}

static void a_worker_that_reads_no_answers_does_not_hold_the_store_up(void **state)
{
    struct store store;
    int pair[2];
    (void)state;
    store_init(&store);
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
    for (int i = 0; i < 2000; i++) {
        struct keep_packet q = {.head.op = KEEP_PUT, .name = STR("a")};
        assert_true(keep_send(pair[1], &q, 0, -1));
        assert_true(store_serve(&store, pair[0]));
    }
    close(pair[1]);
    assert_false(store_serve(&store, pair[0]));
    assert_int_equal(store.n, 1);
    close(pair[0]);
    store_done(&store);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_successor_finds_descriptors_blobs_and_texts),
        cmocka_unit_test(an_entry_replaces_the_one_of_its_name_and_can_go),
        cmocka_unit_test(there_is_a_bound_to_everything),
        cmocka_unit_test(without_a_supervisor_there_is_nothing_to_open),
        cmocka_unit_test(a_supervisor_that_is_gone_is_said_so_at_once),
        cmocka_unit_test(a_silent_supervisor_costs_a_second_and_its_late_answer_misleads_nobody),
        cmocka_unit_test(what_is_no_question_is_refused_and_leaves_nothing_open),
        cmocka_unit_test(a_worker_that_reads_no_answers_does_not_hold_the_store_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
