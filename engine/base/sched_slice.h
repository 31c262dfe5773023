/* SPDX-License-Identifier: Apache-2.0
 *
 * Short scheduler slices for threads that sleep most of the time and must react fast: the agent's,
 * which detects the end of a rank, and the service thread of each rank, which aborts operations
 * that wait for it. On an oversubscribed host these threads would otherwise wait for a core as long
 * as the ranks do.
 */
#ifndef ENGINE_BASE_SCHED_SLICE_H
#define ENGINE_BASE_SCHED_SLICE_H

/* Asks the kernel (6.12 and later; others ignore it) to run this thread in short slices, and
 * therefore earlier. Its share of the CPU does not grow, and no privilege is needed. Its children
 * have ordinary slices, and a negative nice value of this thread becomes 0 in them. */
void sched_slice_shorten(void);

#endif
