/* SPDX-License-Identifier: Apache-2.0
 *
 * What the runner asks about a rank: STATUS, USAGE and STACKS.
 *
 * STATUS: the state of its process, and what its record holds for each group. The record
 * is shared memory, so that the status of a rank that hangs or has exited is known, too.
 */
#ifndef RUNNER_AGENT_STATUS_H
#define RUNNER_AGENT_STATUS_H

#include "base/loop.h"
#include "base/wire.h"

struct agent;
struct network_survey;
struct rank_proc;

void status_send(struct agent *a, const struct rank_proc *p);

/* USAGE of a rank: CPU time and memory of its process, and how long its latest operations took, by
 * group. Sent on request (MEASURE) only, since it reads the ring of operations. */

void usage_send(struct agent *a, const struct rank_proc *p);

/* STACKS of a rank: what each of its threads is doing, and in which line calls were made, for the
 * report of a stall.
 *
 *  - The agent takes two samples of /proc (agent/process.h), which give state, system call and CPU
 *    use. Then it runs collrun-stack, which prints the stacks, and sends the frame when that ends.
 *  - In the meantime it asks the kernel about the connections of all its ranks (base/network.h), if
 *    the job has several hosts, and sends NETWORK.
 *  - collrun-stack is missing, not permitted, or takes longer than its limit: the frame has the
 *    reason instead of the stacks.
 *
 * The agent does not wait for any of it; the rank is stopped for some milliseconds. */

/* READ_STACKS: each rank named in the frame is answered by STACKS, unless it has exited. */
void stacks_on_read(struct agent *a, const struct wire_frame *f);
void stacks_close(struct agent *a); /* no answer is sent any more */

struct stacks_network { /* a look at the connections of the ranks */
    struct loop_timer timer;
    struct network_survey *surveys; /* one per rank of the host; NULL: no look is on its way */
};

#endif
