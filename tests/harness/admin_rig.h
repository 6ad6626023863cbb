/* admin_rig.h — the admin listener of a product of the test's own, on one worker that the test
 * turns itself, and clients that say exactly what they are told. */
#ifndef HARNESS_ADMIN_RIG_H
#define HARNESS_ADMIN_RIG_H

#include "app/admin.h"
#include "app/app_impl.h"

enum { RIG_CALL_BYTES = 65536 };

struct admin_rig {
    struct app app; /* no serving workers, so pages that ask them cannot be asked for */
    struct admin *admin;
    uint16_t port;
};

/* One connection. */
struct rig_call {
    int fd;
    bool ended;                    /* by the listener */
    char text[RIG_CALL_BYTES + 1]; /* what has come, terminated */
    size_t n;
};

void admin_rig_start(struct admin_rig *r, const struct product *product);
/* The listener alone; the worker goes with admin_rig_done(). */
void admin_rig_stop(struct admin_rig *r);
void admin_rig_done(struct admin_rig *r);
/* One turn, with a nap. */
void admin_rig_turn(struct admin_rig *r);

void rig_dial(struct admin_rig *r, struct rig_call *c);
void rig_say(struct rig_call *c, struct str bytes);
/* Takes what has come, without waiting. */
void rig_hear(struct rig_call *c);
void rig_hang_up(struct rig_call *c);
/* Turns until the text has come, or until the listener has ended the connection; fails after a long
 * time. */
void rig_until_heard(struct admin_rig *r, struct rig_call *c, const char *text);
void rig_until_ended(struct admin_rig *r, struct rig_call *c);
/* A whole request on a connection of its own; fields: lines with their ends.  The status; c has the
 * answer. */
int rig_ask(struct admin_rig *r, struct rig_call *c, const char *method, const char *path,
            const char *fields, const char *body);
int rig_status(const struct rig_call *c);
/* The value of a field of the answer, in memory of its own until the next call; NULL: none. */
const char *rig_field(const struct rig_call *c, const char *name);
const char *rig_body(const struct rig_call *c);

#endif
