/* admin.h — what operators look at, on a listener of its own (I8): /healthz, /readyz, /metrics and
 * /debug/{config,exchanges,pools}. */
#ifndef APP_ADMIN_H
#define APP_ADMIN_H

#include "app/app.h"

struct admin;

/* Serves on the bound socket fd, which is its own from now on. */
struct admin *admin_start(struct app *app, int fd);
void admin_stop(struct admin *ad);

#endif
