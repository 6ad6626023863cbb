/* vectors.c — program `vectors DIR… [--all]`: runs every vector file it knows in these folders, one
 * JSON object per line, and names each row that fails.  Rows that HTTP/2 has words for run twice.
 * Rows of the level "better" are run with --all only. */
#include "vectors/vectors.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/text.h"

static const struct file {
    const char *name;
    row_runner run;
    row_runner fits_h2; /* runs over HTTP/2 too? NULL: none of them */
} files[] = {
    {"route_parse.jsonl", run_route_parse, row_request_fits_h2},
    {"signature.jsonl", run_signature, NULL},
    {"access_matrix.jsonl", run_access_matrix, row_request_fits_h2},
    {"keyring.jsonl", run_keyring, NULL},
    {"dial_target.jsonl", run_dial_target, NULL},
    {"client_ip.jsonl", run_client_ip, NULL},
    {"errors.jsonl", run_errors, row_fits_h2},
    {"headers.jsonl", run_headers, row_fits_h2},
    {"upgrade.jsonl", run_upgrade, NULL},
    {"cli.jsonl", run_cli, NULL},
    {"redis_dsn.jsonl", run_redis_dsn, NULL},
    {"renew_intent.jsonl", run_renew_intent, NULL},
    {"activity.jsonl", run_activity, NULL},
    {"network_readiness.jsonl", run_network_readiness, NULL},
    {"wake.jsonl", run_wake, NULL},
    {"policy_parse.jsonl", run_policy_parse, NULL},
    {"policy_eval_domain.jsonl", run_policy_eval_domain, NULL},
    {"policy_eval_ip.jsonl", run_policy_eval_ip, NULL},
    {"policy_api.jsonl", run_policy_api, NULL},
    {"answer_filter.jsonl", run_answer_filter, NULL},
    {"always_rules.jsonl", run_always_rules, NULL},
    {"log_skip.jsonl", run_log_skip, NULL},
    {"dns_query.jsonl", run_dns_query, NULL},
    {"lease.jsonl", run_lease, NULL},
    {"lease_upkeep.jsonl", run_lease_upkeep, NULL},
    {"nameserver.jsonl", run_nameserver, NULL},
    {"env.jsonl", run_env, NULL},
    {"persistence.jsonl", run_persistence, NULL},
    {"revision.jsonl", run_revision, NULL},
    {"identity.jsonl", run_identity, NULL},
    {"vault_validate.jsonl", run_vault_validate, NULL},
    {"binding_match.jsonl", run_binding_match, NULL},
    {"path_match.jsonl", run_path_match, NULL},
    {"vault_api.jsonl", run_vault_api, NULL},
    {"policy_interplay.jsonl", run_vault_api, NULL},
    {"settings.jsonl", run_vault_settings, NULL},
    {"inject.jsonl", run_inject, NULL},
    {"substitute.jsonl", run_substitute, NULL},
    {"redact.jsonl", run_redact, NULL},
    {"supervisor.jsonl", run_supervisor, NULL},
    {"route_scope.jsonl", run_route_scope, NULL},
    {"fastpath.jsonl", run_fastpath, NULL},
    {"provider_batchsandbox.jsonl", run_provider_batchsandbox, NULL},
    {"provider_agent_sandbox.jsonl", run_provider_agent_sandbox, NULL},
};

struct counts {
    unsigned passed, failed, over_h2;
    unsigned skipped; /* rows that are run against the program */
};

static void name_failure(const char *file, const struct row *r)
{
    struct str id = row_text(r->v, "id"), why = row_text(r->v, "why"), trouble = r->trouble;
    if (!text_utf8(trouble)) { /* rows hold any bytes, what we print is text */
        char *out = arena_get(r->a, trouble.n * 6);
        trouble = (struct str){out, text_put_json(out, trouble.n * 6, trouble)};
    }
    printf("FAILED %s %.*s%s: %.*s\n    %.*s\n", file, STR_ARG(id), r->h2 ? " over HTTP/2" : "",
           STR_ARG(why), STR_ARG(trouble));
}

static void run_version(const struct file *file, struct row *r, bool h2, struct counts *counts)
{
    r->h2 = h2;
    r->trouble = STR("");
    bool good = file->run(r);
    counts->passed += good && !r->skipped;
    counts->skipped += good && r->skipped;
    counts->failed += !good;
    counts->over_h2 += h2;
    if (!good)
        name_failure(file->name, r);
}

static void run_row(const struct file *file, struct str line, bool all, struct counts *counts)
{
    struct json_fault fault;
    struct json_doc *doc = json_parse(line, 0, 64, &fault);
    if (!doc) {
        printf("FAILED %s: a line is no JSON: %u:%u %s\n", file->name, fault.line, fault.column,
               fault.text);
        counts->failed++;
        return;
    }
    struct arena a;
    arena_init(&a, NULL, 0);
    struct row r = {.doc = doc, .v = json_root(doc), .line = line, .a = &a};
    if (all || !row_is(r.v, "level", "better")) {
        run_version(file, &r, false, counts);
        if (file->fits_h2 && file->fits_h2(&r))
            run_version(file, &r, true, counts);
    }
    arena_done(&a);
    json_free(doc);
}

static char *read_file(const char *path, size_t *ret_n)
{
    FILE *f = fopen(path, "rb");
    if (!f)
        return NULL;
    size_t n = 0, room = 1 << 16;
    char *p = mem_new(room);
    for (size_t got; (got = fread(p + n, 1, room - n, f)) > 0;) {
        n += got;
        if (n == room)
            p = mem_renew(p, room *= 2);
    }
    fclose(f);
    *ret_n = n;
    return p;
}

static void run_file(const struct file *file, const char *path, bool all, struct counts *counts)
{
    struct str rest = STR_NONE, line;
    char *text = read_file(path, &rest.n);
    if (!text) {
        printf("FAILED %s: cannot be read\n", path);
        counts->failed++;
        return;
    }
    rest.p = text;
    while (str_next(&rest, '\n', &line))
        if (str_trim(line).n)
            run_row(file, line, all, counts);
    mem_free(text);
}

static const struct file *file_of(const char *name)
{
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        if (strcmp(files[i].name, name) == 0)
            return &files[i];
    return NULL;
}

static int is_vector_file(const struct dirent *e)
{
    return str_iends(str_of(e->d_name), STR(".jsonl"));
}

static void run_folder(const char *folder, bool all, struct counts *counts)
{
    struct dirent **names;
    int n = scandir(folder, &names, is_vector_file, alphasort);
    if (n < 0) {
        printf("FAILED %s: cannot be read\n", folder);
        counts->failed++;
        return;
    }
    for (int i = 0; i < n; i++) {
        char path[4096];
        const struct file *file = file_of(names[i]->d_name);
        snprintf(path, sizeof path, "%s/%s", folder, names[i]->d_name);
        if (file)
            run_file(file, path, all, counts);
        else
            printf("skipped: %s\n", names[i]->d_name);
        free(names[i]);
    }
    free(names);
}

int main(int argc, char **argv)
{
    struct counts counts = {0, 0, 0, 0};
    bool all = false;
    int folders = 0;
    for (int i = 1; i < argc; i++)
        all |= strcmp(argv[i], "--all") == 0;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--all") == 0)
            continue;
        run_folder(argv[i], all, &counts);
        folders++;
    }
    if (folders == 0) {
        fprintf(stderr, "usage: vectors DIR… [--all]\n");
        return 2;
    }
    if (counts.skipped > 0)
        printf("%u rows need the running program\n", counts.skipped);
    printf("%u passed, %u failed; %u of them over HTTP/2\n", counts.passed, counts.failed,
           counts.over_h2);
    return counts.failed > 0;
}
