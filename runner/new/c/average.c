/* A workload: the ranks of each group average their buffers. collrun-workload(7) explains the
 * parts; `make run` builds and runs it. */
#include <collrun/workload.h>

#include <stdio.h>

static const struct collrun_param params[] = {
    {.name = "count",
     .type = COLLRUN_PARAM_INT,
     .def = "1024",
     .min = "1",
     .max = "1000000000",
     .help = "elements of each rank's buffer"},
    {0},
};

/* Every rank of the group calls it. The buffer of world rank r is r, r + 1, r + 2, ... */
static int average(struct collrun_ctx *ctx, struct collrun_group *group)
{
    size_t count = (size_t)collrun_param_int(ctx, "count");
    void *memory; /* that moves without a copy */
    int rc = collrun_alloc(group, count * sizeof(float), &memory);
    if (rc != COLLRUN_OK)
        return rc;
    float *x = memory;
    for (size_t i = 0; i < count; i++)
        x[i] = (float)collrun_world_rank(ctx) + (float)i;
    rc = collrun_allreduce(group, x, x, count, COLLRUN_FLOAT32, COLLRUN_AVG);
    if (rc == COLLRUN_OK)
        printf("%s: the average begins with %g\n", collrun_group_name(group), x[0]);
    collrun_free(group, memory);
    return rc;
}

static int run(struct collrun_ctx *ctx, void *state)
{
    (void)state;
    struct collrun_group *group;
    int rc = COLLRUN_OK;
    for (int i = 0; rc == COLLRUN_OK && (group = collrun_group_at(ctx, i)); i++)
        rc = average(ctx, group);
    return rc; /* a negative status ends the job, and the report shows collrun_error() */
}

COLLRUN_WORKLOAD(.name = "average", .summary = "averages a buffer in each group", .params = params,
                 .run = run);
