/* SPDX-License-Identifier: Apache-2.0
 *
 * The backend gloo: Gloo's collective algorithms, for comparisons, and for places that know Gloo.
 * This file is the exported table.
 *
 * - A group is one of backends/net over the link of the tcp backend, which this library contains:
 *   connections, messages, time-outs, aborts and the loss of members are those of tcp.
 * - A collective that Gloo has runs in gloo_exec (collective.cc). The engine builds the others from
 *   messages.
 *
 * Failure modes: those of backends/net/group.h; and a libgloo of another release than the headers
 * of the build, which probe reports.
 */
#include "backend.h"
#include "collective.h"
#include "p2p.h"

#include <assert.h> /* config.h uses static_assert */
#include <dlfcn.h>
#include <gloo/config.h>
#include <stdio.h>

#define GLOO_TEXT_OF(x) #x
#define GLOO_TEXT(x) GLOO_TEXT_OF(x)
#define GLOO_RELEASE                                                                               \
    GLOO_TEXT(GLOO_VERSION_MAJOR) "." GLOO_TEXT(GLOO_VERSION_MINOR) " of " GLOO_TEXT(GLOO_YEAR)

static int gloo_library_year(void)
{
    if (dlsym(RTLD_DEFAULT, "_ZN4gloo9transport3tcp16CreateLazyDeviceERKNS1_4attrE"))
        return 2025;
    return dlsym(RTLD_DEFAULT, "_ZN4gloo9transport7Context24createAndConnectAllPairsERNS_6IStoreE")
               ? 2023
               : 2022;
}

static int gloo_probe(const struct collrun_services *services, char *why, size_t len)
{
    const int year = gloo_library_year();
    (void)services;
    if (year == GLOO_YEAR) {
        snprintf(why, len, "Gloo %s", GLOO_RELEASE);
        return COLLRUN_OK;
    }
    snprintf(why, len, "built for Gloo %s; the library is that of %d", GLOO_RELEASE, year);
    return COLLRUN_ERR_UNAVAILABLE;
}

/* Gloo rounds every partial result. Half precision has to be summed in float32, so the engine does
 * those sums and products; minima and maxima are exact. */
#define HOST COLLRUN_MEMORY_HOST
#define HALVES (1u << COLLRUN_FLOAT16 | 1u << COLLRUN_BFLOAT16)
#define REDUCES(kind)                                                                              \
    {                                                                                              \
        kind, HOST, ((1u << COLLRUN_DTYPE_COUNT) - 1) & ~HALVES, (1u << COLLRUN_OP_COUNT) - 1      \
    }
#define COMPARES(kind)                                                                             \
    {                                                                                              \
        kind, HOST, HALVES, 1u << COLLRUN_MIN | 1u << COLLRUN_MAX                                  \
    }
#define MOVES(kind) COLLRUN_MOVES(kind, HOST)

static const struct collrun_capability gloo_native[] = {
    {COLLRUN_BARRIER, HOST, 0, 0}, REDUCES(COLLRUN_ALLREDUCE),
    COMPARES(COLLRUN_ALLREDUCE),   REDUCES(COLLRUN_REDUCE),
    COMPARES(COLLRUN_REDUCE),      MOVES(COLLRUN_BROADCAST),
    MOVES(COLLRUN_ALLGATHER),      MOVES(COLLRUN_GATHER),
    MOVES(COLLRUN_SCATTER),        MOVES(COLLRUN_ALLTOALL),
    MOVES(COLLRUN_ALLGATHERV),     MOVES(COLLRUN_ALLTOALLV),
    MOVES(COLLRUN_SEND),           MOVES(COLLRUN_RECV),
    MOVES(COLLRUN_RECV_ANY),       {0},
};

static const struct collrun_param gloo_options[] = {{0}};

static int gloo_exec(void *group, const struct collrun_call *calls, uint32_t ncalls)
{
    return ncalls ? net_run(group, &calls[0], gloo_collective, NULL) : COLLRUN_OK;
}

const struct collrun_backend collrun_backend_v1 = {
    COLLRUN_BACKEND_HEAD,
    .name = "gloo",
    .version = "3.0 (Gloo " GLOO_RELEASE ")",
    .eager_limit = P2P_EAGER_LIMIT_ANY,
    .native = gloo_native,
    .options = gloo_options,
    .probe = gloo_probe,
    .open = net_open,
    .close = net_close,
    .group_open = net_group_open,
    .group_abort = net_group_abort,
    .group_close = net_group_close,
    .exec = gloo_exec,
    .transport = &net_transport,
};
