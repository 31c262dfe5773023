/* SPDX-License-Identifier: Apache-2.0
 *
 * Forming and closing groups.
 */
#ifndef ENGINE_GROUP_GROUP_OPEN_H
#define ENGINE_GROUP_GROUP_OPEN_H

#include "base/hostmem.h"
#include "group/group.h"

struct group_route {
    struct backend *backend;
    uint32_t ndevices; /* that each member drives, if the backend uses any; 0 = 1 */
};

struct group_spec {
    const char *name;
    bool name_is_unique; /* as group_identity.is_unique */
    bool is_listed;      /* the name is in group_table.creations */
    bool is_requested;   /* the caller has a request for it: struct forming */
    bool has_generation; /* it is taken; else group_open takes it */
    uint32_t generation;
    uint64_t id, count; /* struct forming; 0: not known */
    const struct desc_ranks *members;
    uint64_t timeout_ns; /* of an operation */
    enum collrun_check check;
    const struct desc_kvs *options;            /* may be NULL; borrowed for the life of the group */
    bool on_demand;                            /* it may never be used */
    uint32_t index;                            /* in the desc, or UINT32_MAX */
    struct group_route routes[GROUP_BACKENDS]; /* as collrun_group.backends */
    uint32_t nroutes;
};

/* Collective over the members. NOT_MEMBER if this rank is none, EXISTS if a group of this name is
 * open here. */
int group_open(struct group_table *t, const struct group_spec *spec, struct collrun_group **out,
               struct diag *d);

enum { GROUP_NAME_LEN = 128 };
/* A name for a group whose members gave none: "group(0-3,7).1". It is unique among the groups of
 * these members, and they all get the same one, since they create their groups in the same order.
 * *number: from 0 on. NO_MEMORY. */
int group_make_name(struct group_table *t, const struct desc_ranks *members,
                    char out[GROUP_NAME_LEN], uint32_t *number);
/* Reports the messages of the group that have arrived and were never received, once, unless the
 * group or the job has failed. `looks`: the job ends; reads what has arrived meanwhile. Else the
 * group is destroyed, in which other threads may have sent and received until now. */
void group_report_unreceived(struct collrun_group *g, bool looks);
/* Local and bounded. Aborts the operations in flight, closes the backends' handles, and drops the
 * reference of group_open. */
void group_close(struct collrun_group *g);

/* The text that is equal on all members of a group: its backends, with their versions, and its
 * check. "gloo 1.0 (Gloo 0.5), ABI 1; nccl 1.0, ABI 1, check: strict". One that is too long is cut,
 * after a hash of the whole. False: out of memory. */
bool group_identity(const struct collrun_group *g, char out[HOSTMEM_IDENTITY_LEN]);

#endif
