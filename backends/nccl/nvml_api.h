/* SPDX-License-Identifier: Apache-2.0
 *
 * The part of NVML, the driver's management library, that the backend uses: the GPUs of the host,
 * and Xid events, the reasons why a GPU stopped. NVML may be missing. As in cuda_api.h, the list is
 * complete.
 */
#ifndef NCCL_NVML_API_H
#define NCCL_NVML_API_H

enum { NVML_EVENT_XID_CRITICAL = 0x8 }; /* nvmlEventTypeXidCriticalError */

#ifndef NVML_API_IS_REAL  /* the real header declares these */
typedef int nvmlReturn_t; /* an enum there, of the same size */
enum { NVML_SUCCESS = 0, NVML_ERROR_TIMEOUT = 10 };

typedef struct nvmlDevice_st *nvmlDevice_t;
typedef struct nvmlEventSet_st *nvmlEventSet_t;
typedef struct nvmlEventData_st { /* nvmlEventData_t of nvmlEventSetWait_v2 */
    nvmlDevice_t device;
    unsigned long long eventType, eventData; /* eventData: the Xid */
    unsigned int gpuInstanceId, computeInstanceId;
} nvmlEventData_t;
#endif

#define NVML_FUNCTIONS(X)                                                                          \
    X(MUST, nvmlReturn_t, nvmlInit_v2, (void))                                                     \
    X(MUST, nvmlReturn_t, nvmlShutdown, (void))                                                    \
    X(MUST, const char *, nvmlErrorString, (nvmlReturn_t result))                                  \
    X(MUST, nvmlReturn_t, nvmlDeviceGetCount_v2, (unsigned int *count))                            \
    X(MUST, nvmlReturn_t, nvmlDeviceGetHandleByIndex_v2,                                           \
      (unsigned int index, nvmlDevice_t *device))                                                  \
    X(MUST, nvmlReturn_t, nvmlDeviceGetUUID, (nvmlDevice_t device, char *out, unsigned int len))   \
    X(MUST, nvmlReturn_t, nvmlDeviceGetName, (nvmlDevice_t device, char *out, unsigned int len))   \
    X(MUST, nvmlReturn_t, nvmlDeviceGetCpuAffinity,                                                \
      (nvmlDevice_t device, unsigned int words, unsigned long *set))                               \
    X(MUST, nvmlReturn_t, nvmlDeviceGetHandleByPciBusId_v2,                                        \
      (const char *id, nvmlDevice_t *device))                                                      \
    X(MUST, nvmlReturn_t, nvmlEventSetCreate, (nvmlEventSet_t * set))                              \
    X(MUST, nvmlReturn_t, nvmlDeviceRegisterEvents,                                                \
      (nvmlDevice_t device, unsigned long long types, nvmlEventSet_t set))                         \
    X(MUST, nvmlReturn_t, nvmlEventSetWait_v2,                                                     \
      (nvmlEventSet_t set, nvmlEventData_t * data, unsigned int timeout_ms))                       \
    X(MUST, nvmlReturn_t, nvmlEventSetFree, (nvmlEventSet_t set))

#define NVML_MEMBER(need, result, name, parameters) result(*name) parameters;
struct nvml_api {
    NVML_FUNCTIONS(NVML_MEMBER)
};
#undef NVML_MEMBER

#endif
