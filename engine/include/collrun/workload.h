/* SPDX-License-Identifier: Apache-2.0 */
/* What a workload, one shared object, exports. See collrun.h. */
#ifndef COLLRUN_WORKLOAD_H
#define COLLRUN_WORKLOAD_H
#include <collrun/collrun.h>
#ifdef __cplusplus
extern "C" {
#endif
#define COLLRUN_WORKLOAD_ABI 1u

enum collrun_param_type {
    COLLRUN_PARAM_STRING,
    COLLRUN_PARAM_INT,
    COLLRUN_PARAM_FLOAT,
    COLLRUN_PARAM_BOOL,
    COLLRUN_PARAM_SIZE,
    COLLRUN_PARAM_DURATION
};
struct collrun_param {
    const char *name;
    enum collrun_param_type type;
    const char *def;       /* as written in job.yaml; NULL = required */
    const char *min, *max; /* NULL = no bound */
    const char *help;
};
struct collrun_workload {
    uint32_t abi, size;
    const char *name, *summary;
    const struct collrun_param *params;                 /* ends with a zeroed entry; NULL = none */
    int (*init)(struct collrun_ctx *ctx, void **state); /* may be NULL; the groups of job.yaml are
                                                           open; all ranks pass before any runs */
    int (*run)(struct collrun_ctx *ctx, void *state);   /* 0..119 = exit code; negative = a status:
                                                           exit 1, its sentence in the report */
    void (*fini)(struct collrun_ctx *ctx, void *state); /* may be NULL; called if init succeeded */
};
/* COLLRUN_WORKLOAD(.name = "hello", .run = run); defines the one exported symbol */
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
