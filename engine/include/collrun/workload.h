/* SPDX-License-Identifier: Apache-2.0
 *
 * What a workload exports: one const symbol with its name, its parameters and its functions.
 *
 *     #include <collrun/workload.h>
 *
 *     static int run(struct collrun_ctx *ctx, void *state)
 *     {
 *         struct collrun_group *world;
 *         int rc = collrun_group_get(ctx, "world", &world);
 *         return rc ? rc : collrun_barrier(world);
 *     }
 *     COLLRUN_WORKLOAD(.name = "hello", .summary = "one barrier", .run = run);
 *
 *     cc -shared -fPIC $(pkg-config --cflags --libs collrun) hello.c -o hello.so
 *
 * The check of a workload is called before any rank exists. Each workload of a rank has a thread,
 * which calls init, run and fini:
 *
 * 1. The groups of job.yaml are opened.
 * 2. init of the rank's workloads is called, one after the other, in file order.
 * 3. All ranks are ready.
 * 4. run of the rank's workloads is called, all at the same time.
 * 5. fini of each workload is called when its run has returned.
 *
 * A failure on any rank ends the job: the process of that rank exits, and operations of all other
 * ranks return PEER_FAILED. A workload with `background: true` has to stop (collrun_stopping) when
 * all other workloads of the job have returned 0.
 */
#ifndef COLLRUN_WORKLOAD_H
#define COLLRUN_WORKLOAD_H

#include <collrun/collrun.h>

#ifdef __cplusplus
extern "C" {
#endif

#define COLLRUN_WORKLOAD_ABI 1u

struct collrun_workload {
    uint32_t abi, size;  /* COLLRUN_WORKLOAD sets these four */
    uint32_t param_size; /* sizeof(struct collrun_param) */
    uint32_t reserved COLLRUN_OPTIONAL;
    const char *name;                                    /* not empty; for messages */
    const char *summary COLLRUN_OPTIONAL;                /* half a line; may be NULL */
    const struct collrun_param *params COLLRUN_OPTIONAL; /* ends with a zeroed entry; NULL = none */

    /* Prepares the workload; may use the groups. *state is passed to run and fini. Returns as run
     * does. No rank runs before all ranks have returned from init. May be NULL. */
    int (*init)(struct collrun_ctx *ctx, void **state) COLLRUN_OPTIONAL;

    /* Does the work. 0 = success; 1 to 119 = the exit code of this rank, and of collrun if it is
     * the root cause; a negative enum collrun_status = exit code 1, with collrun_error() in the
     * report. */
    int (*run)(struct collrun_ctx *ctx, void *state);

    /* Cleans up; called if init succeeded, even if run failed. May be NULL. */
    void (*fini)(struct collrun_ctx *ctx, void *state) COLLRUN_OPTIONAL;

    /* Checks the parameters of one rank, for what the table cannot express: that two of them fit
     * together, or that they fit the size of the job. `collrun check` and a launch call it before
     * anything starts, in a process without groups, once for each rank of the workload. It may call
     * the functions of collrun.h about the job and the parameters, and has no side effects. 0 =
     * good; else `return collrun_refuse(ctx, "bytes", "must be a multiple of 4");`: the error is
     * reported at the line of that parameter, and nothing starts. May be NULL. */
    int (*check)(struct collrun_ctx *ctx) COLLRUN_OPTIONAL;
};

/* COLLRUN_WORKLOAD(.name = "hello", .run = run); defines the exported symbol. In C++ the members
 * are given in the order above; __extension__ permits C++17 to name them. */
#define COLLRUN_WORKLOAD(...)                                                                      \
    __attribute__((                                                                                \
        visibility("default"))) extern const struct collrun_workload collrun_workload_v1;          \
    __extension__ const struct collrun_workload collrun_workload_v1 = {                            \
        .abi = COLLRUN_WORKLOAD_ABI,                                                               \
        .size = (uint32_t)sizeof(struct collrun_workload),                                         \
        .param_size = (uint32_t)sizeof(struct collrun_param),                                      \
        __VA_ARGS__}

#ifdef __cplusplus
}
#endif
#endif
