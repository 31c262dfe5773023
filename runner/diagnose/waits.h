/* SPDX-License-Identifier: Apache-2.0
 *
 * The ranks to blame for calls that never completed. A proof of deadlock (diagnose/deadlock.h)
 * comes first; without one, the sinks of the wait-for graph (diagnose/graph.h) are missing.
 */
#ifndef RUNNER_DIAGNOSE_WAITS_H
#define RUNNER_DIAGNOSE_WAITS_H

#include "diagnose/verdict_types.h"

/* For CAUSE_DEADLOCK and CAUSE_TIMEOUT, with exit code and message: sets waits, and culprits or
 * suspects. The class becomes that of the cause: a deadlock, ranks that ended early, or ranks that
 * are missing. */
void waits_blame(const struct evidence *e, struct arena *arena, struct verdict *v);

#endif
