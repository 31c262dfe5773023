/* SPDX-License-Identifier: Apache-2.0
 *
 * `collrun-engine --check INDEX...`: calls the `check` of workloads with the parameters of each of
 * their ranks. stdin is the encoded job (base/desc.h), the arguments are indices of its workloads.
 * One JSON object per line, flushed at once:
 *
 *   {"workload":0,"rank":3,"param":"bytes"|null,"error":"message"}
 *   {"workload":0,"done":true}
 *
 * A rank that is refused for the same reason and the same text of job.yaml as the last one has no
 * line; after 20 lines the other ranks of the workload are not checked.
 */
#ifndef ENGINE_RANK_CHECK_H
#define ENGINE_RANK_CHECK_H

#include <stdio.h>

/* Returns the exit code: 0, or 2 if the arguments or the job are malformed. */
int check_workloads(char *const *args, int nargs, FILE *in, FILE *out);

#endif
