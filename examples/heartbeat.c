/* SPDX-License-Identifier: Apache-2.0
 *
 * Heartbeat: a background workload. All ranks of the group call a tiny allreduce every `interval`,
 * until the other workloads of the job have ended and collrun_stopping() returns true.
 *
 * collrun_stopping() does not change on all ranks at the same moment, and a rank that left early
 * would block the others in their next allreduce. Every beat therefore reduces the ranks' values by
 * MIN: all ranks leave after the same beat, the first one in which all of them are stopping.
 */
#define _POSIX_C_SOURCE 200809L /* clock_gettime, nanosleep */
#include <collrun/workload.h>

#include <stdio.h>
#include <time.h>

static const struct collrun_param params[] = {
    {.name = "group",
     .type = COLLRUN_PARAM_STRING,
     .def = "",
     .help = "the group of the heartbeat; default: the first one"},
    {.name = "interval",
     .type = COLLRUN_PARAM_DURATION,
     .def = "100ms",
     .min = "1ms",
     .max = "1h",
     .help = "time between two beats"},
    {0},
};

static double now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static int run(struct collrun_ctx *ctx, void *state)
{
    (void)state;
    uint64_t ns = collrun_param_duration(ctx, "interval");
    struct timespec interval = {(time_t)(ns / 1000000000), (long)(ns % 1000000000)};
    struct collrun_group *group;
    int rc = collrun_group_get(ctx, collrun_param_string(ctx, "group"), &group);
    if (rc)
        return rc;

    int32_t all_stop = 0;
    uint64_t beats = 0;
    double slowest = 0;
    while (!all_stop) {
        nanosleep(&interval, NULL);
        int32_t mine = collrun_stopping(ctx);
        double start = now_us();
        rc = collrun_allreduce(group, &mine, &all_stop, 1, COLLRUN_INT32, COLLRUN_MIN);
        if (rc)
            return rc;
        double took = now_us() - start;
        slowest = took > slowest ? took : slowest;
        collrun_progress(ctx, ++beats, 0, "beats");
    }
    if (collrun_rank(group) == 0)
        printf("heartbeat %s: %llu beats, the slowest took %.0f us\n", collrun_group_name(group),
               (unsigned long long)beats, slowest);
    collrun_metric(ctx, "beats", (double)beats);
    return 0;
}

COLLRUN_WORKLOAD(.name = "heartbeat",
                 .summary = "background: an allreduce every interval until the other workloads end",
                 .params = params, .run = run);
