/* SPDX-License-Identifier: Apache-2.0
 *
 * Programs that are members of a job. A rank of the job can be a program (`command:` of job.yaml)
 * instead of a plugin. Linked with libcollrun it is a full member: the functions below do for it
 * what collrun does for a workload. Included by collrun.h.
 *
 * C11 and C++17.
 */
#ifndef COLLRUN_PROGRAM_H
#define COLLRUN_PROGRAM_H

#ifdef __cplusplus
extern "C" {
#endif
#if defined(__GNUC__)
#pragma GCC visibility push(default)
#endif

struct collrun_ctx;

/* Connects this process to the job, and forms the groups of job.yaml that its rank is in: waits for
 * their other members, up to timeouts.rendezvous. *out lives until the process ends.
 *
 * Also: UNAVAILABLE (this process was not started by collrun, or another one between them closed
 * the descriptors), EXISTS (the rank has a member process: this one, or another one; a plugin has
 * its context), and what forming a group may return. It cannot be called again after that.
 *
 * From now on a thread of the library serves the connection, with all signals blocked. A crash is
 * reported with a backtrace on stderr, unless the program handles that signal. The program decides
 * what a failed call means, and its exit code is that of the rank: if it exits with another code
 * than 0 through exit() or a return from main, the last error of that thread is part of the report.
 * When the agent of the host ends, calls return ABORTED, and the process ends a second later.
 *
 * fork: the child is not a member. There every call that has to do with groups gives INVALID. */
int collrun_init(struct collrun_ctx **out);

/* Ends this rank's part in the job: waits until the other members of its groups of job.yaml call it
 * as well, or have exited, and closes all groups. Not a group that has failed: nothing is waited
 * for there. The process goes on as a plain program, and exit code 0 is a good end of the rank.
 * Later calls give INVALID; requests can still be waited for, and end with ABORTED.
 *
 * Also: PEER_FAILED, ABORTED (another rank has failed meanwhile; the groups are closed). INVALID if
 * a thread is inside a group or creates one, or `ctx` is not that of collrun_init. Not to be called
 * while other threads use the library. */
int collrun_finalize(struct collrun_ctx *ctx);

/* The same, for the exit handlers of a language's runtime: the program has ended, with exit code 0,
 * and so say the reports about ranks that wait for this one. */
int collrun_finalize_at_exit(struct collrun_ctx *ctx);

#if defined(__GNUC__)
#pragma GCC visibility pop
#endif
#ifdef __cplusplus
}
#endif

#endif
