/* SPDX-License-Identifier: Apache-2.0
 *
 * struct task_survey: what /proc says about the threads of the process that writes a rank's record
 * (record_survey_fn of base/record_cut.h). It answers one question of each thread: can anything but
 * another thread of the same process let it go on?
 *
 * - SLEEPS: it is in FUTEX_WAIT without a time-out, on an address that no other process can use.
 *   TIMED is the same with a time-out. Everything else RUNS: it computes, or waits for a file, a
 *   socket, a pipe, a signal, a child, a time, a shared futex; or a signal has stopped it, for it
 *   may have been woken before.
 * - Once a thread is found that RUNS and is in no call, all later ones count as running: it may
 *   wake them. This keeps the look at a process of hundreds of threads short.
 * - No thread sleeps in a process to which the kernel or a driver may call back: one that has an
 *   io_uring, or has opened a device.
 * - INERT: a thread of the engine, by its name. Those of other libraries are in the record.
 *
 * The process cannot be read, and the survey fails, if
 * - it is not the one that has mapped the record: its pid is that of another namespace, or it has
 *   ended and the number was used again;
 * - a debugger traces it, since that can do anything;
 * - its threads begin or end during the survey;
 * - /proc does not show its system calls to the agent, as of a setuid program.
 */
#ifndef RUNNER_AGENT_TASK_SURVEY_H
#define RUNNER_AGENT_TASK_SURVEY_H

#include "base/record_cut.h"

#include <sys/types.h>

struct task_survey {
    const struct record_head *record; /* of the rank */
    /* RECORD_THREADS of them. Its head does not say where: the rank may damage that. */
    const struct record_thread *threads;
    uint64_t file;    /* the inode of its memory; 0: not known */
    pid_t pid;        /* the process that was found to have mapped it; 0: none */
    uint64_t started; /* of that process, in ticks since the boot */
};

/* `fd`: the memory file of the record. */
void task_survey_init(struct task_survey *s, const struct record_head *record, int fd);
/* True if the process that writes the record is there, and has not executed another program. */
bool task_survey_writer_runs(struct task_survey *s);
/* A record_survey_fn: `ctx` is the struct task_survey. */
bool task_survey_take(void *ctx, struct arena *arena, struct record_survey *out);

#endif
