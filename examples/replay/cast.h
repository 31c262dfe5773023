/* SPDX-License-Identifier: Apache-2.0
 *
 * Which process plays which ranks of the trace: rank r is played by process r % n of the group that
 * the workload runs in. With n processes for n ranks, each plays one.
 *
 * A group of the trace becomes a group of the processes that play its members, in the order in
 * which the members are listed. Group 0 of these is the group of the workload itself: the check of
 * the traces and the report use it, no operation of a trace does.
 */
#ifndef REPLAY_CAST_H
#define REPLAY_CAST_H

#include "files.h"
#include "trace.h"

#include <collrun/workload.h>

struct cast_group {
    struct trace_group traced;   /* owned */
    uint64_t key;                /* of its name and members, the same on all processes */
    struct collrun_group *group; /* owned; NULL: this process plays none of the members */
    int *process;                /* of each member: the rank in `group` of its process */
    int *members;                /* of each rank in `group`: the number of members */
    int nprocesses, here;        /* here: members that this process plays */
    bool folded;                 /* a process plays several members */
};

struct cast {
    struct collrun_ctx *ctx;
    struct collrun_group *group; /* of the workload; borrowed */
    int rank, nprocesses;
    struct files files, times; /* times: as files, or none */
    struct trace *traces;      /* of the ranks that this process plays */
    int ntraces, world_size;
    struct cast_group *groups;
    int ngroups;
    int **group_of; /* by trace and its group: index in `groups` */
};

/* Reads the traces of this process; 0, or a status or exit code, with the error reported. */
int cast_read(struct cast *c, struct collrun_ctx *ctx);
/* Finds the groups that the traces of all processes use; collective over the processes. */
int cast_find_groups(struct cast *c);
/* Makes them; collective over the processes. */
int cast_make_groups(struct cast *c);
void cast_fini(struct cast *c);

static inline const struct cast_group *cast_group_of(const struct cast *c, int trace,
                                                     const struct op *op)
{
    return &c->groups[c->group_of[trace][op->group]];
}
#endif
