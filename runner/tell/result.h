/* SPDX-License-Identifier: Apache-2.0
 *
 * result.json: how a run ended, for programs to read.
 *   job, run_id, started, seconds, exit_code (that of collrun)
 *   cause      signal, exit, timeout, oom, host_lost, launch, interrupted, ...; null: a good end
 *   error      the sentence; culprit: the rank, or null
 *              (these four are the last attempt's, unless the run ended after it: in the pause
 *              before a restart, or while its output was waiting to be read)
 *   attempts   [{attempt, seconds, exit_code, cause, error, culprit}], the last one last
 *   groups     [{name, backend, size, operations, bytes}]: operations of the rank that did most of
 *              them, bytes that all its ranks put in; of groups of job.yaml, in the last attempt
 *   ranks      [{rank, host, pid, exit_code or signal, cause, error, started_s, ended_s, user_s,
 *              system_s, max_rss_bytes, metrics}]; times in seconds since the start of the run
 */
#ifndef TELL_RESULT_H
#define TELL_RESULT_H

#include "base/desc.h"
#include "watch/cause.h"

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
};

json_t *result_attempt(const struct result *r);
json_t *result_json(const struct result *r, json_t *attempts);
/* The end, as a run and each of its attempts have one: seconds, exit_code, cause, error, culprit.
 */
void result_put_end(const struct result *r, json_t *o);

#endif
