/* SPDX-License-Identifier: Apache-2.0
 *
 * What plugins say about themselves: flags, availability and operations of backends, parameter
 * tables of workloads. Foreign code is never loaded into the runner: one `collrun-engine
 * --describe` loads it and prints one JSON line per plugin. A plugin that kills or hangs that
 * process costs itself an error, and the rest are asked for again.
 */
#ifndef PLAN_DESCRIBE_H
#define PLAN_DESCRIBE_H

#include "base/arena.h"
#include "base/diag.h"

#include <collrun/backend.h>
#include <collrun/workload.h>

enum describe_kind { DESCRIBE_BACKEND, DESCRIBE_WORKLOAD };
enum describe_how { DESCRIBE_UNSUPPORTED, DESCRIBE_NATIVE, DESCRIBE_EMULATED };

struct describe_param {
    const char *name, *def, *min, *max, *help; /* def NULL = required; min, max NULL = no bound */
    enum collrun_param_type type;
};

struct described {
    enum describe_kind kind; /* set by the caller, as is path */
    const char *path;        /* absolute */
    const char *error;       /* NULL, or the sentence that says why it cannot be loaded */
    const char *hint;        /* "" or what to do about it */
    const char *name;
    /* of a backend */
    const char *version;
    uint32_t abi;
    bool available;
    const char *found;  /* what it works with, in words: "NCCL 2.28.9, CUDA 13.0"; or "" */
    const char *reason; /* why it is not */
    uint64_t flags;     /* enum collrun_backend_flags */
    enum describe_how operations[COLLRUN_KIND_COUNT];
    bool any_option; /* it does not say which it has */
    /* of a workload */
    const char *summary;
    /* of both: parameters, options */
    struct describe_param *params;
    uint32_t nparams;
};

/* The operations' names, by enum collrun_kind. */
extern const char *const describe_operations[COLLRUN_KIND_COUNT];

/* Fills in what each plugin says, or its `error`; a child that has not said all within the deadline
 * is killed. Fails only when the engine itself cannot be run. */
enum { DESCRIBE_DEADLINE_MS = 10000 };
int describe(const char *engine, uint32_t deadline_ms, struct described *items, uint32_t n,
             struct arena *arena, struct diag *d);

#endif
