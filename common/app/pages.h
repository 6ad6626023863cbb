/* pages.h — the pages of the admin listener: which there are, what each worker adds, how it is put
 * together. */
#ifndef APP_PAGES_H
#define APP_PAGES_H

#include "app/app.h"
#include "base/json.h"
#include "http/path.h"

/* What one worker adds: numbers for /metrics, JSON text for /debug. */
struct part {
    unsigned exchanges[XSTATES];
    unsigned clients, origins, origins_idle, origins_h2;
    size_t memory;
    struct json_out json;
};

struct page {
    const char *path, *type;
    /* Either the page is made at once ... */
    struct str (*simple)(struct app *app, int *status, struct arena *a);
    /* ... or from a part of each worker, made on its loop (arg: struct part). */
    void (*part)(struct worker *w, void *arg);
    struct str (*assemble)(struct app *app, struct part *parts, struct arena *a);
};

/* One of ours or of the product's (struct product); NULL: there is no such page. */
const struct page *page_find(struct app *app, struct str path);
/* For the product's metrics: requests of all workers by method, status and kind, under the
 * product's names. */
void pages_requests(struct app *app, struct metrics_out *o, const char *count,
                    const char *duration);
void pages_free_parts(struct part *parts, unsigned n);

#endif
