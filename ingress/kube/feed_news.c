/* feed_news.c — pages and events into the index, and from there to whoever asked.  A list is
 * believed as a whole or not at all: the first page already says which moment it is of. */
#include "base/log.h"
#include "base/text.h"
#include "ingress/kube/feed_impl.h"
#include "net/worker.h"

/* Lists that are older than what we know are asked for again so often; then it is the store that
 * has gone back, and they are right. */
enum { OLD_LISTS = 3, LINE_BYTES = 16 << 20, FIRST_BYTES = 2048 };

static void tell(struct kube_feed *f)
{
    struct kube_delta d = kube_index_take(f->index);
    if (d.nput + d.ngone > 0)
        f->ev.change(f->user, d.put, d.nput, d.gone, d.ngone);
}

/* ---- versions */

/* False: a is not known to be before b. */
static bool is_before(struct str a, struct str b)
{
    uint64_t x, y;
    return text_u64(a, UINT64_MAX, &x) && text_u64(b, UINT64_MAX, &y) && x < y;
}

static struct str version_of(const struct kube_feed *f)
{
    return (struct str){f->version.text, f->version.n};
}

static bool set_version(struct kube_feed *f, struct str version)
{
    if (version.n == 0 || version.n > sizeof f->version.text)
        return false;
    memcpy(f->version.text, version.p, version.n);
    f->version.n = version.n;
    return true;
}

static void move_version(struct kube_feed *f, struct str version)
{
    if (!is_before(version, version_of(f)) && set_version(f, version))
        f->moved = true;
}

/* ---- objects */

static bool read_object(struct kube_feed *f, struct str text, struct arena *a,
                        struct kube_object *ret)
{
    const char *error;
    if (kube_object_read(text, f->rules.kind, a, ret, &error))
        return true;
    feed_count(f, KUBE_FAULT_OBJECT);
    log_note_rarely(LOG_WARN, "kubernetes: an object is left out", "resource", f->resource,
                    "reason", error, NULL);
    return false;
}

static void put_item(struct kube_feed *f, struct str text)
{
    char first[FIRST_BYTES];
    struct arena a;
    struct kube_object o;
    arena_init_private(&a, first, sizeof first);
    if (read_object(f, text, &a, &o))
        kube_index_put(f->index, &o);
    arena_done(&a);
}

/* ---- pages */

struct items {
    struct str *p;
    size_t n, room;
};

static void on_item(void *user, struct str text)
{
    struct items *items = user;
    if (items->n == items->room) {
        items->room = items->room ? items->room * 2 : 512;
        items->p = mem_renew(items->p, items->room * sizeof *items->p);
    }
    items->p[items->n++] = text;
}

static enum feed_news begin(struct kube_feed *f, struct str version)
{
    bool old = is_before(version, version_of(f));
    if (old && f->old < OLD_LISTS) {
        f->old++;
        return NEWS_OLD;
    }
    kube_index_list_begin(f->index, old);
    if (old)
        f->version.n = 0;
    return NEWS_GOOD;
}

static enum feed_news finish(struct kube_feed *f, struct str version)
{
    kube_index_list_end(f->index);
    set_version(f, version);
    f->old = f->expired = 0;
    tell(f);
    return NEWS_END;
}

static enum feed_news take_page(struct kube_feed *f, const struct kube_page *page,
                                const struct items *items, const char **ret_error)
{
    if (page->version.n == 0 || page->version.n > KUBE_VERSION_BYTES ||
        page->more.n > KUBE_MORE_BYTES) {
        *ret_error = "a list without a version that can be used";
        return NEWS_BROKEN;
    }
    if (f->pages++ == 0 && begin(f, page->version) == NEWS_OLD)
        return NEWS_OLD;
    for (size_t i = 0; i < items->n; i++)
        put_item(f, items->p[i]);
    tell(f);
    mem_free(f->more);
    f->more = page->more.n ? mem_strdup(page->more) : NULL;
    return f->more ? NEWS_GOOD : finish(f, page->version);
}

enum feed_news feed_read_page(struct kube_feed *f, const char **ret_error)
{
    struct arena a;
    struct kube_page page;
    struct items items = {0};
    arena_init_private(&a, NULL, 0);
    enum feed_news news = NEWS_BROKEN;
    if (kube_page_read(gather_text(&f->in), &a, on_item, &items, &page, ret_error))
        news = take_page(f, &page, &items, ret_error);
    mem_free(items.p);
    arena_done(&a);
    return news;
}

/* ---- events */

static void take_object(struct kube_feed *f, const struct kube_event *e, struct arena *a)
{
    struct kube_object o;
    if (!read_object(f, e->object, a, &o))
        return;
    if (e->type == KUBE_DELETED)
        kube_index_del(f->index, &o);
    else
        kube_index_put(f->index, &o);
    move_version(f, o.version);
}

static enum feed_news take_error(struct kube_feed *f, const struct kube_event *e)
{
    f->status = e->code;
    return e->code == 410 ? NEWS_EXPIRED : NEWS_STATUS;
}

static enum feed_news take_event(struct kube_feed *f, const struct kube_event *e, struct arena *a)
{
    f->events++;
    if (e->type == KUBE_ERROR)
        return take_error(f, e);
    if (e->type == KUBE_BOOKMARK) {
        f->marks = MARKS_COME;
        move_version(f, e->version);
        return NEWS_GOOD;
    }
    take_object(f, e, a);
    return NEWS_GOOD;
}

static enum feed_news read_line(struct kube_feed *f, struct str line, const char **ret_error)
{
    char first[FIRST_BYTES];
    struct arena a;
    struct kube_event e;
    if (line.n == 0)
        return NEWS_GOOD;
    arena_init_private(&a, first, sizeof first);
    enum feed_news news = NEWS_BROKEN;
    if (kube_event_read(line, &a, &e, ret_error))
        news = take_event(f, &e, &a);
    arena_done(&a);
    return news;
}

enum feed_news feed_read_events(struct kube_feed *f, const char **ret_error)
{
    enum feed_news news = NEWS_GOOD;
    struct str line;
    while (news == NEWS_GOOD && gather_line(&f->in, &line))
        news = read_line(f, line, ret_error);
    tell(f);
    if (gather_settle(&f->in) <= LINE_BYTES || news != NEWS_GOOD)
        return news;
    *ret_error = "an event is too large";
    return NEWS_LARGE;
}
