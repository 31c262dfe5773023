/* SPDX-License-Identifier: Apache-2.0
 *
 * Long copies and reductions, done in slices: between two slices they check whether the group has
 * failed, so that an abort ends them soon. Both return a status.
 */
#ifndef SHM_TRANSPORT_ABORTABLE_H
#define SHM_TRANSPORT_ABORTABLE_H

#include "group.h"

/* The buffers do not overlap, or are the same. */
int abortable_copy(struct shm_group *g, void *dst, const void *src, size_t len, bool stream);

/* dst[i] = srcs[0][i] op ... over the sources of all ranks, `len` bytes each; AVG divides. Advances
 * every source by `len`. */
int abortable_reduce(struct shm_group *g, void *dst, const void **srcs, size_t len,
                     const struct collrun_call *call, bool stream);

#endif
