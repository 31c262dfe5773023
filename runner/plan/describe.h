/* SPDX-License-Identifier: Apache-2.0
 *
 * Descriptions of plugins: flags, availability and operations of backends, parameter tables of
 * workloads. Foreign code is never loaded into the runner: `collrun-engine --describe` loads the
 * plugins and prints one JSON line per plugin. A plugin that crashes or hangs that process gets an
 * error; the others are described all the same.
 */
#ifndef RUNNER_PLAN_DESCRIBE_H
#define RUNNER_PLAN_DESCRIBE_H

#include "base/arena.h"
#include "base/diag.h"

#include <collrun/backend.h>
#include <collrun/workload.h>

enum describe_kind { DESCRIBE_BACKEND, DESCRIBE_WORKLOAD };
enum describe_how { DESCRIBE_UNSUPPORTED, DESCRIBE_NATIVE, DESCRIBE_EMULATED };

struct describe_param {
    const char *name, *def, *min, *max, *help; /* def NULL = required; min, max NULL = no bound */
    enum collrun_param_type type;
    const char *choices;          /* of an enum, separated by "|"; else NULL */
    enum collrun_param_type item; /* of a list: the type of its items */
    const char *per_direction;    /* as in struct collrun_param; NULL = none */
};

/* The kind of memory that a backend works on besides host memory. */
struct describe_memory {
    const char *name;  /* "cuda"; NULL: none */
    const char *title; /* of a device, for messages: "GPU" */
    const char *mask;  /* the variable that lists the devices of a process; "" = none */
    bool gpus;         /* its devices are what job.yaml calls GPUs */
    bool declares; /* the backend can list the devices; otherwise another one declares the kind */
};

struct described {
    enum describe_kind kind; /* set by the caller, as is path */
    const char *path;        /* absolute */
    const char *error;       /* NULL, or why it cannot be loaded */
    const char *hint;        /* "" or a hint for the error */
    const char *name;
    /* of a backend */
    const char *version;
    uint32_t abi;
    bool available;
    const char *found;  /* the libraries it uses: "NCCL 2.28.9, CUDA 13.0"; or "" */
    const char *reason; /* why it is not available */
    uint64_t flags;     /* enum collrun_backend_flags */
    uint32_t works_on;  /* a set of enum collrun_memory */
    struct describe_memory memory;
    enum describe_how operations[COLLRUN_KIND_COUNT];
    bool any_option; /* it declares no table of options: any is accepted */
    /* of a workload */
    const char *summary;
    bool has_check;
    /* of both: parameters, options */
    struct describe_param *params;
    uint32_t nparams;
};

/* Fills in the description of each plugin, or its `error`. A child that exceeds the deadline is
 * killed. Fails only if the engine cannot be run. */
enum { DESCRIBE_DEADLINE_MS = 10000 };
int describe(const char *engine, uint32_t deadline_ms, struct described *items, uint32_t n,
             struct arena *arena, struct diag *d);

#endif
