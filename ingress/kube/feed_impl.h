/* feed_impl.h — what the two files of a feed know of each other. */
#ifndef INGRESS_KUBE_FEED_IMPL_H
#define INGRESS_KUBE_FEED_IMPL_H

#include "base/wheel.h"
#include "ingress/kube/feed.h"
#include "ingress/kube/gather.h"
#include "ingress/kube/index.h"

enum { KUBE_VERSION_BYTES = 128, KUBE_MORE_BYTES = 16384 };

enum feed_state { FEED_RESTING, FEED_LISTING, FEED_WATCHING };
enum feed_next { FEED_LIST, FEED_PAGE, FEED_WATCH }; /* what the next request is */
/* Does this server send bookmarks?  Else a quiet watch may be a good one. */
enum feed_marks { MARKS_UNKNOWN, MARKS_COME, MARKS_NEVER };

/* A resourceVersion. */
struct kube_version {
    size_t n; /* 0: none */
    char text[KUBE_VERSION_BYTES];
};

struct kube_feed {
    struct worker *w;
    struct kube_feed_rules rules;
    const char *resource;
    struct resolver_events ev;
    void *user;
    struct kube_index *index;

    enum feed_state state;
    enum feed_next next; /* RESTING */
    struct timer timer;
    struct call *call; /* LISTING, WATCHING */
    int status;        /* of its head; 0: has not come */
    struct gather in;

    bool older;                  /* agent-sandbox: v1alpha1 */
    bool whole;                  /* not in pages: they went out of date too quickly */
    unsigned expired;            /* lists in a row that did */
    unsigned old;                /* lists in a row that were older than what we knew */
    char *more;                  /* `continue` of the next page */
    unsigned pages;              /* of this list so far */
    struct kube_version version; /* the last that is known */
    uint64_t list_since_ms, watch_since_ms, news_ms;
    bool ready, moved; /* moved: the version has, in this watch */
    enum feed_marks marks;

    unsigned failures; /* in a row */
    unsigned spoilt;   /* of them, watches with an event that could not be read */
    char fault[256];   /* of the last one; "": none */
    enum kube_fault fault_kind, told_kind;
    uint64_t told_ms; /* 0: never, or not since all was well */
    uint64_t lists, watches, events, faults[KUBE_FAULT_KINDS];
};

/* ---- feed_news.c */
enum feed_news {
    NEWS_GOOD,
    NEWS_END,     /* of a list: it is complete */
    NEWS_OLD,     /* a list older than what is known */
    NEWS_EXPIRED, /* of a watch: its version is gone */
    NEWS_STATUS,  /* another error of a watch: f->status */
    NEWS_LARGE,
    NEWS_BROKEN
};
/* A page is in f->in.  *ret_error: for BROKEN. */
enum feed_news feed_read_page(struct kube_feed *f, const char **ret_error);
/* All whole lines in f->in; what they say has been told when it returns.  *ret_error: for BROKEN
 * and LARGE. */
enum feed_news feed_read_events(struct kube_feed *f, const char **ret_error);

/* ---- feed.c: the next request, as soon as it may be sent */
void feed_go_on(struct kube_feed *f);

/* ---- feed_end.c: what comes after a request.  The call is over, or was cancelled; each of these
 * is the last thing that is done with it. */
void feed_rest(struct kube_feed *f, enum feed_next next, uint64_t ms);
/* `said` is for people; least_ms: what the server asked for. */
void feed_fail(struct kube_feed *f, enum kube_fault kind, const char *said, enum feed_next next,
               uint64_t least_ms);
void feed_fail_why(struct kube_feed *f, enum why why, struct str fault, enum feed_next next);
/* 410: list again. */
void feed_expired(struct kube_feed *f);
/* f->status is not 200.  head: NULL where an event said so. */
void feed_refused(struct kube_feed *f, const struct http_head *head);

void feed_count(struct kube_feed *f, enum kube_fault kind);
enum kube_fault feed_kind_of(enum why why);
/* The last request was good. */
void feed_all_well(struct kube_feed *f);
/* 0 to 1. */
double feed_chance(void);

#endif
