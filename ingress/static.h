/* static.h — the resolver that reads a file (contract ingress 7.4): --routes FILE, watched and
 * reloaded; and changes one by one to the same list, which then stand in the file. */
#ifndef INGRESS_STATIC_H
#define INGRESS_STATIC_H

#include "base/list.h"
#include "ingress/resolver.h"

struct static_routes;

enum { STATIC_MOST = 1 << 20 }; /* sandboxes that changes may bring it to */

/* Reads the file at once and reports; NULL and one line with line and column on a fault.  Later
 * faults are logged and change nothing. The events come on w's loop.  File reading and parsing
 * happen off the loop; a change of the file is seen within two seconds.  Without a path there is no
 * file: the list begins empty and lives in memory, which is logged. */
struct static_routes *static_start(struct worker *w, struct str path,
                                   const struct resolver_events *ev, void *user, struct arena *a,
                                   struct str *ret_error);
/* --check: would the file be taken?  False: the line a start would end with. */
bool static_check(struct str path, struct arena *a, struct str *ret_error);
/* SIGHUP: read it again now. */
void static_reload(struct static_routes *s);
void static_stop(struct static_routes *s);

/* ---- changes */

enum static_outcome {
    EDIT_CREATED,
    EDIT_REPLACED,
    EDIT_SAME, /* the entry says what it said: nothing happens to its connections */
    EDIT_DELETED,
    EDIT_MISSING, /* there is nothing to take out */
    EDIT_REFUSED, /* may() said no */
    EDIT_FULL,
    EDIT_FAILED, /* `fault`: the file cannot be read or written; nothing has changed */
    EDIT_STOPPED /* static_stop() came first: what has become of it is not known */
};

/* One change.  The caller's memory until done(). */
struct static_edit {
    struct str id;
    struct sandbox *put; /* of that id; a reference of the caller's.  NULL: the sandbox goes */
    /* On a thread of the pool, with what is there (NULL: nothing) when its turn comes: is it still
     * wanted?  NULL: it is. */
    bool (*may)(const struct static_edit *e, const struct sandbox *there);
    /* On the loop, after the change was reported, and never before static_change() returns, but
     * perhaps within static_stop() or after it. */
    void (*done)(struct static_edit *e);
    enum static_outcome outcome;
    struct str fault; /* one line, lent in done() */
    struct list link; /* private */
};

/* Changes are made in the order in which they come; many at once cost one writing of the file. What
 * somebody wrote into the file meanwhile counts and is read first; sandboxes that have ended are
 * left out of what is written.  done() follows. */
void static_change(struct static_routes *s, struct static_edit *e);
/* What is in force, changes included that are just being reported; lent until the loop turns. NULL:
 * no such sandbox, or it has ended. */
const struct sandbox *static_get(const struct static_routes *s, struct str id);
/* Each that has not ended, by id. */
void static_each(const struct static_routes *s,
                 void (*each)(void *user, const struct sandbox *sandbox), void *user);

/* For readiness and /debug, on w's thread: sandboxes known, Unix second of the last good read,
 * faults since. */
size_t static_size(const struct static_routes *s);
int64_t static_read_s(const struct static_routes *s);
uint64_t static_faults(const struct static_routes *s);

#endif
