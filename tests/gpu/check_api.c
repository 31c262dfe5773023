/* SPDX-License-Identifier: Apache-2.0
 *
 * Compares the declarations of CUDA, NCCL and NVML in the nccl backend with the real
 * headers, at compile time: the type of every function, every constant, every struct member. The
 * object file is empty. tests/e2e/test_gpu_api.sh compiles it where the headers are installed; that
 * of NVML is in a separate package, and may be missing.
 */
#define CUDA_API_IS_REAL
#include <cuda_runtime_api.h>
#include <nccl.h>
#if __has_include(<nvml.h>)
#define NVML_API_IS_REAL
#include <nvml.h>
#endif

#include "backends/nccl/nccl_api.h"

#define SAME_VALUE(name, value) _Static_assert((int)(name) == (value), #name);
CUDA_CONSTANTS(SAME_VALUE)
CUDA_COPY_KINDS(SAME_VALUE)
CUDA_CAPTURE_STATUSES(SAME_VALUE)
CUDA_CAPTURE_MODES(SAME_VALUE)
NCCL_CONSTANTS(SAME_VALUE)

#define SAME_TYPE(need, result, name, parameters)                                                  \
    _Static_assert(_Generic(&name, result(*) parameters : 1, default : 0), #name);
CUDA_FUNCTIONS(SAME_TYPE)
NCCL_FUNCTIONS(SAME_TYPE)

#define SAME_MEMBER(type, name)                                                                    \
    _Static_assert(offsetof(struct nccl_config, name) == offsetof(ncclConfig_t, name), #name);     \
    _Static_assert(_Generic(((ncclConfig_t *)0)->name, type : 1, default : 0), #name);
NCCL_CONFIG_MEMBERS(SAME_MEMBER)
_Static_assert(sizeof(struct nccl_config) <= sizeof(ncclConfig_t),
               "NCCL lacks some of the members");

_Static_assert(sizeof(enum cudaMemoryType) == sizeof(int), "cudaMemoryType");
_Static_assert(offsetof(struct cuda_pointer, type) == offsetof(struct cudaPointerAttributes, type),
               "type");
_Static_assert(offsetof(struct cuda_pointer, device) ==
                   offsetof(struct cudaPointerAttributes, device),
               "device");
_Static_assert(sizeof(struct cuda_pointer) >= sizeof(struct cudaPointerAttributes),
               "struct cuda_pointer is too small");

_Static_assert(sizeof(cudaError_t) == sizeof(int) && sizeof(ncclResult_t) == sizeof(int) &&
                   sizeof(ncclDataType_t) == sizeof(int) && sizeof(ncclRedOp_t) == sizeof(int) &&
                   sizeof(enum cudaMemcpyKind) == sizeof(int) &&
                   sizeof(enum cudaStreamCaptureStatus) == sizeof(int) &&
                   sizeof(enum cudaStreamCaptureMode) == sizeof(int),
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
               "the members of an NVML event");
#endif
