/* SPDX-License-Identifier: Apache-2.0
 *
 * Groups made at run time: the steps that the blocking calls, those with a request
 * (ops/group_start.c) and the shrink have in common. On failure the error message is
 * composed.
 */
#ifndef ENGINE_GROUP_GROUP_MAKE_H
#define ENGINE_GROUP_GROUP_MAKE_H

#include "group/group_open.h"

struct group_split {
    int color, key;
    const char *name;            /* NULL or "": made from that of the parent */
    bool is_listed;              /* the name is in group_table.creations */
    bool is_requested;           /* as in group_spec */
    uint32_t number, generation; /* of the parent's splits: generation_within */
    uint32_t count;              /* of the splits of this parent, with this one */
};

/* OK if a new group can have this name, which may be NULL or "": INVALID, or EXISTS. */
int group_check_name(struct group_table *t, const char *whose, const char *name);

/* Checks the options of a create, takes its name and number, and turns them into a spec. It borrows
 * the name, that of the options or `unnamed`, and *members, whose items the caller frees, also on
 * failure. `listed`, unless it is NULL, takes the name before the number; the caller removes it if
 * out->is_listed. */
int group_plan(struct collrun_ctx *ctx, const struct collrun_group_options *options,
               struct desc_ranks *members, char unnamed[GROUP_NAME_LEN],
               struct group_creation *listed, struct group_spec *out);
/* With the backends, the time-out and the check of `g`; borrows the name and the members. */
struct group_spec group_spec_like(const struct collrun_group *g, const char *name,
                                  const struct desc_ranks *members);
/* Forms it. A spec without a name gets a unique one. EXISTS also if a group of this name is being
 * created. */
int group_make(struct group_table *t, const struct group_spec *spec, struct collrun_group **out);

/* Checks the arguments and takes the generation; inside the parent. */
int group_plan_split(struct collrun_group *parent, struct group_split *split);
/* struct forming.record_id */
uint64_t group_split_record_id(const struct collrun_group *parent, const struct group_split *split);
/* Exchanges the colors and forms the group; *out = NULL for a negative color. The parent may be in
 * use by other threads, and may be closed meanwhile if the caller has a reference to it. */
int group_make_split(struct collrun_group *parent, const struct group_split *split,
                     struct collrun_group **out);

#endif
