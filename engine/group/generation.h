/* SPDX-License-Identifier: Apache-2.0
 *
 * How often something was formed under a name in this process, so that the n-th time on one rank
 * belongs to the n-th time on the others. A name is remembered for the life of the process, as all
 * members must count alike. A name that collrun makes is used once: its group counts for itself,
 * and nothing is left of it.
 */
#ifndef ENGINE_GROUP_GENERATION_H
#define ENGINE_GROUP_GENERATION_H

#include "base/buf.h"
#include "base/desc.h"

#include <stdint.h>

struct collrun_group;
struct engine;

/* What the members of a group do together, besides operations, again and again. */
enum generation_of { GENERATION_OF_SPLIT, GENERATION_OF_AGREEMENT, GENERATION_KINDS };

/* All return OK or NO_MEMORY, without a message. */

/* Of this name and these members, from 0 on. */
int generation_next(struct engine *e, const char *name, const struct desc_ranks *members,
                    uint32_t *out);
/* Of the group itself, once. */
int generation_of_group(struct collrun_group *g, uint32_t *out);
/* Of the group's splits or agreements: *number from 0 on; *generation is for the rendezvous. Counts
 * them in g->formed. */
int generation_within(struct collrun_group *g, enum generation_of what, uint32_t *number,
                      uint32_t *generation);
/* The id of a name and its members. */
uint64_t generation_id(const char *name, const struct desc_ranks *members);
/* Under engine.groups_lock: how often each name was used, as {u64 id, u64 times}, behind their
 * number as u32. False: they are more than GENERATION_LISTED, of which no more are listed. */
enum { GENERATION_LISTED = 256 };
bool generation_list(const struct engine *e, struct buf *out);
void generation_forget_all(struct engine *e);

#endif
