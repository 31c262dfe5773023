/* SPDX-License-Identifier: Apache-2.0
 *
 * The root cause of a job that failed. When one rank dies, all others fail too, a moment later and
 * often more loudly; the order in which the news arrives says little. So every ending is put in a
 * class, the strongest class wins, and within a class the first. What a rank did after it had been
 * told to stop is a consequence and never a cause, unless a signal from outside hit it. A pure
 * function of the ranks' states, so that it is tested without processes.
 */
#ifndef WATCH_CAUSE_H
#define WATCH_CAUSE_H

#include "base/desc.h"
#include "watch/ranks.h"

enum cause_class {                    /* strongest first */
                   CAUSE_INTERRUPTED, /* the user asked for the end before anything had failed */
                   CAUSE_LAUNCH, /* a plugin, backend or program could not be loaded or started */
                   CAUSE_OOM,    /* killed by the kernel for lack of memory */
                   CAUSE_SIGNAL, /* killed by a signal that collrun did not send */
                   CAUSE_EXIT,   /* a workload's own exit code, or error */
                   CAUSE_HOST_LOST, /* the agent or the connection to it is gone */
                   CAUSE_STALL,     /* ranks that wait for each other for ever: a deadlock */
                   CAUSE_TIMEOUT,
                   CAUSE_PEER,    /* an error that another rank caused */
                   CAUSE_STOPPED, /* ended by collrun: killed, or told to stop without having failed
                                   */
                   CAUSE_NONE     /* a good end */
};

struct verdict {
    enum cause_class class;
    int exit_code;    /* of collrun */
    uint32_t rank;    /* WIRE_HOST: not a rank */
    struct diag diag; /* the sentence, with the place in job.yaml where there is one */
};

enum cause_class cause_of(const struct rank_state *rank);
/* Keeps `job` (a cause that is not a rank's: a lost host, a time-out; class CAUSE_NONE if there is
 * none) unless a rank's is stronger. */
void cause_find(const struct desc *desc, const struct rank_state *ranks, const struct verdict *job,
                uint64_t job_ns, struct verdict *out);
/* One line on everybody else: "ranks 0-2 failed because of it; rank 5 was stopped by collrun". ""
 * if there is nothing to say. */
void cause_consequences(const struct desc *desc, const struct rank_state *ranks,
                        const struct verdict *v, char *out, size_t size);

#endif
