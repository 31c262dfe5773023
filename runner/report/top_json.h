/* SPDX-License-Identifier: Apache-2.0
 *
 * The state of a running job as one JSON object, for `collrun top`:
 *
 *   {"job": "demo", "run_id": "...", "attempt": 0, "seconds": 12.3, "up": 4, "waits": "",
 *    "workloads": [{"name": "train", "done": 17, "total": 100, "what": "steps"}],
 *    "groups": [{"name": "world", "ranks": 4, "backend": "shm", "operations": 1200, "bytes": 4800,
 *                "operations_per_s": 230.1, "bytes_per_s": 920.4,
 *                "latency_us": 12.1, "longest_us": 80.0,
 *                "last": {"rank": 3, "share": 0.8, "late_ms": 1.2}}],
 *    "ranks": [{"rank": 0, "host": "node1", "pid": 4711, "state": "running",
 *               "doing": "in allreduce world#1200 (...)", "seconds": 0.1, "cpu": 0.98,
 *               "memory": 12345678}]}
 *
 * What is not known is null: rates in the first second, CPU and memory until the agents have
 * answered, `latency_us` (the mean of the operations that ended in the last second) if none did.
 * `last`: the rank that called the operations of the group last most often, in which share of those
 * that were compared, and by how much. `state`: running, exited, killed, or a phase.
 */
#ifndef RUNNER_REPORT_TOP_JSON_H
#define RUNNER_REPORT_TOP_JSON_H

#include "diagnose/audit.h"
#include "diagnose/ranks.h"
#include "report/live.h"

#include <jansson.h>

struct top_state { /* borrowed */
    const struct desc *desc;
    const struct rank_state *ranks;
    const struct live *live;
    const struct audit *audit;
};

json_t *top_json(const struct top_state *s, uint64_t now_ns);

#endif
