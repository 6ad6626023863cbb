/* policy_rig.h — the sidecar's API, queue of changes, policy file and rule files on one real worker
 * and real loopback sockets; only the kernel is a fake that does as it is told. */
#ifndef HARNESS_POLICY_RIG_H
#define HARNESS_POLICY_RIG_H

#include "egress/api/api.h"
#include "egress/state/always_files.h"
#include "egress/state/policy_store.h"
#include "net/worker.h"

struct rig_kernel {
    bool present;
    unsigned applies;
    unsigned fail_at; /* this application fails, counted from 1; 0: none */
    bool fail_all;
    int error;                  /* with what; 0: -EINVAL */
    bool silent;                /* it answers when rig_kernel_speak() is called */
    bool asked_blind;           /* the last one did not know what was there */
    const struct policy *holds; /* NULL: nobody knows */
    /* the question under way */
    const struct policy *fresh;
    void (*done)(void *arg, int error);
    void *arg;
    struct post post;
};

struct policy_rig {
    struct worker *w;
    struct egress_settings set;
    struct arena a; /* of the settings */
    struct snapshot *snap;
    struct policy_store *store;
    struct changes *changes;
    struct decisions *decisions;
    struct always_files *always;
    struct api *api;
    uint16_t port;
    struct rig_kernel kernel;
    unsigned afters; /* leases judged again */
    bool unsure;
    const char *not_enforced;
    bool interception_ready;
    const struct vault *vault;       /* of rig_start(); the caller's */
    const struct lost *lost;         /* likewise */
    const struct passlist *passlist; /* the caller's */
    uint64_t ready_at_ms;            /* interception_ready() says no until then */
    unsigned updates;                /* told by the API */
    int update_status;
    char folder[64], file[96];
};

struct rig_answer {
    int status; /* 0: the connection ended without an answer */
    struct str head, body;
};

/* A folder of its own, a worker, and the settings that the variables give. */
void rig_init(struct policy_rig *r, const char *(*getenv)(const char *name));
/* The policy in force (NULL: the one that a start would have), rule files from r->folder, the API
 * on a free port of all addresses.  False: what a start says; *ret_error lies in r->a. */
bool rig_start(struct policy_rig *r, const struct document *user, struct str *ret_error);
/* Another API, for settings that are read at its start; all else stays. */
void rig_restart(struct policy_rig *r);
/* Another user policy, or other lists, comes into force, whatever they are; false: it did not. */
bool rig_policy(struct policy_rig *r, const struct document *user);
bool rig_lists(struct policy_rig *r, const struct always_lists *lists);
/* Everything ends; the folder is taken away. */
void rig_stop(struct policy_rig *r);

uint64_t rig_now_ms(void);
/* Turns the worker for so long. */
void rig_run(struct policy_rig *r, unsigned ms);
/* Turns it until done(user) or 5 s are over; says which. */
bool rig_until(struct policy_rig *r, bool (*done)(void *user), void *user);
/* A connection to the API from this address (NULL: loopback), or -1. */
int rig_connect(struct policy_rig *r, const char *from);
/* Sends as much as goes, turning the worker. */
void rig_send(struct policy_rig *r, int fd, struct str bytes);
/* Reads one answer (1xx are skipped); `head_only`: to a HEAD.  Lies in `a`. */
struct rig_answer rig_read(struct policy_rig *r, int fd, bool head_only, struct arena *a);
/* Both, on a connection of its own. */
struct rig_answer rig_ask(struct policy_rig *r, const char *from, struct str request,
                          struct arena *a);
/* A request with Host, Content-Length and more header lines ("A: b\r\n" …). */
struct str rig_request(const char *method, const char *path, const char *more, struct str body,
                       struct arena *a);
/* The value of a header line, or "". */
struct str rig_field(const struct rig_answer *answer, const char *name);
/* The silent kernel answers now. */
void rig_kernel_speak(struct policy_rig *r, int error);
/* A file in the rig's folder: text NULL takes it away. */
void rig_write(struct policy_rig *r, const char *name, const char *text);
struct str rig_file(const char *path, struct arena *a);

#endif
