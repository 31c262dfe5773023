/* SPDX-License-Identifier: Apache-2.0
 *
 * What has been counted about stragglers (straggler.h) in each group of a job. Formations of one
 * name and the same members count as one group. A job may form any number of groups under new
 * names: of more than STRAGGLER_LIST_MAX, those that ended longest ago are left out.
 */
#ifndef RUNNER_DIAGNOSE_STRAGGLER_LIST_H
#define RUNNER_DIAGNOSE_STRAGGLER_LIST_H

#include "diagnose/straggler.h"

enum { STRAGGLER_LIST_MAX = 1024 };

struct straggler_sums {
    char *group;                 /* its name; owned */
    struct straggler_group sums; /* in the order of ranks */
    uint64_t ended;              /* the n-th formation that ended */
};

struct straggler_list {           /* all zero: empty */
    struct straggler_sums *items; /* owned */
    uint32_t n;
    uint64_t ended;    /* formations */
    uint64_t left_out; /* groups */
};

void straggler_list_fini(struct straggler_list *list);
/* A formation has ended. Moves what it has compared to the list; `own` is then empty. Without
 * memory for it, it is lost. */
void straggler_list_take(struct straggler_list *list, const char *group,
                         struct straggler_group *own);

#endif
