/* SPDX-License-Identifier: Apache-2.0
 *
 * Questions about a job that has been read.
 */
#include "spec/job.h"

#include <string.h>

bool job_is_auto(const struct job_str *backend)
{
    return backend->v && strcasecmp(backend->v, "auto") == 0;
}

const struct job_kind_backend *job_backend_for(const struct job_group *group, const char *kind)
{
    for (uint32_t i = 0; i < group->nbackends; i++)
        if (strcmp(group->backends[i].kind, kind) == 0)
            return &group->backends[i];
    return NULL;
}

bool job_ranks_has(const struct job_ranks *ranks, uint32_t rank)
{
    for (uint32_t i = 0; i < ranks->n; i++) {
        const struct parse_range *range = &ranks->parts[i].range;
        if (rank >= range->first && rank <= range->last && (rank - range->first) % range->step == 0)
            return true;
    }
    return ranks->all;
}
