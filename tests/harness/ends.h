/* ends.h — both ends of a rig's exchanges, which a test speaks for byte by byte.  For one test
 * program that runs one test after the other: it brings the rig itself.  rig_init(), and nends = 0,
 * begin each test. */
#ifndef HARNESS_ENDS_H
#define HARNESS_ENDS_H

#include "harness/rig.h"

enum { ENDS = 1024 };

struct end {
    struct conn *c;
    size_t at; /* read off its connection so far */
};

static struct rig rig; /* cmocka runs one test after the other */
static struct end ends[ENDS];
static unsigned nends;

static inline struct end *end_of(struct conn *c)
{
    assert_non_null(c);
    assert_true(nends < ENDS);
    ends[nends] = (struct end){.c = c};
    return &ends[nends++];
}

static inline void settle(void)
{
    fake_settle(rig.w);
    rig_check(&rig);
}

static inline void wait_ms(uint64_t ms)
{
    fake_time(rig.w, ms);
    rig_check(&rig);
}

static inline void says(struct end *e, const char *text)
{
    fake_feed(e->c, text, strlen(text));
    settle();
}

static inline struct end *client(const char *text)
{
    struct end *e = end_of(rig_client(&rig));
    says(e, text);
    return e;
}

static inline bool dials(void)
{
    return fake_dials(rig.w) > 0;
}

static inline struct end *origin(void)
{
    assert_true(dials());
    struct end *e = end_of(rig_origin(&rig));
    rig_check(&rig);
    return e;
}

static inline struct str unread(struct end *e)
{
    struct str s = str_skip(fake_written(e->c), e->at);
    e->at += s.n;
    return s;
}

static inline void reads(struct end *e, const char *start, const char *tail)
{
    struct str s = unread(e);
    bool good = str_starts(s, str_of(start)) && str_iends(s, str_of(tail));
    if (!good)
        print_error("<%.*s> is not <%s ... %s>\n", STR_ARG(s), start, tail);
    assert_true(good);
}

static inline void silent(struct end *e)
{
    assert_int_equal(unread(e).n, 0);
}

static inline bool is_closed(const struct end *e)
{
    return fake_end(e->c) == FAKE_CLOSED || fake_end(e->c) == FAKE_RESET;
}

static inline bool logged(const char *text)
{
    bool found = strstr(trace_text(&rig.lines), text) != NULL;
    if (!found)
        print_error("no <%s> in\n%s", text, trace_text(&rig.lines));
    return found;
}

static inline void all_is_credited(void)
{
    const struct meter *m = meter();
    assert_int_equal(m->received[0], m->credited[0]);
    assert_int_equal(m->given[0], m->sent[0]);
    assert_int_equal(rig_running(&rig), 0);
}

static inline void nothing_is_owed(void)
{
    all_is_credited();
    assert_true(worker_held(rig.w) <= 3 * (size_t)CHUNK_BYTES);
}

#endif
