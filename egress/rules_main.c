/* rules_main.c — sallyport-egress-rules: puts rules into the kernel, and is gone again.
 *
 * It runs at start, at the end, and when a setting changes the rules' shape; in between the sidecar
 * itself speaks to the kernel.  What `close` leaves behind lets nobody out, us included: there is
 * no own mark, and the marks of the wire are thrown away with the process. */
#include <errno.h>
#include <stdio.h>
#include <sys/random.h>
#include <unistd.h>

#include "egress/kernel/devices.h"
#include "egress/kernel/nft.h"
#include "egress/kernel/ruleset.h"
#include "egress/kernel/rules_run.h"

enum { TEXT_MAX = 4 << 20, GOOD = 0, REFUSED = 1, USAGE = 2 };

static int fail(int status, const char *what, struct str why)
{
    fprintf(stderr, "sallyport-egress-rules: %s: %.*s\n", what, STR_ARG(why));
    return status;
}

static int run(const char *verb, struct str text, struct arena *a)
{
    struct str error;
    return nft_apply(text, a, &error) ? GOOD : fail(REFUSED, verb, error);
}

static int apply(struct arena *a)
{
    struct str text = {arena_get(a, TEXT_MAX), 0};
    ssize_t n;
    while ((n = read(STDIN_FILENO, (char *)text.p + text.n, TEXT_MAX - text.n)) != 0) {
        if (n < 0 && errno != EINTR)
            return fail(USAGE, "apply", str_of(strerror(errno)));
        text.n += n > 0 ? (size_t)n : 0;
        if (text.n == TEXT_MAX)
            return fail(USAGE, "apply", STR("the text has over 4 MiB"));
    }
    if (text.n == 0)
        return fail(USAGE, "apply", STR("no text on standard input"));
    return run("apply", text, a);
}

static int close_all(struct arena *a)
{
    struct str text, error;
    struct ruleset r = {.shape = RULESET_CLOSED};
    uint32_t marks[3];
    if (getrandom(marks, sizeof marks, 0) != sizeof marks)
        return fail(REFUSED, "close", str_of(strerror(errno)));
    r.pass_mark = marks[0] | 1;
    r.group_mark = marks[1] & ~1u ? marks[1] & ~1u : 2;
    r.pass_priority = marks[2];
    if (!devices_read(a, &r.devices, &r.ndevices))
        return fail(REFUSED, "close", STR("the devices cannot be listed"));
    if (!ruleset_text(&r, a, &text, &error))
        return fail(REFUSED, "close", error);
    if (nft_apply(ruleset_first(text, a), a, &error) || run("close", text, a) == GOOD)
        return GOOD;
    r.lacks = RULESET_NO_WIRE | RULESET_NO_COUNTER | RULESET_NO_LOG;
    return ruleset_text(&r, a, &text, &error) ? run("close", text, a) : REFUSED;
}

static int remove_all(struct arena *a)
{
    struct str error;
    if (nft_apply(ruleset_removal(true), a, &error))
        return GOOD;
    return run("remove", ruleset_removal(false), a);
}

/* Whoever waits for the rules need not wait for the end of this process as well. */
static void tell_done(void)
{
    static const char done[] = RULES_DONE;
    if (write(STDOUT_FILENO, done, sizeof done - 1) < 0)
        return;
    _exit(GOOD);
}

int main(int argc, char **argv)
{
    struct arena a;
    struct str verb = argc == 2 ? str_of(argv[1]) : STR_NONE;
    int status = USAGE;
    arena_init(&a, NULL, 0);
    if (str_eq(verb, STR("apply")))
        status = apply(&a);
    else if (str_eq(verb, STR("close")))
        status = close_all(&a);
    else if (str_eq(verb, STR("remove")))
        status = remove_all(&a);
    else
        fputs("usage: sallyport-egress-rules apply < TEXT | close | remove\n", stderr);
    if (status == GOOD)
        tell_done();
    arena_done(&a);
    return status;
}
