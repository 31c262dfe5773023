/* SPDX-License-Identifier: Apache-2.0
 *
 * The memory that collrun_alloc has allocated for a group.
 */
#ifndef ENGINE_GROUP_MEMORY_H
#define ENGINE_GROUP_MEMORY_H

struct collrun_group;

/* Drops the list of memory that was not passed to collrun_free. Memory of the engine is freed; that
 * of the backends belongs to their handles. */
void memory_free_all(struct collrun_group *g);

#endif
