/* SPDX-License-Identifier: Apache-2.0
 *
 * Groups that are created beside other work.
 */
#ifndef ENGINE_OPS_GROUP_START_H
#define ENGINE_OPS_GROUP_START_H

struct group_table;

/* When the workloads of this rank have ended: ends the creations that were never waited for, with a
 * warning. Without any it has no effect. */
void group_start_end_all(struct group_table *t);

#endif
