/* SPDX-License-Identifier: Apache-2.0
 *
 * A CUDA runtime and an NCCL in one, whose functions return at once and do nothing: on them, the
 * time of a call through collrun is what collrun itself adds.
 */
#include <stddef.h>
#include <stdlib.h>

#define NOTHING(name)                                                                              \
    int name(void);                                                                                \
    int name(void)                                                                                 \
    {                                                                                              \
        return 0;                                                                                  \
    }
#define HANDLE(name)                                                                               \
    int name(void **out);                                                                          \
    int name(void **out)                                                                           \
    {                                                                                              \
        static char handle;                                                                        \
        *out = &handle;                                                                            \
        return 0;                                                                                  \
    }
#define NUMBER(name, value)                                                                        \
    int name(int *out);                                                                            \
    int name(int *out)                                                                             \
    {                                                                                              \
        *out = (value);                                                                            \
        return 0;                                                                                  \
    }
#define NUMBER_OF(name, value) /* its second parameter */                                          \
    int name(void *of, int *out);                                                                  \
    int name(void *of, int *out)                                                                   \
    {                                                                                              \
        (void)of;                                                                                  \
        *out = (value);                                                                            \
        return 0;                                                                                  \
    }
#define MEMORY(name)                                                                               \
    int name(void **out, size_t len);                                                              \
    int name(void **out, size_t len)                                                               \
    {                                                                                              \
        *out = malloc(len);                                                                        \
        return *out ? 0 : 2;                                                                       \
    }
#define WORDS(name)                                                                                \
    const char *name(void);                                                                        \
    const char *name(void)                                                                         \
    {                                                                                              \
        return "";                                                                                 \
    }

NUMBER(cudaRuntimeGetVersion, 13000)
NUMBER(cudaDriverGetVersion, 13000)
NUMBER(cudaGetDeviceCount, 1)
NUMBER(cudaGetDevice, 0)
WORDS(cudaGetErrorString)
NOTHING(cudaGetLastError)
NOTHING(cudaSetDevice)
NOTHING(cudaDeviceSynchronize)
NOTHING(cudaDeviceGetPCIBusId)
NOTHING(cudaDeviceGetStreamPriorityRange)
HANDLE(cudaStreamCreateWithPriority)
HANDLE(cudaStreamCreateWithFlags)
NOTHING(cudaStreamDestroy)
NUMBER_OF(cudaStreamIsCapturing, 0)
NOTHING(cudaThreadExchangeStreamCaptureMode)
NOTHING(cudaStreamWaitEvent)
HANDLE(cudaEventCreateWithFlags)
NOTHING(cudaEventRecord)
NOTHING(cudaEventQuery)
NOTHING(cudaStreamQuery)
NOTHING(cudaEventDestroy)
MEMORY(cudaMalloc)
MEMORY(cudaHostAlloc)
NOTHING(cudaFree)
NOTHING(cudaFreeHost)
NOTHING(cudaMemcpyAsync)
NOTHING(cudaMemsetAsync)
NOTHING(cudaLaunchHostFunc)
NUMBER(cudaPointerGetAttributes, 2) /* its first member: memory of a GPU */

NUMBER(ncclGetVersion, 22809)
WORDS(ncclGetErrorString)
NOTHING(ncclGetUniqueId)
HANDLE(ncclCommInitRankConfig)
int ncclCommGetAsyncError(void *comm, int *error);
int ncclCommGetAsyncError(void *comm, int *error)
{
    *error = comm == NULL;
    return 0;
}
NOTHING(ncclCommFinalize)
NOTHING(ncclCommDestroy)
NOTHING(ncclCommAbort)
NOTHING(ncclGroupStart)
NOTHING(ncclGroupEnd)
NOTHING(ncclAllReduce)
NOTHING(ncclReduce)
NOTHING(ncclBroadcast)
NOTHING(ncclAllGather)
NOTHING(ncclReduceScatter)
NOTHING(ncclSend)
NOTHING(ncclRecv)
