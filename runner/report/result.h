/* SPDX-License-Identifier: Apache-2.0
 *
 * result.json: how a run ended, for programs to read.
 *   job, run_id, started, seconds, exit_code (that of collrun)
 *   verdict    how it ended and which ranks caused it (below)
 *              (these are the last attempt's, unless the run ended after it: in the pause before a
 *              restart, or while its output was waiting to be read)
 *   attempts   [{attempt, seconds, exit_code, verdict}], the last one last
 *   stalls     [{attempt, seconds, class, culprits, suspects, group, kind, number, field, calls,
 *              waits, text}]: stalls that were reported and have passed (report/stall_report.h)
 *   internal   ["proof withdrawn: ..."]: lines for developers of collrun; mostly absent
 *   groups     [{name, backend, size, operations, bytes}]: operations of the rank that did most of
 *              them, bytes that all its ranks put in; of groups of job.yaml, in the last attempt
 *   ranks      [{rank, host, pid, exit_code or signal, class, error, started_s, ended_s, user_s,
 *              system_s, max_rss_bytes, metrics}]; times in seconds since the start of the run
 *   stragglers (below), of the last attempt
 *   trace      {file, operations, dropped, complete}, if the run was traced: `dropped` operations
 *              are missing
 */
#ifndef RUNNER_REPORT_RESULT_H
#define RUNNER_REPORT_RESULT_H

#include "base/desc.h"
#include "diagnose/straggler.h"
#include "diagnose/verdict.h"

#include <jansson.h>
#include <stdio.h>
#include <time.h>

struct result { /* of one attempt */
    const struct desc *desc;
    const struct rank_state *ranks; /* for result_json */
    const struct verdict *verdict;
    int exit_code;
    uint64_t begin_ns; /* of the run */
    time_t begin_realtime;
    const json_t *metrics; /* rank -> name -> value */
    json_t *stalls;        /* that have passed, in all attempts */
    json_t *internal;      /* lines for developers */
    json_t *stragglers;    /* of stragglers_json; NULL: none */
};

json_t *result_attempt(const struct result *r);
json_t *result_json(const struct result *r, json_t *attempts);
/* The end, as a run and each of its attempts have one: seconds, exit_code, verdict. */
void result_put_end(const struct result *r, json_t *o);

/* ---- the verdict ----
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

json_t *verdict_json(const struct verdict *v);
json_t *verdict_json_network(const struct network_cut *cut);

/* ---- stragglers ----
 *
 * Which ranks were late for the collectives of their groups (diagnose/straggler.h): in result.json
 *
 *   "stragglers": [{"group": "train", "compared": 500,
 *                   "ranks": [{"rank": 3, "last": 470, "late_ms": 37.1, "cost": 0.41}]}]
 *
 * the groups whose calls were compared, and of each the ranks that came last, the most frequent one
 * first: in how many of the compared operations; by how much on average in these; which share of
 * the time that cost. "stragglers_left_out" is the number of groups that ended long ago and are not
 * listed; it is there if there are any. And a line for each group in which one rank is a straggler.
 */

/* The members of result.json. */
json_t *stragglers_json(const struct straggler_list *list);
void stragglers_print(const struct straggler_list *list, FILE *out);

#endif
