/* SPDX-License-Identifier: Apache-2.0
 *
 * The exports of the stand-in for libnvidia-ml.so.1, written from NVIDIA's documentation of
 * NVML.
 */
#ifndef FAKE_NVML_ABI_H
#define FAKE_NVML_ABI_H

struct nvmlDevice_st;
struct nvmlEventSet_st;

enum {
    NVML_SUCCESS = 0,
    NVML_ERROR_UNINITIALIZED = 1,
    NVML_ERROR_INVALID_ARGUMENT = 2,
    NVML_ERROR_NOT_FOUND = 6,
    NVML_ERROR_INSUFFICIENT_SIZE = 7,
    NVML_ERROR_DRIVER_NOT_LOADED = 9,
    NVML_ERROR_TIMEOUT = 10,
    NVML_ERROR_UNKNOWN = 999
};

#define nvmlEventTypeXidCriticalError 0x8ULL

struct nvmlPciInfo {
    char busIdLegacy[16];
    unsigned domain, bus, device, pciDeviceId, pciSubSystemId;
    char busId[32];
};

struct nvmlEventData {
    struct nvmlDevice_st *device;
    unsigned long long eventType, eventData;
    unsigned gpuInstanceId, computeInstanceId;
};

struct nvmlMemory {
    unsigned long long total, free, used;
};

#pragma GCC visibility push(default)

int nvmlInit_v2(void);
int nvmlShutdown(void);
const char *nvmlErrorString(int code);
int nvmlSystemGetDriverVersion(char *version, unsigned len);
int nvmlDeviceGetCount_v2(unsigned *count);
int nvmlDeviceGetHandleByIndex_v2(unsigned index, struct nvmlDevice_st **device);
int nvmlDeviceGetHandleByUUID(const char *uuid, struct nvmlDevice_st **device);
int nvmlDeviceGetHandleByPciBusId_v2(const char *id, struct nvmlDevice_st **device);
int nvmlDeviceGetIndex(struct nvmlDevice_st *device, unsigned *index);
int nvmlDeviceGetUUID(struct nvmlDevice_st *device, char *uuid, unsigned len);
int nvmlDeviceGetName(struct nvmlDevice_st *device, char *name, unsigned len);
int nvmlDeviceGetPciInfo_v3(struct nvmlDevice_st *device, struct nvmlPciInfo *pci);
int nvmlDeviceGetMemoryInfo(struct nvmlDevice_st *device, struct nvmlMemory *memory);
int nvmlDeviceGetCpuAffinity(struct nvmlDevice_st *device, unsigned words, unsigned long *set);
int nvmlDeviceGetSupportedEventTypes(struct nvmlDevice_st *device, unsigned long long *types);
int nvmlDeviceRegisterEvents(struct nvmlDevice_st *device, unsigned long long types,
                             struct nvmlEventSet_st *set);
int nvmlEventSetCreate(struct nvmlEventSet_st **set);
int nvmlEventSetWait_v2(struct nvmlEventSet_st *set, struct nvmlEventData *data, unsigned ms);
int nvmlEventSetFree(struct nvmlEventSet_st *set);

#pragma GCC visibility pop
#endif
