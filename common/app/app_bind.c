/* app_bind.c — the sockets of a program: one for each worker and address, all bound before any
 * listens, so that a port which is taken is found at the start. */
#include <errno.h>
#include <sys/resource.h>

#include "app/app_impl.h"
#include "net/listen.h"
#include "net/pipes.h"

enum { SPARE_DESCRIPTORS = 128, WORKER_DESCRIPTORS = 16 };

int64_t app_descriptors(void)
{
    struct rlimit r;
    if (getrlimit(RLIMIT_NOFILE, &r) < 0)
        return 1024;
    r.rlim_cur = r.rlim_max;
    setrlimit(RLIMIT_NOFILE, &r);
    return r.rlim_cur > INT32_MAX ? INT32_MAX : (int64_t)r.rlim_cur;
}

static void say_fewer(int64_t set, int64_t can, int64_t descriptors)
{
    struct log_line line;
    log_begin(&line, LOG_WARN, "fewer client connections than are set: the limit of descriptors");
    log_int(&line, "set", set);
    log_int(&line, "served", can);
    log_int(&line, "descriptors", descriptors);
    log_end(&line);
}

/* Each client connection may need one to its origin too: whoever sets a number knows whether. */
int64_t app_connection_limit(const struct app *app, int64_t descriptors)
{
    int64_t set = app_settings(app)->max_connections;
    int64_t each = WORKER_DESCRIPTORS + 2 * MAX_PIPES;
    int64_t can =
        descriptors - SPARE_DESCRIPTORS - SURPLUS_CONNECTIONS - each * (int64_t)app->nworkers;
    if (can < 32)
        can = 32;
    if (set > can)
        say_fewer(set, can, descriptors);
    if (set == 0)
        return can / 2;
    return set < can ? set : can;
}

/* A machine without IPv6 has no `::`: then all addresses are those of IPv4. */
static int bind_any(const union addr *want, union addr *ret_bound, struct arena *a,
                    struct str *ret_error)
{
    static const struct ip any4 = {{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 255, 255, 0, 0, 0, 0}},
                           any6 = {{0}};
    struct ip ip;
    int fd = listen_bind(&want->sa, ret_bound, a, ret_error);
    addr_ip(&want->sa, &ip);
    if (fd >= 0 || !ip_eq(&ip, &any6) || (errno != EAFNOSUPPORT && errno != EADDRNOTAVAIL))
        return fd;
    union addr four;
    addr_make(&four, &any4, addr_port(&want->sa));
    return listen_bind(&four.sa, ret_bound, a, ret_error);
}

/* With port 0 all workers share the port that the kernel chose for the first. */
static bool bind_workers(struct app *app, unsigned l, union addr *addr, const char *setting,
                         struct str *ret_error)
{
    struct str error;
    for (unsigned i = 0; i < app->nworkers; i++) {
        union addr bound;
        app->fds[i][l] = bind_any(addr, &bound, &app->mem, &error);
        if (app->fds[i][l] < 0) {
            *ret_error = arena_printf(&app->mem, "%s: %.*s", setting, STR_ARG(error));
            return false;
        }
        *addr = bound;
    }
    return true;
}

/* Without an address there is no admin listener: *ret_bound has no family. */
static bool bind_admin(struct app *app, union addr *ret_bound, struct str *ret_error)
{
    union addr want;
    struct str error, text = app_settings(app)->admin_addr;
    memset(ret_bound, 0, sizeof *ret_bound);
    app->admin_fd = -1;
    if (text.n == 0)
        return true;
    if (!addr_parse(text, &want)) {
        *ret_error = arena_printf(&app->mem, "admin-addr: \"%.*s\" is not an address and port",
                                  STR_ARG(text));
        return false;
    }
    app->admin_fd = bind_any(&want, ret_bound, &app->mem, &error);
    if (app->admin_fd < 0)
        *ret_error = arena_printf(&app->mem, "admin-addr: %.*s", STR_ARG(error));
    return app->admin_fd >= 0;
}

bool app_bind(struct app *app, struct str *ret_error)
{
    union addr addrs[APP_LISTENERS], admin;
    const char *setting[APP_LISTENERS] = {0};
    if (app->product->listeners)
        app->nlisteners = app->product->listeners(app->settings, addrs, setting);
    for (unsigned l = 0; l < app->nlisteners; l++)
        if (!bind_workers(app, l, &addrs[l], setting[l], ret_error))
            return false;
    if (!bind_admin(app, &admin, ret_error))
        return false;
    app->product->bound(app->settings, addrs, app->admin_fd < 0 ? NULL : &admin, &app->mem);
    char text[ADDR_TEXT_BYTES];
    for (unsigned l = 0; l < app->nlisteners; l++)
        app->where[l] = arena_str(&app->mem, (struct str){text, addr_text(&addrs[l].sa, text)});
    return true;
}
