/* SPDX-License-Identifier: Apache-2.0
 *
 * The end of one rank: its class, the exit code that follows from it, and its message. When one
 * rank dies, all others fail a moment later, often with longer messages, and their reports arrive
 * in any order. Therefore:
 * - every end is put into a class, and the strongest class is the cause (diagnose/verdict.h);
 * - what a rank did after it was asked to stop is a consequence, never a cause, unless a signal
 *   from outside killed it. It can still share the blame: `cause_alone` is the class of an end that
 *   no other rank and no ABORT had a part in.
 */
#ifndef RUNNER_DIAGNOSE_CAUSE_H
#define RUNNER_DIAGNOSE_CAUSE_H

#include "base/desc.h"
#include "diagnose/ranks.h"

/* Strongest first. */
enum cause_class {
    CAUSE_INTERRUPTED, /* the user interrupted the job before any failure */
    CAUSE_LAUNCH,      /* the job file is wrong; a plugin, backend or program cannot be started */
    CAUSE_OOM,         /* killed by the kernel for lack of memory */
    CAUSE_SIGNAL,      /* killed by a signal that collrun did not send */
    CAUSE_EXIT,        /* a rank ended with its own code, or early */
    CAUSE_HOST_LOST,   /* the agent or the connection to it is gone */
    CAUSE_ERROR,       /* a workload ended by collrun_fail, or with the status of a collrun_ call */
    CAUSE_MISMATCH,    /* ranks called different operations */
    CAUSE_DEADLOCK,    /* ranks wait for each other */
    CAUSE_MISSING,     /* ranks waited for others until a time limit */
    CAUSE_TIMEOUT,     /* a time limit, and no rank in particular is late */
    CAUSE_PEER,        /* the failure of another rank caused it */
    CAUSE_STOPPED,     /* collrun killed it, or asked it to stop before it failed */
    CAUSE_NONE         /* success */
};

/* As result.json has it: "signal", "host_lost", "peer", "ok", ... */
const char *cause_class_name(enum cause_class class);
enum cause_class cause_of(const struct rank_state *rank);
/* The class without regard to when the rank ended. CAUSE_PEER or CAUSE_STOPPED if a call of the
 * rank had failed because of another rank or of ABORT before. */
enum cause_class cause_alone(const struct rank_state *rank);
/* A program of MPI has called MPI_Abort. However it ends after that, the call is the cause. */
bool cause_is_mpi_abort(const struct rank_state *rank);
/* Both ranks ended in the same way: by the same signal, with the same exit code or error. */
bool cause_is_alike(const struct rank_state *a, const struct rank_state *b);
/* The end of the rank counts as its failed call does (rank_state.why): MISMATCH, TIMEOUT, or ERROR
 * after a call of MPI with a wrong argument. */
bool cause_is_by_failed_call(const struct rank_state *rank);
/* True if the workload that has ended the rank is in its fini; if that is not known, or the rank
 * runs: if all its workloads are. */
bool cause_is_in_fini(const struct desc *desc, const struct rank_state *rank, uint32_t number);
int cause_exit_code(const struct rank_state *rank, enum cause_class class);
/* "rank 3 (node1, pid 4711)", "ranks 0-1", "all 4 ranks" */
void cause_ranks_text(const struct desc *desc, const struct rank_state *states,
                      const struct desc_ranks *ranks, char *out, size_t size);
/* How a rank ended, without its name: "workload "train" returned 4 from run", "killed by signal 11
 * (SIGSEGV)". */
void cause_how_text(const struct rank_state *rank, char *out, size_t size);
/* Writes the message about `ranks`, which ended alike: "rank 3 (node1, pid 4711), workload
 * "train", exited with code 7 while it was running"; "all 4 ranks, ...". */
void cause_set_text(const struct desc *desc, const struct rank_state *states,
                    const struct desc_ranks *ranks, struct diag *d);

#endif
