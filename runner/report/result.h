/* SPDX-License-Identifier: Apache-2.0
 *
 * result.json: how a run ended, for programs to read.
 *   job, run_id, started, seconds, exit_code (that of collrun)
 *   verdict    how it ended and which ranks caused it (report/verdict_json.h)
 *              (these are the last attempt's, unless the run ended after it: in the pause before a
 *              restart, or while its output was waiting to be read)
 *   attempts   [{attempt, seconds, exit_code, verdict}], the last one last
 *   stalls     [{attempt, seconds, class, culprits, suspects, group, kind, number, field, calls,
 *              waits, text}]: stalls that were reported and have passed (report/stall_report.h)
 *   groups     [{name, backend, size, operations, bytes}]: operations of the rank that did most of
 *              them, bytes that all its ranks put in; of groups of job.yaml, in the last attempt
 *   ranks      [{rank, host, pid, exit_code or signal, class, error, started_s, ended_s, user_s,
 *              system_s, max_rss_bytes, metrics}]; times in seconds since the start of the run
 *   stragglers (report/stragglers.h), of the last attempt
 *   trace      {file, operations, dropped, complete}, if the run was traced: `dropped` operations
 *              are missing
 */
#ifndef RUNNER_REPORT_RESULT_H
#define RUNNER_REPORT_RESULT_H

#include "base/desc.h"
#include "diagnose/verdict.h"

#include <jansson.h>
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
    json_t *stragglers;    /* of stragglers_json; NULL: none */
};

json_t *result_attempt(const struct result *r);
json_t *result_json(const struct result *r, json_t *attempts);
/* The end, as a run and each of its attempts have one: seconds, exit_code, verdict. */
void result_put_end(const struct result *r, json_t *o);

#endif
