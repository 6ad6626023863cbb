/* hostconf.c — reads the two files and notices when they change.  They are small and local, so they
 * are read on the loop; a look is two stat calls and happens at most once a second, and only when
 * somebody asks for a name. */
#include "net/hostconf.h"

#include <assert.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "net/worker.h"

enum { LOOK_MS = 1000, FILE_BYTES = 1 << 20, TRY_MS = 2000, BUDGET_MS = 15000 };

struct file {
    char *path;
    struct stat seen; /* st_nlink 0: it was not there */
};

struct hostsource {
    struct worker *w;
    struct file resolv, hosts_file;
    uint16_t port;
    uint64_t looked;
    struct hostconf *conf;
    struct hosts *hosts;
};

/* ---- files ---- */

static void file_init(struct file *f, const char *path, const char *otherwise)
{
    f->path = mem_strdup(str_of(path ? path : otherwise));
}

/* Is it another one than at the last call, or has it come or gone? */
static bool file_changed(struct file *f)
{
    struct stat now;
    if (stat(f->path, &now) < 0)
        now = (struct stat){.st_nlink = 0};
    const struct stat *s = &f->seen;
    bool same =
        now.st_dev == s->st_dev && now.st_ino == s->st_ino && now.st_size == s->st_size &&
        now.st_mtim.tv_sec == s->st_mtim.tv_sec && now.st_mtim.tv_nsec == s->st_mtim.tv_nsec &&
        now.st_ctim.tv_sec == s->st_ctim.tv_sec && now.st_ctim.tv_nsec == s->st_ctim.tv_nsec;
    f->seen = now;
    return !same;
}

/* Up to FILE_BYTES; the caller frees p.  Empty if it cannot be read. */
static struct str file_read(const struct file *f)
{
    int fd = open(f->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return STR_NONE;
    size_t n = 0, room = 0;
    char *p = NULL;
    ssize_t got;
    do {
        if (n == room)
            p = mem_renew(p, room = room ? 2 * room : 4096);
        got = read(fd, p + n, room - n);
        n += got > 0 ? (size_t)got : 0;
    } while (got > 0 && n < FILE_BYTES);
    close(fd);
    return (struct str){p, n};
}

/* ---- resolv.conf ---- */

static void conf_free(void *p)
{
    struct hostconf *c = p;
    nameservers_free(c->servers);
    arena_done(&c->mem);
    mem_free(c);
}

struct hostconf *hostconf_ref(struct hostconf *c)
{
    c->users++;
    return c;
}

void hostconf_unref(struct hostconf *c)
{
    assert(c->users > 0);
    if (--c->users == 0)
        worker_bury(c->w, conf_free, c); /* one of its servers may be what is calling */
}

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static struct nameservers *make_servers(const struct hostsource *s, const struct resolv_conf *r)
{
    struct nameserver_list list = {.n = r->nservers, .rounds = r->attempts};
    list.try_ms = least(r->timeout_s * 1000, TRY_MS);
    for (unsigned i = 0; i < r->nservers; i++)
        addr_make(&list.addr[i], &r->server[i], s->port);
    return nameservers_new(s->w, &list);
}

static struct hostconf *conf_new(struct hostsource *s, struct str text)
{
    struct hostconf *c = mem_new(sizeof *c);
    c->w = s->w;
    c->users = 1;
    arena_init(&c->mem, NULL, 0);
    resolv_conf_parse(text, &c->mem, &c->resolv);
    if (c->resolv.nservers == 0 && ip_parse(STR("127.0.0.1"), &c->resolv.server[0]))
        c->resolv.nservers = 1; /* resolv.conf(5) */
    c->servers = make_servers(s, &c->resolv);
    c->budget_ms = least((uint64_t)c->resolv.timeout_s * c->resolv.attempts * 1000, BUDGET_MS);
    return c;
}

/* Does the text name a server?  A file without one is most likely being written. */
static bool names_server(struct str text)
{
    struct resolv_conf r;
    struct arena a;
    arena_init(&a, NULL, 0);
    resolv_conf_parse(text, &a, &r);
    arena_done(&a);
    return r.nservers > 0;
}

static bool reread_resolv(struct hostsource *s)
{
    struct str text = file_read(&s->resolv);
    bool take = !s->conf || names_server(text);
    if (take) {
        if (s->conf)
            hostconf_unref(s->conf);
        s->conf = conf_new(s, text);
    }
    mem_free((char *)text.p);
    return take;
}

static void reread_hosts(struct hostsource *s)
{
    struct str text = file_read(&s->hosts_file);
    hosts_free(s->hosts);
    s->hosts = hosts_parse(text);
    mem_free((char *)text.p);
}

/* ---- both ---- */

struct hostsource *hostsource_new(struct worker *w, const struct names_files *files)
{
    struct hostsource *s = mem_new(sizeof *s);
    s->w = w;
    s->port = files->dns_port ? files->dns_port : 53;
    s->looked = worker_now(w);
    file_init(&s->resolv, files->resolv_conf, "/etc/resolv.conf");
    file_init(&s->hosts_file, files->hosts, "/etc/hosts");
    file_changed(&s->resolv);
    file_changed(&s->hosts_file);
    reread_resolv(s);
    reread_hosts(s);
    return s;
}

void hostsource_free(struct hostsource *s)
{
    hostconf_unref(s->conf);
    hosts_free(s->hosts);
    mem_free(s->resolv.path);
    mem_free(s->hosts_file.path);
    mem_free(s);
}

bool hostsource_look(struct hostsource *s)
{
    uint64_t now = worker_now(s->w);
    if (now - s->looked < LOOK_MS)
        return false;
    s->looked = now;
    if (file_changed(&s->hosts_file))
        reread_hosts(s);
    return file_changed(&s->resolv) && reread_resolv(s);
}

struct hostconf *hostsource_conf(const struct hostsource *s)
{
    return s->conf;
}

const struct hosts *hostsource_hosts(const struct hostsource *s)
{
    return s->hosts;
}
