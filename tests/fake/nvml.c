/* SPDX-License-Identifier: Apache-2.0
 *
 * A stand-in for libnvidia-ml.so.1: it shows all GPUs of host.h, regardless of
 * CUDA_VISIBLE_DEVICES, as NVML does. The first half of the GPUs is close to the first half of the
 * cpus (FAKE_NVML_NUMA=0: all are close to all). FAKE_NVML_XID=GPU:XID:MS makes a GPU report that
 * Xid once, MS milliseconds after the event set was created.
 */
#include "nvml_abi.h"

#include "host.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>
#include <unistd.h>

struct nvmlDevice_st {
    char unused;
};
struct nvmlEventSet_st {
    double made;
    uint64_t gpus; /* registered for Xids */
    bool reported;
};

static _Atomic int opened;
static struct nvmlDevice_st devices[FAKE_GPUS_MAX];

static int index_of(const struct nvmlDevice_st *device)
{
    return device >= devices && device < devices + fake_gpu_count() ? (int)(device - devices) : -1;
}

/* Checks that precede every call. */
static int enter(const struct nvmlDevice_st *device)
{
    if (!atomic_load(&opened))
        return NVML_ERROR_UNINITIALIZED;
    return index_of(device) < 0 ? NVML_ERROR_INVALID_ARGUMENT : NVML_SUCCESS;
}

int nvmlInit_v2(void)
{
    if (fake_setting("FAKE_CUDA_NO_DRIVER", 0))
        return NVML_ERROR_DRIVER_NOT_LOADED;
    atomic_fetch_add(&opened, 1);
    return NVML_SUCCESS;
}

int nvmlShutdown(void)
{
    if (!atomic_load(&opened))
        return NVML_ERROR_UNINITIALIZED;
    atomic_fetch_sub(&opened, 1);
    return NVML_SUCCESS;
}

const char *nvmlErrorString(int code)
{
    switch (code) {
    case NVML_SUCCESS:
        return "The operation was successful";
    case NVML_ERROR_UNINITIALIZED:
        return "NVML was not first initialized with nvmlInit()";
    case NVML_ERROR_INVALID_ARGUMENT:
        return "A supplied argument is invalid";
    case NVML_ERROR_NOT_FOUND:
        return "A query to find an object was unsuccessful";
    case NVML_ERROR_INSUFFICIENT_SIZE:
        return "An input argument is not large enough";
    case NVML_ERROR_DRIVER_NOT_LOADED:
        return "NVIDIA driver is not loaded";
    case NVML_ERROR_TIMEOUT:
        return "User provided timeout passed";
    default:
        return "An internal driver error occurred";
    }
}

static int give(const char *text, char *out, unsigned len)
{
    if (strlen(text) >= len)
        return NVML_ERROR_INSUFFICIENT_SIZE;
    memcpy(out, text, strlen(text) + 1);
    return NVML_SUCCESS;
}

int nvmlSystemGetDriverVersion(char *version, unsigned len)
{
    return atomic_load(&opened) ? give("580.00 (stand-in)", version, len)
                                : NVML_ERROR_UNINITIALIZED;
}

int nvmlDeviceGetCount_v2(unsigned *count)
{
    if (!atomic_load(&opened))
        return NVML_ERROR_UNINITIALIZED;
    *count = (unsigned)fake_gpu_count();
    return NVML_SUCCESS;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, struct nvmlDevice_st **device)
{
    if (!atomic_load(&opened))
        return NVML_ERROR_UNINITIALIZED;
    if (index >= (unsigned)fake_gpu_count())
        return NVML_ERROR_INVALID_ARGUMENT;
    *device = &devices[index];
    return NVML_SUCCESS;
}

int nvmlDeviceGetHandleByUUID(const char *uuid, struct nvmlDevice_st **device)
{
    char own[64];
    if (!atomic_load(&opened))
        return NVML_ERROR_UNINITIALIZED;
    for (int gpu = 0; gpu < fake_gpu_count(); gpu++) {
        fake_gpu_uuid(gpu, own, sizeof own);
        if (!strcasecmp(own, uuid)) {
            *device = &devices[gpu];
            return NVML_SUCCESS;
        }
    }
    return NVML_ERROR_NOT_FOUND;
}

int nvmlDeviceGetHandleByPciBusId_v2(const char *id, struct nvmlDevice_st **device)
{
    char lengthy[32], brief[32];
    if (!atomic_load(&opened))
        return NVML_ERROR_UNINITIALIZED;
    for (int gpu = 0; gpu < fake_gpu_count(); gpu++) {
        fake_gpu_bus_id(gpu, 8, lengthy, sizeof lengthy);
        fake_gpu_bus_id(gpu, 4, brief, sizeof brief);
        if (!strcasecmp(id, lengthy) || !strcasecmp(id, brief)) {
            *device = &devices[gpu];
            return NVML_SUCCESS;
        }
    }
    return NVML_ERROR_NOT_FOUND;
}

int nvmlDeviceGetIndex(struct nvmlDevice_st *device, unsigned *index)
{
    int code = enter(device);
    if (code == NVML_SUCCESS)
        *index = (unsigned)index_of(device);
    return code;
}

int nvmlDeviceGetUUID(struct nvmlDevice_st *device, char *uuid, unsigned len)
{
    char own[64];
    int code = enter(device);
    if (code != NVML_SUCCESS)
        return code;
    fake_gpu_uuid(index_of(device), own, sizeof own);
    return give(own, uuid, len);
}

int nvmlDeviceGetName(struct nvmlDevice_st *device, char *name, unsigned len)
{
    int code = enter(device);
    return code == NVML_SUCCESS ? give("stand-in GPU", name, len) : code;
}

int nvmlDeviceGetPciInfo_v3(struct nvmlDevice_st *device, struct nvmlPciInfo *pci)
{
    int code = enter(device);
    if (code != NVML_SUCCESS)
        return code;
    *pci = (struct nvmlPciInfo){.bus = 0x10 + (unsigned)index_of(device)};
    fake_gpu_bus_id(index_of(device), 8, pci->busId, sizeof pci->busId);
    fake_gpu_bus_id(index_of(device), 4, pci->busIdLegacy, sizeof pci->busIdLegacy);
    return NVML_SUCCESS;
}

int nvmlDeviceGetMemoryInfo(struct nvmlDevice_st *device, struct nvmlMemory *memory)
{
    int code = enter(device);
    unsigned long long total = (unsigned long long)fake_setting("FAKE_CUDA_MEMORY_MIB", 16384)
                               << 20;
    if (code == NVML_SUCCESS)
        *memory = (struct nvmlMemory){.total = total, .free = total};
    return code;
}

int nvmlDeviceGetCpuAffinity(struct nvmlDevice_st *device, unsigned words, unsigned long *set)
{
    int code = enter(device);
    if (code != NVML_SUCCESS)
        return code;
    long ncpus = sysconf(_SC_NPROCESSORS_CONF), bits = 8 * (long)sizeof *set;
    bool split = ncpus > 1 && fake_setting("FAKE_NVML_NUMA", 1);
    bool upper = index_of(device) >= (fake_gpu_count() + 1) / 2;
    long first = split && upper ? ncpus / 2 : 0, end = split && !upper ? ncpus / 2 : ncpus;
    memset(set, 0, words * sizeof *set);
    for (long cpu = first; cpu < end && cpu < (long)words * bits; cpu++)
        set[cpu / bits] |= 1ul << (cpu % bits);
    return NVML_SUCCESS;
}

/* ---- events ---- */

int nvmlDeviceGetSupportedEventTypes(struct nvmlDevice_st *device, unsigned long long *types)
{
    int code = enter(device);
    if (code == NVML_SUCCESS)
        *types = nvmlEventTypeXidCriticalError;
    return code;
}

int nvmlEventSetCreate(struct nvmlEventSet_st **set)
{
    if (!atomic_load(&opened))
        return NVML_ERROR_UNINITIALIZED;
    struct nvmlEventSet_st *made = calloc(1, sizeof *made);
    if (!made)
        return NVML_ERROR_UNKNOWN;
    made->made = fake_seconds();
    *set = made;
    return NVML_SUCCESS;
}

int nvmlEventSetFree(struct nvmlEventSet_st *set)
{
    free(set);
    return NVML_SUCCESS;
}

int nvmlDeviceRegisterEvents(struct nvmlDevice_st *device, unsigned long long types,
                             struct nvmlEventSet_st *set)
{
    int code = enter(device);
    if (code == NVML_SUCCESS && (!set || types & ~nvmlEventTypeXidCriticalError))
        code = NVML_ERROR_INVALID_ARGUMENT;
    if (code == NVML_SUCCESS && types)
        set->gpus |= UINT64_C(1) << index_of(device);
    return code;
}

int nvmlEventSetWait_v2(struct nvmlEventSet_st *set, struct nvmlEventData *data, unsigned ms)
{
    int gpu = -1;
    unsigned long long xid = 0;
    long after = 0;
    const char *injected = getenv("FAKE_NVML_XID");
    if (!atomic_load(&opened))
        return NVML_ERROR_UNINITIALIZED;
    bool due = injected && !set->reported &&
               sscanf(injected, "%d:%llu:%ld", &gpu, &xid, &after) >= 2 && gpu >= 0 &&
               gpu < fake_gpu_count() && set->gpus >> gpu & 1;
    double wait = (double)ms / 1000;
    double until = due ? set->made + (double)after / 1000 - fake_seconds() : wait;
    bool in_time = due && until <= wait;
    double pause = in_time ? until : wait;
    struct timespec t = {(time_t)pause, (long)((pause - (double)(time_t)pause) * 1e9)};
    if (pause > 0)
        nanosleep(&t, NULL);
    if (!in_time)
        return NVML_ERROR_TIMEOUT;
    set->reported = true;
    *data = (struct nvmlEventData){.device = &devices[gpu],
                                   .eventType = nvmlEventTypeXidCriticalError,
                                   .eventData = xid,
                                   .gpuInstanceId = ~0u,
                                   .computeInstanceId = ~0u};
    return NVML_SUCCESS;
}
