/* SPDX-License-Identifier: Apache-2.0
 *
 * Bring-up: a barrier over all hosts. No rank starts before the agents of all hosts have sent
 * HELLO; then each agent gets its JOB.
 *
 * Failure modes:
 *  - A host cannot be reached, or its agent is of another build: the run ends, but the other hosts
 *    have ssh.connect_timeout to answer first, so that all unusable hosts are reported together.
 *  - The stream of a host ends before it has a JOB: likewise.
 *  - The run stops: hosts without a JOB are dropped.
 */
#ifndef RUNNER_RUN_BRING_UP_H
#define RUNNER_RUN_BRING_UP_H

#include "connect/connector.h"
#include "run/stop.h"
#include "spec/diag_list.h"

struct bring_up {
    struct run_state *run;
    struct stop *stop;
    /* Takes the stream to an agent and watches it. Negative: it cannot. */
    int (*open_stream)(void *ctx, struct host *host, const struct transport_stream *stream,
                       struct diag *d);
    void *ctx;
    struct connector *connector;
    struct diag_list unreachable; /* one error per host */
    struct loop_timer grace;      /* for hosts that have not answered once one has failed */
};

/* `run`, `stop`, `open_stream` and `ctx` are set. bring_up_fini is due even if it fails. */
int bring_up_start(struct bring_up *b, struct diag *d);
void bring_up_fini(struct bring_up *b);
/* HELLO from the agent of a host. */
void bring_up_on_hello(struct bring_up *b, struct host *host, const struct wire_frame *f);
/* The stream of a host ended before it had a JOB. */
void bring_up_on_lost(struct bring_up *b, struct host *host, int code, const char *how);
/* The run stops: drops the hosts that have no JOB. */
void bring_up_cancel(struct bring_up *b);
/* "n3 (connecting)" for each host that has not answered yet, at most a few; "" if all have. */
void bring_up_missing_text(const struct bring_up *b, char *out, size_t size);
/* Prints the errors of further unreachable hosts, after the one of the verdict. */
void bring_up_print_unreachable(const struct bring_up *b);

#endif
