/* SPDX-License-Identifier: Apache-2.0
 *
 * What all parts of a run share: the job, its hosts with their streams, its ranks. Plain data of
 * one attempt; each part (phases.h, stop.h, liveness.h, bring_up.h, frames.h) keeps its own state
 * beside a pointer to this. All of it belongs to the thread of the loop.
 */
#ifndef RUNNER_RUN_RUN_STATE_H
#define RUNNER_RUN_RUN_STATE_H

#include "base/conn.h"
#include "base/desc.h"
#include "diagnose/host_clock.h"
#include "diagnose/ranks.h"
#include "report/rundir.h"
#include "run/run.h"
#include "spec/job.h"
#include "trace/trace.h"

struct attempt { /* the inputs of an attempt; they outlive it */
    const struct job *job;
    const struct desc *desc;
    const struct run_options *options;
    struct console *console;
    struct rundir *rundir; /* NULL without logging.dir */
    struct trace *trace;   /* NULL: the run is not traced */
};

struct host {
    struct supervisor *supervisor; /* for the callbacks of `conn` */
    uint32_t index;
    struct conn conn;
    pid_t pid; /* of the transport command; 0: none, or reaped */
    int pid_status;
    bool has_hello; /* HELLO has arrived */
    bool has_job;   /* JOB was sent */
    bool bye;       /* BYE has arrived, or the host is not needed any more */
    bool lost;
    bool ended;          /* its stream has ended: its transport command ends, too */
    uint64_t exit_by_ns; /* its end is explained then, or once that command has exited; 0: it is */
    const char *machine; /* equal on hosts that are one machine */
    const char *rdma;    /* its active RDMA ports; "": none */
    int64_t clock_offset_ns; /* its clock minus the clock of this machine */
    struct host_clock clock; /* the same, of CLOCK_MONOTONIC; not of hosts on this machine */
    uint64_t last_frame_ns;
    uint64_t look; /* the number of the last LOOK that its agent has answered */
};

struct run_state {
    struct loop *loop;
    const struct job *job;
    const struct desc *desc;
    const struct run_options *options;
    struct rundir *rundir;    /* NULL without logging.dir */
    struct trace *trace;      /* NULL: the run is not traced */
    struct arena arena;       /* what lives as long as the attempt */
    struct host *hosts;       /* desc->nhosts */
    struct rank_state *ranks; /* desc->nranks */
    uint32_t nexited;         /* ranks */
    uint64_t begin_ns;
};

/* run_state_fini is due after a failure, too. */
int run_state_init(struct run_state *run, const struct attempt *a, struct diag *d);
void run_state_fini(struct run_state *run); /* the streams of the hosts are closed by then */
/* With --verbose: "collrun: 0.123 s: TEXT" on stderr. */
void run_state_log(const struct run_state *run, const char *text);

/* ---- hosts ----
 *
 * Frames to the agents of the hosts, and through them to the ranks. A frame for several ranks of
 * one host crosses its stream once (MULTICAST); the agent forwards it to each of them. Hosts whose
 * stream is closed are skipped.
 */

/* An agent on another machine ends its ranks if the runner is silent for this long. */
uint32_t hosts_runner_silence_ms(const struct run_state *run);

void hosts_send_all(struct run_state *run, uint16_t type, const struct buf *payload);
void hosts_send_ranks(struct run_state *run, const uint32_t *ranks, uint32_t n, uint16_t type,
                      const struct buf *payload);
/* To every process of every rank. */
void hosts_send_signal(struct run_state *run, int sig);
/* To one process of each rank, which is to go on. */
void hosts_send_warning(struct run_state *run, int sig);
/* The agent may send `bytes` more of the ranks' output. */
void hosts_send_credit(struct run_state *run, uint32_t host, uint32_t bytes);
/* The agent expects a frame within `limit_ms` from now on; 0: it does not. */
void hosts_send_keepalive(struct run_state *run, uint32_t host, uint32_t limit_ms);

/* True if every host has sent BYE, is lost for a reason that is known, or is not needed. */
bool hosts_all_gone(const struct run_state *run);
void hosts_stop_loop_if_gone(struct run_state *run);
void hosts_close_all(struct run_state *run);
/* With --verbose: how many messages crossed the streams. */
void hosts_log_traffic(const struct run_state *run);

#endif
