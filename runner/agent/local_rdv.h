/* SPDX-License-Identifier: Apache-2.0
 *
 * The rendezvous of groups whose members are all on this host. The agent serves them from a store
 * like the runner's (rendezvous/store.h), so forming such a group needs no round trip to the
 * runner. Frames about other groups are for the runner.
 *
 * - JOIN lists the members and decides who serves the scope; its later frames follow by its name.
 * - A member exits, or the deadline passes: the scope fails for all members, as in the runner.
 * - The ranks were stopped (Ctrl-Z), or the agent itself was: deadlines do not pass meanwhile.
 * - The store refuses a frame: HOST_ERROR, which ends the job.
 */
#ifndef RUNNER_AGENT_LOCAL_RDV_H
#define RUNNER_AGENT_LOCAL_RDV_H

#include "base/diag.h"
#include "base/loop.h"

struct agent;
struct rdv;
struct wire_frame;

struct local_rdv {
    struct agent *agent;
    struct rdv *store; /* NULL: not open */
    struct loop_timer deadline;
    uint64_t suspended_ns; /* when the ranks were stopped; 0: they are not */
    uint64_t stopped_ns;   /* for how long they were, before */
};

/* Once agent->desc is known. */
int local_rdv_open(struct local_rdv *l, struct agent *a, struct diag *d);
void local_rdv_close(struct local_rdv *l);

/* JOIN, PUT, GET, FENCE or LEAVE of a rank. False: the frame is for the runner. */
bool local_rdv_take(struct local_rdv *l, const struct wire_frame *f);
/* The runner has stopped all ranks of the host by SIGSTOP, or continued them. */
void local_rdv_suspend(struct local_rdv *l);
void local_rdv_resume(struct local_rdv *l);
void local_rdv_on_rank_exit(struct local_rdv *l, uint32_t rank);

#endif
