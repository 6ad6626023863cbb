/* log_test.c — the form of lines, what is masked, what is lost, and how files turn over. */
#include <setjmp.h>
#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/json.h"
#include "base/log.h"
#include "base/text.h"

/* Each test has a folder of its own. */
static char folder[64], path[96];
static char error[256];

static int setup(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/log_test.XXXXXX");
    if (!mkdtemp(folder))
        return -1;
    snprintf(path, sizeof path, "%s/out.log", folder);
    return 0;
}

/* Calls each for the names in the folder, and counts them. */
static size_t each_file(void (*each)(const char *path))
{
    size_t n = 0;
    DIR *dir = opendir(folder);
    for (struct dirent *e; (e = readdir(dir));) {
        char file[400];
        if (e->d_name[0] == '.')
            continue;
        snprintf(file, sizeof file, "%s/%s", folder, e->d_name);
        n++;
        if (each)
            each(file);
    }
    closedir(dir);
    return n;
}

static void delete_file(const char *file)
{
    unlink(file);
}

static int teardown(void **state)
{
    (void)state;
    log_stop();
    each_file(delete_file);
    return rmdir(folder);
}

static void start(enum log_level level)
{
    if (!log_start("opensandbox.ingress", str_of(path), level, error, sizeof error))
        fail_msg("%s", error);
}

/* The text of the file; the caller frees it. */
static char *read_file(const char *file, size_t *ret_n)
{
    int fd = open(file, O_RDONLY);
    struct stat st;
    if (fd < 0 || fstat(fd, &st) != 0)
        fail_msg("no file %s", file);
    char *text = mem_new((size_t)st.st_size + 1);
    assert_int_equal(read(fd, text, (size_t)st.st_size), st.st_size);
    close(fd);
    *ret_n = (size_t)st.st_size;
    return text;
}

/* Stops the log and gives its text. */
static char *stop_and_read(void)
{
    size_t n;
    log_stop();
    return read_file(path, &n);
}

static size_t count_lines(const char *text)
{
    size_t n = 0;
    for (; *text; text++)
        n += *text == '\n';
    return n;
}

/* The text of a line behind its timestamp, whose form is checked. */
static char *behind_ts(char *line, const char *level)
{
    char begin[64];
    int64_t unix_s;
    uint32_t ns;
    size_t n = (size_t)snprintf(begin, sizeof begin, "{\"level\":\"%s\",\"ts\":\"", level);
    assert_memory_equal(line, begin, n);
    assert_true(text_rfc3339((struct str){line + n, 24}, &unix_s, &ns));
    assert_in_range(unix_s, time(NULL) - 10, time(NULL) + 1);
    return line + n + 24;
}

static void levels_are_read_in_any_case(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        enum log_level level;
    } rows[] = {{"debug", LOG_DEBUG},  {"INFO", LOG_INFO},   {"Warn", LOG_WARN},
                {"WARNING", LOG_WARN}, {"error", LOG_ERROR}, {"fatal", LOG_FATAL}};
    enum log_level level = LOG_FATAL;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_true(log_level_parse(str_of(rows[i].text), &level));
        assert_int_equal(level, rows[i].level);
    }
    assert_false(log_level_parse(STR("trace"), &level));
    assert_false(log_level_parse(STR(""), &level));
    assert_false(log_level_parse(STR("info "), &level));
    assert_false(log_level_parse(STR("warnings"), &level));
}

static void a_line_is_json_with_its_keys_in_order(void **state)
{
    (void)state;
    struct log_line l;
    start(LOG_INFO);
    log_begin(&l, LOG_INFO, "ingress \"requested\"");
    log_str(&l, "target", STR("sb\n\x1b[31m\xff"));
    log_int(&l, "status", 200);
    log_int(&l, "min", INT64_MIN);
    log_ms(&l, "total", 1234567);
    log_ms(&l, "dial", 5);
    log_bool(&l, "reused", true);
    log_bool(&l, "again", false);
    log_str(&l, "empty", STR_NONE);
    log_end(&l);
    char *text = stop_and_read();
    assert_string_equal(
        behind_ts(text, "info"),
        "\",\"logger\":\"opensandbox.ingress\",\"msg\":\"ingress \\\"requested\\\"\","
        "\"target\":\"sb\\n\\u001b[31m\\ufffd\",\"status\":200,\"min\":-9223372036854775808,"
        "\"total\":1234.567,\"dial\":0.005,\"reused\":true,\"again\":false,\"empty\":\"\"}\n");
    mem_free(text);
}

static void every_level_has_its_word(void **state)
{
    (void)state;
    static const char *const words[] = {"debug", "info", "warn", "error", "fatal"};
    start(LOG_DEBUG);
    for (enum log_level level = LOG_DEBUG; level <= LOG_FATAL; level++)
        log_note(level, "m", NULL);
    char *text = stop_and_read(), *line = text;
    for (size_t i = 0; i < 5; i++) {
        behind_ts(line, words[i]);
        line = strchr(line, '\n') + 1;
    }
    assert_string_equal(line, "");
    mem_free(text);
}

static void lines_below_the_level_are_not_made(void **state)
{
    (void)state;
    struct log_line l;
    assert_false(log_on(LOG_FATAL)); /* not started */
    log_note(LOG_FATAL, "before", NULL);
    start(LOG_WARN);
    assert_false(log_on(LOG_INFO));
    assert_true(log_on(LOG_WARN));
    log_note(LOG_INFO, "too low", NULL);
    log_begin(&l, LOG_INFO, "too low");
    log_str(&l, "k", STR("v"));
    log_int(&l, "k", 1);
    log_ms(&l, "k", 1);
    log_bool(&l, "k", true);
    log_end(&l);
    log_set_level(LOG_DEBUG);
    log_note(LOG_DEBUG, "now", NULL);
    char *text = stop_and_read();
    assert_false(log_on(LOG_FATAL));
    log_note(LOG_FATAL, "after", NULL);
    assert_int_equal(count_lines(text), 1);
    assert_non_null(strstr(text, "\"msg\":\"now\""));
    mem_free(text);
}

static void fields_that_may_be_secret_are_masked(void **state)
{
    (void)state;
    start(LOG_INFO);
    log_note(LOG_INFO, "m", "Authorization", "canary", "cookie", "canary", "set-cookie", "canary",
             "signature", "canary", "OpenSandbox-Secure-Access", "canary", "token", "canary",
             "tokens", "3", NULL);
    char *text = stop_and_read();
    assert_null(strstr(text, "canary"));
    assert_non_null(strstr(text, "\"Authorization\":\"***\",\"cookie\":\"***\""));
    assert_non_null(strstr(text, "\"tokens\":\"3\""));
    mem_free(text);
}

static void a_field_that_does_not_fit_is_left_out_whole(void **state)
{
    (void)state;
    char bytes[LOG_LINE_BYTES];
    memset(bytes, '\x01', sizeof bytes);
    start(LOG_INFO);
    size_t lines = 0;
    for (size_t n = 0; n < sizeof bytes; n += 13) {
        struct log_line l;
        log_begin(&l, LOG_INFO, "m");
        log_str(&l, "first", str_head(STR("plain"), n % 6)); /* ends anywhere */
        log_str(&l, "long", (struct str){bytes, n});
        log_int(&l, "number", 12345678901234567);
        log_bool(&l, "last", true);
        log_end(&l);
        lines++;
    }
    char *text = stop_and_read(), *line = text;
    size_t cut = 0, seen = 0;
    for (char *end; (end = strchr(line, '\n')); line = end + 1) {
        struct json_fault fault;
        assert_true(end + 1 - line <= LOG_LINE_BYTES);
        struct json_doc *d = json_parse((struct str){line, (size_t)(end - line)}, 0, 4, &fault);
        assert_non_null(d);
        bool has_cut = json_member(json_root(d), STR("cut")) != NULL;
        cut += has_cut;
        /* level, ts, logger, msg and four fields, or fewer and "cut" */
        assert_true(json_count(json_root(d)) - has_cut < 8 ? has_cut : !has_cut);
        const struct json *value = json_member(json_root(d), STR("long"));
        if (value)
            assert_int_equal(json_string(value).n, seen * 13);
        json_free(d);
        seen++;
    }
    assert_int_equal(seen, lines);
    assert_true(cut > 100);
    mem_free(text);
}

static void attributes_stand_in_every_line_behind_the_message(void **state)
{
    (void)state;
    struct log_line l;
    start(LOG_INFO);
    log_note(LOG_INFO, "before", NULL);
    assert_true(log_attribute(STR("sandbox_id"), STR("sb\"1\n")));
    assert_true(log_attribute(STR("te\"am"), STR("x,")));
    assert_true(log_attribute(STR("token"), STR("canary")));
    log_note(LOG_WARN, "m", "k", "v", NULL);
    log_begin(&l, LOG_INFO, "j");
    log_json(&l, "list", STR("[1,2]"));
    log_end(&l);
    log_audit(LOG_INFO, "a", STR("{\"x\":1}"));
    log_audit(LOG_INFO, "b", STR("{}"));
    char *text = stop_and_read(), *line = strchr(text, '\n') + 1;
    assert_null(strstr(text, "canary"));
    assert_non_null(strstr(text, "\"msg\":\"before\"}\n"));
#define ATTRIBUTES ",\"sandbox_id\":\"sb\\\"1\\n\",\"te\\\"am\":\"x,\",\"token\":\"***\""
    static const char *const rows[][2] = {
        {"warn", "\"msg\":\"m\"" ATTRIBUTES ",\"k\":\"v\"}\n"},
        {"info", "\"msg\":\"j\"" ATTRIBUTES ",\"list\":[1,2]}\n"},
        {"info", "\"msg\":\"a\"" ATTRIBUTES ",\"x\":1}\n"},
        {"info", "\"msg\":\"b\"" ATTRIBUTES "}\n"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char *rest = strstr(behind_ts(line, rows[i][0]), "\"msg\"");
        assert_memory_equal(rest, rows[i][1], strlen(rows[i][1]));
        line = strchr(line, '\n') + 1;
    }
    assert_string_equal(line, "");
    mem_free(text);
    start(LOG_INFO); /* those of the last run are gone */
    assert_true(log_attribute(STR("sandbox_id"), STR("2")));
}

static void attributes_are_bounded_and_each_there_once(void **state)
{
    (void)state;
    static const char *const taken[] = {"level", "ts", "logger", "msg", "a"};
    char bytes[LOG_ATTRIBUTES_BYTES];
    memset(bytes, '\x01', sizeof bytes); /* six bytes each */
    start(LOG_INFO);
    assert_true(log_attribute(STR("a"), STR("1")));
    for (size_t i = 0; i < sizeof taken / sizeof *taken; i++)
        assert_false(log_attribute(str_of(taken[i]), STR("2")));
    assert_false(log_attribute(STR("b"), (struct str){bytes, LOG_ATTRIBUTES_BYTES / 6}));
    assert_true(log_attribute(STR("b"), (struct str){bytes, 160}));
    assert_false(log_attribute(STR("c"), (struct str){bytes, 160}));
    assert_true(log_attribute(STR("c"), STR("3")));
    log_note(LOG_INFO, "m", "k", "v", NULL);
    char *text = stop_and_read();
    assert_non_null(strstr(text, "\"msg\":\"m\",\"a\":\"1\",\"b\":\"\\u0001"));
    assert_non_null(strstr(text, "\\u0001\",\"c\":\"3\",\"k\":\"v\"}\n"));
    mem_free(text);
}

/* An object with one member of n bytes. */
static struct str big_object(char *to, size_t n)
{
    static const char begin[] = "{\"x\":\"";
    memcpy(to, begin, sizeof begin - 1);
    memset(to + sizeof begin - 1, 'y', n);
    memcpy(to + sizeof begin - 1 + n, "\"}", 2);
    return (struct str){to, sizeof begin - 1 + n + 2};
}

static void an_audit_line_of_any_length_stands_in_its_place(void **state)
{
    (void)state;
    enum { BIG = 2 << 20 };
    char *object = mem_new(BIG + 16);
    struct str big = big_object(object, BIG);
    uint64_t lost = log_lost();
    start(LOG_INFO);
    log_note(LOG_INFO, "first", NULL);
    log_audit(LOG_INFO, "second", big);
    log_note(LOG_INFO, "third", NULL);
    log_audit(LOG_INFO, "fourth", STR("{}"));
    log_audit(LOG_DEBUG, "too low", STR("{}"));
    log_note(LOG_INFO, "fifth", NULL);
    char *text = stop_and_read(), *line = text;
    static const char *const order[] = {"first", "second", "third", "fourth", "fifth"};
    for (size_t i = 0; i < sizeof order / sizeof *order; i++) {
        struct json_fault fault;
        char *end = strchr(line, '\n');
        assert_non_null(end);
        struct json_doc *d = json_parse((struct str){line, (size_t)(end - line)}, 0, 4, &fault);
        assert_non_null(d);
        struct str msg = json_string(json_member(json_root(d), STR("msg")));
        assert_true(str_eq(msg, str_of(order[i])));
        json_free(d);
        line = end + 1;
    }
    assert_string_equal(line, "");
    assert_true(log_lost() == lost);
    mem_free(text);
    mem_free(object);
}

static void a_rare_note_comes_once_a_second(void **state)
{
    (void)state;
    static const char noise[] = "noise";
    start(LOG_INFO);
    for (int i = 0; i < 100; i++)
        log_note_rarely(LOG_WARN, noise, "why", "limit", NULL);
    log_note_rarely(LOG_WARN, "other", NULL);
    log_note_rarely(LOG_DEBUG, "too low", NULL);
    struct timespec pause = {1, 50000000};
    nanosleep(&pause, NULL);
    log_note_rarely(LOG_WARN, noise, "why", "limit", NULL);
    log_note_rarely(LOG_WARN, noise, "why", "limit", NULL);
    char *text = stop_and_read();
    assert_int_equal(count_lines(text), 3);
    char *second = strchr(text, '\n') + 1, *third = strchr(second, '\n') + 1;
    assert_non_null(strstr(text, "\"msg\":\"noise\",\"why\":\"limit\"}\n"));
    assert_non_null(strstr(second, "\"msg\":\"other\"}\n"));
    assert_non_null(strstr(third, "\"msg\":\"noise\",\"why\":\"limit\",\"repeated\":99}\n"));
    mem_free(text);
}

static void more_rare_notes_than_room_share_it(void **state)
{
    (void)state;
    static const char texts[1000] = {0};
    start(LOG_INFO);
    for (size_t i = 0; i < sizeof texts; i++)
        log_note_rarely(LOG_WARN, &texts[i], NULL);
    char *text = stop_and_read();
    assert_in_range(count_lines(text), 100, 128);
    mem_free(text);
}

enum { THREADS = 4, LINES = 2000 };

static void *log_many(void *name)
{
    for (int i = 0; i < LINES; i++) {
        struct log_line l;
        log_begin(&l, LOG_INFO, "m");
        log_str(&l, "thread", str_of(name));
        log_int(&l, "i", i);
        log_end(&l);
        if (i % 100 == 0) {
            struct timespec pause = {0, 1000000};
            nanosleep(&pause, NULL);
        }
    }
    return NULL;
}

static void threads_lose_and_mix_nothing(void **state)
{
    (void)state;
    static char names[THREADS][2] = {"a", "b", "c", "d"};
    pthread_t threads[THREADS];
    uint64_t lost = log_lost();
    start(LOG_INFO);
    for (size_t i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, log_many, names[i]), 0);
    for (size_t i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    char *text = stop_and_read(), *line = text;
    int next[THREADS] = {0};
    for (char *end; (end = strchr(line, '\n')); line = end + 1) {
        char name;
        int i;
        assert_int_equal(
            sscanf(strstr(line, "\"thread\""), "\"thread\":\"%c\",\"i\":%d}", &name, &i), 2);
        assert_in_range(name, 'a', 'd');
        assert_int_equal(i, next[name - 'a']++); /* those of one thread are in order */
    }
    assert_true(log_lost() == lost);
    for (size_t i = 0; i < THREADS; i++)
        assert_int_equal(next[i], LINES);
    mem_free(text);
}

static void a_line_is_written_without_waiting_for_more(void **state)
{
    (void)state;
    start(LOG_INFO);
    log_note(LOG_INFO, "soon", NULL);
    struct timespec pause = {0, 10000000};
    struct stat st = {0};
    for (int i = 0; i < 200 && st.st_size == 0; i++) {
        nanosleep(&pause, NULL);
        assert_int_equal(stat(path, &st), 0);
    }
    assert_true(st.st_size > 0);
}

/* Logs far more than the ring and a pipe hold. */
static void log_five_mb(void)
{
    char filler[1000];
    memset(filler, 'f', sizeof filler);
    for (int i = 0; i < 5000; i++) {
        struct log_line l;
        log_begin(&l, LOG_INFO, "m");
        log_str(&l, "filler", (struct str){filler, sizeof filler});
        log_end(&l);
    }
}

static int open_fifo(void)
{
    assert_int_equal(mkfifo(path, 0600), 0);
    int reader = open(path, O_RDONLY | O_NONBLOCK);
    assert_true(reader >= 0);
    return reader;
}

static void a_sink_that_does_not_read_loses_lines_and_blocks_nobody(void **state)
{
    (void)state;
    int reader = open_fifo();
    uint64_t before = log_lost();
    start(LOG_INFO);
    time_t from = time(NULL);
    log_five_mb();
    uint64_t ring_full = log_lost() - before;
    assert_true(ring_full > 1000);
    log_stop(); /* comes back although nobody reads */
    assert_true(time(NULL) - from < 20);
    assert_true(log_lost() - before > ring_full); /* what was queued is lost too */
    close(reader);
}

static void lines_that_were_lost_are_told_of(void **state)
{
    (void)state;
    static char text[70000];
    int reader = open_fifo();
    bool told = false;
    start(LOG_INFO);
    log_five_mb();
    for (int idle = 0; idle < 300 && !told;) {
        ssize_t n = read(reader, text, sizeof text - 1);
        if (n > 0) {
            text[n] = '\0';
            told = strstr(text, "\"msg\":\"log lines lost\",\"lines\":") != NULL;
            continue;
        }
        struct timespec pause = {0, 10000000};
        nanosleep(&pause, NULL);
        idle++;
    }
    assert_true(told);
    log_stop();
    close(reader);
}

/* Reads until nothing has come for three seconds; how often `text` was in it. */
static unsigned drain_and_count(int reader, const char *text)
{
    static char bytes[70000];
    unsigned found = 0;
    size_t kept = 0, n = strlen(text);
    for (int idle = 0; idle < 300;) {
        ssize_t got = read(reader, bytes + kept, sizeof bytes - kept);
        if (got <= 0) {
            struct timespec pause = {0, 10000000};
            nanosleep(&pause, NULL);
            idle++;
            continue;
        }
        idle = 0;
        size_t have = kept + (size_t)got;
        const char *at = bytes, *end = bytes + have;
        for (const char *hit; (hit = memmem(at, (size_t)(end - at), text, n)); at = hit + n)
            found++;
        kept = (size_t)(end - at) < n - 1 ? (size_t)(end - at) : n - 1;
        memmove(bytes, end - kept, kept);
    }
    return found;
}

static void no_flood_displaces_an_audit_line(void **state)
{
    (void)state;
    enum { AUDITS = 50 };
    int reader = open_fifo();
    uint64_t before = log_lost();
    start(LOG_INFO);
    log_five_mb();
    assert_true(log_lost() - before > 1000);
    for (int i = 0; i < AUDITS; i++)
        log_audit(LOG_INFO, "kept", STR("{\"event\":\"audit\"}"));
    log_five_mb();
    assert_int_equal(drain_and_count(reader, "\"event\":\"audit\""), AUDITS);
    log_stop();
    close(reader);
}

static void audit_lines_that_nobody_takes_are_bounded_and_counted(void **state)
{
    (void)state;
    enum { BIG = 1 << 20 };
    char *object = mem_new(BIG + 16);
    struct str big = big_object(object, BIG);
    int reader = open_fifo();
    uint64_t before = log_lost();
    start(LOG_INFO);
    for (int i = 0; i < (LOG_AUDIT_BYTES >> 20) + 4; i++)
        log_audit(LOG_INFO, "big", big);
    assert_in_range(log_lost() - before, 4, 5);
    log_stop();
    close(reader);
    mem_free(object);
}

static void a_reader_that_went_away_ends_nobody(void **state)
{
    (void)state;
    int reader = open_fifo();
    uint64_t before = log_lost();
    start(LOG_INFO);
    close(reader);
    log_note(LOG_INFO, "into nothing", NULL);
    log_stop();
    assert_in_range(log_lost() - before, 1, 2); /* the line, and the one that tells of it */
}

static void outputs_that_cannot_be_opened_stop_the_start(void **state)
{
    (void)state;
    char outputs[256];
    snprintf(outputs, sizeof outputs, "%s, /nowhere/at/all.log", path);
    assert_false(log_start("x", str_of(outputs), LOG_INFO, error, sizeof error));
    assert_string_equal(error,
                        "cannot open log output /nowhere/at/all.log: No such file or directory");
    assert_false(log_start("x", str_of(folder), LOG_INFO, error, sizeof error));
    assert_false(log_start("x",
                           STR("stdout,stdout,stdout,stdout,stdout,stdout,stdout,stdout,stdout"),
                           LOG_INFO, error, sizeof error));
    assert_string_equal(error, "more than 8 log outputs");
    log_stop();      /* harmless */
    start(LOG_INFO); /* and nothing is left of the attempts */
}

/* Runs one note with fd 1 and 2 sent to files, and gives back what they got. */
static void note_to_standard_outputs(const char *outputs, size_t *ret_out, size_t *ret_err)
{
    char files[2][128];
    int saved[2];
    for (int i = 0; i < 2; i++) {
        snprintf(files[i], sizeof files[i], "%s/std%d", folder, i);
        int fd = open(files[i], O_WRONLY | O_CREAT | O_TRUNC, 0600);
        saved[i] = dup(i + 1);
        dup2(fd, i + 1);
        close(fd);
    }
    bool ok = log_start("x", str_of(outputs), LOG_INFO, error, sizeof error);
    log_note(LOG_INFO, "m", NULL);
    log_stop();
    for (int i = 0; i < 2; i++) {
        dup2(saved[i], i + 1);
        close(saved[i]);
    }
    assert_true(ok);
    mem_free(read_file(files[0], ret_out));
    mem_free(read_file(files[1], ret_err));
}

static void blank_means_stdout_and_several_get_the_same(void **state)
{
    (void)state;
    size_t out, err, file;
    note_to_standard_outputs("", &out, &err);
    assert_true(out > 0 && err == 0);
    note_to_standard_outputs("  ", &out, &err);
    assert_true(out > 0 && err == 0);
    char outputs[256];
    snprintf(outputs, sizeof outputs, "stderr,, %s ", path);
    note_to_standard_outputs(outputs, &out, &err);
    mem_free(read_file(path, &file));
    assert_true(out == 0 && err > 0);
    assert_int_equal(err, file);
}

/* An empty file in the folder whose name says it was made that many days ago. */
static void make_backup(const char *stem, unsigned days, unsigned ms)
{
    char when[24], file[256];
    text_put_iso8601(when, ((uint64_t)time(NULL) - days * UINT64_C(86400)) * 1000 + ms);
    when[13] = when[16] = '-';
    snprintf(file, sizeof file, "%s/%s-%.23s.log", folder, stem, when);
    close(open(file, O_WRONLY | O_CREAT, 0600));
}

static void a_file_of_100_mb_turns_over(void **state)
{
    (void)state;
    int fd = open(path, O_WRONLY | O_CREAT, 0600);
    assert_int_equal(ftruncate(fd, (100 << 20) - 10), 0); /* a hole: takes no space */
    close(fd);
    for (unsigned i = 0; i < 15; i++)
        make_backup("out", 1, i);
    make_backup("other", 40, 0);
    start(LOG_INFO);
    assert_int_equal(each_file(NULL), 10 + 2); /* those too many are gone at the start */
    log_note(LOG_INFO, "first in the new file", NULL);
    char *text = stop_and_read();
    assert_int_equal(count_lines(text), 1);
    mem_free(text);
    assert_int_equal(each_file(NULL), 10 + 2);
    struct stat st;
    char newest[256] = "";
    DIR *dir = opendir(folder);
    for (struct dirent *e; (e = readdir(dir));)
        if (strncmp(e->d_name, "out-", 4) == 0 && strcmp(e->d_name, newest) > 0)
            snprintf(newest, sizeof newest, "%s", e->d_name);
    closedir(dir);
    char file[400];
    snprintf(file, sizeof file, "%s/%s", folder, newest);
    assert_int_equal(stat(file, &st), 0);
    assert_int_equal(st.st_size, (100 << 20) - 10);
}

static void backups_older_than_30_days_go(void **state)
{
    (void)state;
    make_backup("out", 31, 0);
    make_backup("out", 29, 0);
    make_backup("out", 400, 0);
    char stranger[128];
    snprintf(stranger, sizeof stranger, "%s/out-2020-13-01T00-00-00.000.log", folder);
    close(open(stranger, O_WRONLY | O_CREAT, 0600));
    start(LOG_INFO);
    log_stop();
    assert_int_equal(each_file(NULL), 3); /* the file, one backup, and what has no such name */
    assert_int_equal(access(stranger, F_OK), 0);
}

static void a_link_is_written_through_but_never_renamed(void **state)
{
    (void)state;
    char target[128];
    snprintf(target, sizeof target, "%s/target", folder);
    int fd = open(target, O_WRONLY | O_CREAT, 0600);
    assert_int_equal(ftruncate(fd, 100 << 20), 0);
    close(fd);
    assert_int_equal(symlink(target, path), 0);
    start(LOG_INFO);
    log_note(LOG_INFO, "m", NULL);
    log_stop();
    assert_int_equal(each_file(NULL), 2);
    struct stat st;
    assert_int_equal(stat(target, &st), 0);
    assert_true(st.st_size > 100 << 20);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(levels_are_read_in_any_case),
        T(a_line_is_json_with_its_keys_in_order),
        T(every_level_has_its_word),
        T(lines_below_the_level_are_not_made),
        T(fields_that_may_be_secret_are_masked),
        T(a_field_that_does_not_fit_is_left_out_whole),
        T(attributes_stand_in_every_line_behind_the_message),
        T(attributes_are_bounded_and_each_there_once),
        T(an_audit_line_of_any_length_stands_in_its_place),
        T(a_rare_note_comes_once_a_second),
        T(more_rare_notes_than_room_share_it),
        T(threads_lose_and_mix_nothing),
        T(a_line_is_written_without_waiting_for_more),
        T(a_sink_that_does_not_read_loses_lines_and_blocks_nobody),
        T(lines_that_were_lost_are_told_of),
        T(no_flood_displaces_an_audit_line),
        T(audit_lines_that_nobody_takes_are_bounded_and_counted),
        T(a_reader_that_went_away_ends_nobody),
        T(outputs_that_cannot_be_opened_stop_the_start),
        T(blank_means_stdout_and_several_get_the_same),
        T(a_file_of_100_mb_turns_over),
        T(backups_older_than_30_days_go),
        T(a_link_is_written_through_but_never_renamed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
