/* name_list.h — a source of names for names_through(): a list; who is asked is written down. */
#ifndef HARNESS_NAME_LIST_H
#define HARNESS_NAME_LIST_H

#include "net/resolve.h"
#include "net/worker.h"

struct name_list {
    struct worker *w;
    const char *name, *ip; /* the one name there is, and its address; NULL: none */
    bool silent;           /* no answer comes */
    char asked[256];       /* names, each followed by a blank */
    unsigned waiting, cancelled;
};

struct names *name_list_names(struct name_list *l);

#endif
