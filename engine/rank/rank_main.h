/* SPDX-License-Identifier: Apache-2.0
 *
 * The life of one rank, from the agent's WELCOME to the exit (base/wire.h has the protocol):
 *
 * - load the workloads -> ATTACHED -> form the groups -> init of each workload -> READY
 * - GO -> run -> DONE
 * - STOP_BACKGROUND -> background workloads end -> IDLE
 * - FINISH -> close the groups, exit
 *
 * Failures:
 *
 * - A step fails here: one FAILED frame is sent, and the process exits without waiting for peers.
 * - The job fails elsewhere (ABORT): every group is aborted, the workloads' calls return, and the
 *   first workload that fails ends the process.
 */
#ifndef ENGINE_RANK_RANK_MAIN_H
#define ENGINE_RANK_RANK_MAIN_H

/* Returns 0 after a successful run; exits the process otherwise. */
int rank_main(void);

/* The one thing that libcollrun exports beside its documented interface: the body of the program
 * collrun-engine. */

/* `collrun-engine` runs the rank whose control connection is descriptor 3; for `--describe` see
 * describe.h. Returns the exit code. */
__attribute__((visibility("default"))) int collrun_engine_main(int argc, char **argv);

#endif
