/* replay.c — runs a fuzz target over the files of its corpus, so that every finding stays found in
 * the normal test run. */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int replay(const char *path)
{
    FILE *f = fopen(path, "rb");
    if (!f)
        return 0;
    static uint8_t bytes[1 << 20];
    size_t n = fread(bytes, 1, sizeof bytes, f);
    fclose(f);
    uint8_t *exact = malloc(n ? n : 1); /* so that a read past the end is seen */
    for (size_t i = 0; i < n; i++)
        exact[i] = bytes[i];
    LLVMFuzzerTestOneInput(exact, n);
    free(exact);
    return 1;
}

int main(int argc, char **argv)
{
    int count = 0;
    for (int i = 1; i < argc; i++) {
        DIR *dir = opendir(argv[i]);
        if (!dir) {
            count += replay(argv[i]);
            continue;
        }
        for (struct dirent *e; (e = readdir(dir));) {
            char path[4096];
            snprintf(path, sizeof path, "%s/%s", argv[i], e->d_name);
            if (e->d_name[0] != '.')
                count += replay(path);
        }
        closedir(dir);
    }
    printf("%d inputs replayed\n", count);
    return count > 0 ? 0 : 1;
}
