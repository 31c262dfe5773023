/* SPDX-License-Identifier: Apache-2.0
 *
 * Deadlock detection for ranks of the engine; diagnose/cuts.h is that of all others. The wait
 * reports of all ranks (diagnose/wait_report.h) are compared:
 * - a call can complete if its counterpart is posted, is in progress, or can still be called by a
 *   rank that can make progress;
 * - a rank can make progress if one of its threads can;
 * - the remaining ranks can never make progress: they wait for each other or for a rank that has
 *   ended.
 * The creation and the split of a group count as calls that all members have to make. A rank has
 * called as many of them as its report counts, also if it has destroyed the groups since.
 *
 * A report may be old without making the result wrong. Suppose that some of the remaining ranks
 * made progress after they sent their reports, and consider the first of them. It depended on
 * another remaining rank. That rank did not make progress after its own report, because it would
 * have been the first; nor before it, because the report would show it.
 *
 * What is counted makes this hold for messages, as in diagnose/proof.h. A send counts before its
 * transport gets it, and a receive once its thread has learnt of the message. So sent - received is
 * at least the number of messages that are on the way. Receives of one thread for one rank and tag
 * get them in the order in which they were posted, and a send is matched after the earlier ones of
 * its thread. A receive from any rank that is complete, and was not waited for, hides a deadlock.
 *
 * This holds only if nothing but another rank of the job can wake a thread of a rank whose
 * report is certain. What else wakes threads, and where it is ruled out:
 * - Another thread of the process that computes, sleeps, polls, or waits for a file, a socket,
 *   a pipe, an eventfd, inotify, a child, a page of userfaultfd, a GPU or with a time-out:
 *   every thread is in a recorded call, or sleeps in FUTEX_WAIT without a time-out
 *   (engine/core/threads.h).
 * - Another process over shared memory, also by its death with a robust mutex: the command is
 *   FUTEX_WAIT, and the futex is private or lies in a private mapping.
 * - A thread that was woken and has not run yet: it must sleep in two surveys, 100 ms apart,
 *   with equal scheduler statistics.
 * - A signal with a handler: of alarm, setitimer, timer_create, a child, O_ASYNC, mq_notify,
 *   kill, a scheduler or timeouts.warn, also if it only makes a system call return EINTR
 *   (engine/core/signals.h; a signal of signalfd or sigwait has a thread that reads it).
 *   SIGINT with Python's default handler does not count, unless timeouts.warn sends it: only a
 *   person sends it to a rank, to end it.
 * - A completion of an io_uring, which may wake a futex: the process has no descriptor of one
 *   while a thread sleeps on a futex.
 * - A driver that calls back, such as cudaLaunchHostFunc: a rank with devices has no thread
 *   that sleeps on a futex.
 * - A debugger: no thread has a tracer.
 * - SIGSTOP, SIGCONT and the freezer of a cgroup: they delay threads, and wake none.
 * - The time-out of an operation, and timeouts.rendezvous for a creation: below
 *   DEADLOCK_MIN_TIMEOUT_NS it counts as a wake-up. A longer one is there to end a hang, and
 *   does not.
 * - The end of background workloads, which the end of the others brings about: a rank with one
 *   sends no certain report.
 *
 * Two more are ruled out by agreement: an operator of the caller wakes no thread, and no other
 * process shares the address space of a rank (CLONE_VM without CLONE_THREAD).
 * tests/e2e/test_wakeups.sh searches for false proofs.
 */
#ifndef RUNNER_DIAGNOSE_DEADLOCK_H
#define RUNNER_DIAGNOSE_DEADLOCK_H

#include "diagnose/graph.h"

/* Calls with a shorter time-out are not counted: their own error comes as soon as a proof does. */
#define DEADLOCK_MIN_TIMEOUT_NS 3000000000ull

/* Two collectives of a cycle that some ranks call in an order which more ranks contradict. */
struct deadlock_order {
    const struct wait_report_group *first, *later; /* of a wait report */
    uint64_t first_number, later_number;
    struct desc_ranks ranks; /* that have called the first one alone, ascending */
};

struct deadlock {
    struct diag diag;        /* names the ranks and the calls that block them */
    struct desc_ranks cycle; /* ranks that wait for each other, ascending; empty: there is no cycle,
                                and the waits end in ranks whose workloads have ended */
    struct deadlock_order minority; /* without ranks: no order has a majority */
    struct graph waits;             /* of all ranks that can never make progress */
    bool settled;                   /* every rank counts: later reports add nothing */
};

/* True: some ranks can never make progress. Only certain reports count. `explain` is for a job that
 * has failed by a time-out: uncertain reports and short time-outs count, too. The lists are in the
 * arena. */
bool deadlock_find(const struct desc *desc, const struct rank_state *ranks, bool explain,
                   struct arena *arena, struct deadlock *out);

/* "rank 0 has sent 1 message with tag 5 to rank 1, which receives one with tag 6": what is there
 * for a receive or probe that rank 1 waits in, by the reports of both. False: nothing. */
bool deadlock_other_tag(const struct desc *desc, const struct rank_state *ranks, uint32_t rank,
                        char *out, size_t size);

#endif
