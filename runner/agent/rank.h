/* SPDX-License-Identifier: Apache-2.0
 *
 * One rank: fork and exec of collrun-engine, or of its command, in a new process group, with a
 * control socket on descriptor 3, its flight recorder on 4, the memory of the host on 5, and its
 * output in two pipes. A command has the socket of PMI on 6.
 *
 *  - The rank dies with the agent (PDEATHSIG).
 *  - An error between fork and exec is reported on the control socket as FAILED of the rank.
 *  - A frame on the control socket whose rest does not come is an error of the host after 10 s.
 *  - Output is read only while the runner has given credit; until then it waits in the pipes.
 */
#ifndef RUNNER_AGENT_RANK_H
#define RUNNER_AGENT_RANK_H

#include "agent/pmi.h"
#include "agent/rank_stdin.h"
#include "agent/task_survey.h"
#include "base/conn.h"
#include "base/record.h"

#include <sys/types.h>

struct agent;
struct stacks;

struct rank_pipe {
    int fd;               /* -1: end of file */
    struct loop_fd watch; /* not watched without credit */
    struct rank_proc *proc;
    uint8_t stream; /* 1 stdout, 2 stderr */
};

struct rank_mask {
    const char *variable, *value; /* "CUDA_VISIBLE_DEVICES", "GPU-a,GPU-b" */
};

struct rank_proc {
    struct agent *agent;
    uint32_t rank;
    pid_t pid; /* 0: not running */
    bool spawned, exited;
    const struct desc_workload *command; /* NULL: it runs plugins */
    int started_fd;         /* of a command: end of file = its program was executed; -1: closed */
    struct loop_fd started; /* of started_fd */
    struct pmi pmi;         /* of a command */
    bool singleton;         /* Open MPI came up in it as rank 0 of 1; the runner knows */
    bool member;            /* it has sent ATTACHED */
    bool idle;              /* it has sent IDLE */
    bool failed;            /* it has sent FAILED */
    bool terminated;        /* of a command: the agent has sent it SIGTERM, as the job fails */
    uint64_t term_by_ns;    /* its processes were sent SIGTERM, and may go on until then; 0: not */
    struct conn control;
    pid_t member_pid;        /* that sent ATTACHED */
    uint32_t closed_seconds; /* since when the member has closed `control`; 0: it has not */
    size_t part_len;         /* bytes of a frame on `control` that is not whole; rank_check_frame */
    uint32_t part_seconds;   /* for so long none has followed */
    struct rank_pipe out, err;
    struct rank_stdin in;
    struct record_head *record; /* what it is doing; shared with it; NULL: not known */
    size_t record_len;          /* bytes */
    struct task_survey survey;  /* of the process that writes it */
    struct rank_mask *masks;    /* of the kinds of memory that the job has devices of */
    uint32_t nmasks;
    const char *devices; /* their ids, with commas */
    const char *near;    /* cpus that its host has chosen: near its devices, or its share; or "" */
    struct stacks *stacks; /* an answer to READ_STACKS that is not complete; NULL: none */
};

int rank_spawn(struct rank_proc *p, const char *engine, const struct buf *welcome, struct diag *d);
/* Sends on what is in the pipe, as far as the credit allows, and watches it if credit is left.
 * False: end of file. */
bool rank_pipe_pump(struct rank_pipe *p);
/* Sends STARTED now if the program of a command was executed, and nothing otherwise. */
void rank_check_started(struct rank_proc *p);
/* Once a second: closes the control socket if a frame on it has not become whole for 10 s. */
void rank_check_frame(struct rank_proc *p);
/* Once a second: reports a member that runs although it has closed the control socket. */
void rank_check_closed(struct rank_proc *p);
/* At its exit: the same, if it has not been reported. */
void rank_report_closed(struct rank_proc *p);
void rank_close(struct rank_proc *p);

#endif
