/* vectors.h — what the runners of the vector files share.
 *
 * A runner gets one row and says whether what the program does is what the row expects; if not, it
 * leaves a text that shows both. Each group of files has a run_NAME.c; vectors.c holds the table of
 * files. */
#ifndef TESTS_VECTORS_H
#define TESTS_VECTORS_H

#include "base/json.h"
#include "base/mem.h"
#include "http/rules.h"

struct row {
    const struct json_doc *doc;
    const struct json *v; /* the row, an object */
    struct str line;      /* its text */
    struct arena *a;      /* the row's */
    struct str trouble;   /* set by row_fail() */
    bool skipped;         /* set by row_skip() */
    bool h2;              /* its messages come and go over HTTP/2 */
};

typedef bool (*row_runner)(struct row *r);

/* Remembers what was got and expected; always false. */
bool row_fail(struct row *r, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The row needs more than this program has (sockets, a kernel, a clock); always true. */
bool row_skip(struct row *r);

/* The member of that name, or NULL; a null is NULL too. */
const struct json *row_member(const struct json *object, const char *name);
/* A text as it stands (UTF-8), or an empty one. */
struct str row_text(const struct json *object, const char *name);
/* A text that holds one byte per character, U+0000 to U+00FF, as bytes. */
struct str row_bytes(struct row *r, const struct json *object, const char *name);
struct str row_to_bytes(struct row *r, const struct json *string);
/* A number, or `otherwise` if it is not there. */
int64_t row_int(struct row *r, const struct json *object, const char *name, int64_t otherwise);
bool row_bool(const struct json *object, const char *name);
bool row_is(const struct json *object, const char *name, const char *text);
/* ["name", "value"] pairs as fields, values trimmed as a codec would; `more`: room for that many in
 * front. */
struct field *row_fields(struct row *r, const struct json *list, unsigned more, unsigned *ret_n);
/* A list of texts, joined by commas. */
struct str row_joined(struct row *r, const struct json *list);
/* The request of a row (method, target, host, headers) as a codec would hand it on. */
enum why row_request(struct row *r, struct http_head *ret_head, struct http_fault *ret_fault);

/* Reads a head as the codec of the row's version does; raw has HTTP/1's words for both. */
enum why row_read_request(struct row *r, const struct http_raw *raw, struct str scheme,
                          struct http_head *ret_head, struct http_fault *ret_fault);
enum why row_read_response(struct row *r, const struct http_raw *raw,
                           const struct http_head *request, struct http_head *ret_head);
/* Over HTTP/2: what a client reads of the answer takes its place. */
bool row_answer_arrives(struct row *r, const struct http_head *request, struct http_head *answer);
/* method and protocol of the row as an extended CONNECT. */
enum why row_extended_connect(struct row *r, struct http_head *ret_head,
                              struct http_fault *ret_fault);
/* Has HTTP/2 words for the row: its fields; its target and host, too? */
bool row_fits_h2(struct row *r);
bool row_request_fits_h2(struct row *r);

/* Compares and fails with both. */
bool row_same(struct row *r, const char *what, struct str got, struct str expected);
bool row_same_int(struct row *r, const char *what, int64_t got, int64_t expected);

/* The runners, one per file. */
bool run_route_parse(struct row *r);
bool run_signature(struct row *r);
bool run_access_matrix(struct row *r);
bool run_keyring(struct row *r);
bool run_dial_target(struct row *r);
bool run_client_ip(struct row *r);
bool run_errors(struct row *r);
bool run_headers(struct row *r);
bool run_upgrade(struct row *r);
bool run_cli(struct row *r);
bool run_redis_dsn(struct row *r);
bool run_renew_intent(struct row *r);
bool run_activity(struct row *r);
bool run_network_readiness(struct row *r);
bool run_wake(struct row *r);
bool run_policy_parse(struct row *r);
bool run_policy_eval_domain(struct row *r);
bool run_policy_eval_ip(struct row *r);
bool run_policy_api(struct row *r);
bool run_answer_filter(struct row *r);
bool run_always_rules(struct row *r);
bool run_log_skip(struct row *r);
bool run_env(struct row *r);
bool run_persistence(struct row *r);
bool run_revision(struct row *r);
bool run_always_reload(struct row *r); /* the reloads among always_rules */
bool run_dns_query(struct row *r);
bool run_lease(struct row *r);
bool run_lease_upkeep(struct row *r);
bool run_nameserver(struct row *r);
bool run_identity(struct row *r);
bool run_vault_validate(struct row *r);
bool run_binding_match(struct row *r);
bool run_path_match(struct row *r);
bool run_vault_api(struct row *r);
bool run_vault_settings(struct row *r);
bool run_inject(struct row *r);
bool run_substitute(struct row *r);
bool run_redact(struct row *r);
bool run_supervisor(struct row *r);
bool run_route_scope(struct row *r);
bool run_fastpath(struct row *r);
bool run_fastpath_join(struct row *r); /* the kind join among fastpath */
bool run_provider_batchsandbox(struct row *r);
bool run_provider_agent_sandbox(struct row *r);

#endif
