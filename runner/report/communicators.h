/* SPDX-License-Identifier: Apache-2.0
 *
 * How many communicators the devices of the ranks will hold: each takes memory of its device.
 */
#ifndef RUNNER_REPORT_COMMUNICATORS_H
#define RUNNER_REPORT_COMMUNICATORS_H

#include "base/desc.h"

struct communicators {
    uint32_t at_start; /* when the groups have been formed */
    uint32_t at_most;  /* with those that are formed when they are first used */
};

/* The communicators of one device, over all groups of job.yaml; `device` is an index into the
 * devices of the kind that the rank has. Groups that a workload creates are not known to the plan.
 */
struct communicators communicators_on(const struct desc *desc, uint32_t rank, uint32_t kind,
                                      uint32_t device);

#endif
