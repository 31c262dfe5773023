/* SPDX-License-Identifier: Apache-2.0
 *
 * The story of one rank, from the agent's WELCOME to the exit; see base/wire.h for the protocol
 * around it: load the workloads -> ATTACHED -> form the groups -> init of each workload -> READY ->
 * (GO) run -> DONE -> (STOP_BACKGROUND) background workloads end -> IDLE -> (FINISH) close groups,
 * exit. What fails is told in one FAILED frame, and the process exits without waiting for anybody.
 * When the job fails elsewhere (ABORT), every group is aborted, the workloads' calls return, and
 * the first that gives up ends the process.
 */
#ifndef ENGINE_ATTACH_H
#define ENGINE_ATTACH_H

/* Returns the exit code of a rank that ended well; exits by itself otherwise. */
int attach_run(void);

#endif
