/* sources_fuzz.c — an argument list made of bytes: words end at a zero byte.  Whatever it says, the
 * answer is settings or one line, and no secret is left in the list. */
#include <assert.h>
#include <math.h>
#include <stdint.h>

#include "conf/sources.h"

struct toy {
    struct str name, key;
    int64_t port, wait, room;
    double ratio;
    bool on;
    int pick;
};

static const char *const picks[] = {"red", "green", NULL};

#define AT(field) offsetof(struct toy, field)
static const struct setting rows[] = {
    {"name", NULL, SET_TEXT, AT(name), "x", 0, 0, NULL, SETTING_TRIM, "All", "text", 0},
    {"key", NULL, SET_TEXT, AT(key), "", 0, 0, NULL, SETTING_SECRET, "All", "secret", 0},
    {"port", NULL, SET_INT, AT(port), "80", 0, 65535, NULL, 0, "All", "number", 0},
    {"wait", NULL, SET_DURATION, AT(wait), "5s", -INFINITY, INFINITY, NULL, 0, "All", "time", 0},
    {"room", NULL, SET_BYTES, AT(room), "1KiB", 0, INFINITY, NULL, 0, "All", "space", 0},
    {"ratio", NULL, SET_DOUBLE, AT(ratio), "0.5", 0, INFINITY, NULL, SETTING_EXCLUSIVE, "All",
     "part", 0},
    {"on", NULL, SET_BOOL, AT(on), "true", 0, 0, NULL, 0, "All", "switch", 0},
    {"pick", NULL, SET_CHOICE, AT(pick), "red", 0, 0, picks, SETTING_ANY_CASE, "All", "choice", 0},
};
static const struct schema toys = {
    "toy", "toy", rows, sizeof rows / sizeof rows[0], sizeof(struct toy), false};

enum { WORDS = 16, BYTES = 1024 };

static const char *no_variables(const char *name)
{
    (void)name;
    return NULL;
}

static void is_one_line(struct str s)
{
    assert(s.n > 0);
    for (size_t i = 0; i < s.n; i++)
        assert((unsigned char)s.p[i] >= ' ');
}

/* What is shown reads back as the same value. */
static void shown_reads_back(struct toy *t, struct arena *a)
{
    for (size_t i = 0; i < toys.nrows; i++) {
        struct str shown = schema_show(&rows[i], t, true, a), again, error;
        assert(schema_set(&rows[i], t, shown, a, &error));
        again = schema_show(&rows[i], t, true, a);
        assert(str_eq(shown, again));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char bytes[BYTES + 1] = "", *argv[WORDS];
    int argc = 0;
    memcpy(bytes, data, size < BYTES ? size : BYTES);
    for (size_t at = 0; at < size && at < BYTES && argc < WORDS; at += strlen(bytes + at) + 1)
        argv[argc++] = bytes + at;

    struct arena a;
    arena_init(&a, NULL, 0);
    struct conf_input in = {argc, argv, no_variables, false};
    struct toy t = {0}, wiped = {0};
    enum conf_action action;
    struct str error = STR_NONE;
    bool good = conf_load(&toys, &in, &a, &t, &action, &error);
    if (!good)
        is_one_line(error);
    else if (action != CONF_HELP && action != CONF_VERSION)
        shown_reads_back(&t, &a);
    conf_wipe_arguments(&toys, argc, argv);
    if (good) {
        assert(conf_load(&toys, &in, &a, &wiped, &action, &error));
        assert(wiped.key.n == t.key.n);
        for (size_t i = 0; i < wiped.key.n; i++)
            assert(wiped.key.p[i] == '*');
    }
    arena_done(&a);
    return 0;
}
