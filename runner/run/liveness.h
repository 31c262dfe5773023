/* SPDX-License-Identifier: Apache-2.0
 *
 * Which hosts are alive. Once a second the runner sends a keepalive to the agents on other
 * machines, and checks when the last frame of each agent arrived.
 *
 * Failure modes:
 *  - The stream of a host ends without BYE: the host is lost, with its ranks.
 *  - An agent sends no heartbeat for timeouts.silence: likewise.
 *  - This process was stopped itself (SIGSTOP, a frozen machine): the silence of that time does not
 *    count, and time-outs are judged only after the frames that arrived meanwhile were read.
 */
#ifndef RUNNER_RUN_LIVENESS_H
#define RUNNER_RUN_LIVENESS_H

#include "rendezvous/store.h"
#include "run/bring_up.h"

struct liveness {
    struct run_state *run;
    struct stop *stop;
    struct bring_up *bring_up;
    struct rdv *rdv;
    struct output *output;
    struct loop_timer timer;      /* every second */
    struct loop_timer exit_timer; /* the earliest exit_by_ns of a host */
    const struct host *blamed;    /* whose loss is the failure of the job; NULL: none */
    uint64_t last_tick_ns;        /* a gap after it: this process was stopped */
    uint64_t resumed_ns;          /* when it was continued, ... */
    uint64_t paused_ns;           /* ... and for how long it was stopped, at most */
    uint64_t stopped_ns;          /* at least, of all times that it was stopped */
};

/* All pointers are set. */
void liveness_start(struct liveness *l);
/* Called before time is compared: detects that this process was stopped (SIGSTOP). */
void liveness_check_pause(struct liveness *l);
/* Called when this process goes on: it has been stopped for so long, and the ranks with it. */
void liveness_on_resume(struct liveness *l, uint64_t ns);
/* A clock that stands still while this process is stopped. All limits are of this time. */
uint64_t liveness_now_ns(const struct liveness *l);
/* True if a timer has fired before its time of that clock, or just after this process was stopped.
 * It is set again, for after the frames that are waiting. */
bool liveness_postpone(struct liveness *l, struct loop_timer *t, uint64_t due_ns);
/* The stream of a host has ended: the host is lost. The reason is known once the child that carried
 * the stream has exited, within half a second, or is that it has not. */
void liveness_on_closed(struct liveness *l, struct host *host, const struct diag *why);
/* That child of a host has exited. */
void liveness_on_child_exit(struct liveness *l, struct host *host);
/* An agent says BYE: true if it does so before its ranks have ended; then its host is lost. One
 * that had no memory for a frame, or is none of ours, may. */
bool liveness_on_bye(struct liveness *l, struct host *host);

#endif
