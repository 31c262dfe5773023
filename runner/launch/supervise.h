/* SPDX-License-Identifier: Apache-2.0
 *
 * The run itself, as the runner sees it: hosts with their streams, ranks with their stages, and
 * what moves them on. All ranks climb the same stairs (watch/ranks.h); when the last one has
 * reached a stair, everybody is sent to the next. The first sign of trouble starts the stop ladder:
 * ABORT at once, SIGTERM after `grace`, SIGKILL half a second later, then the agents are told to
 * QUIT, and in the end a host that still does not answer is given up, by name.
 */
#ifndef LAUNCH_SUPERVISE_H
#define LAUNCH_SUPERVISE_H

#include "base/conn.h"
#include "launch/launch.h"
#include "launch/reach.h"
#include "spec/diag_list.h"
#include "tell/live.h"
#include "tell/output.h"
#include "tell/rundir.h"
#include "watch/cause.h"
#include "watch/policy.h"
#include "watch/rendezvous.h"

struct host {
    struct supervisor *run;
    uint32_t index;
    struct conn conn;
    pid_t pid; /* of the process that carries the stream; 0: reaped */
    int pid_status;
    bool greeted, has_job, bye, lost;
    const char *machine;     /* equal on hosts that are one machine */
    int64_t clock_offset_ns; /* its clock, as seen from here */
    uint64_t heard_ns;       /* when its last frame came */
};

/* After which a remote agent takes this process for lost. */
enum { RUNNER_SILENCE_MS = 10000 };

enum ladder { LADDER_NONE, LADDER_ABORT, LADDER_TERM, LADDER_KILL, LADDER_QUIT, LADDER_LEAVE };

struct supervisor {
    struct loop *loop;
    const struct job *job;
    const struct desc *desc;
    const struct launch_options *options;
    struct arena arena;
    struct reach *reach;
    struct diag_list unreached; /* hosts that could not be used, one sentence each */
    struct host *hosts;
    struct rank_state *ranks;
    uint32_t at_least[STAGE_FINISHING + 1]; /* how many ranks have reached each stage */
    enum rank_stage everybody;              /* the highest stage that all ranks have reached */
    uint32_t nexited;
    struct rdv *rdv;
    struct console *console;
    struct output *output;
    struct live live;
    struct rundir *rundir;
    struct loop_timer start, run, finish, rendezvous, ladder_timer, pulse, state, patience,
        judgement;
    enum ladder ladder;
    struct verdict trouble; /* a cause that is not a rank's */
    uint64_t trouble_ns;
    int interrupts;
    bool output_lost;  /* stdout or stderr could not be written */
    uint64_t pulse_ns; /* the last sign that this process runs: a gap means that it was stopped */
    uint64_t resumed_ns, stopped_ns; /* when it went on, and how long it had stood still */
};

struct attempt { /* what one is made of; all of it outlives the supervisor */
    const struct job *job;
    const struct desc *desc;
    const struct launch_options *options;
    struct console *console;
    struct rundir *rundir; /* NULL without logging.dir */
};

int supervisor_init(struct supervisor *s, const struct attempt *a, struct diag *d);
void supervisor_fini(struct supervisor *s); /* the console is attached elsewhere by then */

/* Takes the stream to the agent of a host, and the process that carries it. */
int supervisor_add_host(struct supervisor *s, uint32_t host, int read_fd, int write_fd, pid_t pid,
                        struct diag *d);
/* Tells an agent that this process is there, and how long it may be silent; 0: for ever. */
void supervisor_tell_alive(struct host *host, uint32_t limit_ms);
/* Takes note when this process itself was stopped for a while. */
void supervisor_note_stop(struct supervisor *s);
/* A child of the runner ended: an agent or a transport's process. */
void supervisor_child_ended(struct supervisor *s, pid_t pid, int status);
/* Ctrl-C and the like: the first time stops the job in order, the second time kills, the third time
 * leaves. */
struct signalfd_siginfo;
void supervisor_interrupt(struct supervisor *s, const struct signalfd_siginfo *info);
/* The verdicts on a run that collrun was told to end, or whose output nobody reads any more. */
void supervisor_interrupted(int sig, struct verdict *v);
void supervisor_reader_gone(struct verdict *v);
/* Says that a stream of collrun's own cannot be written. */
void supervisor_report_broken(const struct report *report, const char *which, int err);
/* Ctrl-Z: stops the ranks, then this process; goes on with both when it is continued. */
void supervisor_suspend(struct supervisor *s);
/* Says on stderr, soon, what every rank is doing (SIGUSR1). */
void supervisor_tell_state(struct supervisor *s);
void supervisor_on_state(struct loop_timer *t);
void supervisor_print_state(const struct supervisor *s, FILE *out);
/* Something other than a rank failed; the first one counts. Starts the stop ladder. */
void supervisor_trouble(struct supervisor *s, enum cause_class class, int exit_code,
                        const struct diag *d);
/* Tells every rank to stop, and why; the first time counts. `culprit` is a rank or WIRE_HOST. */
void supervisor_stop(struct supervisor *s, int status, uint32_t culprit, const char *sentence);
void supervisor_on_ladder(struct loop_timer *t);
/* All hosts have said BYE or are lost. */
bool supervisor_over(const struct supervisor *s);

/* The way up, for frames.c: this rank has reached a stair; it has given its first bad sign. */
void supervisor_advance(struct supervisor *s, uint32_t rank, enum rank_stage stage);
void supervisor_sign(struct supervisor *s, uint32_t rank);
/* The store has new deadlines. */
void supervisor_rearm_rendezvous(struct supervisor *s);
void supervisor_end_if_over(struct supervisor *s);

/* frames.c: a frame from a host. */
void supervisor_on_frame(struct conn *c, const struct wire_frame *f);

/* hosts.c: frames to ranks, as few as can be: one per host. */
void hosts_send_all(struct supervisor *s, uint16_t type, const void *payload, size_t len);
void hosts_send_ranks(struct supervisor *s, const uint32_t *ranks, uint32_t n, uint16_t type,
                      const struct buf *payload);
/* --verbose: what went over the streams. */
void hosts_tell_traffic(const struct supervisor *s);
/* Says that a silent host is lost, and tells a remote one that this process is there. */
void host_check(struct host *host, uint64_t now);

#endif
