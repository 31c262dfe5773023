/* SPDX-License-Identifier: Apache-2.0
 *
 * Survivors: a job that goes on without the ranks that it loses (on_failure: {action: continue}).
 *
 * - All ranks of a group make steps, each of which is one allreduce.
 * - When a rank is lost, the allreduce of all others fails with PEER_FAILED. They shrink the group
 *   to those that are left.
 * - The allreduce in which the rank was lost may have succeeded on some of them. So they agree on
 *   the step to go on with: the smallest that any of them has not finished.
 */
#define _POSIX_C_SOURCE 200809L /* nanosleep */
#include <collrun/workload.h>

#include <stdio.h>
#include <time.h>
#include <unistd.h>

static const struct collrun_param params[] = {
    {.name = "steps",
     .type = COLLRUN_PARAM_INT,
     .def = "100",
     .min = "1",
     .max = "1000000",
     .help = "number of steps"},
    {.name = "pause",
     .type = COLLRUN_PARAM_DURATION,
     .def = "0",
     .max = "1m",
     .help = "rest between two steps"},
    {0},
};

static void rest(uint64_t ns)
{
    nanosleep(&(struct timespec){.tv_sec = (time_t)(ns / 1000000000u),
                                 .tv_nsec = (long)(ns % 1000000000u)},
              NULL);
}

/* Every rank adds 1, so the sum is the number of ranks. */
static int make_step(struct collrun_ctx *ctx, struct collrun_group *group)
{
    int64_t one = 1, sum = 0;
    int rc = collrun_allreduce(group, &one, &sum, 1, COLLRUN_INT64, COLLRUN_SUM);
    if (rc == COLLRUN_OK && sum != collrun_size(group))
        return collrun_fail(ctx, "the sum is %lld, not %d", (long long)sum, collrun_size(group));
    return rc;
}

/* Replaces *group by one of the ranks that are left, and *step by the one to go on with. */
static int go_on_without(struct collrun_ctx *ctx, struct collrun_group **group, int64_t *step)
{
    struct collrun_group *left;
    int64_t first = *step;
    int rc = collrun_group_shrink(*group, NULL, &left);
    if (rc != COLLRUN_OK)
        return rc;
    collrun_log(ctx, COLLRUN_LOG_INFO, "step %lld: %d of %d ranks are left", (long long)first,
                collrun_size(left), collrun_size(*group));
    collrun_group_destroy(*group); /* the group of job.yaml stays until the job ends */
    *group = left;
    return collrun_allreduce(left, &first, step, 1, COLLRUN_INT64, COLLRUN_MIN);
}

static int run(struct collrun_ctx *ctx, void *state)
{
    (void)state;
    struct collrun_group *group;
    int64_t steps = collrun_param_int(ctx, "steps");
    int rc = collrun_group_get(ctx, "", &group);
    if (rc != COLLRUN_OK)
        return rc;
    collrun_log(ctx, COLLRUN_LOG_INFO, "process %d", (int)getpid());
    for (int64_t step = 0; step < steps && rc == COLLRUN_OK;) {
        rest(collrun_param_duration(ctx, "pause"));
        rc = make_step(ctx, group);
        if (rc == COLLRUN_OK)
            collrun_progress(ctx, (uint64_t)++step, (uint64_t)steps, "steps");
        while (rc == COLLRUN_ERR_PEER_FAILED) /* another rank may be lost at any time */
            rc = go_on_without(ctx, &group, &step);
    }
    if (rc == COLLRUN_OK && collrun_rank(group) == 0)
        printf("%lld steps, %d ranks at the end\n", (long long)steps, collrun_size(group));
    return rc;
}

COLLRUN_WORKLOAD(.name = "survivors",
                 .summary = "goes on without the ranks that it loses, by collrun_group_shrink",
                 .params = params, .run = run);
