/* SPDX-License-Identifier: Apache-2.0
 *
 * Heartbeat: a background workload. Every `interval` all ranks of the group meet in a tiny
 * allreduce, until the job's other workloads are done and collrun_stopping() says so.
 *
 * The ranks do not hear of that at the same moment, and one that left early would leave the others
 * waiting in their next beat. So every beat carries each rank's wish to stop, and the minimum of
 * the wishes decides: all ranks leave after the same beat, the first one in which everybody wants
 * to.
 */
#define _POSIX_C_SOURCE 200809L /* clock_gettime, nanosleep */
#include <collrun/workload.h>

#include <stdio.h>
#include <time.h>

static const struct collrun_param params[] = {
    {"group", COLLRUN_PARAM_STRING, "", NULL, NULL,
     "the group that beats; none named: the first one"},
    {"interval", COLLRUN_PARAM_DURATION, "100ms", "1ms", "1h", "time between two beats"},
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

    int32_t everybody = 0;
    uint64_t beats = 0;
    double slowest = 0;
    while (!everybody) {
        nanosleep(&interval, NULL);
        int32_t mine = collrun_stopping(ctx);
        double start = now_us();
        rc = collrun_allreduce(group, &mine, &everybody, 1, COLLRUN_INT32, COLLRUN_MIN);
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
                 .summary = "background: all ranks meet every interval until the job is done",
                 .params = params, .run = run);
