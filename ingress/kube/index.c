/* index.c — objects by name.  There may be 100,000 of them, so an entry is 32 bytes: of namespace
 * and uid only a keyed hash is kept, and the name lies in the record.  What changed is found by
 * what a name was when it was first touched and what it is when somebody asks: however many events
 * lie between, tables are told of one step. */
#include "ingress/kube/index.h"

#include <assert.h>

#include "base/digest.h"
#include "base/list.h"
#include "base/map.h"
#include "base/text.h"

enum { BURIED = 1024 };
static const uint64_t VERSION_MAX = (UINT64_C(1) << 62) - 1;

struct object {
    struct object *next; /* of the same name, in another namespace */
    const struct sandbox *record;
    uint64_t ns;
    uint64_t version : 62; /* a number, or the hash of what is none */
    uint64_t ordered : 1;
    uint64_t round : 1; /* of the last list that had it, or that it came after */
};

/* A name that was touched. */
struct change {
    struct list link;
    const struct sandbox *was; /* NULL: tables do not know it */
    struct str name;
    char text[];
};

struct kube_index {
    uint8_t key[16];
    struct map *names;   /* name → its first object */
    struct map *several; /* name → the record that says so */
    struct map *changed; /* name → change, those of `waiting` */
    struct list waiting, told;
    struct arena mem; /* of the last delta */
    size_t objects;
    bool round, listing, back;
    uint64_t buried[BURIED]; /* uids of the last instances that went: they do not come back */
    size_t nburied;
};

struct kube_index *kube_index_new(void)
{
    struct kube_index *x = mem_new(sizeof *x);
    digest_random(x->key, sizeof x->key);
    x->names = map_new();
    x->several = map_new();
    x->changed = map_new();
    list_init(&x->waiting);
    list_init(&x->told);
    arena_init(&x->mem, NULL, 0);
    return x;
}

static uint64_t uid_of(const struct object *o)
{
    return o->record->instance;
}

/* ---- changes */

static void change_free(struct change *c)
{
    list_del(&c->link);
    sandbox_unref(c->was);
    mem_free(c);
}

static void forget_told(struct kube_index *x)
{
    while (!list_empty(&x->told))
        change_free(container_of(list_first(&x->told), struct change, link));
    arena_done(&x->mem);
    arena_init(&x->mem, NULL, 0);
}

static const struct sandbox *shown(const struct kube_index *x, struct str name)
{
    const struct sandbox *several = map_get(x->several, name);
    const struct object *first = map_get(x->names, name);
    return several ? several : first ? first->record : NULL;
}

/* Before anything of this name changes. */
static void touch(struct kube_index *x, struct str name)
{
    if (map_get(x->changed, name))
        return;
    struct change *c = mem_new(sizeof *c + name.n);
    const struct sandbox *was = shown(x, name);
    c->was = was ? sandbox_ref(was) : NULL;
    memcpy(c->text, name.p, name.n);
    c->name = (struct str){c->text, name.n};
    list_init(&c->link);
    list_push(&x->waiting, &c->link);
    map_put(x->changed, c->name, c);
}

/* ---- objects */

/* The name's text lies in the record. */
static void set_first(struct kube_index *x, struct object *o)
{
    map_put(x->names, o->record->id, o);
}

static void replace_record(struct kube_index *x, struct object *o, const struct sandbox *from)
{
    const struct sandbox *old = o->record;
    o->record = sandbox_new(from);
    if (map_get(x->names, o->record->id) == o)
        set_first(x, o);
    sandbox_unref(old);
}

static struct object *find(const struct kube_index *x, struct str name, uint64_t ns)
{
    struct object *o = map_get(x->names, name);
    while (o && o->ns != ns)
        o = o->next;
    return o;
}

static void bury(struct kube_index *x, uint64_t uid)
{
    if (uid != 0)
        x->buried[x->nburied++ % BURIED] = uid;
}

static bool is_buried(const struct kube_index *x, uint64_t uid)
{
    size_t n = x->nburied < BURIED ? x->nburied : BURIED;
    for (size_t i = 0; i < n && uid != 0; i++)
        if (x->buried[i] == uid)
            return true;
    return false;
}

static void unlink_object(struct kube_index *x, struct object *o)
{
    struct object *first = map_get(x->names, o->record->id), *before = first;
    if (o == first && o->next) {
        set_first(x, o->next);
        return;
    }
    if (o == first) {
        map_del(x->names, o->record->id);
        return;
    }
    while (before->next != o)
        before = before->next;
    before->next = o->next;
}

static void remove_object(struct kube_index *x, struct object *o)
{
    touch(x, o->record->id);
    bury(x, uid_of(o));
    unlink_object(x, o);
    sandbox_unref(o->record);
    mem_free(o);
    x->objects--;
}

void kube_index_free(struct kube_index *x)
{
    if (!x)
        return;
    size_t at = 0;
    for (struct object *o; (o = map_next(x->names, &at));)
        for (struct object *next; o; o = next) {
            next = o->next;
            sandbox_unref(o->record);
            mem_free(o);
        }
    at = 0;
    for (struct sandbox *s; (s = map_next(x->several, &at));)
        sandbox_unref(s);
    forget_told(x);
    while (!list_empty(&x->waiting))
        change_free(container_of(list_first(&x->waiting), struct change, link));
    map_free(x->names);
    map_free(x->several);
    map_free(x->changed);
    mem_free(x);
}

size_t kube_index_objects(const struct kube_index *x)
{
    return x->objects;
}

size_t kube_index_ambiguous(const struct kube_index *x)
{
    return map_size(x->several);
}

/* ---- news */

/* 0: it has none. */
static uint64_t hash_of(const struct kube_index *x, struct str text)
{
    return text.n ? map_hash(x->key, text.p, text.n) | 1 : 0;
}

struct version {
    uint64_t v;
    bool ordered;
};

static struct version version_of(const struct kube_index *x, struct str text)
{
    struct version ret = {.ordered = true};
    if (!text_u64(text, VERSION_MAX, &ret.v))
        ret = (struct version){hash_of(x, text) & VERSION_MAX, false};
    return ret;
}

static bool is_newer(const struct kube_index *x, const struct object *o, struct version v,
                     uint64_t uid)
{
    if (x->back || !v.ordered || !o->ordered)
        return uid != uid_of(o) || v.v != o->version || v.ordered != o->ordered;
    return v.v > o->version;
}

/* Here only the id tells sandboxes apart, and nothing ends by itself. */
static struct sandbox record_of(const struct kube_object *o, uint64_t uid)
{
    struct sandbox s = o->draft;
    s.key = s.ns = STR_NONE;
    s.id = o->name;
    s.instance = uid;
    s.until_unix_s = INT64_MAX;
    s.fresh_ms = UINT64_MAX;
    return s;
}

static void set_life(struct kube_index *x, struct object *o, struct version v)
{
    o->version = v.v & VERSION_MAX;
    o->ordered = v.ordered;
    o->round = x->round;
}

static void add(struct kube_index *x, const struct kube_object *from, uint64_t uid)
{
    struct object *o = mem_new(sizeof *o), *first = map_get(x->names, from->name);
    const struct sandbox draft = record_of(from, uid);
    touch(x, from->name);
    o->ns = hash_of(x, from->ns);
    o->record = sandbox_new(&draft);
    set_life(x, o, version_of(x, from->version));
    o->next = first ? first->next : NULL;
    if (first)
        first->next = o;
    else
        set_first(x, o);
    x->objects++;
}

static bool change(struct kube_index *x, struct object *o, const struct kube_object *from,
                   uint64_t uid)
{
    struct version v = version_of(x, from->version);
    if (!is_newer(x, o, v, uid))
        return false;
    const struct sandbox draft = record_of(from, uid);
    bool same = sandbox_same(o->record, &draft);
    if (uid_of(o) != uid)
        bury(x, uid_of(o));
    set_life(x, o, v);
    if (same)
        return true;
    touch(x, from->name);
    replace_record(x, o, &draft);
    return true;
}

bool kube_index_put(struct kube_index *x, const struct kube_object *o)
{
    uint64_t uid = hash_of(x, o->uid);
    struct object *there = find(x, o->name, hash_of(x, o->ns));
    forget_told(x);
    if (there)
        there->round = x->round; /* an earlier instance in a list says that the list is behind */
    if (is_buried(x, uid) && !(there && uid_of(there) == uid))
        return false;
    if (there)
        return change(x, there, o, uid);
    add(x, o, uid);
    return true;
}

bool kube_index_del(struct kube_index *x, const struct kube_object *o)
{
    uint64_t uid = hash_of(x, o->uid);
    struct object *there = find(x, o->name, hash_of(x, o->ns));
    forget_told(x);
    if (!there || uid_of(there) != uid) {
        bury(x, uid);
        return false;
    }
    remove_object(x, there);
    return true;
}

/* ---- lists */

static void mark_all(struct kube_index *x, bool round)
{
    size_t at = 0;
    for (struct object *o; (o = map_next(x->names, &at));)
        for (; o; o = o->next)
            o->round = round;
}

void kube_index_list_begin(struct kube_index *x, bool back)
{
    if (x->listing) /* some are marked by the one that was broken off */
        mark_all(x, !x->round);
    else
        x->round = !x->round;
    x->listing = true;
    x->back = back;
    if (back)
        x->nburied = 0;
}

void kube_index_list_end(struct kube_index *x)
{
    size_t at = 0;
    assert(x->listing);
    forget_told(x);
    for (struct object *o; (o = map_next(x->names, &at));)
        for (struct object *next; o; o = next) {
            next = o->next;
            if (o->round != x->round)
                remove_object(x, o);
        }
    x->listing = x->back = false;
}

/* ---- what tables should say */

static bool must_wait(const struct kube_index *x, const struct object *first)
{
    if (!x->listing || !first || !first->next)
        return false;
    for (const struct object *o = first; o; o = o->next)
        if (o->round != x->round)
            return true;
    return false;
}

static const struct sandbox *say_several(struct kube_index *x, struct str name)
{
    struct sandbox *s = map_get(x->several, name);
    if (s)
        return s;
    s = sandbox_new(&(struct sandbox){
        .id = name, .state = SANDBOX_AMBIGUOUS, .until_unix_s = INT64_MAX, .fresh_ms = UINT64_MAX});
    map_put(x->several, s->id, s);
    return s;
}

/* Nothing that was purged with a record may come back with it: the one that is left is a new one.
 */
static void say_no_more(struct kube_index *x, struct str name, struct object *left)
{
    struct sandbox *s = map_del(x->several, name);
    if (s && left)
        replace_record(x, left, left->record);
    sandbox_unref(s);
}

static const struct sandbox *settle(struct kube_index *x, struct str name, struct object *first)
{
    if (first && first->next)
        return say_several(x, name);
    say_no_more(x, name, first);
    return first ? first->record : NULL;
}

struct kube_delta kube_index_take(struct kube_index *x)
{
    forget_told(x);
    size_t n = map_size(x->changed), nput = 0, ngone = 0;
    const struct sandbox **put = arena_get(&x->mem, n * sizeof *put);
    struct str *gone = arena_get(&x->mem, n * sizeof *gone);
    list_each(l, &x->waiting)
    {
        struct change *c = container_of(l, struct change, link);
        struct object *first = map_get(x->names, c->name);
        if (must_wait(x, first))
            continue;
        const struct sandbox *now = settle(x, c->name, first);
        if (now && now != c->was)
            put[nput++] = now;
        else if (!now && c->was)
            gone[ngone++] = c->name;
        map_del(x->changed, c->name);
        list_del(l);
        list_push(&x->told, l);
    }
    return (struct kube_delta){put, gone, nput, ngone};
}
