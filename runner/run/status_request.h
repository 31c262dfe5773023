/* SPDX-License-Identifier: Apache-2.0
 *
 * What every rank is doing, for those who ask: on stderr, and for `collrun top`.
 *
 * On stderr: after SIGUSR1, and with the verdict on a time-out. The
 * agents read it from the ranks' records, so that a rank that hangs or is stopped is listed, too.
 * Ranks that do the same share a line. After SIGUSR1 it has their hosts and pids and since when;
 * then a block about the ranks that wait (stall_monitor.h) follows.
 */
#ifndef RUNNER_RUN_STATUS_REQUEST_H
#define RUNNER_RUN_STATUS_REQUEST_H

#include "base/buf.h"
#include "report/top_json.h"
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

/* Serves `collrun top`: a Unix socket in the run directory, top.sock, which only the user of this
 * process may connect to.
 *
 * - A client gets the state of the job (report/top_json.h), one object a line, five times a second,
 *   or as often as the loop of the runner can make it in a tenth of its time. It sends nothing.
 * - The agents are asked for the state (QUERY, MEASURE) only while there is a client.
 * - A client that does not read misses states: a new one is queued only when the last one has been
 *   written.
 * - No failure here stops a job. Where the socket cannot be made (a file system without sockets),
 *   `collrun top` cannot be used; --verbose says why. */

enum { TOP_SERVER_CLIENTS = 8 }; /* further ones are refused */

struct top_client {
    struct top_server *server;
    int fd; /* -1: none */
    struct loop_fd watch;
    struct buf out;
};

struct top_server {
    struct run_state *run; /* these four are set by the caller */
    struct live *live;
    struct stall_monitor *stalls;
    struct audit *const *audit;
    int dir_fd, fd; /* the run directory; the listener */
    struct loop_fd watch;
    struct loop_timer timer;
    uint64_t earliest_ns; /* the next state is not made before this time */
    struct top_client clients[TOP_SERVER_CLIENTS];
};

/* Without a run directory it does nothing. */
void top_server_start(struct top_server *s);
/* Removes the socket. Safe if it was not started. */
void top_server_stop(struct top_server *s);

#endif
