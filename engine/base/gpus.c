/* SPDX-License-Identifier: Apache-2.0
 *
 * NVML is asked for what is needed here and shut down again; it stays loaded. Its own numbering is
 * by PCI address, as the kernel's folder names are.
 */
#include "base/gpus.h"

#include <dirent.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { GPUS_MAX = 1024, CPU_WORDS = 128 }; /* 8192 cpus */

/* ---- NVML ---- */

struct nvml {
    int (*init)(void);
    int (*shutdown)(void);
    int (*count)(unsigned *n);
    int (*handle)(unsigned index, void **device);
    int (*uuid)(void *device, char *out, unsigned len);
    int (*name)(void *device, char *out, unsigned len);
    int (*affinity)(void *device, unsigned words, unsigned long *set);
    const char *(*words)(int code);
};

/* False, and why, if it cannot be used. */
static bool nvml_load(struct nvml *nvml, struct arena *arena, const char **why)
{
    const char *file = getenv("COLLRUN_LIBNVML");
    void *library = dlopen(file && *file ? file : "libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        *why = arena_strdup(arena, dlerror());
        return false;
    }
    const struct {
        void *at;
        const char *name;
    } functions[] = {
        {&nvml->init, "nvmlInit_v2"},
        {&nvml->shutdown, "nvmlShutdown"},
        {&nvml->count, "nvmlDeviceGetCount_v2"},
        {&nvml->handle, "nvmlDeviceGetHandleByIndex_v2"},
        {&nvml->uuid, "nvmlDeviceGetUUID"},
        {&nvml->name, "nvmlDeviceGetName"},
        {&nvml->affinity, "nvmlDeviceGetCpuAffinity"},
        {&nvml->words, "nvmlErrorString"},
    };
    for (size_t i = 0; i < sizeof functions / sizeof functions[0]; i++) {
        void *address = dlsym(library, functions[i].name);
        if (!address) {
            *why = arena_printf(arena, "NVML lacks %s", functions[i].name);
            return false;
        }
        memcpy(functions[i].at, &address, sizeof address);
    }
    return true;
}

/* "0-3,8" of a set of cpus. */
static const char *list_of(const unsigned long *set, struct arena *arena)
{
    const unsigned bits = 8 * sizeof *set, end = CPU_WORDS * bits;
    const char *list = "";
    for (unsigned cpu = 0; list && cpu < end; cpu++) {
        unsigned last = cpu;
        if (!(set[cpu / bits] >> cpu % bits & 1))
            continue;
        while (last + 1 < end && set[(last + 1) / bits] >> (last + 1) % bits & 1)
            last++;
        const char *comma = *list ? "," : "";
        list = last > cpu ? arena_printf(arena, "%s%s%u-%u", list, comma, cpu, last)
                          : arena_printf(arena, "%s%s%u", list, comma, cpu);
        cpu = last;
    }
    return list;
}

static bool nvml_gpu(const struct nvml *nvml, unsigned index, struct arena *arena, struct gpu *out)
{
    unsigned long near[CPU_WORDS] = {0};
    char uuid[96] = "", name[96] = "";
    void *device;
    if (nvml->handle(index, &device) || nvml->uuid(device, uuid, sizeof uuid))
        return false;
    if (nvml->name(device, name, sizeof name))
        name[0] = '\0';
    bool known = nvml->affinity(device, CPU_WORDS, near) == 0;
    *out = (struct gpu){.uuid = arena_strdup(arena, uuid),
                        .name = arena_strdup(arena, name),
                        .cpus = known ? list_of(near, arena) : ""};
    return true;
}

/* NULL, or why not. */
static const char *from_nvml(struct gpus *out, struct arena *arena)
{
    struct nvml nvml;
    unsigned n = 0;
    const char *why;
    if (!nvml_load(&nvml, arena, &why))
        return why;
    int code = nvml.init();
    if (code)
        return arena_printf(arena, "NVML: %s", nvml.words(code));
    code = nvml.count(&n);
    out->items = arena_calloc(arena, n < GPUS_MAX ? n : GPUS_MAX, sizeof *out->items);
    for (unsigned i = 0; out->items && !code && i < n && i < GPUS_MAX; i++)
        out->n += nvml_gpu(&nvml, i, arena, &out->items[out->n]);
    nvml.shutdown();
    return code ? arena_printf(arena, "NVML: %s", nvml.words(code)) : NULL;
}

/* ---- the kernel driver ---- */

/* The rest of the line that starts with `key`, without blanks around it. */
static const char *field(FILE *f, const char *key, struct arena *arena)
{
    char line[256];
    rewind(f);
    while (fgets(line, sizeof line, f)) {
        if (strncmp(line, key, strlen(key)) != 0)
            continue;
        char *value = line + strlen(key);
        value += strspn(value, " \t:");
        value[strcspn(value, "\n")] = '\0';
        return arena_strdup(arena, value);
    }
    return "";
}

static const char *local_cpus(const char *sys, const char *bus_id, struct arena *arena)
{
    char list[1024] = "";
    const char *path = arena_printf(arena, "%s/bus/pci/devices/%s/local_cpulist", sys, bus_id);
    FILE *f = path ? fopen(path, "re") : NULL;
    if (f && !fgets(list, sizeof list, f))
        list[0] = '\0';
    if (f)
        fclose(f);
    list[strcspn(list, "\n")] = '\0';
    return arena_strdup(arena, list);
}

static int is_bus_id(const struct dirent *entry)
{
    return strchr(entry->d_name, ':') != NULL;
}

static void from_proc(struct gpus *out, const char *proc, const char *sys, struct arena *arena)
{
    struct dirent **entries = NULL;
    const char *folder = arena_printf(arena, "%s/gpus", proc);
    int n = folder ? scandir(folder, &entries, is_bus_id, alphasort) : -1;
    out->items = arena_calloc(arena, n > 0 ? (size_t)n : 0, sizeof *out->items);
    for (int i = 0; i < n; i++) {
        const char *path = arena_printf(arena, "%s/%s/information", folder, entries[i]->d_name);
        FILE *f = path && out->items ? fopen(path, "re") : NULL;
        if (f) {
            out->items[out->n++] = (struct gpu){.uuid = field(f, "GPU UUID", arena),
                                                .name = field(f, "Model", arena),
                                                .cpus = local_cpus(sys, entries[i]->d_name, arena)};
            fclose(f);
        }
        free(entries[i]);
    }
    free(entries);
}

int gpus_find(struct gpus *out, const char *proc, const char *sys, struct arena *arena,
              struct diag *d)
{
    *out = (struct gpus){0};
    const char *why = from_nvml(out, arena);
    if (why) {
        out->n = 0;
        from_proc(out, proc, sys, arena);
    }
    out->reason = out->n ? "" : why ? why : "NVML lists none";
    return arena_failed(arena) ? diag_set(d, COLLRUN_ERR_NO_MEMORY, "out of memory") : 0;
}

/* ---- pools ---- */

/* The GPU that an entry of a mask names: its number, or as much of its UUID as no other has. NULL:
 * none, and why. */
static const struct gpu *named(const struct gpus *all, const char *entry, size_t len,
                               const char **why)
{
    char *end;
    const struct gpu *found = NULL;
    unsigned long number = strtoul(entry, &end, 10);
    *why = strncasecmp(entry, "MIG-", 4) ? "names none"
                                         : "is part of a GPU, and collrun hands out whole ones";
    if (len && end == entry + len)
        return number < all->n ? &all->items[number] : NULL;
    for (uint32_t i = 0; len > 4 && i < all->n; i++) {
        if (strncasecmp(all->items[i].uuid, entry, len) != 0)
            continue;
        if (found) {
            *why = "names several";
            return NULL;
        }
        found = &all->items[i];
    }
    return found;
}

static bool has(const struct gpus *pool, const struct gpu *gpu)
{
    for (uint32_t i = 0; i < pool->n; i++)
        if (!strcmp(pool->items[i].uuid, gpu->uuid))
            return true;
    return false;
}

/* "CUDA_VISIBLE_DEVICES=0,GPU-dead leaves 1 of 8: "GPU-dead" names none" */
static const char *what_is_left(uint32_t left, uint32_t n, const char *mask, const char *end,
                                struct arena *arena)
{
    const char *number = left ? arena_printf(arena, "%u", left) : "none";
    return arena_printf(arena, "CUDA_VISIBLE_DEVICES=%s leaves %s of %u%s", mask, number, n, end);
}

int gpus_pool(const struct gpus *all, const char *mask, struct arena *arena, struct gpus *out,
              struct diag *d)
{
    const char *end = "", *why;
    *out = *all;
    if (!mask)
        return 0;
    out->n = 0;
    out->items = arena_calloc(arena, all->n, sizeof *out->items);
    if (!out->items)
        return diag_set(d, COLLRUN_ERR_NO_MEMORY, "out of memory");
    for (const char *entry = mask; end && !*end && *entry; entry += strspn(entry, " ,")) {
        entry += strspn(entry, " ");
        size_t len = strcspn(entry, ", ");
        const struct gpu *gpu = named(all, entry, len, &why);
        if (gpu && has(out, gpu)) {
            out->n = 0;
            gpu = NULL;
            why = "comes twice, and CUDA then shows none";
        }
        if (gpu)
            out->items[out->n++] = *gpu;
        else
            end = arena_printf(arena, ": \"%.*s\" %s", (int)len, entry, why);
        entry += len;
    }
    if (out->n < all->n)
        out->reason = what_is_left(out->n, all->n, mask, end, arena);
    return arena_failed(arena) ? diag_set(d, COLLRUN_ERR_NO_MEMORY, "out of memory") : 0;
}

const char *gpus_text(const struct gpus *gpus, struct arena *arena)
{
    const char *names = "";
    uint32_t kinds = 0;
    if (!gpus->n)
        return arena_printf(arena, "none (%s)", gpus->reason);
    for (uint32_t i = 0; names && i < gpus->n; i++) {
        uint32_t k = 0;
        while (strcmp(gpus->items[k].name, gpus->items[i].name) != 0)
            k++;
        if (k == i)
            names = arena_printf(arena, "%s%s%s", names, kinds++ ? ", " : "", gpus->items[i].name);
    }
    return arena_printf(arena, kinds > 1 ? "%u (%s)" : "%u x %s", gpus->n, names);
}
