/* SPDX-License-Identifier: Apache-2.0
 *
 * A stall (diagnose/stall.h) as text for people and as an object for result.json:
 *
 *   CAUSE  rank 5 (node2, pid 4711) has not called allreduce train#1042 (8 x float32, sum); it is
 * in load_batch (data.c:88), asleep in read(3) of /data/shard-7 thread 4713 (collrun-engine):
 * asleep in read(3) of /data/shard-7, 0 % CPU read in libc.so.6+0x10f6ad load_batch (data.c:88)
 *            train (train.c:40)
 *   WAIT   ranks 0-4 -> allreduce train#1042 -> rank 5, for 10.0 s
 */
#ifndef RUNNER_REPORT_STALL_REPORT_H
#define RUNNER_REPORT_STALL_REPORT_H

#include "base/desc.h"
#include "diagnose/stall.h"

#include <jansson.h>
#include <stdio.h>

struct stall_report {
    const struct desc *desc;
    const struct rank_state *ranks;
    const struct stall *stall;
    uint64_t now_ns;
};

enum {
    STALL_REPORT_STACKS = 4 /* ranks whose threads are shown */,
    STALL_REPORT_WAITS = STALL_LISTED
};

void stall_report_print(const struct stall_report *r, FILE *out);
/* The text of the first CAUSE line. */
void stall_report_text(const struct stall_report *r, char *out, size_t size);
/* "3/4 wait in world#1042 for rank 1": the oldest wait. */
void stall_report_line(const struct stall *stall, char *out, size_t size);
/* class, culprits, suspects, group, kind, number, calls, waits, network, text: those of a verdict;
 * and attempt, seconds. */
json_t *stall_report_json(const struct stall_report *r);
/* The ranks whose STACKS the report shows; returns their number, at most STALL_REPORT_STACKS. */
uint32_t stall_report_ranks(const struct stall *stall, uint32_t ranks[STALL_REPORT_STACKS]);

#endif
