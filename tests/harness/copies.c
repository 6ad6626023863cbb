/* copies.c — reads the process as another one would, so that a sanitizer's poison is no hindrance.
 * What it reads into is memory of secrets too, or it would find itself. */
#include "harness/copies.h"

#include <assert.h>
#include <stdio.h>
#include <sys/types.h>
#include <unistd.h>
#include <fcntl.h>

enum { PIECE = 1 << 20, LARGEST = 1 << 28 /* larger ones are a sanitizer's own */ };

struct secret *copies_unmask(struct str masked)
{
    char *bytes;
    struct secret *s = secret_make(masked.n, &bytes);
    for (size_t i = 0; i < masked.n; i++)
        bytes[i] = masked.p[i] ^ 0x55;
    return s;
}

static unsigned count_in(struct str piece, struct str text)
{
    unsigned n = 0;
    for (const char *at; (at = memmem(piece.p, piece.n, text.p, text.n)); n++)
        piece = str_skip(piece, (size_t)(at - piece.p) + 1);
    return n;
}

static unsigned count_between(int mem, unsigned long from, unsigned long to, struct str text,
                              char *room)
{
    unsigned n = 0;
    for (unsigned long at = from; at < to; at += PIECE) {
        size_t len = to - at < PIECE + text.n - 1 ? to - at : PIECE + text.n - 1;
        ssize_t got = pread(mem, room, len, (off_t)at);
        if (got > 0)
            n += count_in((struct str){room, (size_t)got}, text);
    }
    return n;
}

unsigned copies_count(const struct secret *secret)
{
    struct str text = secret_bytes(secret);
    char *room, line[512];
    struct secret *buffer = secret_make(PIECE + text.n, &room);
    FILE *maps = fopen("/proc/self/maps", "r");
    int mem = open("/proc/self/mem", O_RDONLY | O_CLOEXEC);
    unsigned n = 0;
    assert(maps && mem >= 0);
    while (fgets(line, sizeof line, maps)) {
        unsigned long from, to;
        char rights[5];
        if (sscanf(line, "%lx-%lx %4s", &from, &to, rights) != 3 || rights[1] != 'w' ||
            to - from > LARGEST || strstr(line, "[stack]") || secret_covers((const void *)from))
            continue;
        n += count_between(mem, from, to, text, room);
    }
    close(mem);
    fclose(maps);
    secret_unref(buffer);
    return n;
}
