/* routes_api.h — routes over REST on the admin listener (contract ingress 7.4): GET /routes, and
 * GET, PUT, DELETE /routes/<id> (percent-decoded once), for whoever has the token of
 * --admin-token-file.
 *
 * JSON both ways.  An entry is read as in the file and shown without its token: "secureAccess":
 * true stands in its place, and PUT, which replaces the entry whole, refuses that member, so that
 * no token is lost unseen.  A change is answered when it stands in the file and every worker has
 * applied it: 201, 200 with the entry, or 204.  Each entry has a strong ETag, token included, good
 * for the life of the process; If-Match and If-None-Match are judged when the change is made.
 *
 * Errors are {"error":{"code":…,"message":…}}: 400 invalid_entry (with line and column),
 * invalid_id, invalid_condition, bad_request; 401 unauthorized; 404 not_found; 405
 * method_not_allowed; 412 condition_failed; 413 too_long; 500 not_saved; 503 stopping, overloaded;
 * 507 too_many. */
#ifndef INGRESS_ROUTES_API_H
#define INGRESS_ROUTES_API_H

#include "app/admin.h"
#include "ingress/static.h"
#include "ingress/table.h"

struct routes_api;

enum { ROUTES_API_BODY_BYTES = 65536 };

/* All lent for the life of the API. */
struct routes_api_host {
    struct app *app;
    struct static_routes *routes;
    struct table *const *tables; /* one per serving worker */
    unsigned ntables;
    struct str token_file; /* --admin-token-file */
};

/* Reads the token.  NULL: one line that names the setting. */
struct routes_api *routes_api_start(const struct routes_api_host *host, struct arena *a,
                                    struct str *ret_error);
/* SIGHUP: the token again.  A bad file is logged and changes nothing. */
void routes_api_reload(struct routes_api *r);
/* When the serving workers have ended and nothing turns w's loop; before or after static_stop().
 * Requests under way are answered 503.  NULL is fine. */
void routes_api_stop(struct routes_api *r);

/* For struct admin_api, with path "/routes" and max_body_bytes ROUTES_API_BODY_BYTES.  r NULL:
 * there is no such page. */
bool routes_api_admit(struct routes_api *r, struct admin_visit *v);
void routes_api_serve(struct routes_api *r, struct admin_visit *v);
void routes_api_refuse(struct admin_visit *v, int status, struct str why);

#endif
