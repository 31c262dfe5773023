/* SPDX-License-Identifier: Apache-2.0
 *
 * What every rank is doing, on stderr: after SIGUSR1, and with the verdict on a time-out. The
 * agents read it from the ranks' records, so that a rank that hangs or is stopped is listed, too.
 * Ranks that do the same share a line. After SIGUSR1 it has their hosts and pids and since when;
 * then a block about the ranks that wait (stall_monitor.h) follows.
 */
#ifndef RUNNER_RUN_STATUS_REQUEST_H
#define RUNNER_RUN_STATUS_REQUEST_H

#include "run/bring_up.h"
#include "run/stall_monitor.h"

struct status_request {
    struct run_state *run;
    struct stop *stop;
    struct bring_up *bring_up;
    struct console *console;
    struct stall_monitor *stalls;
    struct loop_timer timer; /* for the answers of the agents */
};

/* The other members are set. Queries the agents, and prints a little later. */
void status_request_send(struct status_request *s);
/* Prints what is known now. After the job was stopped: what each rank did before. */
void status_request_print(const struct status_request *s, FILE *out);

#endif
