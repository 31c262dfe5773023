/* SPDX-License-Identifier: Apache-2.0
 *
 * The part of NCCL (2.18 and later) that the backend uses, declared here so that the build does not
 * need NCCL. As in cuda_api.h, the lists are complete, and have three users: library.c loads,
 * tests/gpu/check_api.c compares with the real header, the stand-in under tests/fake provides.
 *
 *     X(need, result, name, parameters)    need: MUST, or MAY: absent from older libraries
 */
#ifndef NCCL_NCCL_API_H
#define NCCL_NCCL_API_H

#include "cuda_api.h"

#include <limits.h>

#define NCCL_CONSTANTS(X)                                                                          \
    X(ncclSuccess, 0)                                                                              \
    X(ncclUnhandledCudaError, 1)                                                                   \
    X(ncclSystemError, 2)                                                                          \
    X(ncclInternalError, 3)                                                                        \
    X(ncclInvalidArgument, 4)                                                                      \
    X(ncclInvalidUsage, 5)                                                                         \
    X(ncclRemoteError, 6)                                                                          \
    X(ncclInProgress, 7)                                                                           \
    X(ncclSum, 0)                                                                                  \
    X(ncclProd, 1)                                                                                 \
    X(ncclMax, 2)                                                                                  \
    X(ncclMin, 3)                                                                                  \
    X(ncclAvg, 4)                                                                                  \
    X(ncclInt8, 0)                                                                                 \
    X(ncclUint8, 1)                                                                                \
    X(ncclInt32, 2)                                                                                \
    X(ncclUint32, 3)                                                                               \
    X(ncclInt64, 4)                                                                                \
    X(ncclUint64, 5)                                                                               \
    X(ncclFloat16, 6)                                                                              \
    X(ncclFloat32, 7)                                                                              \
    X(ncclFloat64, 8)                                                                              \
    X(ncclBfloat16, 9)

/* The configuration of a communicator. The library reads the members that it knows, up to `size`.
 * It chooses the value of members that are NCCL_UNDEFINED or NULL. */
#define NCCL_CONFIG_MEMBERS(X)                                                                     \
    X(size_t, size)                                                                                \
    X(unsigned int, magic)                                                                         \
    X(unsigned int, version)                                                                       \
    X(int, blocking)                                                                               \
    X(int, cgaClusterSize)                                                                         \
    X(int, minCTAs)                                                                                \
    X(int, maxCTAs)                                                                                \
    X(const char *, netName)                                                                       \
    X(int, splitShare)                                                                             \
    X(int, trafficClass)                                                                           \
    X(const char *, commName)                                                                      \
    X(int, collnetEnable)                                                                          \
    X(int, CTAPolicy)                                                                              \
    X(int, shrinkShare)                                                                            \
    X(int, nvlsCTAs)                                                                               \
    X(int, nChannelsPerNetPeer)                                                                    \
    X(int, nvlinkCentricSched)

#define NCCL_CONFIG_MEMBER(type, name) type name;
struct nccl_config {
    NCCL_CONFIG_MEMBERS(NCCL_CONFIG_MEMBER)
};
#undef NCCL_CONFIG_MEMBER

#define NCCL_UNDEFINED INT_MIN
#define NCCL_CONFIG_MAGIC 0xcafebeefu
#define NCCL_CONFIG_VERSION 22809u /* the version whose members the list has: 2.28.9 */

#ifndef CUDA_API_IS_REAL
typedef int ncclResult_t, ncclDataType_t, ncclRedOp_t; /* enums there, of the same size */
typedef struct ncclComm *ncclComm_t;
typedef struct nccl_config ncclConfig_t;
typedef struct ncclUniqueId { /* passed by value, hence a struct here too */
    char internal[128];
} ncclUniqueId;
#define NCCL_CONSTANT(name, value) name = (value),
enum { NCCL_CONSTANTS(NCCL_CONSTANT) };
#undef NCCL_CONSTANT
#endif

#define NCCL_FUNCTIONS(X)                                                                          \
    X(MUST, ncclResult_t, ncclGetVersion, (int *version))                                          \
    X(MUST, const char *, ncclGetErrorString, (ncclResult_t result))                               \
    X(MAY, const char *, ncclGetLastError, (ncclComm_t comm))                                      \
    X(MUST, ncclResult_t, ncclGetUniqueId, (ncclUniqueId * id))                                    \
    X(MUST, ncclResult_t, ncclCommInitRankConfig,                                                  \
      (ncclComm_t * comm, int nranks, ncclUniqueId id, int rank, ncclConfig_t *config))            \
    X(MUST, ncclResult_t, ncclCommGetAsyncError, (ncclComm_t comm, ncclResult_t * error))          \
    X(MUST, ncclResult_t, ncclCommFinalize, (ncclComm_t comm))                                     \
    X(MUST, ncclResult_t, ncclCommDestroy, (ncclComm_t comm))                                      \
    X(MUST, ncclResult_t, ncclCommAbort, (ncclComm_t comm))                                        \
    X(MAY, ncclResult_t, ncclCommRevoke, (ncclComm_t comm, int flags))                             \
    X(MUST, ncclResult_t, ncclGroupStart, (void))                                                  \
    X(MUST, ncclResult_t, ncclGroupEnd, (void))                                                    \
    X(MUST, ncclResult_t, ncclAllReduce,                                                           \
      (const void *send, void *recv, size_t count, ncclDataType_t dtype, ncclRedOp_t op,           \
       ncclComm_t comm, cudaStream_t stream))                                                      \
    X(MUST, ncclResult_t, ncclReduce,                                                              \
      (const void *send, void *recv, size_t count, ncclDataType_t dtype, ncclRedOp_t op, int root, \
       ncclComm_t comm, cudaStream_t stream))                                                      \
    X(MUST, ncclResult_t, ncclBroadcast,                                                           \
      (const void *send, void *recv, size_t count, ncclDataType_t dtype, int root,                 \
       ncclComm_t comm, cudaStream_t stream))                                                      \
    X(MUST, ncclResult_t, ncclAllGather,                                                           \
      (const void *send, void *recv, size_t count, ncclDataType_t dtype, ncclComm_t comm,          \
       cudaStream_t stream))                                                                       \
    X(MUST, ncclResult_t, ncclReduceScatter,                                                       \
      (const void *send, void *recv, size_t count, ncclDataType_t dtype, ncclRedOp_t op,           \
       ncclComm_t comm, cudaStream_t stream))                                                      \
    X(MAY, ncclResult_t, ncclAlltoAll,                                                             \
      (const void *send, void *recv, size_t count, ncclDataType_t dtype, ncclComm_t comm,          \
       cudaStream_t stream))                                                                       \
    X(MAY, ncclResult_t, ncclGather,                                                               \
      (const void *send, void *recv, size_t count, ncclDataType_t dtype, int root,                 \
       ncclComm_t comm, cudaStream_t stream))                                                      \
    X(MAY, ncclResult_t, ncclScatter,                                                              \
      (const void *send, void *recv, size_t count, ncclDataType_t dtype, int root,                 \
       ncclComm_t comm, cudaStream_t stream))                                                      \
    X(MUST, ncclResult_t, ncclSend,                                                                \
      (const void *send, size_t count, ncclDataType_t dtype, int peer, ncclComm_t comm,            \
       cudaStream_t stream))                                                                       \
    X(MUST, ncclResult_t, ncclRecv,                                                                \
      (void *recv, size_t count, ncclDataType_t dtype, int peer, ncclComm_t comm,                  \
       cudaStream_t stream))                                                                       \
    X(MAY, ncclResult_t, ncclMemAlloc, (void **ptr, size_t len))                                   \
    X(MAY, ncclResult_t, ncclMemFree, (void *ptr))                                                 \
    X(MAY, ncclResult_t, ncclCommRegister,                                                         \
      (const ncclComm_t comm, void *ptr, size_t len, void **handle))                               \
    X(MAY, ncclResult_t, ncclCommDeregister, (const ncclComm_t comm, void *handle))

#define NCCL_MEMBER(need, result, name, parameters) result(*name) parameters;
struct nccl_api {
    NCCL_FUNCTIONS(NCCL_MEMBER)
};
#undef NCCL_MEMBER

#endif
