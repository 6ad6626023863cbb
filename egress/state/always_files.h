/* always_files.h — the operator's rule files: read at the start, then kept an eye on (contract
 * egress-policy 3.6).
 *
 * A change of a file is in force within two seconds; besides they are read once right after the
 * start, every minute and when asked.  What is wrong or refused leaves the lists as they are. */
#ifndef STATE_ALWAYS_FILES_H
#define STATE_ALWAYS_FILES_H

#include "egress/state/change.h"

struct always_files;

#define ALWAYS_FOLDER "/var/egress/rules"

/* Reads all three files in `folder`; a missing one is empty.  Blocks.  False: one line, in `a`. */
must_check bool always_read(struct str folder, struct always_lists *ret, struct arena *a,
                            struct str *ret_error);

struct always_files *always_start(struct worker *w, struct changes *q, struct str folder);
/* Reads them now, as on SIGHUP. */
void always_reload(struct always_files *f);
/* No event comes from it any more.  It may outlive the call until its reading is through, but the
 * queue must not: stop it first. */
void always_stop(struct always_files *f);

#endif
