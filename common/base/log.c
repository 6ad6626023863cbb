/* log.c — lines are made on the caller's stack, copied into one ring of bytes under a lock nobody
 * holds long, and written by a thread.  The thread naps a moment after each batch, so that under
 * load a line costs a copy and no system call; it is woken only out of its real sleep.  Whoever
 * logs never waits for a sink: when the ring is full the line is lost, and counted.  What must not
 * get lost in the noise of others lies beside the ring and knows its place in it. */
#include "base/log.h"

#include <assert.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <time.h>

#include "base/log_impl.h"
#include "base/text.h"

enum {
    RING_BYTES = 1 << 20,
    LEVEL_OFF = LOG_FATAL + 1,
    NAP_MS = 10,
    END_BYTES = 16, /* kept free for what log_end() adds */
    RARE_NOTES = 128,
};

static const char *const level_texts[] = {"debug", "info", "warn", "error", "fatal"};

/* No field of such a name is ever printed, in whatever spelling (B5).  Shortest first. */
static const struct str log_masked[] = {
#define M(name)                \
    {                          \
        name, sizeof(name) - 1 \
    }
    M("token"),
    M("cookie"),
    M("secret"),
    M("api_key"),
    M("password"),
    M("signature"),
    M("credential"),
    M("set-cookie"),
    M("access_token"),
    M("authorization"),
    M("proxy-authorization"),
    M("open-sandbox-api-key"),
    M("opensandbox-egress-auth"),
    M("opensandbox-secure-access"),
    M("x-fast-sandbox-route-credential"),
#undef M
};

/* A line beside the ring. */
struct audit {
    struct audit *next;
    uint64_t at; /* the ring's head when it came: all before that is older */
    size_t n;
    char text[];
};

struct rare_note {
    const char *msg;
    uint64_t last_ms, left_out;
};

/* The log is global because the process is: it has one standard output, and everything that logs,
 * from any thread, must end up in one order in one place.  This is all of its state. */
static struct {
    pthread_mutex_t lock;
    pthread_cond_t wake;
    pthread_t thread;
    bool running, stopping, sleeping, napping; /* under the lock */
    uint64_t head, tail;                       /* bytes ever written, read; under the lock */
    uint8_t *ring;
    struct audit *audits, **audits_end; /* in their order; under the lock */
    size_t audit_bytes;                 /* of those not yet written; under the lock */
    atomic_int level;
    _Atomic uint64_t lost;
    struct log_outputs outputs; /* the thread's, as what follows */
    uint64_t lost_told;
    char after_ts[256]; /* what stands between ts and the message */
    size_t after_ts_len;
    char attributes[LOG_ATTRIBUTES_BYTES]; /* what stands behind the message */
    _Atomic size_t attributes_len;         /* what lies behind it is not read by others yet */
    pthread_mutex_t rare_lock;
    struct rare_note rare[RARE_NOTES];
} the_log = {
    .lock = PTHREAD_MUTEX_INITIALIZER, .rare_lock = PTHREAD_MUTEX_INITIALIZER, .level = LEVEL_OFF};

/* ---- levels ---- */

bool log_level_parse(struct str s, enum log_level *ret)
{
    for (enum log_level level = LOG_DEBUG; level <= LOG_FATAL; level++) {
        bool alias = level == LOG_WARN && str_ieq(s, STR("warning"));
        if (!alias && !str_ieq(s, str_of(level_texts[level])))
            continue;
        *ret = level;
        return true;
    }
    return false;
}

void log_set_level(enum log_level level)
{
    atomic_store_explicit(&the_log.level, (int)level, memory_order_release);
}

bool log_on(enum log_level level)
{
    return (int)level >= atomic_load_explicit(&the_log.level, memory_order_acquire);
}

uint64_t log_lost(void)
{
    return atomic_load_explicit(&the_log.lost, memory_order_relaxed);
}

/* ---- making a line ---- */

static uint64_t clock_ms(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

/* The time of day as text, made once per thread and millisecond. */
static struct str stamp(void)
{
    static _Thread_local struct {
        uint64_t ms;
        char text[24];
    } cache;
    uint64_t ms = clock_ms(CLOCK_REALTIME);
    if (cache.ms != ms) {
        text_put_iso8601(cache.text, ms);
        cache.ms = ms;
    }
    return (struct str){cache.text, sizeof cache.text};
}

static size_t room(const struct log_line *l)
{
    return sizeof l->text - END_BYTES - l->n;
}

static bool put(struct log_line *l, struct str s)
{
    if (s.n > room(l))
        return false;
    memcpy(l->text + l->n, s.p, s.n);
    l->n += s.n;
    return true;
}

static bool put_escaped(struct log_line *l, struct str s)
{
    size_t space = room(l), n = text_put_json(l->text + l->n, space, s);
    l->n += n;
    /* with less room left than an escape has bytes it may have been cut */
    return s.n * 6 <= space || space - n >= 6;
}

/* ,"key": */
static bool put_key(struct log_line *l, struct str key)
{
    if (key.n + 4 > room(l))
        return false;
    char *at = l->text + l->n;
    memcpy(at, ",\"", 2);
    memcpy(at + 2, key.p, key.n);
    memcpy(at + 2 + key.n, "\":", 2);
    l->n += key.n + 4;
    return true;
}

/* A field is there whole or not at all. */
static void keep_if(struct log_line *l, size_t before, bool whole)
{
    if (whole)
        return;
    l->n = before;
    l->full = true;
}

static bool is_masked(struct str key)
{
    for (size_t i = 0; i < sizeof log_masked / sizeof *log_masked && log_masked[i].n <= key.n; i++)
        if (key.n == log_masked[i].n && str_ieq(key, log_masked[i]))
            return true;
    return false;
}

bool log_masks(struct str name)
{
    return is_masked(name);
}

static struct str attributes(void)
{
    return (struct str){the_log.attributes,
                        atomic_load_explicit(&the_log.attributes_len, memory_order_acquire)};
}

/* Has every line a field of this name, written as `escaped`? */
static bool is_everywhere(struct str name, struct str escaped)
{
    static const char *const first[] = {"level", "ts", "logger", "msg"};
    for (size_t i = 0; i < sizeof first / sizeof *first; i++)
        if (str_eq(name, str_of(first[i])))
            return true;
    /* in no value a quote stands without a backslash */
    struct str all = attributes();
    return all.n && memmem(all.p, all.n, escaped.p, escaped.n);
}

bool log_attribute(struct str name, struct str value)
{
    struct log_line l = {.n = 0};
    size_t used = attributes().n;
    bool whole = put(&l, STR(",\"")) && put_escaped(&l, name) && put(&l, STR("\":\""));
    if (!whole || is_everywhere(name, (struct str){l.text, l.n}))
        return false;
    whole = put_escaped(&l, is_masked(name) ? STR("***") : value) && put(&l, STR("\""));
    if (!whole || l.n > sizeof the_log.attributes - used)
        return false;
    memcpy(the_log.attributes + used, l.text, l.n);
    atomic_store_explicit(&the_log.attributes_len, used + l.n, memory_order_release);
    return true;
}

void log_begin(struct log_line *l, enum log_level level, const char *msg)
{
    l->level = level;
    l->full = false;
    l->n = 0;
    if (!log_on(level))
        return;
    put(l, STR("{\"level\":\""));
    put(l, str_of(level_texts[level]));
    put(l, STR("\",\"ts\":\""));
    put(l, stamp());
    put(l, (struct str){the_log.after_ts, the_log.after_ts_len});
    size_t before = l->n;
    keep_if(l, before, put_escaped(l, str_of(msg)));
    put(l, STR("\""));
    before = l->n;
    keep_if(l, before, put(l, attributes()));
}

/* A line that nobody wants stays empty. */
static bool wanted(const struct log_line *l)
{
    return l->n > 0;
}

static void put_value(struct log_line *l, const char *key, struct str value)
{
    size_t before = l->n;
    keep_if(l, before, put_key(l, str_of(key)) && put(l, value));
}

void log_str(struct log_line *l, const char *key, struct str value)
{
    if (!wanted(l))
        return;
    struct str k = str_of(key);
    if (is_masked(k))
        value = STR("***");
    size_t before = l->n;
    keep_if(l, before,
            put_key(l, k) && put(l, STR("\"")) && put_escaped(l, value) && put(l, STR("\"")));
}

void log_int(struct log_line *l, const char *key, int64_t value)
{
    char text[21] = "-";
    if (!wanted(l))
        return;
    bool minus = value < 0;
    size_t n = text_put_u64(text + minus, minus ? 0 - (uint64_t)value : (uint64_t)value);
    put_value(l, key, (struct str){text, n + minus});
}

void log_ms(struct log_line *l, const char *key, uint64_t us)
{
    char text[24];
    if (!wanted(l))
        return;
    size_t n = text_put_u64(text, us / 1000);
    unsigned fraction = (unsigned)(us % 1000);
    text[n++] = '.';
    text[n++] = (char)('0' + fraction / 100);
    text[n++] = (char)('0' + fraction / 10 % 10);
    text[n++] = (char)('0' + fraction % 10);
    put_value(l, key, (struct str){text, n});
}

void log_bool(struct log_line *l, const char *key, bool value)
{
    if (wanted(l))
        put_value(l, key, value ? STR("true") : STR("false"));
}

void log_json(struct log_line *l, const char *key, struct str json)
{
    if (wanted(l))
        put_value(l, key, json);
}

static void finish(struct log_line *l)
{
    struct str end = l->full ? STR(",\"cut\":true}\n") : STR("}\n");
    _Static_assert(sizeof(",\"cut\":true}\n") <= END_BYTES, "the end of a line must fit");
    memcpy(l->text + l->n, end.p, end.n);
    l->n += end.n;
}

/* ---- the ring ---- */

static void copy_in(uint64_t at, const char *p, size_t n)
{
    size_t start = at % RING_BYTES, part = RING_BYTES - start;
    if (part > n)
        part = n;
    memcpy(the_log.ring + start, p, part);
    memcpy(the_log.ring, p + part, n - part);
}

/* Puts a line in; says whether the thread must be woken.  Called under the lock. */
static bool push(const struct log_line *l)
{
    uint64_t used = the_log.head - the_log.tail;
    if (used + l->n > RING_BYTES) {
        atomic_fetch_add_explicit(&the_log.lost, 1, memory_order_relaxed);
        return false;
    }
    copy_in(the_log.head, l->text, l->n);
    the_log.head += l->n;
    bool wake = the_log.sleeping || (the_log.napping && used > RING_BYTES / 2);
    if (wake)
        the_log.sleeping = the_log.napping = false;
    return wake;
}

void log_end(struct log_line *l)
{
    if (!wanted(l))
        return;
    finish(l);
    pthread_mutex_lock(&the_log.lock);
    if (the_log.running && push(l))
        pthread_cond_signal(&the_log.wake);
    pthread_mutex_unlock(&the_log.lock);
}

/* ---- lines beside the ring ---- */

static struct audit *make_audit(const struct log_line *l, struct str members)
{
    size_t comma = members.n > 0;
    struct audit *a = mem_new(sizeof *a + l->n + comma + members.n + 2);
    memcpy(a->text, l->text, l->n);
    a->n = l->n;
    if (comma)
        a->text[a->n++] = ',';
    memcpy(a->text + a->n, members.p, members.n);
    a->n += members.n;
    memcpy(a->text + a->n, "}\n", 2);
    a->n += 2;
    return a;
}

/* False: too many of them wait.  Called under the lock. */
static bool push_audit(struct audit *a)
{
    if (a->n > LOG_AUDIT_BYTES - the_log.audit_bytes) {
        atomic_fetch_add_explicit(&the_log.lost, 1, memory_order_relaxed);
        return false;
    }
    a->at = the_log.head;
    *the_log.audits_end = a;
    the_log.audits_end = &a->next;
    the_log.audit_bytes += a->n;
    if (the_log.sleeping)
        pthread_cond_signal(&the_log.wake);
    the_log.sleeping = false;
    return true;
}

void log_audit(enum log_level level, const char *msg, struct str object)
{
    struct log_line l;
    assert(object.n >= 2 && object.p[0] == '{' && object.p[object.n - 1] == '}');
    log_begin(&l, level, msg);
    if (!wanted(&l))
        return;
    struct audit *a = make_audit(&l, (struct str){object.p + 1, object.n - 2});
    pthread_mutex_lock(&the_log.lock);
    bool kept = the_log.running && push_audit(a);
    pthread_mutex_unlock(&the_log.lock);
    if (!kept)
        mem_free(a);
}

/* ---- notes ---- */

static void note(enum log_level level, const char *msg, uint64_t repeated, va_list args)
{
    struct log_line l;
    log_begin(&l, level, msg);
    for (const char *key; (key = va_arg(args, const char *));)
        log_str(&l, key, str_of(va_arg(args, const char *)));
    if (repeated)
        log_int(&l, "repeated", (int64_t)repeated);
    log_end(&l);
}

void log_note(enum log_level level, const char *msg, ...)
{
    if (!log_on(level))
        return;
    va_list args;
    va_start(args, msg);
    note(level, msg, 0, args);
    va_end(args);
}

/* The entry of msg.  There are more of them than the program has such messages; should they run
 * out, two share one. */
static struct rare_note *rare_note_of(const char *msg)
{
    size_t home = (size_t)(((uintptr_t)msg * UINT64_C(0x9e3779b97f4a7c15)) >> 32) % RARE_NOTES;
    for (size_t i = 0; i < RARE_NOTES; i++) {
        struct rare_note *r = &the_log.rare[(home + i) % RARE_NOTES];
        if (r->msg == msg || !r->msg)
            return r;
    }
    return &the_log.rare[home];
}

/* May msg be logged now?  If so, *ret_left_out is how often it was not since the last time. */
static bool rare_enough(const char *msg, uint64_t now_ms, uint64_t *ret_left_out)
{
    pthread_mutex_lock(&the_log.rare_lock);
    struct rare_note *r = rare_note_of(msg);
    bool may = !r->msg || now_ms - r->last_ms >= 1000;
    if (may) {
        *ret_left_out = r->left_out;
        *r = (struct rare_note){.msg = msg, .last_ms = now_ms};
    } else {
        r->left_out++;
    }
    pthread_mutex_unlock(&the_log.rare_lock);
    return may;
}

void log_note_rarely(enum log_level level, const char *msg, ...)
{
    uint64_t left_out;
    if (!log_on(level) || !rare_enough(msg, clock_ms(CLOCK_MONOTONIC), &left_out))
        return;
    va_list args;
    va_start(args, msg);
    note(level, msg, left_out, args);
    va_end(args);
}

/* ---- the thread ---- */

static void write_all(struct str first, struct str second)
{
    uint64_t lost = log_outputs_write(&the_log.outputs, first, second);
    atomic_fetch_add_explicit(&the_log.lost, lost, memory_order_relaxed);
}

static void tell_lost(void)
{
    struct log_line l;
    uint64_t lost = log_lost(), more = lost - the_log.lost_told;
    if (more == 0)
        return;
    the_log.lost_told = lost;
    log_begin(&l, LOG_WARN, "log lines lost");
    if (!wanted(&l))
        return;
    log_int(&l, "lines", (int64_t)more);
    finish(&l);
    write_all((struct str){l.text, l.n}, STR_NONE);
}

/* Writes out what lies between two positions of the ring. */
static void write_part(uint64_t tail, uint64_t head)
{
    size_t start = tail % RING_BYTES, n = (size_t)(head - tail), part = RING_BYTES - start;
    if (part > n)
        part = n;
    const char *ring = (const char *)the_log.ring;
    write_all((struct str){ring + start, part}, (struct str){ring, n - part});
}

/* The ring between two positions, and each line beside it in its place; frees those. */
static void write_ring(uint64_t tail, uint64_t head, struct audit *audits)
{
    for (struct audit *a = audits, *next; a; a = next) {
        next = a->next;
        write_part(tail, a->at);
        write_all((struct str){a->text, a->n}, STR_NONE);
        tail = a->at;
        mem_free(a);
    }
    write_part(tail, head);
    tell_lost();
}

/* All that wait.  Called under the lock. */
static struct audit *take_audits(size_t *ret_bytes)
{
    struct audit *all = the_log.audits;
    the_log.audits = NULL;
    the_log.audits_end = &the_log.audits;
    *ret_bytes = 0;
    for (const struct audit *a = all; a; a = a->next)
        *ret_bytes += a->n;
    return all;
}

static bool nothing_waits(void)
{
    return the_log.head == the_log.tail && !the_log.audits;
}

/* Lets lines gather before the next batch.  Called under the lock. */
static void nap(void)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += NAP_MS * 1000000;
    if (until.tv_nsec >= 1000000000) {
        until.tv_nsec -= 1000000000;
        until.tv_sec++;
    }
    the_log.napping = true;
    while (the_log.napping && !the_log.stopping)
        if (pthread_cond_timedwait(&the_log.wake, &the_log.lock, &until) != 0)
            break;
    the_log.napping = false;
}

static void sleep_while_empty(void)
{
    while (nothing_waits() && !the_log.stopping) {
        the_log.sleeping = true;
        pthread_cond_wait(&the_log.wake, &the_log.lock);
    }
    the_log.sleeping = false;
}

static void *write_lines(void *unused)
{
    (void)unused;
    pthread_mutex_lock(&the_log.lock);
    for (;;) {
        sleep_while_empty();
        if (nothing_waits())
            break;
        uint64_t tail = the_log.tail, head = the_log.head;
        size_t audit_bytes;
        struct audit *audits = take_audits(&audit_bytes);
        pthread_mutex_unlock(&the_log.lock);
        write_ring(tail, head, audits);
        pthread_mutex_lock(&the_log.lock);
        the_log.audit_bytes -= audit_bytes;
        the_log.tail = head;
        if (nothing_waits())
            the_log.head = the_log.tail =
                0; /* the front of the ring stays warm, the rest untouched */
        nap();
    }
    pthread_mutex_unlock(&the_log.lock);
    return NULL;
}

/* ---- start and stop ---- */

static void set_logger(const char *logger)
{
    char name[128];
    size_t n = text_put_json(name, sizeof name, str_of(logger));
    int len = snprintf(the_log.after_ts, sizeof the_log.after_ts,
                       "\",\"logger\":\"%.*s\",\"msg\":\"", (int)n, name);
    assert(len > 0 && (size_t)len < sizeof the_log.after_ts);
    the_log.after_ts_len = (size_t)len;
}

/* Signals are for the threads that have a loop. */
static bool start_thread(void)
{
    sigset_t all, before;
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&the_log.wake, &attr);
    pthread_condattr_destroy(&attr);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int rc = pthread_create(&the_log.thread, NULL, write_lines, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return rc == 0;
}

bool log_start(const char *logger, struct str outputs, enum log_level level, char *error,
               size_t error_bytes)
{
    assert(!the_log.running);
    if (!log_outputs_open(&the_log.outputs, outputs, error, error_bytes))
        return false;
    set_logger(logger);
    the_log.ring = mem_new(RING_BYTES);
    the_log.head = the_log.tail = 0;
    the_log.audits = NULL;
    the_log.audits_end = &the_log.audits;
    the_log.audit_bytes = 0;
    the_log.stopping = the_log.sleeping = the_log.napping = false;
    the_log.lost_told = log_lost();
    the_log.running = true;
    if (!start_thread()) {
        snprintf(error, error_bytes, "cannot start the log thread");
        the_log.running = false;
        mem_free(the_log.ring);
        log_outputs_close(&the_log.outputs);
        return false;
    }
    log_set_level(level);
    return true;
}

void log_stop(void)
{
    pthread_mutex_lock(&the_log.lock);
    bool was_running = the_log.running;
    the_log.running = false;
    the_log.stopping = true;
    pthread_mutex_unlock(&the_log.lock);
    if (!was_running)
        return;
    log_outputs_hurry(&the_log.outputs);
    pthread_cond_signal(&the_log.wake);
    pthread_join(the_log.thread, NULL);
    atomic_store_explicit(&the_log.level, LEVEL_OFF, memory_order_release);
    pthread_cond_destroy(&the_log.wake);
    log_outputs_close(&the_log.outputs);
    mem_free(the_log.ring);
    the_log.ring = NULL;
    atomic_store(&the_log.attributes_len, 0);
}
