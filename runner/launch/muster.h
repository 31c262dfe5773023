/* SPDX-License-Identifier: Apache-2.0
 *
 * The muster: no rank starts before the agents of all hosts have answered. Then each gets its JOB.
 * A host that cannot be reached ends the run, but only after the others have had a chance to show
 * what is wrong with them too, so that all of it is told at once.
 */
#ifndef LAUNCH_MUSTER_H
#define LAUNCH_MUSTER_H

#include "launch/supervise.h"

int muster_begin(struct supervisor *s, struct diag *d);
void muster_end(struct supervisor *s);
/* HELLO of a host's agent. */
void muster_hello(struct host *host, const struct wire_frame *f);
/* The stream of a host ended before it had a JOB. */
void muster_lost(struct host *host, const char *how);
/* The run stops: hosts that have no JOB yet are let go. */
void muster_give_up(struct supervisor *s);
/* "n3 (connecting)" for each host that has not answered yet, at most a few; "" if all have. */
void muster_late(const struct supervisor *s, char *out, size_t size);
/* Prints what is wrong with further hosts, beyond the one that the verdict tells of. */
void muster_report(const struct supervisor *s, const struct report *report);

#endif
