/* SPDX-License-Identifier: Apache-2.0
 *
 * What a workload exports: one const symbol that names it, declares its parameters, and points to
 * its functions.
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
 * Every workload of a rank lives in a thread of its own, which calls init, run and fini. Its life
 * in the job: groups of job.yaml open -> init of the rank's workloads, one after the other, in file
 * order -> all ranks are ready -> run of all of them, side by side -> fini A failure anywhere ends
 * the job: the rank's process exits, every other rank's operations return PEER_FAILED. A workload
 * with `background: true` is asked to stop (collrun_stopping) when all others of the job have
 * returned 0.
 */
#ifndef COLLRUN_WORKLOAD_H
#define COLLRUN_WORKLOAD_H

#include <collrun/collrun.h>

#ifdef __cplusplus
extern "C" {
#endif

#define COLLRUN_WORKLOAD_ABI 1u

struct collrun_workload {
    uint32_t abi, size;                 /* COLLRUN_WORKLOAD fills these in */
    const char *name;                   /* not empty; for messages */
    const char *summary;                /* half a line; may be NULL */
    const struct collrun_param *params; /* ends with a zeroed entry; NULL = none */

    /* Prepares; may use the groups. *state is handed to run and fini. May be NULL. Returns as run
     * does; all ranks pass their inits before any rank runs. */
    int (*init)(struct collrun_ctx *ctx, void **state);

    /* The work. 0 = done; 1..119 = the exit code of this rank, and of collrun if it is the first
     * cause; a negative enum collrun_status = exit code 1, with the sentence of collrun_error() in
     * the report. */
    int (*run)(struct collrun_ctx *ctx, void *state);

    /* Cleans up; called if init succeeded, also when run failed. May be NULL. */
    void (*fini)(struct collrun_ctx *ctx, void *state);
};

/* COLLRUN_WORKLOAD(.name = "hello", .run = run); defines the one exported symbol. */
#define COLLRUN_WORKLOAD(...)                                                                      \
    __attribute__((                                                                                \
        visibility("default"))) extern const struct collrun_workload collrun_workload_v1;          \
    const struct collrun_workload collrun_workload_v1 = {                                          \
        .abi = COLLRUN_WORKLOAD_ABI,                                                               \
        .size = (uint32_t)sizeof(struct collrun_workload),                                         \
        __VA_ARGS__}

#ifdef __cplusplus
}
#endif
#endif
