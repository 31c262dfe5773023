/* SPDX-License-Identifier: Apache-2.0
 *
 * NVML is queried and shut down again; the library stays loaded.
 */
#include "devices.h"

#include "library.h"

#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CPU_WORDS = 128 }; /* 8192 cpus */

/* ---- NVML ---- */

/* A set of CPUs as text: "0-3,8"; "" if that is too long. */
static void devices_print_cpus(const unsigned long *set, char *out, size_t size)
{
    const unsigned bits = 8 * sizeof *set, end = CPU_WORDS * bits;
    size_t len = 0;
    out[0] = '\0';
    for (unsigned cpu = 0; cpu < end && len < size; cpu++) {
        unsigned last = cpu;
        if (!(set[cpu / bits] >> cpu % bits & 1))
            continue;
        while (last + 1 < end && set[(last + 1) / bits] >> (last + 1) % bits & 1)
            last++;
        int n = last > cpu ? snprintf(out + len, size - len, "%s%u-%u", len ? "," : "", cpu, last)
                           : snprintf(out + len, size - len, "%s%u", len ? "," : "", cpu);
        len += (size_t)n;
        cpu = last;
    }
    if (len >= size)
        out[0] = '\0';
}

static bool devices_describe(const struct nvml_api *nvml, unsigned index,
                             struct collrun_device *out)
{
    unsigned long near[CPU_WORDS] = {0};
    nvmlDevice_t gpu;
    *out = (struct collrun_device){0};
    if (nvml->nvmlDeviceGetHandleByIndex_v2(index, &gpu) != NVML_SUCCESS ||
        nvml->nvmlDeviceGetUUID(gpu, out->id, sizeof out->id) != NVML_SUCCESS)
        return false;
    if (nvml->nvmlDeviceGetName(gpu, out->model, sizeof out->model) != NVML_SUCCESS)
        out->model[0] = '\0';
    if (nvml->nvmlDeviceGetCpuAffinity(gpu, CPU_WORDS, near) == NVML_SUCCESS)
        devices_print_cpus(near, out->cpus, sizeof out->cpus);
    return true;
}

/* The number of GPUs; -1 with the reason if NVML cannot be used. */
static int devices_from_nvml(struct collrun_device *out, uint32_t max, char *why, size_t len)
{
    struct nvml_api nvml;
    unsigned n = 0;
    int found = 0;
    if (library_load_nvml(&nvml, why, len) != 0)
        return -1;
    nvmlReturn_t code = nvml.nvmlInit_v2();
    if (code == NVML_SUCCESS) {
        code = nvml.nvmlDeviceGetCount_v2(&n);
        for (unsigned i = 0; code == NVML_SUCCESS && i < n; i++) {
            struct collrun_device gpu;
            if (devices_describe(&nvml, i, (uint32_t)found < max ? &out[found] : &gpu))
                found++;
        }
        nvml.nvmlShutdown();
    }
    snprintf(why, len, code == NVML_SUCCESS ? "NVML lists none" : "NVML: %s",
             nvml.nvmlErrorString(code));
    return code == NVML_SUCCESS ? found : -1;
}

/* ---- the kernel driver ---- */

/* The rest of the line that starts with `key`, without blanks around it. */
static void devices_read_field(FILE *f, const char *key, char *out, size_t size)
{
    char line[256];
    rewind(f);
    out[0] = '\0';
    while (fgets(line, sizeof line, f)) {
        if (strncmp(line, key, strlen(key)) != 0)
            continue;
        const char *value = line + strlen(key);
        value += strspn(value, " \t:");
        snprintf(out, size, "%.*s", (int)strcspn(value, "\n"), value);
        return;
    }
}

static void devices_read_cpus(const char *sys, const char *bus_id, char *out, size_t size)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/bus/pci/devices/%s/local_cpulist", sys, bus_id);
    FILE *f = fopen(path, "re");
    if (!f || !fgets(out, (int)size, f))
        out[0] = '\0';
    if (f)
        fclose(f);
    out[strcspn(out, "\n")] = '\0';
}

static int devices_is_bus_id(const struct dirent *entry)
{
    return strchr(entry->d_name, ':') != NULL;
}

static int devices_from_proc(const struct devices_folders *folders, struct collrun_device *out,
                             uint32_t max)
{
    char path[PATH_MAX];
    struct dirent **entries = NULL;
    snprintf(path, sizeof path, "%s/gpus", folders->proc);
    int n = scandir(path, &entries, devices_is_bus_id, alphasort), found = 0;
    for (int i = 0; i < n; i++) {
        snprintf(path, sizeof path, "%s/gpus/%s/information", folders->proc, entries[i]->d_name);
        FILE *f = fopen(path, "re");
        if (f && (uint32_t)found < max) {
            struct collrun_device *gpu = &out[found];
            devices_read_field(f, "GPU UUID", gpu->id, sizeof gpu->id);
            devices_read_field(f, "Model", gpu->model, sizeof gpu->model);
            devices_read_cpus(folders->sys, entries[i]->d_name, gpu->cpus, sizeof gpu->cpus);
        }
        found += f != NULL;
        if (f)
            fclose(f);
        free(entries[i]);
    }
    free(entries);
    return found;
}

int devices_find(const struct devices_folders *folders, struct collrun_device *out, uint32_t max,
                 char *why, size_t len)
{
    int n = devices_from_nvml(out, max, why, len);
    if (n < 0)
        n = devices_from_proc(folders, out, max);
    if (n > 0)
        why[0] = '\0';
    return n;
}

int nccl_devices(const struct collrun_services *services, struct collrun_device *out, uint32_t max,
                 char *why, size_t len)
{
    const struct devices_folders folders = {"/proc/driver/nvidia", "/sys"};
    (void)services;
    return devices_find(&folders, out, max, why, len);
}
