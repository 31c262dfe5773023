/* SPDX-License-Identifier: Apache-2.0
 *
 * The exports of the stand-in for libnccl.so.2, written from NVIDIA's documentation of
 * NCCL 2.28. FAKE_NCCL_OLD leaves out what 2.27 did not have.
 */
#ifndef FAKE_NCCL_ABI_H
#define FAKE_NCCL_ABI_H

#include <stddef.h>

struct CUstream_st;
struct ncclComm;

enum {
    ncclSuccess,
    ncclUnhandledCudaError,
    ncclSystemError,
    ncclInternalError,
    ncclInvalidArgument,
    ncclInvalidUsage,
    ncclRemoteError,
    ncclInProgress
};
enum { ncclSum, ncclProd, ncclMax, ncclMin, ncclAvg, ncclNumOps };
enum {
    ncclInt8,
    ncclUint8,
    ncclInt32,
    ncclUint32,
    ncclInt64,
    ncclUint64,
    ncclFloat16,
    ncclFloat32,
    ncclFloat64,
    ncclBfloat16,
    ncclFloat8e4m3,
    ncclFloat8e5m2,
    ncclNumTypes
};

struct ncclUniqueId {
    char internal[128];
};

/* As far as the stand-in reads it. */
struct ncclConfig {
    size_t size;
    unsigned magic, version;
    int blocking, cgaClusterSize, minCTAs, maxCTAs;
    const char *netName;
    int splitShare, trafficClass;
    const char *commName;
    int collnetEnable, CTAPolicy, shrinkShare, nvlsCTAs, nChannelsPerNetPeer, nvlinkCentricSched;
};
#define NCCL_CONFIG_MAGIC 0xcafebeefu

#pragma GCC visibility push(default)

int ncclGetVersion(int *version);
int ncclGetUniqueId(struct ncclUniqueId *id);
const char *ncclGetErrorString(int result);
const char *ncclGetLastError(struct ncclComm *comm);

int ncclCommInitRankConfig(struct ncclComm **comm, int nranks, struct ncclUniqueId id, int rank,
                           struct ncclConfig *config);
int ncclCommInitRank(struct ncclComm **comm, int nranks, struct ncclUniqueId id, int rank);
int ncclCommFinalize(struct ncclComm *comm);
int ncclCommDestroy(struct ncclComm *comm);
int ncclCommAbort(struct ncclComm *comm);
int ncclCommGetAsyncError(struct ncclComm *comm, int *result);
int ncclCommCount(const struct ncclComm *comm, int *count);
int ncclCommCuDevice(const struct ncclComm *comm, int *device);
int ncclCommUserRank(const struct ncclComm *comm, int *rank);
/* The stand-in alone has it: the number of kernels that were launched. */
int fake_nccl_kernels(const struct ncclComm *comm);
/* The stand-in alone has it: the communicators that this process has on a device. */
int fake_nccl_communicators(int device);
int ncclCommRegister(const struct ncclComm *comm, void *ptr, size_t len, void **handle);
int ncclCommDeregister(const struct ncclComm *comm, void *handle);
int ncclMemAlloc(void **ptr, size_t len);
int ncclMemFree(void *ptr);

int ncclGroupStart(void);
int ncclGroupEnd(void);

int ncclAllReduce(const void *send, void *recv, size_t count, int type, int op,
                  struct ncclComm *comm, struct CUstream_st *stream);
int ncclReduce(const void *send, void *recv, size_t count, int type, int op, int root,
               struct ncclComm *comm, struct CUstream_st *stream);
int ncclBroadcast(const void *send, void *recv, size_t count, int type, int root,
                  struct ncclComm *comm, struct CUstream_st *stream);
int ncclBcast(void *buf, size_t count, int type, int root, struct ncclComm *comm,
              struct CUstream_st *stream);
int ncclAllGather(const void *send, void *recv, size_t count, int type, struct ncclComm *comm,
                  struct CUstream_st *stream);
int ncclReduceScatter(const void *send, void *recv, size_t count, int type, int op,
                      struct ncclComm *comm, struct CUstream_st *stream);
int ncclSend(const void *send, size_t count, int type, int peer, struct ncclComm *comm,
             struct CUstream_st *stream);
int ncclRecv(void *recv, size_t count, int type, int peer, struct ncclComm *comm,
             struct CUstream_st *stream);
#ifndef FAKE_NCCL_OLD
int ncclCommRevoke(struct ncclComm *comm, int flags);
int ncclAlltoAll(const void *send, void *recv, size_t count, int type, struct ncclComm *comm,
                 struct CUstream_st *stream);
int ncclGather(const void *send, void *recv, size_t count, int type, int root,
               struct ncclComm *comm, struct CUstream_st *stream);
int ncclScatter(const void *send, void *recv, size_t count, int type, int root,
                struct ncclComm *comm, struct CUstream_st *stream);
#endif

#pragma GCC visibility pop
#endif
