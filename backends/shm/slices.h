/* SPDX-License-Identifier: Apache-2.0
 *
 * Long work on memory, done in slices: between two of them an abort of the group is noticed. Both
 * return a status.
 */
#ifndef SHM_SLICES_H
#define SHM_SLICES_H

#include "group.h"

/* The buffers do not overlap, or are the same. */
int copy_slices(struct shm_group *g, void *dst, const void *src, size_t len, bool stream);

/* dst[i] = g->srcs[0][i] op ... over all ranks' sources, `len` bytes each; AVG divides. Moves
 * g->srcs on by `len`. */
int reduce_slices(struct shm_group *g, void *dst, size_t len, const struct collrun_call *call,
                  bool stream);

#endif
