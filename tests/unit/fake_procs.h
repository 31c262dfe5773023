/* SPDX-License-Identifier: Apache-2.0
 *
 * For tests of the stand-in libraries of tests/fake: processes that load them as the backend does.
 * Each runs a body and fails by its exit status. A test sets the environment before it runs them.
 */
#ifndef TESTS_FAKE_PROCS_H
#define TESTS_FAKE_PROCS_H

#include "fake/cudart_abi.h"
#include "fake/nccl_abi.h"
#include "fake/nvml_abi.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define FAKE_CUDA_FUNCTIONS(X)                                                                     \
    X(cudaGetDeviceCount)                                                                          \
    X(cudaSetDevice)                                                                               \
    X(cudaGetDevice)                                                                               \
    X(cudaDeviceGetAttribute)                                                                      \
    X(cudaDeviceGetPCIBusId)                                                                       \
    X(cudaDeviceSynchronize)                                                                       \
    X(cudaGetLastError)                                                                            \
    X(cudaPeekAtLastError)                                                                         \
    X(cudaGetErrorName)                                                                            \
    X(cudaMalloc)                                                                                  \
    X(cudaFree)                                                                                    \
    X(cudaHostAlloc)                                                                               \
    X(cudaFreeHost)                                                                                \
    X(cudaPointerGetAttributes)                                                                    \
    X(cudaMemGetInfo)                                                                              \
    X(cudaMemcpy)                                                                                  \
    X(cudaMemcpyAsync)                                                                             \
    X(cudaMemsetAsync)                                                                             \
    X(cudaStreamCreateWithFlags)                                                                   \
    X(cudaStreamDestroy)                                                                           \
    X(cudaStreamSynchronize)                                                                       \
    X(cudaStreamQuery)                                                                             \
    X(cudaStreamWaitEvent)                                                                         \
    X(cudaLaunchHostFunc)                                                                          \
    X(cudaEventCreateWithFlags)                                                                    \
    X(cudaEventRecord)                                                                             \
    X(cudaEventQuery)                                                                              \
    X(cudaEventSynchronize)                                                                        \
    X(cudaEventElapsedTime)                                                                        \
    X(cudaEventDestroy)
#define FAKE_NCCL_FUNCTIONS(X)                                                                     \
    X(ncclGetVersion)                                                                              \
    X(ncclGetUniqueId)                                                                             \
    X(ncclGetLastError)                                                                            \
    X(ncclCommInitRankConfig)                                                                      \
    X(ncclCommInitRank)                                                                            \
    X(ncclCommFinalize)                                                                            \
    X(ncclCommDestroy)                                                                             \
    X(ncclCommAbort)                                                                               \
    X(ncclCommRevoke)                                                                              \
    X(ncclCommGetAsyncError)                                                                       \
    X(ncclCommCount)                                                                               \
    X(ncclGroupStart)                                                                              \
    X(ncclGroupEnd)                                                                                \
    X(ncclAllReduce)                                                                               \
    X(ncclReduce)                                                                                  \
    X(ncclBroadcast)                                                                               \
    X(ncclAllGather)                                                                               \
    X(ncclReduceScatter)                                                                           \
    X(ncclAlltoAll)                                                                                \
    X(ncclGather)                                                                                  \
    X(ncclScatter)                                                                                 \
    X(ncclSend)                                                                                    \
    X(ncclRecv)
#define FAKE_NVML_FUNCTIONS(X)                                                                     \
    X(nvmlInit_v2)                                                                                 \
    X(nvmlDeviceGetCount_v2)                                                                       \
    X(nvmlDeviceGetHandleByIndex_v2)                                                               \
    X(nvmlDeviceGetHandleByPciBusId_v2)                                                            \
    X(nvmlDeviceGetUUID)                                                                           \
    X(nvmlDeviceGetPciInfo_v3)                                                                     \
    X(nvmlDeviceGetCpuAffinity)                                                                    \
    X(nvmlDeviceRegisterEvents)                                                                    \
    X(nvmlEventSetCreate)                                                                          \
    X(nvmlEventSetWait_v2)                                                                         \
    X(nvmlEventSetFree)

#define FAKE_MEMBER(name) __typeof__(name) *name;
extern struct fake_api { /* functions of the calling process; NULL if the library has none */
    FAKE_CUDA_FUNCTIONS(FAKE_MEMBER)
    FAKE_NCCL_FUNCTIONS(FAKE_MEMBER)
    FAKE_NVML_FUNCTIONS(FAKE_MEMBER)
} fake;
#undef FAKE_MEMBER

enum { PROCS_MAX = 8 };

struct procs { /* shared by the processes of a run */
    int nprocs;
    struct ncclUniqueId ids[4];
    _Atomic int arrived, flags[8];
    char printed[16384]; /* stderr of all, set when the run is over */
};

/* Runs `body` in `nprocs` processes that have loaded the libraries ("old": with the old libnccl).
 * Returns 0 if all succeed, else the wait status of the first that failed. The caller frees
 * `procs`. */
int procs_run(struct procs **procs, int nprocs, const char *which,
              void (*body)(struct procs *, int rank));
void procs_free(struct procs *procs);
/* Waits until all processes have called it. */
void procs_barrier(struct procs *procs);
/* Waits until flags[i] is at least `value`; the process fails after 30 s. */
void procs_await(struct procs *procs, int i, int value);
void procs_pause_ms(long ms);

/* False under ThreadSanitizer: a body does nothing wrong on purpose that is a race. */
#ifdef __SANITIZE_THREAD__
#define PROCS_MAY_RACE false
#else
#define PROCS_MAY_RACE true
#endif

/* For a body: the process fails unless the condition holds. */
#define MUST(condition) procs_check((condition), __FILE__, __LINE__, #condition)
#define MUST_BE(call, wanted) procs_is((call), (wanted), __FILE__, __LINE__, #call)
void procs_check(bool ok, const char *file, int line, const char *text);
void procs_is(long got, long wanted, const char *file, int line, const char *text);

#endif
