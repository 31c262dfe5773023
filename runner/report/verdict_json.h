/* SPDX-License-Identifier: Apache-2.0
 *
 * A verdict for programs, as result.json and `collrun diag --json` hold it:
 *   class       ok, job, plugin, oom, signal, exit, error, host_lost, mismatch, deadlock, missing,
 *               timeout, interrupted; see collrun-failures(7)
 *   culprits    world ranks that made the mistake or ended; suspects: those of which some did, but
 *               it is not known which
 *   group, kind, number
 *               the operation that failed; null if there is none
 *   field       the first argument in which the calls differ: kind, dtype, op, root, count, counts
 *   calls       [{ranks, call}]: the calls of a mismatch
 *   waits       [{ranks, group, number, for}]: which ranks wait where for which
 *   network     the connection without an answer, if there is one: {hosts, rank, address, port,
 *               connected, seconds, unacknowledged, retransmits, probes}
 *   text        the message; null: success
 * Ranks in texts are rank sets as in job.yaml: "0-3,8".
 */
#ifndef RUNNER_REPORT_VERDICT_JSON_H
#define RUNNER_REPORT_VERDICT_JSON_H

#include "diagnose/verdict.h"

#include <jansson.h>

json_t *verdict_json(const struct verdict *v);
json_t *verdict_json_network(const struct network_cut *cut);

#endif
