/* SPDX-License-Identifier: Apache-2.0
 *
 * Holds what the nccl backend and the engine declare of CUDA, NCCL and NVML against the real
 * headers, at compile time: every function's type, every constant, every member of the structs.
 * Compiles to nothing. tests/e2e/test_gpu_api.sh does it where the headers are; NVML's is a
 * package of its own, and may be missing.
 */
#define CUDA_API_IS_REAL
#include <cuda_runtime_api.h>
#include <nccl.h>
#if __has_include(<nvml.h>)
#define NVML_API_IS_REAL
#include <nvml.h>
#endif

#include "backends/nccl/nccl_api.h"
#include "engine/gpu_api.h"

#define SAME_VALUE(name, value) _Static_assert((int)(name) == (value), #name);
CUDA_CONSTANTS(SAME_VALUE)
CUDA_COPY_KINDS(SAME_VALUE)
NCCL_CONSTANTS(SAME_VALUE)
GPU_CONSTANTS(SAME_VALUE)

#define SAME_TYPE(need, result, name, parameters)                                                  \
    _Static_assert(_Generic(&name, result(*) parameters : 1, default : 0), #name);
CUDA_FUNCTIONS(SAME_TYPE)
NCCL_FUNCTIONS(SAME_TYPE)

#define SAME_GPU_TYPE(result, name, parameters) SAME_TYPE(MUST, result, name, parameters)
GPU_FUNCTIONS(SAME_GPU_TYPE)

#define SAME_MEMBER(type, name)                                                                    \
    _Static_assert(offsetof(struct nccl_config, name) == offsetof(ncclConfig_t, name), #name);     \
    _Static_assert(_Generic(((ncclConfig_t *)0)->name, type : 1, default : 0), #name);
NCCL_CONFIG_MEMBERS(SAME_MEMBER)
_Static_assert(sizeof(struct nccl_config) <= sizeof(ncclConfig_t), "members that NCCL has not");

_Static_assert(sizeof(enum cudaMemoryType) == sizeof(int), "cudaMemoryType");
_Static_assert(offsetof(struct gpu_pointer, type) == offsetof(struct cudaPointerAttributes, type),
               "type");
_Static_assert(offsetof(struct gpu_pointer, device) ==
                   offsetof(struct cudaPointerAttributes, device),
               "device");
_Static_assert(sizeof(struct gpu_pointer) >= sizeof(struct cudaPointerAttributes), "room for it");

_Static_assert(sizeof(cudaError_t) == sizeof(int) && sizeof(ncclResult_t) == sizeof(int) &&
                   sizeof(ncclDataType_t) == sizeof(int) && sizeof(ncclRedOp_t) == sizeof(int) &&
                   sizeof(enum cudaMemcpyKind) == sizeof(int),
               "enums are as wide as the int that stands for them");
_Static_assert(sizeof(ncclUniqueId) == NCCL_UNIQUE_ID_BYTES, "the id");

#ifdef NVML_API_IS_REAL
#include "backends/nccl/nvml_api.h"
NVML_FUNCTIONS(SAME_TYPE)
_Static_assert(NVML_SUCCESS == 0 && NVML_ERROR_TIMEOUT == 10 &&
                   NVML_EVENT_XID_CRITICAL == nvmlEventTypeXidCriticalError,
               "NVML's constants");
_Static_assert(offsetof(nvmlEventData_t, eventType) == sizeof(void *) &&
                   offsetof(nvmlEventData_t, eventData) == sizeof(void *) + 8 &&
                   sizeof(nvmlReturn_t) == sizeof(int),
               "what NVML tells of an event");
#endif
