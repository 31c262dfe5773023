/* SPDX-License-Identifier: Apache-2.0
 *
 * Tables from enum to name. Their lengths are tied to the counts of types.h, so that a new value
 * without a name does not compile.
 */
#include "base/names.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

static const char *const kinds[] = {"barrier",         "allreduce",  "reduce",  "broadcast",
                                    "allgather",       "gather",     "scatter", "reduce_scatter",
                                    "alltoall",        "allgatherv", "gatherv", "scatterv",
                                    "reduce_scatterv", "alltoallv",  "send",    "recv",
                                    "recv_any",        "scan",       "exscan"};
static const char *const dtypes[] = {"int8",    "uint8",   "int16",  "uint16",  "int32",
                                     "uint32",  "int64",   "uint64", "float16", "bfloat16",
                                     "float32", "float64", "bool"};
static const char *const ops[] = {"sum", "prod", "min",  "max", "avg", "band",
                                  "bor", "bxor", "land", "lor", "lxor"};

static const char *const statuses[] = {"ok",
                                       "invalid argument",
                                       "not found",
                                       "not a member",
                                       "already exists",
                                       "not supported",
                                       "not available",
                                       "ranks disagree",
                                       "timed out",
                                       "a peer failed",
                                       "aborted",
                                       "the backend failed",
                                       "out of memory",
                                       "a system call failed"};

static const char *const flags[] = {"one_host",
                                    "needs_device",
                                    "tags",
                                    "recv_any",
                                    "inline_check",
                                    "start_collectives",
                                    "separate_p2p_handle",
                                    "envelopes",
                                    "batches",
                                    "on_demand",
                                    "host_aware",
                                    "rdma",
                                    "shares"};

const uint8_t dtype_sizes[COLLRUN_DTYPE_COUNT] = {
    [COLLRUN_INT8] = 1,    [COLLRUN_UINT8] = 1,    [COLLRUN_INT16] = 2,   [COLLRUN_UINT16] = 2,
    [COLLRUN_INT32] = 4,   [COLLRUN_UINT32] = 4,   [COLLRUN_INT64] = 8,   [COLLRUN_UINT64] = 8,
    [COLLRUN_FLOAT16] = 2, [COLLRUN_BFLOAT16] = 2, [COLLRUN_FLOAT32] = 4, [COLLRUN_FLOAT64] = 8,
    [COLLRUN_BOOL] = 1,
};

_Static_assert(sizeof kinds / sizeof *kinds == COLLRUN_KIND_COUNT, "a kind has no name");
_Static_assert(sizeof dtypes / sizeof *dtypes == COLLRUN_DTYPE_COUNT, "a dtype has no name");
_Static_assert(sizeof ops / sizeof *ops == COLLRUN_OP_COUNT, "an operator has no name");

const char *kind_name(enum collrun_kind kind)
{
    return kind_is_known(kind) ? kinds[kind] : kind == KIND_PROBE ? "probe" : "?";
}

const char *dtype_name(enum collrun_dtype dtype)
{
    return dtype_is_known(dtype) ? dtypes[dtype] : "?";
}

const char *op_name(enum collrun_op op)
{
    if ((unsigned)op == OP_USER)
        return "user op";
    return op_is_known(op) ? ops[op] : "?";
}

const char *status_text(int status)
{
    if (status == COLLRUN_AGAIN)
        return "not finished yet";
    if (status > 0 || status <= -(int)(sizeof statuses / sizeof *statuses))
        return "unknown status";
    return statuses[-status];
}

const char *backend_flag_name(unsigned bit)
{
    return bit < sizeof flags / sizeof *flags ? flags[bit] : NULL;
}

const char *signal_name(int sig)
{
    static _Thread_local char text[24];
    const char *name = sigabbrev_np(sig);
    if (name)
        snprintf(text, sizeof text, "SIG%s", name);
    else if (sig >= SIGRTMIN && sig <= SIGRTMAX)
        snprintf(text, sizeof text, "SIGRTMIN+%d", sig - SIGRTMIN);
    else
        snprintf(text, sizeof text, "signal %d", sig);
    return text;
}
