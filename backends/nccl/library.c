/* SPDX-License-Identifier: Apache-2.0
 *
 * Finds libraries and their functions, and reports what is missing.
 */
#include "library.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum need { MUST, MAY };

struct symbol {
    enum need need;
    const char *name;
    size_t offset; /* of its pointer in the api struct */
};

#define CUDA_ROW(need, result, name, parameters) {need, #name, offsetof(struct cuda_api, name)},
#define NCCL_ROW(need, result, name, parameters) {need, #name, offsetof(struct nccl_api, name)},
#define NVML_ROW(need, result, name, parameters) {need, #name, offsetof(struct nvml_api, name)},
static const struct symbol cuda_symbols[] = {CUDA_FUNCTIONS(CUDA_ROW){MAY, NULL, 0}};
static const struct symbol nccl_symbols[] = {NCCL_FUNCTIONS(NCCL_ROW){MAY, NULL, 0}};
static const struct symbol nvml_symbols[] = {NVML_FUNCTIONS(NVML_ROW){MAY, NULL, 0}};

struct library {
    const char *what, *variable;
    const char *const *names; /* in the order in which they are tried */
    const struct symbol *symbols;
};

static const char *const cuda_names[] = {"libcudart.so.13",
                                         "libcudart.so.12",
                                         "libcudart.so.11.0",
                                         "libcudart.so",
                                         "/usr/local/cuda/lib64/libcudart.so",
                                         NULL};
static const char *const nccl_names[] = {"libnccl.so.2", "libnccl.so",
                                         "/usr/local/cuda/lib64/libnccl.so.2", NULL};
static const char *const nvml_names[] = {"libnvidia-ml.so.1", NULL};

static const struct library cuda_library = {"the CUDA runtime", "COLLRUN_LIBCUDART", cuda_names,
                                            cuda_symbols};
static const struct library nccl_library = {"NCCL", "COLLRUN_LIBNCCL", nccl_names, nccl_symbols};
static const struct library nvml_library = {"NVML", "COLLRUN_LIBNVML", nvml_names, nvml_symbols};

/* Opens the first of the library's files that exists, and sets *file to its name. NULL: none
 * exists, or one exists and cannot be loaded; the reason is in `why`. */
static void *library_open(const struct library *l, const char **file, char *why, size_t len)
{
    const char *named = getenv(l->variable);
    if (named && *named) {
        void *object = dlopen(*file = named, RTLD_NOW | RTLD_LOCAL);
        if (!object)
            snprintf(why, len, "%s=%s: %s", l->variable, named, dlerror());
        return object;
    }
    for (const char *const *name = l->names; *name; name++) {
        void *object = dlopen(*file = *name, RTLD_NOW | RTLD_LOCAL);
        if (object)
            return object;
        const char *error = dlerror();
        if (!strstr(error, "cannot open shared object file")) {
            snprintf(why, len, "%s cannot be loaded: %s", l->what, error);
            return NULL;
        }
    }
    snprintf(why, len, "%s (%s) not found; set LD_LIBRARY_PATH or %s to where it is", l->names[0],
             l->what, l->variable);
    return NULL;
}

static int library_load(const struct library *l, void *api, char *why, size_t len)
{
    const char *file;
    void *object = library_open(l, &file, why, len);
    if (!object)
        return -1;
    for (const struct symbol *s = l->symbols; s->name; s++) {
        void *address = dlsym(object, s->name);
        if (!address && s->need == MUST) {
            snprintf(why, len, "%s is too old, or is not %s: it lacks %s", file, l->what, s->name);
            return -1;
        }
        memcpy((char *)api + s->offset, &address, sizeof address);
    }
    return 0;
}

/* The runtime can be loaded and called on machines without a driver. */
static int library_find_devices(struct libraries *l, char *why, size_t len)
{
    const struct cuda_api *cuda = &l->cuda;
    cuda->cudaRuntimeGetVersion(&l->cuda_version);
    if (cuda->cudaDriverGetVersion(&l->driver_version) != cudaSuccess || l->driver_version == 0) {
        snprintf(why, len, "no NVIDIA driver (libcuda.so.1 is not installed or not loaded)");
        return -1;
    }
    cudaError_t error = cuda->cudaGetDeviceCount(&l->device_count);
    if (error == cudaErrorInsufficientDriver)
        snprintf(why, len, "the NVIDIA driver is too old for CUDA %d.%d: it supports CUDA %d.%d",
                 l->cuda_version / 1000, l->cuda_version % 1000 / 10, l->driver_version / 1000,
                 l->driver_version % 1000 / 10);
    else if (error == cudaErrorNoDevice || (error == cudaSuccess && l->device_count == 0))
        snprintf(why, len, "the NVIDIA driver finds no GPU%s",
                 getenv("CUDA_VISIBLE_DEVICES") ? " among CUDA_VISIBLE_DEVICES" : "");
    else if (error != cudaSuccess)
        snprintf(why, len, "the CUDA runtime cannot count the GPUs: %s",
                 cuda->cudaGetErrorString(error));
    return error == cudaSuccess && l->device_count > 0 ? 0 : -1;
}

int library_load_cuda(struct cuda_api *out, char *why, size_t len)
{
    return library_load(&cuda_library, out, why, len);
}

int library_load_nvml(struct nvml_api *out, char *why, size_t len)
{
    return library_load(&nvml_library, out, why, len);
}

int libraries_load(struct libraries *out, char *why, size_t len)
{
    char ignored[256];
    *out = (struct libraries){0};
    if (library_load(&cuda_library, &out->cuda, why, len) != 0 ||
        library_load(&nccl_library, &out->nccl, why, len) != 0 ||
        library_find_devices(out, why, len) != 0)
        return -1;
    out->nccl.ncclGetVersion(&out->nccl_version);
    out->has_nvml = library_load(&nvml_library, &out->nvml, ignored, sizeof ignored) == 0;
    return 0;
}
