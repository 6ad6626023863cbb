/* tls_sessions.c — the last session of each of some names, so that the next handshake with the same
 * peer costs half.  What was proved once is believed for an hour at most: sessions that come of one
 * another count from the handshake in which the certificate was looked at. */
#include <pthread.h>

#include "net/tls_impl.h"

enum { MAX_AGE_S = 3600 };

struct row {
    char *name; /* NULL: free */
    SSL_SESSION *session;
    int64_t proved_s; /* when the certificate was verified */
    uint64_t used;    /* the lowest goes when room is needed */
};

struct tls_sessions {
    pthread_mutex_t lock;
    uint64_t uses;
    unsigned max;
    struct row rows[];
};

struct tls_sessions *tls_sessions_new(unsigned max)
{
    struct tls_sessions *s = mem_new(sizeof *s + max * sizeof *s->rows);
    pthread_mutex_init(&s->lock, NULL);
    s->max = max;
    return s;
}

static void clear_row(struct row *r)
{
    mem_free(r->name);
    SSL_SESSION_free(r->session);
    *r = (struct row){0};
}

void tls_sessions_free(struct tls_sessions *s)
{
    if (!s)
        return;
    for (unsigned i = 0; i < s->max; i++)
        clear_row(&s->rows[i]);
    pthread_mutex_destroy(&s->lock);
    mem_free(s);
}

static struct row *find(struct tls_sessions *s, const char *name)
{
    for (unsigned i = 0; i < s->max; i++)
        if (s->rows[i].name && strcmp(s->rows[i].name, name) == 0)
            return &s->rows[i];
    return NULL;
}

static struct row *oldest(struct tls_sessions *s)
{
    struct row *r = &s->rows[0];
    for (unsigned i = 1; i < s->max && r->name; i++)
        if (!s->rows[i].name || s->rows[i].used < r->used)
            r = &s->rows[i];
    return r;
}

static bool is_young(const struct row *r, int64_t now_s)
{
    return now_s >= r->proved_s && now_s - r->proved_s < MAX_AGE_S;
}

SSL_SESSION *tls_sessions_get(struct tls_sessions *s, const char *name, int64_t now_s)
{
    SSL_SESSION *session = NULL;
    pthread_mutex_lock(&s->lock);
    struct row *r = find(s, name);
    if (r && (!is_young(r, now_s) || !SSL_SESSION_is_resumable(r->session))) {
        clear_row(r);
    } else if (r) {
        session = r->session;
        SSL_SESSION_up_ref(session);
        r->used = ++s->uses;
    }
    pthread_mutex_unlock(&s->lock);
    return session;
}

void tls_sessions_put(struct tls_sessions *s, const char *name, SSL_SESSION *session, bool resumed,
                      int64_t now_s)
{
    pthread_mutex_lock(&s->lock);
    struct row *r = find(s, name);
    if (r || !resumed) {
        char *kept = mem_strdup(str_of(name));
        int64_t proved_s = resumed ? r->proved_s : now_s;
        r = r ? r : oldest(s);
        clear_row(r);
        SSL_SESSION_up_ref(session);
        *r = (struct row){kept, session, proved_s, ++s->uses};
    }
    pthread_mutex_unlock(&s->lock);
}

void tls_sessions_drop(struct tls_sessions *s, const char *name)
{
    pthread_mutex_lock(&s->lock);
    struct row *r = find(s, name);
    if (r)
        clear_row(r);
    pthread_mutex_unlock(&s->lock);
}
